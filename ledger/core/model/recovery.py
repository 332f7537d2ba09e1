"""What is published: one entry a job, and the recovery set that they make up.

The field names are the Avro names of `schemas/recovery_entry` and the JSON keys of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ledger.core.model.facts import (
    NO_REPLACEMENT,
    CheckpointKind,
    CheckpointRetention,
    FailureRule,
    GraphRef,
    IntentDeclared,
    Replacement,
    RestoreBy,
    RestorePoint,
    SavepointPolicy,
    StallPolicy,
    Together,
)
from ledger.core.model.registers import Intent


class JobState(StrEnum):
    """Flink's words where they mean the same; QUARANTINED is ours."""

    UNKNOWN = "UNKNOWN"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    CANCELLING = "CANCELLING"
    SUSPENDED = "SUSPENDED"
    QUARANTINED = "QUARANTINED"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


RECOVERY_SET = frozenset({JobState.CREATED, JobState.RUNNING, JobState.RESTARTING, JobState.FAILING, JobState.CANCELLING})
TERMINAL = frozenset({JobState.FINISHED, JobState.CANCELED, JobState.FAILED})


@dataclass(frozen=True, slots=True)
class WinningIntent:
    """The intent that counts, with its register (`rev`, `id`)."""

    kind: str
    rev: int
    id: str
    attempt: int
    from_: str
    force: bool
    reason: str
    actor: str
    savepoint: bool = False

    @classmethod
    def of(cls, intent: Intent, fact: IntentDeclared) -> WinningIntent:
        return cls(
            str(fact.kind), intent.rev, intent.uuid, fact.attempt, fact.from_, fact.force, fact.reason, fact.actor,
            fact.savepoint,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecoveryEntry:
    """All that a reconciler must know of a job to act on it. Published = fold + {as_of, epoch, due_at, due, stalls_at,
    stalled, savepoint_at, savepoint_due}.

    attempt: the highest attempt known (top), 0 = none. next_attempt: the one to start or to close, 0 = none.
    outcome, outcome_writer: the end of top that counts, "" = no end known.
    known: a running, checkpoint or ended fact of top exists, so the runner did take its start.
    base: the restore point recorded for top (None: from scratch, or no record of it).
    restore_points: what is offered for a start, best first. restore_from_named: a start has a restore point to begin
    from, whether or not one can be offered; then it never begins from scratch.
    restart_delay_s: from the end of top to the next start. due_at: seconds since the epoch by the leader's clock.
    asks: uuids of the savepoints that are wanted and not there yet; a bounded number of them.
    registers: of a terminal job what is left beside results, without the job id; a bounded number of them.
    as_of: everything below this offset of `partition` of ledger.events is folded in it.
    failed_at: when top failed, in seconds since the epoch; None = it did not, or nobody knows, or nothing counts by it.
    failure_rate_interval_s: seconds in which its policy counts failures, 0 = it does not: whether a start is stamped.
    stall_policy: None = nobody watches, or nothing runs by the log. stalls_at: when it counts as stalled unless a new
    checkpoint comes first, in seconds since the epoch by the leader's clock; stalled: that time has come.
    replaces: the job that this one takes over from; replacement: how. inherits: it has no checkpoint of its own yet, so its
    next attempt begins from what that job has; begun: an attempt of it was recorded.
    consistency: the labels of restore_points, in their order, "" = none; () if none has one. together: what the record of
    top says of its region.
    savepoint_policy: None = no periodic savepoints are wanted, or it never ran. next_ask: uuid of the periodic ask that
    comes next, "" = none. savepoint_at: when that is due, in seconds since the epoch by the leader's clock; savepoint_due:
    that time has come. disposals: savepoints that are given up and whose files are to be deleted; a bounded number of them.
    instance: of the runner, which holds the newest attempt that was recorded; "" = none was, or it is not known.
    restore: EXTERNAL: the job restores by itself, so nothing is offered. marker: then the newest checkpoint of its newest
    attempt, which shows how far it is; None = it has none yet.
    """

    job_id: str
    name: str
    namespace: str
    runner: str
    state: JobState
    digest: str
    attempt: int = 0
    next_attempt: int = 0
    outcome: str = ""
    outcome_writer: str = ""
    known: bool = False
    graph: GraphRef | None = None
    base: RestorePoint | None = None
    restore_points: tuple[RestorePoint, ...] = ()
    restore_from_named: bool = False
    restart_delay_s: float = 0.0
    failures: int = 0
    failure_times: tuple[float, ...] = ()
    reason: str = ""
    intent: WinningIntent | None = None
    retiring: bool = False
    slots: int = 1
    priority: int = 0
    region: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    replaces: str | None = None
    checkpoint_retention: CheckpointRetention = CheckpointRetention.DELETE
    registers: tuple[str, ...] = ()
    partition: int = 0
    as_of: int = 0
    epoch: int = 0
    due_at: float | None = None
    due: bool = False
    failed_at: float | None = None
    failure_rate_interval_s: float = 0.0
    failure_rules: tuple[FailureRule, ...] = ()
    stall_policy: StallPolicy | None = None
    stalls_at: float | None = None
    stalled: bool = False
    asks: tuple[str, ...] = ()
    replacement: Replacement = NO_REPLACEMENT
    inherits: bool = False
    begun: bool = False
    consistency: tuple[str, ...] = ()
    together: Together | None = None
    savepoint_policy: SavepointPolicy | None = None
    next_ask: str = ""
    savepoint_at: float | None = None
    savepoint_due: bool = False
    disposals: tuple[RestorePoint, ...] = ()
    instance: str = ""
    restore: RestoreBy = RestoreBy.LEDGER
    marker: RestorePoint | None = None

    @property
    def checkpoints(self) -> tuple[RestorePoint, ...]:
        """Restore points that the job's own attempts made by themselves: no savepoints, none from outside."""
        return tuple(p for p in self.restore_points if p.attempt and p.kind is CheckpointKind.CHECKPOINT)

    @property
    def in_recovery_set(self) -> bool:
        return self.state in RECOVERY_SET and not self.retiring

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def start_key(self) -> tuple[int, float]:
        """What `due_at` is stamped for, once."""
        return self.next_attempt, self.restart_delay_s

    @property
    def progress_key(self) -> tuple[int, tuple[int, int] | None, float]:
        """What `stalls_at` is stamped for, once: a new checkpoint begins anew."""
        newest = next((point.order for point in (self.marker, *self.restore_points) if point is not None), None)
        return self.attempt, newest, self.stall_policy.stalled_after_s if self.stall_policy else 0.0

    @property
    def savepoint_key(self) -> tuple[str, int, float]:
        """What `savepoint_at` is stamped for, once. Without a savepoint the time counts from the attempt's start."""
        first = self.next_ask.startswith("periodic-0-0-")
        interval_s = self.savepoint_policy.interval_s if self.savepoint_policy else 0.0
        return self.next_ask, self.attempt if first else 0, interval_s


def same_meaning(a: RecoveryEntry | None, b: RecoveryEntry | None) -> bool:
    """Whether two entries say the same: as_of and epoch are no difference, or every redelivery would republish."""
    if a is None or b is None:
        return a is b
    return replace(a, as_of=0, epoch=0) == replace(b, as_of=0, epoch=0)


class Entries(dict[str, RecoveryEntry]):
    """job id -> entry of every job that is not retired. `live()` are those to be brought back after a failure."""

    def recovery_set(self) -> dict[str, RecoveryEntry]:
        return {job_id: entry for job_id, entry in self.items() if entry.in_recovery_set}


@dataclass(frozen=True, slots=True)
class Difference:
    """One job on which two recovery sets disagree."""

    job_id: str
    published: RecoveryEntry | None
    folded: RecoveryEntry | None


def diff(published: Mapping[str, RecoveryEntry], folded: Mapping[str, RecoveryEntry]) -> list[Difference]:
    """Jobs whose entries differ in meaning, by id. The stamps of the leader (due, stalled and when) are not the fold's."""

    def bare(entry: RecoveryEntry | None) -> RecoveryEntry | None:
        return entry and replace(
            entry, due_at=None, due=False, stalls_at=None, stalled=False, savepoint_at=None, savepoint_due=False
        )

    return [
        Difference(job_id, published.get(job_id), folded.get(job_id))
        for job_id in sorted({*published, *folded})
        if not same_meaning(bare(published.get(job_id)), bare(folded.get(job_id)))
    ]

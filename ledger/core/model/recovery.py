"""Entries, one for each job, as the projector publishes them. The recovery set is the entries to bring back.

The field names are the Avro names of `schemas/recovery_entry` and the JSON keys of the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
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
    """The state of a job. Names are Flink's where the meaning is the same; QUARANTINED is the ledger's."""

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
    """The winning intent of a job, with the names in its register (`rev`, `id`)."""

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
    """The entry of one job: all that a reconciler must know to act on the job.

    The fold computes everything but the last group, which the leader stamps. Times are seconds since the epoch; delays
    and intervals are seconds. The Avro record `recovery_entry` is flat and has the same names.
    """

    # -- the job, from its spec ----------------------------------------------------------------------------------------
    job_id: str
    name: str
    namespace: str
    runner: str
    #: Decided by `core.fold.rules`.
    state: JobState
    #: The digest of the admitted spec.
    digest: str
    #: The highest attempt that any register names, 0 = none. Also called top.
    attempt: int = 0
    _: KW_ONLY
    #: Why the job is in its state, for people.
    reason: str = ""
    graph: GraphRef | None = None
    slots: int = 1
    priority: int = 0
    #: Jobs of one region restart together; None = the job restarts alone.
    region: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    checkpoint_retention: CheckpointRetention = CheckpointRetention.DELETE
    #: EXTERNAL: the job restores by itself, so no restore point is offered.
    restore: RestoreBy = RestoreBy.LEDGER
    #: The intent that counts, None = there is none.
    intent: WinningIntent | None = None

    # -- the last attempt ----------------------------------------------------------------------------------------------
    #: The end of the last attempt that counts, "" = no end is known; and who wrote it.
    outcome: str = ""
    outcome_writer: str = ""
    #: Whether the runner has reported on the last attempt, so that it did take the start.
    known: bool = False
    #: The restore point that the last attempt began from; None = from scratch, or not recorded.
    base: RestorePoint | None = None
    #: The region's start that the last attempt was part of.
    together: Together | None = None
    #: Of the runner, which holds the newest recorded attempt; "" = none was recorded, or it has no instances.
    instance: str = ""
    #: The newest checkpoint of a job that restores by itself; shows its progress. None = it has none yet.
    marker: RestorePoint | None = None

    # -- the next start ------------------------------------------------------------------------------------------------
    #: The attempt to start or to close, 0 = none.
    next_attempt: int = 0
    #: Offered for the next start, best first.
    restore_points: tuple[RestorePoint, ...] = ()
    #: Whether a start must restore from something. It then never begins from scratch, even if nothing can be offered.
    restore_from_named: bool = False
    #: Consistency labels of restore_points, in their order, "" = none; () if no point has a label.
    consistency: tuple[str, ...] = ()
    #: From the end of the last attempt to the next start.
    restart_delay_s: float = 0.0
    #: Failures in a row, and the times of recent ones.
    failures: int = 0
    failure_times: tuple[float, ...] = ()
    #: When the last attempt failed; None = it did not, or the time is unknown, or no policy counts it.
    failed_at: float | None = None
    #: The interval in which the restart policy counts failures, 0 = it does not.
    failure_rate_interval_s: float = 0.0
    failure_rules: tuple[FailureRule, ...] = ()
    #: None = the job is not watched, or does not run.
    stall_policy: StallPolicy | None = None

    # -- a job that replaces another -----------------------------------------------------------------------------------
    #: The job that this one takes over from, and how.
    replaces: str | None = None
    replacement: Replacement = NO_REPLACEMENT
    #: Whether the next attempt begins from what the replaced job has: this one has no checkpoint of its own yet.
    inherits: bool = False
    #: Whether an attempt of this job was recorded.
    begun: bool = False

    # -- savepoints ----------------------------------------------------------------------------------------------------
    #: Uuids of open savepoint requests; a bounded number.
    asks: tuple[str, ...] = ()
    #: None = no periodic savepoints are wanted, or the job never ran.
    savepoint_policy: SavepointPolicy | None = None
    #: Uuid of the periodic request that comes next, "" = none.
    next_ask: str = ""
    #: Disposed savepoints whose files are to be deleted; a bounded number.
    disposals: tuple[RestorePoint, ...] = ()

    # -- a terminal job ------------------------------------------------------------------------------------------------
    #: Whether the result is recorded, so that only other registers are left to remove.
    retiring: bool = False
    #: Names of the registers beside results that are left; a bounded number.
    registers: tuple[str, ...] = ()

    # -- stamped by the leader -----------------------------------------------------------------------------------------
    partition: int = 0
    #: Every record of the partition of ledger.events below this offset is folded in.
    as_of: int = 0
    epoch: int = 0
    #: When the next start is due by the leader's clock, and whether that time has come.
    due_at: float | None = None
    due: bool = False
    #: When the job counts as stalled unless a new checkpoint comes first, and whether that time has come.
    stalls_at: float | None = None
    stalled: bool = False
    #: When the next periodic savepoint is due, and whether that time has come.
    savepoint_at: float | None = None
    savepoint_due: bool = False

    @property
    def checkpoints(self) -> tuple[RestorePoint, ...]:
        """Restore points that are checkpoints of the job's own attempts: no savepoints, none from outside."""
        return tuple(p for p in self.restore_points if p.attempt and p.kind is CheckpointKind.CHECKPOINT)

    @property
    def in_recovery_set(self) -> bool:
        return self.state in RECOVERY_SET and not self.retiring

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def start_key(self) -> tuple[int, float]:
        """The next attempt and its restart delay in seconds. The leader stamps `due_at` once for each value of this
        key."""
        return self.next_attempt, self.restart_delay_s

    @property
    def progress_key(self) -> tuple[int, tuple[int, int] | None, float]:
        """The attempt, its newest checkpoint, and the seconds until a stall. The leader stamps `stalls_at` once for
        each value."""
        newest = next((point.order for point in (self.marker, *self.restore_points) if point is not None), None)
        return self.attempt, newest, self.stall_policy.stalled_after_s if self.stall_policy else 0.0

    @property
    def savepoint_key(self) -> tuple[str, int, float]:
        """The next savepoint request and its interval in seconds; also the attempt, from whose start the time counts
        before the first savepoint. The leader stamps `savepoint_at` once for each value of this key."""
        first = self.next_ask.startswith("periodic-0-0-")
        interval_s = self.savepoint_policy.interval_s if self.savepoint_policy else 0.0
        return self.next_ask, self.attempt if first else 0, interval_s


def same_meaning(a: RecoveryEntry | None, b: RecoveryEntry | None) -> bool:
    """Whether two entries are equal apart from as_of and epoch, which change even if a fact is only delivered again."""
    if a is None or b is None:
        return a is b
    return replace(a, as_of=0, epoch=0) == replace(b, as_of=0, epoch=0)


class Entries(dict[str, RecoveryEntry]):
    """The entry of every job that is not retired, by job id. `recovery_set()` returns those to be brought back after a
    failure."""

    def recovery_set(self) -> dict[str, RecoveryEntry]:
        return {job_id: entry for job_id, entry in self.items() if entry.in_recovery_set}


@dataclass(frozen=True, slots=True)
class Difference:
    """One job whose published entry is not the folded one."""

    job_id: str
    published: RecoveryEntry | None
    folded: RecoveryEntry | None


def diff(published: Mapping[str, RecoveryEntry], folded: Mapping[str, RecoveryEntry]) -> list[Difference]:
    """Jobs whose entries differ in meaning, by id. The leader's stamps are not compared."""

    def bare(entry: RecoveryEntry | None) -> RecoveryEntry | None:
        return entry and replace(
            entry, due_at=None, due=False, stalls_at=None, stalled=False, savepoint_at=None, savepoint_due=False
        )

    return [
        Difference(job_id, published.get(job_id), folded.get(job_id))
        for job_id in sorted({*published, *folded})
        if not same_meaning(bare(published.get(job_id)), bare(folded.get(job_id)))
    ]

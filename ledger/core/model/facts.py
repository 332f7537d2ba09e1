"""Facts, in the past tense: the values of registers. Their names and fields are the storage format (`schemas/`).

Every enum begins with UNKNOWN, which a reader sees in place of a symbol newer than itself. UNKNOWN is fail-closed: if it
decides, the job is quarantined. Times are seconds since the epoch (UTC), durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ledger.core.model import registers as r


class IntentKind(StrEnum):
    UNKNOWN = "UNKNOWN"
    RUN = "RUN"
    RETRY = "RETRY"
    SUSPEND = "SUSPEND"
    CANCEL = "CANCEL"


class CheckpointKind(StrEnum):
    UNKNOWN = "UNKNOWN"
    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"


class RestartKind(StrEnum):
    UNKNOWN = "UNKNOWN"
    NONE = "NONE"
    FIXED_DELAY = "FIXED_DELAY"
    EXPONENTIAL_DELAY = "EXPONENTIAL_DELAY"
    FAILURE_RATE = "FAILURE_RATE"


class OnExhausted(StrEnum):
    UNKNOWN = "UNKNOWN"
    QUARANTINE = "QUARANTINE"
    FAIL = "FAIL"


class OnStall(StrEnum):
    """The reaction to a job that runs without progress."""

    UNKNOWN = "UNKNOWN"
    MARK = "MARK"
    RESTART = "RESTART"


class CheckpointRetention(StrEnum):
    """Whether checkpoints are deleted when their job has finished, failed or been canceled. Savepoints stay. A
    suspended or quarantined job is not over, so its checkpoints stay."""

    UNKNOWN = "UNKNOWN"
    DELETE = "DELETE"
    KEEP = "KEEP"


class RestoreBy(StrEnum):
    """The party that restores a job. LEDGER: the ledger picks one of its checkpoints. EXTERNAL: the job restores its state
    by itself; its checkpoints only show progress, and no attempt begins from one."""

    UNKNOWN = "UNKNOWN"
    LEDGER = "LEDGER"
    EXTERNAL = "EXTERNAL"


@dataclass(frozen=True, slots=True)
class GraphRef:
    """The location of the job graph, which is all that the runner needs to start the job. sha256: lower-case hex of the
    blob."""

    uri: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint or savepoint that an attempt can begin from. attempt 0 and id 0: the restore point comes from
    outside the ledger."""

    attempt: int
    id: int
    location: str
    size: int = 0
    digest: str = ""
    kind: CheckpointKind = CheckpointKind.CHECKPOINT

    @property
    def order(self) -> tuple[int, int]:
        return self.attempt, self.id

    def __str__(self) -> str:
        return f"{self.attempt}/{self.id}" if self.attempt else self.location


@dataclass(frozen=True, slots=True)
class RefusedRestorePoint:
    """A restore point that was offered and not used, and why."""

    restore_point: RestorePoint
    reason: str


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A rule that labels the failures that match it. The runner applies the rules when it writes an end.

    exit_code: of the process (128 + the signal's number if a signal killed it); None = any. pattern: a Python regular
    expression, searched in the cause and the last lines of stderr; "" = any. permanent: the failure is never retried.
    """

    label: str
    exit_code: int | None = None
    pattern: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a failed attempt is followed by another; `core.fold.restart` defines the arithmetic.

    attempts_max: restarts after failures in a row; 0 = no limit (not used by NONE and FAILURE_RATE).
    failures_per_interval: restarts after failures within failure_rate_interval_s (FAILURE_RATE only). failure_rules: the
    first that matches a failure counts.
    """

    kind: RestartKind = RestartKind.EXPONENTIAL_DELAY
    attempts_max: int = 0
    delay_s: float = 1.0
    delay_max_s: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after_s: float = 3600.0
    on_exhausted: OnExhausted = OnExhausted.QUARANTINE
    failures_per_interval: int = 1
    failure_rate_interval_s: float = 60.0
    failure_rules: tuple[FailureRule, ...] = ()


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """When a running attempt counts as stalled: no new checkpoint for intervals_max * checkpoint_interval_s.

    checkpoint_interval_s: how often the job is expected to complete a checkpoint; 0 = the job is not watched.
    """

    checkpoint_interval_s: float = 0.0
    intervals_max: int = 3
    on_stall: OnStall = OnStall.MARK

    @property
    def stalled_after_s(self) -> float:
        """Seconds without a new checkpoint after which an attempt counts as stalled; 0 = never."""
        return self.checkpoint_interval_s * self.intervals_max


@dataclass(frozen=True, slots=True)
class SavepointPolicy:
    """How often a running job makes a savepoint, and how many of those are kept (`core.fold.savepoints`).

    interval_s: from the newest savepoint (or from the start) to the next request; 0 = never. keep_max: periodic savepoints
    that are kept, beside those that a start may begin from; 0 = all, until somebody disposes of them.
    """

    interval_s: float = 0.0
    keep_max: int = 0


@dataclass(frozen=True, slots=True)
class Replacement:
    """How a job takes over from the old job that it replaces.

    from_: "latest" (a savepoint at the stop of the old job, else its newest checkpoint), "scratch", or the name of a
    point that the spec's restore_from then holds. "" means latest too, but `replace` never writes it: releases that do
    not know replacements must be unable to read such a spec, or they would start it beside the old job. after_rev: the
    newest revision of an intent on the old job before the replacement; later ones of people win over it. reason: for
    people.
    """

    from_: str = ""
    after_rev: int = 0
    reason: str = ""


NO_REPLACEMENT = Replacement()


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """The spec of a job: all that is needed to start the job. The fact holds no time, event id or actor, so two
    submissions of the same job are one fact."""

    name: str
    namespace: str
    runner: str
    graph: GraphRef
    restart_policy: RestartPolicy = RestartPolicy()
    slots: int = 1
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    region: str | None = None
    restore_from: RestorePoint | None = None
    replaces: str | None = None
    checkpoint_retention: CheckpointRetention = CheckpointRetention.DELETE
    stall_policy: StallPolicy = StallPolicy()
    replacement: Replacement = NO_REPLACEMENT
    savepoint_policy: SavepointPolicy = SavepointPolicy()
    restore: RestoreBy = RestoreBy.LEDGER


@dataclass(frozen=True, slots=True)
class JobAdmitted:
    """The ledger admitted the spec with this digest."""

    digest: str


@dataclass(frozen=True, slots=True)
class IntentDeclared:
    """An operator's intent. attempt: the last attempt that the operator saw; for a retry, the one to retry.

    from_: "latest", "scratch", or a restore point as "<attempt>/<id>" (retry only).
    force: attempts up to `attempt` count as settled without their runner, which gives up at-most-one on purpose.
    savepoint: request a savepoint before the stop (suspend only).
    """

    kind: IntentKind
    attempt: int = 0
    from_: str = "latest"
    force: bool = False
    reason: str = ""
    actor: str = ""
    savepoint: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """The start of a region that an attempt was part of (`core.plan.regions`).

    beside: job id of each other member -> its attempt that ran then, or started together with this one. consistency: the
    label of the restore point that all of them began from; "" = each from its newest. reason: why they started together.
    """

    beside: Mapping[str, int] = field(default_factory=dict)
    consistency: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The reconciler decided to start this attempt from `base` (None = from scratch). Written before the start.

    failures: failures in a row before this attempt. failure_times: when the recent failures were seen, in seconds since
    the epoch. recorded_at: when this fact was recorded, by the reconciler's clock; None unless a failure rate needs it.
    together: None = the job has no region. instance: the runner instance that holds the attempt; only this instance
    starts the attempt and reports on it. "" = the runner has no instances, or an older release recorded the attempt.
    """

    digest: str
    base: RestorePoint | None = None
    refused: tuple[RefusedRestorePoint, ...] = ()
    failures: int = 0
    failure_times: tuple[float, ...] = ()
    recorded_at: float | None = None
    together: Together | None = None
    instance: str = ""


@dataclass(frozen=True, slots=True)
class AttemptRunning:
    """The attempt runs. engine_id: the attempt's name in the engine (a pid, an application id)."""

    engine_id: str


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint of the attempt is complete. base: the restore point that the attempt began from, None = from
    scratch. ask: uuid of the savepoint request that the checkpoint answers, None = no request. consistency: the label
    of the cut through several jobs that the checkpoint belongs to, "" = none."""

    location: str
    size: int = 0
    digest: str = ""
    base: RestorePoint | None = None
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ask: str | None = None
    consistency: str = ""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt is over; the register names the outcome. checkpoint: id of the attempt's newest complete checkpoint,
    None = none. ran_for_s: how long the attempt ran, in seconds by a monotonic clock; 0 = unknown."""

    cause: str = ""
    checkpoint: int | None = None
    ran_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SavepointAsked:
    """A savepoint was requested. The request is over once a savepoint names its uuid (`ask`), or the job is over."""

    reason: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class SavepointDisposed:
    """A savepoint was disposed of: no attempt begins from it any more, and its files are deleted. location, base and ask
    are copied from CheckpointCompleted, since that register goes with the files."""

    location: str
    base: RestorePoint | None = None
    ask: str | None = None
    reason: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a retired job, the only register that stays."""

    name: str
    namespace: str
    runner: str
    digest: str
    reason: str
    when: float
    attempts: int
    labels: Mapping[str, str] = field(default_factory=dict)
    restore_point: RestorePoint | None = None


@dataclass(frozen=True, slots=True)
class LeaderClaimed:
    """A leader of `role` claimed `epoch`, under the key `~claim/<role>/<epoch>` in every partition; never tombstoned.

    reaches: runner -> the instance that answered the reconciler just before its claim, for people."""

    role: str
    epoch: int
    writer: str
    reason: str = ""
    reaches: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Every record below offset `as_of` of this partition of `ledger.events` is folded and published."""

    partition: int
    as_of: int
    epoch: int


Fact = (
    JobSubmitted | JobAdmitted | IntentDeclared | AttemptStarted | AttemptRunning
    | CheckpointCompleted | AttemptEnded | SavepointAsked | SavepointDisposed | JobResult
)  # fmt: skip

#: The fact in each kind of register.
FACT_OF: Mapping[type[r.Register], type[Fact]] = {
    r.Spec: JobSubmitted, r.Admitted: JobAdmitted, r.Intent: IntentDeclared, r.Attempt: AttemptStarted,
    r.Running: AttemptRunning, r.Checkpoint: CheckpointCompleted, r.Ended: AttemptEnded, r.Ask: SavepointAsked,
    r.Disposed: SavepointDisposed, r.Result: JobResult,
}  # fmt: skip

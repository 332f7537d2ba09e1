"""What a register can hold: facts, in the past tense. Their names and fields are the storage format (`schemas/`).

Every enum begins with UNKNOWN, which is what a reader sees in place of a symbol that is newer than itself. UNKNOWN is
fail-closed: where it would decide, the job is quarantined; nobody guesses.
Times are seconds since the epoch (UTC), durations are seconds, sizes are bytes.
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
    """What follows once a job runs without progress."""

    UNKNOWN = "UNKNOWN"
    MARK = "MARK"
    RESTART = "RESTART"


class CheckpointRetention(StrEnum):
    """What becomes of a job's checkpoints when it is over, in whatever way: finished, canceled or failed. Savepoints stay,
    and so does everything of a job that is suspended or quarantined: it is not over."""

    UNKNOWN = "UNKNOWN"
    DELETE = "DELETE"
    KEEP = "KEEP"


class RestoreBy(StrEnum):
    """What a job goes on from. LEDGER: one of its checkpoints, which the ledger picks. EXTERNAL: what it keeps elsewhere by
    itself; its checkpoints show how far it is, and nothing ever begins from one."""

    UNKNOWN = "UNKNOWN"
    LEDGER = "LEDGER"
    EXTERNAL = "EXTERNAL"


@dataclass(frozen=True, slots=True)
class GraphRef:
    """Where the job graph lies: whatever the runner needs to start the job. `sha256` is lower-case hex of the blob."""

    uri: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A checkpoint or savepoint that an attempt can begin from. (attempt 0, id 0) is one from outside the ledger."""

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
    """A restore point that was offered and not taken, and why."""

    restore_point: RestorePoint
    reason: str


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Failures that it fits get its label, and are permanent if it says so. The runner judges, where the end is written.

    exit_code: the failure's (killed by a signal: 128 + its number, as shells say); None = any. pattern: a regular
    expression of Python's that is found in its cause, the last lines of stderr included; "" = any.
    """

    label: str
    exit_code: int | None = None
    pattern: str = ""
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When a failed attempt is followed by another. The meaning of the numbers is in `restart`.

    attempts_max: failures in a row that are followed by a restart; 0 = no limit (not read for NONE and FAILURE_RATE).
    failures_per_interval: failures within failure_rate_interval_s that are followed by a restart (FAILURE_RATE only).
    failure_rules: the first that fits a failure counts.
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

    checkpoint_interval_s: how often the job means to complete one; 0 = nobody watches.
    """

    checkpoint_interval_s: float = 0.0
    intervals_max: int = 3
    on_stall: OnStall = OnStall.MARK

    @property
    def stalled_after_s(self) -> float:
        """0 = never."""
        return self.checkpoint_interval_s * self.intervals_max


@dataclass(frozen=True, slots=True)
class SavepointPolicy:
    """How often what runs is asked for a savepoint, and how many of those are kept (`core.savepoints`).

    interval_s: from the newest savepoint, or the start where there is none, to the next ask; 0 = never. keep_max: periodic
    savepoints that are kept, beside those that a start may begin from; 0 = all, until somebody disposes of them.
    """

    interval_s: float = 0.0
    keep_max: int = 0


@dataclass(frozen=True, slots=True)
class Replacement:
    """How a job takes over from the one that it replaces.

    from_: "latest" (a savepoint made when the old one is stopped, else its newest checkpoint), "scratch", or what people
    said of a place that the spec's restore_from then holds. "" = latest too, and is what no `replace` writes: so releases
    that know nothing of replacements can't read such a spec, and don't start it beside the old job. after_rev: intents on
    the old job up to this revision were there before: later ones of people go before the replacement. reason: for people.
    """

    from_: str = ""
    after_rev: int = 0
    reason: str = ""


NO_REPLACEMENT = Replacement()


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A job and all that is needed to start it. Holds no time, event id or actor, so that the same job submitted twice
    is one fact."""

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
    """The ledger took the spec with this digest as the job's."""

    digest: str


@dataclass(frozen=True, slots=True)
class IntentDeclared:
    """What an operator wants. `attempt`: the top attempt the operator saw; for retry, the one that it concerns.

    from_: "latest", "scratch", or a restore point as "<attempt>/<id>" (retry only).
    force: attempts up to `attempt` count as settled without the runner's word; this gives up at-most-one knowingly.
    savepoint: what runs is asked for a savepoint before it is stopped (suspend only).
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
    """How an attempt of a job that has a region began (`regions`).

    beside: job id of each other member -> its attempt that ran then, or was to start together with this one.
    consistency: the label of the restore point that it begins from, as all that started together; "" = each from its
    newest. reason: why they were started together, for people.
    """

    beside: Mapping[str, int] = field(default_factory=dict)
    consistency: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The reconciler decided to start this attempt from `base` (None: from scratch); written before the start.

    failures: failures in a row before this attempt. failure_times: when the recent ones were seen.
    recorded_at: when this was recorded, in seconds since the epoch by the reconciler's clock; only where a failure rate
    needs it, else None. together: None = it has no region.
    instance: of the runner, which holds the attempt: it alone is asked to start it, and it alone can answer for it.
    "" = it is not known: the runner has no instances, or an older release recorded the attempt.
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
    """The attempt runs; `engine_id` is the engine's own name for it (a pid, an application id)."""

    engine_id: str


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint of the attempt is complete. `base`: what the attempt itself was restored from. `consistency`: label of
    the cut through several jobs that it belongs to, "" = none."""

    location: str
    size: int = 0
    digest: str = ""
    base: RestorePoint | None = None
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ask: str | None = None
    consistency: str = ""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The attempt is over (how: see the register). `checkpoint`: id of its newest completed checkpoint.
    ran_for_s is by a monotonic clock, 0 where nobody knows."""

    cause: str = ""
    checkpoint: int | None = None
    ran_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SavepointAsked:
    """A savepoint is wanted. Spent once a savepoint names it (`ask`), or the job is over."""

    reason: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class SavepointDisposed:
    """A savepoint is given up: nothing begins from it any more, and its files go. It says of the savepoint what must be
    known once its own register is gone: `location`, `base` and `ask` are those of CheckpointCompleted."""

    location: str
    base: RestorePoint | None = None
    ask: str | None = None
    reason: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What remains of a retired job."""

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
    """A leader of `role` took `epoch`; lies under `~claim/<role>/<epoch>` in every partition, never tombstoned.

    reaches: runner -> the instance of it that answered a reconciler just before its claim, for people."""

    role: str
    epoch: int
    writer: str
    reason: str = ""
    reaches: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything below `as_of` of this partition of `ledger.events` is folded and published."""

    partition: int
    as_of: int
    epoch: int


Fact = (
    JobSubmitted | JobAdmitted | IntentDeclared | AttemptStarted | AttemptRunning
    | CheckpointCompleted | AttemptEnded | SavepointAsked | SavepointDisposed | JobResult
)  # fmt: skip

#: What each register holds.
FACT_OF: Mapping[type[r.Register], type[Fact]] = {
    r.Spec: JobSubmitted, r.Admitted: JobAdmitted, r.Intent: IntentDeclared, r.Attempt: AttemptStarted,
    r.Running: AttemptRunning, r.Checkpoint: CheckpointCompleted, r.Ended: AttemptEnded, r.Ask: SavepointAsked,
    r.Disposed: SavepointDisposed, r.Result: JobResult,
}  # fmt: skip

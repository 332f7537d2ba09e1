"""The reconciler's other ports: the recovery set as a stream, and an executor for its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypedDict, TypeVar

from ledger.core.model.facts import FailureRule, GraphRef, RefusedRestorePoint, RestorePoint
from ledger.core.model.registers import Outcome
from ledger.ports.log import Record
from ledger.ports.runner import RunnerEvent, StartAnswer, Verification

A = TypeVar("A")


class Prepared(NamedTuple):
    """base: the restore point that the attempt begins from, None = from scratch. refused: better ones that did not verify.
    unknown: why a restore point could not be judged now, so that the start waits; "" = none."""

    base: RestorePoint | None
    refused: tuple[RefusedRestorePoint, ...]
    unknown: str = ""


class Cleaned(NamedTuple):
    """alive: attempts that still run, so that nothing was deleted. blobs: how many were deleted."""

    alive: tuple[int, ...]
    blobs: int = 0


class RecoveryStream(Protocol):
    """The records of `ledger.recovery` as a stream. It starts at offset 0 for every epoch of the reconciler."""

    def open(self, epoch: int) -> None: ...

    def take(self, timeout_s: float) -> Sequence[Record]:
        """The records since the last call, each partition in offset order. Waits up to timeout_s if there are none.

        Raises: TemporaryError if the stream broke. Open it again under a new epoch."""

    def close(self) -> None: ...


class TaskTarget(TypedDict):
    """The fields of a task that name its job and who may answer."""

    runner: str
    job_id: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[A]):
    """One call to a runner or blob store on behalf of a job, performed apart from all others (`ledger.tasks.perform`).

    A: the type of its answer. verb: its name in logs. runner: the name of the runner. n: the attempt, 0 = the whole job.
    instance: of the runner, the only one that may answer; "" = any.
    """

    verb: ClassVar[str]
    runner: str
    job_id: str
    n: int = 0
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTask(Task[Prepared]):
    """Checks the graph and chooses a restore point. graph: None = unknown, which is refused. restore_points: offered, best
    first. restore_from_named: never prepare a start from scratch. elsewhere: those of `restore_points` that lie with
    another instance; this one cannot say that they are invalid."""

    verb: ClassVar[str] = "prepare"
    graph: GraphRef | None
    restore_points: tuple[RestorePoint, ...] = ()
    restore_from_named: bool = False
    elsewhere: tuple[RestorePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask(Task[tuple[Verification, ...]]):
    """Verifies restore points, one answer for each. elsewhere: as in PrepareTask."""

    verb: ClassVar[str] = "verify"
    restore_points: tuple[RestorePoint, ...]
    elsewhere: tuple[RestorePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(Task[StartAnswer]):
    """Starts an attempt. base: the restore point to begin from, None = from scratch."""

    verb: ClassVar[str] = "start"
    graph: GraphRef | None
    base: RestorePoint | None = None
    failure_rules: tuple[FailureRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceTask(Task[list[RunnerEvent]]):
    """Fences the attempts up to n. Answers with all events of the job that the runner still holds."""

    verb: ClassVar[str] = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Task[None]):
    """Stops an attempt. outcome: the one to record for it. savepoint: whether it takes one first. reason: for people."""

    verb: ClassVar[str] = "stop"
    outcome: Outcome
    savepoint: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointTask(Task[None]):
    """Requests savepoints of an attempt. asks: the uuids of the requests."""

    verb: ClassVar[str] = "savepoint"
    asks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeTask(Task[None]):
    """Acknowledges events of the runner, which are on the log now. keys: of the events."""

    verb: ClassVar[str] = "acknowledge"
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanTask(Task[Cleaned]):
    """Fences a job for good and deletes its blobs, if none of it runs. checkpoints: deleted too. dispose: whether
    checkpoints are deleted at all. forced: delete the blobs without the runner."""

    verb: ClassVar[str] = "clean"
    checkpoints: tuple[RestorePoint, ...] = ()
    dispose: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DisposeTask(Task[None]):
    """Deletes the files of savepoints."""

    verb: ClassVar[str] = "dispose"
    savepoints: tuple[RestorePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetTask(Task[None]):
    """Makes the runner forget a job that has ended."""

    verb: ClassVar[str] = "forget"


class TaskStatus(StrEnum):
    DONE = "done"  # the task succeeded; `answer` holds its result
    REFUSED = "refused"  # a PermanentError: the task can never succeed for this job
    NO_RUNNER = "no-runner"  # the job names a runner that this reconciler does not have: no attempt can be fenced
    UNREACHABLE = "unreachable"  # no answer: the effect is unknown
    CRASHED = "crashed"  # the task died, raised, or ran out of time: its effect is unknown


class TaskOutcome(NamedTuple, Generic[A]):
    """answer: the task's if the status is DONE, else None. reason: why the task failed, for people."""

    status: TaskStatus
    answer: A | None = None
    reason: str = ""

    @property
    def done(self) -> bool:
        return self.status is TaskStatus.DONE

    @property
    def refused(self) -> bool:
        """Whether the task can never succeed."""
        return self.status in (TaskStatus.REFUSED, TaskStatus.NO_RUNNER)


class Executor(Protocol):
    """Performs each task in a process of its own with a time limit, so that it can't harm other tasks or the role."""

    def submit(self, tasks: Sequence[Task[Any]]) -> None: ...

    def results(self) -> list[tuple[Task[Any], TaskOutcome[Any]]]:
        """The tasks that ended since the last call, with their outcomes. Every task gets an outcome. Does not block."""

    def close(self) -> None: ...

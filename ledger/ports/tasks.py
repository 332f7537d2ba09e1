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
    """The result of a PrepareTask. base: the restore point that the attempt begins from, None = from scratch. refused:
    better restore points that did not verify. unknown: why a restore point could not be verified now, so that the start
    waits; "" = none."""

    base: RestorePoint | None
    refused: tuple[RefusedRestorePoint, ...]
    unknown: str = ""


class Cleaned(NamedTuple):
    """The result of a CleanTask. alive: attempts that still run, so that nothing was deleted. blobs: the number of
    deleted blobs."""

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
    """The fields of a task that name the runner, the job, and the instance that may answer."""

    runner: str
    job_id: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[A]):
    """One call to a runner or blob store on behalf of a job. The Executor runs it (`ledger.tasks.perform`) in a process
    of its own.

    A: the type of the answer. verb: the task's name in logs. runner: the name of the runner. n: the attempt, 0 = the
    whole job. instance: the only instance of the runner that may answer; "" = any.
    """

    verb: ClassVar[str]
    runner: str
    job_id: str
    n: int = 0
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareTask(Task[Prepared]):
    """Checks the graph and chooses a restore point. graph: None = unknown, which is refused. restore_points: offered,
    best first. restore_from_named: never prepare a start from scratch. elsewhere: those of `restore_points` that
    another instance stores; the instance that answers cannot declare them invalid."""

    verb: ClassVar[str] = "prepare"
    graph: GraphRef | None
    restore_points: tuple[RestorePoint, ...] = ()
    restore_from_named: bool = False
    elsewhere: tuple[RestorePoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask(Task[tuple[Verification, ...]]):
    """Verifies restore points; the answer has one verification for each. elsewhere: as in PrepareTask."""

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
    """Stops an attempt. outcome: to record for the attempt. savepoint: whether the attempt makes a savepoint first.
    reason: for people."""

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
    """Informs the runner that its events are in the log. keys: of the events."""

    verb: ClassVar[str] = "acknowledge"
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanTask(Task[Cleaned]):
    """Fences a job for good. If no attempt of it runs, deletes its blobs and checkpoints. checkpoints: to delete.
    dispose: whether checkpoints are deleted at all. forced: delete only the blobs, without calling the runner."""

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
    """The outcome of a task. answer: the task's answer if the status is DONE, else None. reason: why the task failed,
    for people."""

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

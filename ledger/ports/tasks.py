"""What a reconciler needs beside the log: the recovery set as a stream, and tasks done out of its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.ports.log import Record


class RecoveryStream(Protocol):
    """`ledger.recovery` as a stream that begins anew, at offset 0, with every epoch of the reconciler."""

    def open(self, epoch: int) -> None: ...

    def take(self, timeout_s: float) -> Sequence[Record]:
        """What has come since, each partition in offset order; waits up to timeout_s for something.

        Raises: TemporaryError: the stream broke; open it again under a new epoch."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """One call to a runner or blob store on behalf of a job, to be performed out of the way of all others.

    verb: prepare, verify, start, fence, stop, savepoint, acknowledge, clean, dispose, forget (tasks.py says what each does
    and answers). instance: of the runner, the only one that may answer; "" = any. elsewhere: those of `restore_points` that
    lie with another instance, so that this one can't say that they are invalid.
    """

    verb: str
    runner: str
    job_id: str
    n: int = 0
    graph: GraphRef | None = None
    restore_points: tuple[RestorePoint, ...] = ()
    restore_from_named: bool = False
    outcome: str = ""
    savepoint: bool = False
    reason: str = ""
    asks: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    dispose: bool = False
    forced: bool = False
    failure_rules: tuple[FailureRule, ...] = ()
    instance: str = ""
    elsewhere: tuple[RestorePoint, ...] = ()


class TaskStatus(StrEnum):
    DONE = "done"  # `answer` is the task's
    REFUSED = "refused"  # a PermanentError: this job can't, ever
    NO_RUNNER = "no-runner"  # the job names a runner that this reconciler does not have: no attempt can be fenced
    UNREACHABLE = "unreachable"  # no answer: nothing is known
    CRASHED = "crashed"  # it died, raised, or ran out of time: nothing is known


class TaskOutcome(NamedTuple):
    """answer: of a task that is done; `tasks` says what. reason: why it is not done, for people."""

    status: TaskStatus
    answer: Any = None
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Whether the task can never be done."""
        return self.status in (TaskStatus.REFUSED, TaskStatus.NO_RUNNER)


class Executor(Protocol):
    """Performs tasks, each in a process of its own with a time limit, so that none can harm another or the role."""

    def submit(self, tasks: Sequence[Task]) -> None: ...

    def results(self) -> list[tuple[Task, TaskOutcome]]:
        """Outcomes that have come in since the last call; every task has one in the end. Does not block."""

    def close(self) -> None: ...

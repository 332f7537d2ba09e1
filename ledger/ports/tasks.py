"""The reconciler's other ports: the recovery set as a stream, and an executor for its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.ports.log import Record


class RecoveryStream(Protocol):
    """The records of `ledger.recovery` as a stream. It starts at offset 0 for every epoch of the reconciler."""

    def open(self, epoch: int) -> None: ...

    def take(self, timeout_s: float) -> Sequence[Record]:
        """The records since the last call, each partition in offset order. Waits up to timeout_s if there are none.

        Raises: TemporaryError if the stream broke. Open it again under a new epoch."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """One call to a runner or blob store on behalf of a job. The executor isolates it from all other tasks.

    verb: prepare, verify, start, fence, stop, savepoint, acknowledge, clean, dispose or forget; tasks.py has a function
    for each. instance: the only instance of the runner that may answer; "" means any. elsewhere: those `restore_points`
    that are stored with another instance. This instance may fail to read them, so it can't declare them invalid.
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
    DONE = "done"  # the task succeeded; `answer` holds its result
    REFUSED = "refused"  # a PermanentError: the task can never succeed for this job
    NO_RUNNER = "no-runner"  # the job names a runner that this reconciler does not have: no attempt can be fenced
    UNREACHABLE = "unreachable"  # no answer: the effect is unknown
    CRASHED = "crashed"  # the task died, raised, or ran out of time: its effect is unknown


class TaskOutcome(NamedTuple):
    """answer: the return value of the task's function in `tasks` if the status is DONE. reason: why it failed, for
    people."""

    status: TaskStatus
    answer: Any = None
    reason: str = ""

    @property
    def refused(self) -> bool:
        """Whether the task can never succeed."""
        return self.status in (TaskStatus.REFUSED, TaskStatus.NO_RUNNER)


class Executor(Protocol):
    """Performs each task in a process of its own with a time limit, so that it can't harm other tasks or the role."""

    def submit(self, tasks: Sequence[Task]) -> None: ...

    def results(self) -> list[tuple[Task, TaskOutcome]]:
        """The tasks that ended since the last call, with their outcomes. Every task gets an outcome. Does not block."""

    def close(self) -> None: ...

"""Executors that perform tasks in the calling process, for tests and simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.ports import BlobStore, Runner, Task, TaskOutcome, TaskStatus
from ledger.tasks import perform


class InlineExecutor:
    """An Executor that performs tasks within `submit`, without processes or time limits. `results` returns the outcomes
    since its last call."""

    def __init__(self, runners: Mapping[str, Runner], blobs: BlobStore) -> None:
        self._runners, self._blobs = runners, blobs
        self._results: list[tuple[Task[Any], TaskOutcome[Any]]] = []

    def submit(self, tasks: Sequence[Task[Any]]) -> None:
        self._results += [(task, perform(task, self._runners, self._blobs)) for task in tasks]

    def results(self) -> list[tuple[Task[Any], TaskOutcome[Any]]]:
        results, self._results = self._results, []
        return results

    def close(self) -> None:
        self._results = []


class QueuedExecutor:
    """An Executor whose tasks wait until `perform` or `lose` is called for them, in any order. waiting: the tasks that
    are not done yet. The executor outlives the reconciler that submitted the tasks, as tasks in separate processes do.
    """

    def __init__(self, runners: Mapping[str, Runner], blobs: BlobStore) -> None:
        self._runners, self._blobs = runners, blobs
        self.waiting: list[Task[Any]] = []
        self._results: list[tuple[Task[Any], TaskOutcome[Any]]] = []

    def submit(self, tasks: Sequence[Task[Any]]) -> None:
        self.waiting += tasks

    def perform(self, task: Task[Any], *, silently: bool = False) -> None:
        """Performs a waiting task. silently: the task's outcome stays unknown, as if its process ended before it could
        answer."""
        outcome = perform(self._take(task), self._runners, self._blobs)
        self._results.append((task, TaskOutcome(TaskStatus.CRASHED, reason="no answer") if silently else outcome))

    def lose(self, task: Task[Any]) -> None:
        """Drops a waiting task, as if its process ended before the task began."""
        self._results.append((self._take(task), TaskOutcome(TaskStatus.CRASHED, reason="it never began")))

    def results(self) -> list[tuple[Task[Any], TaskOutcome[Any]]]:
        results, self._results = self._results, []
        return results

    def close(self) -> None:
        self._results = []

    def _take(self, task: Task[Any]) -> Task[Any]:
        """Removes exactly this task from `waiting`, by identity: equal tasks of several terms may wait."""
        self.waiting = [other for other in self.waiting if other is not task]
        return task

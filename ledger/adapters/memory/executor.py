"""An executor that performs tasks at once, where it stands: for tests and simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ledger.ports import BlobStore, Runner, Task, TaskOutcome, TaskStatus
from ledger.tasks import perform


class InlineExecutor:
    """An Executor without processes or time limits. Outcomes wait for `results`, as those of any executor do."""

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
    """An Executor whose tasks wait until they are told to happen, in any order, or never: `waiting` is what is yet to be
    done. It outlives whoever submitted, as tasks in processes of their own do."""

    def __init__(self, runners: Mapping[str, Runner], blobs: BlobStore) -> None:
        self._runners, self._blobs = runners, blobs
        self.waiting: list[Task[Any]] = []
        self._results: list[tuple[Task[Any], TaskOutcome[Any]]] = []

    def submit(self, tasks: Sequence[Task[Any]]) -> None:
        self.waiting += tasks

    def perform(self, task: Task[Any], *, silently: bool = False) -> None:
        """silently: it happens, and its outcome is never known: the process ends before it can tell."""
        outcome = perform(self._take(task), self._runners, self._blobs)
        self._results.append((task, TaskOutcome(TaskStatus.CRASHED, reason="it told nothing") if silently else outcome))

    def lose(self, task: Task[Any]) -> None:
        """It never happens: the process ends before it begins."""
        self._results.append((self._take(task), TaskOutcome(TaskStatus.CRASHED, reason="it never began")))

    def results(self) -> list[tuple[Task[Any], TaskOutcome[Any]]]:
        results, self._results = self._results, []
        return results

    def close(self) -> None:
        self._results = []

    def _take(self, task: Task[Any]) -> Task[Any]:
        """The very one: equal tasks of several terms may wait."""
        self.waiting = [other for other in self.waiting if other is not task]
        return task

"""Performs tasks on Spark's executors, each in a separate child process with a time limit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from ledger.adapters.runners.contained import ContainedRunner
from ledger.adapters.sandbox import in_children
from ledger.ports import BlobStore, Runner, Task, TaskOutcome, TaskStatus
from ledger.tasks import perform

CHILDREN_MAX = 16  # child processes of one group
LANE_CHILDREN_MAX = 4  # fewer, because each child loads the plug-in itself
FIRST_PAUSE_S, PAUSE_MAX_S = 0.5, 30.0
World = tuple[Mapping[str, Runner], BlobStore]


class SparkExecutor:
    """An Executor on Spark. Tasks that are submitted together form groups, and each group is a Spark job. So a task
    that hangs delays only its own group, by at most time_limit_s seconds.

    world: makes the runners and the blob store on Spark's executor; it is sent by name, with its arguments. preload:
    called on Spark's executor before children are forked, so that each child need not import the same modules itself.
    slots: groups that run at once. alone: names of runners that each have a separate queue and slot (a lane), so that
    their tasks can't use up the common slots; the session needs one more slot for each lane. After a group crashed as a
    whole, its lane pauses, with backoff."""

    def __init__(
        self, spark: SparkSession, world: Callable[[], World], time_limit_s: float, slots: int = 4,
        preload: Callable[[], object] = bool, alone: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._spark, self._world, self._preload, self._time_limit_s = spark, world, preload, time_limit_s
        self._common = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="tasks")
        self._lanes = {runner: _Lane(runner) for runner in alone}
        self._results: queue.SimpleQueue[tuple[Task[Any], TaskOutcome[Any]]] = queue.SimpleQueue()

    def submit(self, tasks: Sequence[Task[Any]]) -> None:
        for runner, lane in self._lanes.items():
            for group in _groups([task for task in tasks if task.runner == runner], LANE_CHILDREN_MAX):
                lane.submit(partial(self._perform, group))
        for group in _groups([task for task in tasks if task.runner not in self._lanes], CHILDREN_MAX):
            self._common.submit(self._perform, group)

    def results(self) -> list[tuple[Task[Any], TaskOutcome[Any]]]:
        out = []
        while not self._results.empty():
            out.append(self._results.get())
        return out

    def close(self) -> None:
        self._common.shutdown(wait=False, cancel_futures=True)
        for lane in self._lanes.values():
            lane.close()

    def _perform(self, tasks: list[Task[Any]]) -> bool:
        """Performs a group of tasks. Returns whether any of them did not crash."""
        try:
            work = partial(_group, world=self._world, preload=self._preload, time_limit_s=self._time_limit_s)
            outcomes = self._spark.sparkContext.parallelize([tasks], 1).mapPartitions(work).collect()[0]
        except Exception as error:
            reason = f"the executor failed: {type(error).__name__}: {str(error)[:300]}"
            outcomes = [TaskOutcome(TaskStatus.CRASHED, reason=reason) for _ in tasks]
        for task, outcome in zip(tasks, outcomes, strict=True):
            self._results.put((task, outcome))
        return any(outcome.status is not TaskStatus.CRASHED for outcome in outcomes)


class _Lane:
    """Performs the groups of one runner, one at a time."""

    def __init__(self, runner: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"tasks-{runner}")
        self._closed, self._crashes = threading.Event(), 0

    def submit(self, perform: Callable[[], bool]) -> None:
        self._pool.submit(self._perform, perform)

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _perform(self, perform: Callable[[], bool]) -> None:
        self._crashes = 0 if perform() else min(self._crashes + 1, 16)
        if self._crashes:
            self._closed.wait(min(PAUSE_MAX_S, FIRST_PAUSE_S * 2 ** (self._crashes - 1)))


def _groups(tasks: list[Task[Any]], most: int) -> Iterator[list[Task[Any]]]:
    for i in range(0, len(tasks), most):
        yield tasks[i : i + most]


def _group(
    groups: Iterable[list[Task[Any]]], *, world: Callable[[], World], preload: Callable[[], object], time_limit_s: float
) -> Iterator[list[TaskOutcome[Any]]]:
    """The outcomes of each group of tasks. Runs on an executor."""
    preload()
    for tasks in groups:
        yield in_children([partial(_perform_one, task, world) for task in tasks], time_limit_s)


def _perform_one(task: Task[Any], world: Callable[[], World]) -> TaskOutcome[Any]:
    """The outcome of one task. Runs in a child process of the executor."""
    runners, blobs = world()
    try:
        return perform(task, runners, blobs)
    finally:
        for runner in runners.values():
            if isinstance(runner, ContainedRunner):
                runner.close()

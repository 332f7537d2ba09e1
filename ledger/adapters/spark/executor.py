"""Tasks on Spark's executors, each in a child process of its own with a time limit."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from ledger.adapters.sandbox import in_children
from ledger.ports import BlobStore, Runner, Task, TaskOutcome, TaskStatus
from ledger.tasks import perform

CHILDREN_MAX = 16  # at once in one group
World = tuple[Mapping[str, Runner], BlobStore]


class SparkExecutor:
    """An Executor. What is submitted together becomes a Spark job of its own, so a task that hangs delays those of its
    group at most, and for time_limit_s at most.

    world: makes the runners and the blob store on the executor; it is sent there by name, with its arguments.
    preload: called there before children are forked, so that each need not import for itself what the world needs.
    """

    def __init__(
        self, spark: SparkSession, world: Callable[[], World], time_limit_s: float, slots: int = 4,
        preload: Callable[[], object] = bool,
    ) -> None:  # fmt: skip
        self._spark, self._world, self._preload, self._time_limit_s = spark, world, preload, time_limit_s
        self._pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="tasks")
        self._results: queue.SimpleQueue[tuple[Task, TaskOutcome]] = queue.SimpleQueue()

    def submit(self, tasks: Sequence[Task]) -> None:
        for i in range(0, len(tasks), CHILDREN_MAX):
            self._pool.submit(self._perform, list(tasks[i : i + CHILDREN_MAX]))

    def results(self) -> list[tuple[Task, TaskOutcome]]:
        out = []
        while not self._results.empty():
            out.append(self._results.get())
        return out

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _perform(self, tasks: list[Task]) -> None:
        try:
            work = partial(_group, world=self._world, preload=self._preload, time_limit_s=self._time_limit_s)
            outcomes = self._spark.sparkContext.parallelize([tasks], 1).mapPartitions(work).collect()[0]
        except Exception as error:
            reason = f"the executor failed: {type(error).__name__}: {str(error)[:300]}"
            outcomes = [TaskOutcome(TaskStatus.CRASHED, reason=reason) for _ in tasks]
        for task, outcome in zip(tasks, outcomes, strict=True):
            self._results.put((task, outcome))


def _group(
    groups: Iterable[list[Task]], *, world: Callable[[], World], preload: Callable[[], object], time_limit_s: float
) -> Iterator[list[TaskOutcome]]:
    """Runs on an executor."""
    preload()
    for tasks in groups:
        yield in_children([partial(_perform_one, task, world) for task in tasks], time_limit_s)


def _perform_one(task: Task, world: Callable[[], World]) -> TaskOutcome:
    """Runs in the child."""
    runners, blobs = world()
    return perform(task, runners, blobs)

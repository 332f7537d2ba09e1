"""A reconciler with a recovery stream and tasks in plain Python, so that it starts in one second instead of fifteen.

    python -m tests.scenarios.without_spark [MUTANT] -- serve reconciler --name reconciler-1

Everything else is as in `jobledger serve reconciler`: the role, its election, its writer, the agent, the failpoints. It is
for tests that end many reconcilers. Faults of Spark itself are tested elsewhere (tests/adapters/test_spark.py).
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.core.model.latest import highest_claimed, latest_effective
from ledger.ports import BlobStore, Reader, Record, Runner, Task, TaskOutcome, TaskStatus
from ledger.tasks import perform

RECORDS_MAX = 1000


class PlainStream:
    """A RecoveryStream that reads the topic itself and reduces it as Spark's tasks do."""

    def __init__(self, _: object, topic: str, kafka: Mapping[str, str], folder: Path, *__: object) -> None:
        self._log, self._topic = KafkaLog({"bootstrap.servers": kafka["bootstrap.servers"]}, SystemClock()), topic
        self._reader: Reader | None = None

    def open(self, epoch: int) -> None:
        self.close()
        self._reader, self._claimed = self._log.reader([self._topic]), dict[int, int]()

    def take(self, timeout_s: float) -> Sequence[Record]:
        assert self._reader is not None
        batch = sorted(self._reader.poll(RECORDS_MAX, timeout_s), key=lambda record: record.partition())
        left = latest_effective(batch, self._claimed)
        self._claimed = highest_claimed(left, self._claimed)
        return left

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class PlainExecutor:
    """An Executor of threads. A task that raises has crashed."""

    def __init__(
        self, _: object, world: Callable[[], tuple[Mapping[str, Runner], BlobStore]], time_limit_s: float, slots: int = 4,
        preload: Callable[[], object] = bool, alone: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._world, self._pool = world, ThreadPoolExecutor(slots)
        self._results: queue.SimpleQueue[tuple[Task, TaskOutcome]] = queue.SimpleQueue()

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._pool.submit(self._perform, task)

    def results(self) -> list[tuple[Task, TaskOutcome]]:
        return [self._results.get() for _ in range(self._results.qsize())]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _perform(self, task: Task) -> None:
        try:
            outcome = perform(task, *self._world())
        except Exception as error:
            outcome = TaskOutcome(TaskStatus.CRASHED, reason=f"{type(error).__name__}: {error}")
        self._results.put((task, outcome))


def _without_spark() -> None:
    parts: dict[str, dict[str, Any]] = {
        "executor": {"SparkExecutor": PlainExecutor},
        "stream": {"SparkRecoveryStream": PlainStream},
        "session": {"start_session": lambda *_, **__: SimpleNamespace(stop=lambda: None)},
    }
    for name, values in parts.items():
        module = ModuleType(f"ledger.adapters.spark.{name}")
        vars(module).update(values)
        sys.modules[module.__name__] = module


def main() -> None:
    at = sys.argv.index("--")
    name, arguments = "".join(sys.argv[1:at]), sys.argv[at + 1 :]
    _without_spark()
    from ledger.cli import main as jobledger

    sys.argv = ["jobledger", *arguments]
    if name:
        from tests.support.mutants import mutated
    with mutated(name) if name else nullcontext():
        jobledger()


if __name__ == "__main__":
    main()

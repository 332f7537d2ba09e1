"""Measures the overhead of a task on Spark's executors, with workers of the ledger's daemon and of PySpark's own.

`python -m benchmarks.task_time [--tasks 40] [--rounds 3]`. Each task names a missing runner, so it does no work: only
its overhead is measured. Processor time is that of the Python workers and their daemon.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from ledger.adapters.spark.executor import SparkExecutor
from ledger.adapters.spark.session import start_session
from ledger.app import wiring, worker_daemon
from ledger.app.ledger import task_context
from ledger.config.config import Config, load_config
from ledger.ports import Task

PATIENCE_S = 120.0
DAEMONS = {"pyspark": "pyspark.daemon", "ours": worker_daemon.__name__}


class Cost(NamedTuple):
    """The cost of one task. passed: elapsed seconds. processor: seconds of processor time."""

    passed: float
    processor: float


def measure(daemon: str, tasks: int, folder: Path, config: Config) -> Cost:
    spark = start_session(folder / "spark", slots=2, daemon=daemon)
    try:
        executor = SparkExecutor(spark, partial(task_context, config), PATIENCE_S, 1, partial(wiring.preload, config))
        perform(executor, 3)  # the first task forks the worker
        began, before = time.perf_counter(), processor_s()
        perform(executor, tasks)
        cost = Cost((time.perf_counter() - began) / tasks, (processor_s() - before) / tasks)
        executor.close()
        return cost
    finally:
        spark.stop()


def perform(executor: SparkExecutor, tasks: int) -> None:
    """Performs this number of tasks, one after another."""
    for n in range(1, tasks + 1):
        executor.submit([Task("verify", "nobody", "job", n)])
        deadline = time.monotonic() + PATIENCE_S
        while not executor.results():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no result within {PATIENCE_S:g} s")
            time.sleep(0.002)


def processor_s() -> float:
    """Processor time of all Python workers below this process and of their ended children, in seconds."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "pyspark.worker" in process.cmdline():
                total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Overhead of a task on Spark's executors")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    costs: dict[str, list[Cost]] = {name: [] for name in DAEMONS}
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-") as folder:
        config = load_config(dir=Path(folder))
        for _ in range(given.rounds):
            for name, daemon in DAEMONS.items():
                cost = measure(daemon, given.tasks, Path(folder), config)
                costs[name].append(cost)
                ms = [f"{seconds * 1000:6.0f} ms" for seconds in cost]
                print(f"{name:>8}: {ms[0]} a task, {ms[1]} of processor", flush=True)
    middle = {name: Cost(*map(statistics.median, zip(*found, strict=True))) for name, found in costs.items()}
    print(f"ours/pyspark: {middle['ours'].passed / middle['pyspark'].passed:.3f} of the time, "
          f"{middle['ours'].processor / middle['pyspark'].processor:.3f} of the processor time")  # fmt: skip


if __name__ == "__main__":
    main()

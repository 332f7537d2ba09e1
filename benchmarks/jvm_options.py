"""Measures the processor time of short-lived JVMs (an embedded broker, a Spark driver) with different options.

`python -m benchmarks.jvm_options [--rounds 3]` compares Java's default options, the ledger's options for short-lived
JVMs, and the latter with the class archives of `make setup` (decision 39). It counts the JVM only. The broker runs
until it has committed 300 transactions, the Spark session until it has grouped a thousand rows.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters.java.java import SHORT_LIVED
from ledger.embedded.broker import Broker

PATIENCE_S = 120.0
#: Name -> JDK_JAVA_OPTIONS and additional Java options; None adds the program's class archive.
VARIANTS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "java's own": ("", ()),
    "short-lived": (SHORT_LIVED, ()),
    "short-lived, with class archives": (SHORT_LIVED, None),
}
TOPIC, TRANSACTIONS = "measured", 300


def of_broker(options: str, more: tuple[str, ...] | None) -> float:
    os.environ["JDK_JAVA_OPTIONS"] = options
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-") as folder:
        broker = replace(Broker.at(Path(folder)), java_options=more)
        broker.prepare()
        process = subprocess.Popen(broker.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            broker.ready(PATIENCE_S, lambda: process.poll() is None)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": TOPIC})
            producer.init_transactions(PATIENCE_S)
            for n in range(TRANSACTIONS):
                producer.begin_transaction()
                producer.produce(TOPIC, b"value", key=str(n).encode())
                producer.commit_transaction(PATIENCE_S)
            return _processor_s(process.pid)
        finally:
            process.terminate()
            process.wait()


def of_spark(options: str, more: tuple[str, ...] | None) -> float:
    os.environ["JDK_JAVA_OPTIONS"] = options
    from ledger.adapters.spark.session import start_session

    with tempfile.TemporaryDirectory(prefix="jobledger-bench-") as folder:
        spark = start_session(Path(folder), java_options=more)
        try:
            spark.range(1000).selectExpr("id % 7 AS key").groupBy("key").count().collect()
            return max(_processor_s(child.pid) for child in psutil.Process().children(recursive=True))
        finally:
            spark.stop()


def _processor_s(pid: int) -> float:
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Processor time of a short-lived JVM, with and without the ledger's options"
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds: int = parser.parse_args(arguments).rounds
    measured: dict[str, Callable[[str, tuple[str, ...] | None], float]] = {"broker": of_broker, "Spark driver": of_spark}
    # Each measurement runs in a process of its own, because PySpark keeps its JVM until Python exits.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as alone:
        for what, measure in measured.items():
            costs: dict[str, list[float]] = {name: [] for name in VARIANTS}
            for _ in range(rounds):
                for name, variant in VARIANTS.items():
                    costs[name].append(alone.submit(measure, *variant).result())
            own = statistics.median(costs["java's own"])
            for name, found in costs.items():
                told = f"{statistics.median(found) / own:.3f} of the processor time of java's own"
                print(f"{what}, {name}: {told} ({', '.join(f'{one:.1f}' for one in found)} s)")


if __name__ == "__main__":
    main()

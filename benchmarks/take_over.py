"""Measures how long a new reconciler reads `ledger.recovery` until it knows every job, and how much memory it needs.

`python -m benchmarks.take_over [--mb 64] [--jobs 500] [--folder DIR]` starts a real broker with a long history of
entries for each job. A reconciler's Spark session reads it twice, each time with the default heap in a process of its
own. `whole` reads the topic as one batch that the driver collects, as before decision 46. `bounded` is the reconciler's
current stream. Memory is the largest resident size of the driver's JVM, and of the Python driver, in MiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

from ledger.adapters import avro
from ledger.adapters.spark import stream as spark_stream
from ledger.adapters.spark.session import start_session
from ledger.app import worker_daemon
from ledger.core.model.facts import LeaderClaimed, RestorePoint
from ledger.core.model.published import EPOCH_HEADER, ROLE, Published
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import claim_key, partition_of
from ledger.embedded.broker import Broker
from ledger.errors import LedgerError

TOPIC, PARTITIONS = "ledger.recovery", 4
PATIENCE_S = 1800.0
MIB = 1 << 20


class Reading(NamedTuple):
    """seconds: until the newest entry of every job was known, without Spark's start. jvm_mb, python_mb: the largest
    resident size, in MiB. problem: why the reading failed; "" if it succeeded."""

    seconds: float
    jvm_mb: float
    python_mb: float
    problem: str


def fill(bootstrap: str, jobs: int, mb: int) -> int:
    """Writes entries of all jobs in turn until the topic holds `mb` MiB. Returns the number of entries for each job."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.kbytes": 65_536})
    headers = [(EPOCH_HEADER, b"1")]
    for partition in range(PARTITIONS):
        claim = avro.encode(LeaderClaimed(ROLE, 1, "measured"))
        producer.produce(TOPIC, claim, claim_key(ROLE, 1), partition, headers=headers)
    written, n = 0, 0
    while written < mb * MIB:
        n += 1
        for job in range(jobs):
            value = avro.encode(entry(job, n))
            written += len(value)
            while True:
                try:
                    producer.produce(TOPIC, value, job_id(job), partition_of(job_id(job), PARTITIONS), headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
    producer.flush()
    return n


def job_id(job: int) -> str:
    return f"measured-{job}"


def entry(job: int, n: int) -> RecoveryEntry:
    """A typical entry of a job with a checkpoint each second, with restore points and labels."""
    points = tuple(RestorePoint(1, n - i, f"/var/lib/jobledger/agent/jobs/{job_id(job)}/checkpoints/1/chk-{n - i}")
                   for i in range(3) if n > i)  # fmt: skip
    return RecoveryEntry(
        job_id(job), f"pipeline-{job}", "prod", "subprocess", JobState.RUNNING, "d" * 64, attempt=1, next_attempt=2,
        restore_points=points, as_of=n, labels={"team": "measured", "version": "1.2.3"},
        registers=tuple(f"checkpoint/1/{n - i}" for i in range(3)), epoch=1,
        partition=partition_of(job_id(job), PARTITIONS),
    )  # fmt: skip


def whole(batch: DataFrame, topic: str, claimed: object) -> list[spark_stream.Record]:  # noqa: ARG001
    return [spark_stream._record(row, topic) for row in sorted(batch.collect(), key=lambda r: (r.partition, r.offset))]


def read(variant: str, bootstrap: str, folder: str, jobs: int, newest: int) -> Reading:
    """Reads the topic with one variant. Call it in a process of its own, because PySpark keeps its JVM until Python
    exits."""
    offsets_max = 50_000
    if variant == "whole":
        spark_stream._latest, offsets_max = whole, 1 << 40
    spark = start_session(Path(folder) / variant, daemon=worker_daemon.__name__)
    stream = spark_stream.SparkRecoveryStream(
        spark, TOPIC, {"bootstrap.servers": bootstrap}, Path(folder) / variant / "recovery", batch_offsets_max=offsets_max
    )
    view, began, problem = Published(avro.decode), time.monotonic(), ""
    with Memory() as memory:
        try:
            stream.open(1)
            known = 0
            while known < jobs:
                if time.monotonic() - began > PATIENCE_S:
                    raise TimeoutError(f"not within {PATIENCE_S:g} s")
                for record in stream.take(0.2):
                    change = view.apply(record)
                    known += change is not None and change.after is not None and change.after.as_of == newest
        except (LedgerError, TimeoutError) as error:
            problem = str(error).splitlines()[0][:160]
    seconds = time.monotonic() - began
    # The session is not stopped, because after an OutOfMemoryError the JVM does not answer. It ends with this process.
    return Reading(seconds, memory.jvm / MIB, memory.python / MIB, problem)


class Memory:
    """The largest resident sizes, in bytes, of this process and of its JVM, sampled ten times a second."""

    def __enter__(self) -> Memory:
        self.jvm = self.python = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process(os.getpid())
        jvm = next(child for child in own.children(recursive=True) if "java" in child.name())
        while not self._done.wait(0.1):
            self.python = max(self.python, own.memory_info().rss)
            if jvm.is_running():
                self.jvm = max(self.jvm, jvm.memory_info().rss)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Take-over of a reconciler: time and memory by the size of the topic")
    parser.add_argument("--mb", type=int, default=64, help="size of the topic in MiB")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--folder", help="folder for the broker; needs a little more space than the topic")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-", dir=given.folder) as folder:
        broker = Broker.at(Path(folder))
        broker.prepare()
        process = subprocess.Popen(broker.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            broker.ready(120.0, lambda: process.poll() is None)
            newest = fill(broker.bootstrap, given.jobs, given.mb)
            print(f"{given.jobs} jobs, {newest * given.jobs} entries, {given.mb} MiB", flush=True)
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as alone:
                for variant in ("whole", "bounded"):
                    found = alone.submit(read, variant, broker.bootstrap, folder, given.jobs, newest).result()
                    told = found.problem or "every job is known"
                    print(f"{variant:>8}: {found.seconds:6.1f} s, JVM {found.jvm_mb:5.0f} MiB, "
                          f"Python {found.python_mb:4.0f} MiB: {told}", flush=True)  # fmt: skip
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

"""Measures the cold start of a projector, relative to a bare consume() of the same topic in the same run.

usage: python -m benchmarks [--records N] [--jobs N] [--rounds N] [--bootstrap-server HOST:PORT]

It writes a topic like a ledger's before log compaction: each job has a spec, an admission, an attempt, a running fact
and checkpoints, with tombstones for all but the newest three. Then each round measures two things. First, consume(5000)
without using the records, with the same client settings: the upper limit. Second, the work of a starting projector:
read all records into registers, then fold every job to its entry. It prints one JSON line per round, and the median
ratios of both parts of the second measurement to the bare consume. Without an address it starts an embedded broker of
its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters import avro
from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.reader import FETCHING
from ledger.app.roles_main import spare_the_collector
from ledger.core.fold.fold import fold
from ledger.core.model.facts import (
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    GraphRef,
    JobAdmitted,
    JobSubmitted,
)  # fmt: skip
from ledger.core.model.registers import Admitted, Attempt, Checkpoint, Running, Spec, key_of, partition_of
from ledger.core.model.table import RegisterTable
from ledger.embedded.broker import Broker

PARTITIONS = 4
BATCH = 5_000  # the fastest for both: larger batches exceed the processor's caches before they are applied


def history(job_id: str, records: int) -> Iterator[tuple[str, bytes | None]]:
    """That many records of one job, as (key, value)."""
    spec = JobSubmitted(f"job {job_id[:8]}", "bench", "subprocess", GraphRef(f"graphs/{job_id}/x", "0" * 64, 10_240))
    digest = avro.spec_digest(spec)
    head = [
        (Spec(digest), spec), (Admitted(), JobAdmitted(digest)), (Attempt(1, 1), AttemptStarted(digest)),
        (Running(1), AttemptRunning("pid 4711")),
    ]  # fmt: skip
    for register, fact in head:
        yield key_of(job_id, register), avro.encode(fact)
    left, id_ = records - len(head), 0
    while left > 0:
        id_ += 1
        location = f"/var/lib/jobledger/agent/jobs/{job_id}/attempts/1/checkpoints/chk-{id_}"
        yield key_of(job_id, Checkpoint(1, id_)), avro.encode(CheckpointCompleted(location, 1_048_576, "0" * 32))
        left -= 1
        if id_ > 3 and left > 0:
            yield key_of(job_id, Checkpoint(1, id_ - 3)), None
            left -= 1


def write(bootstrap: str, topic: str, records: int, jobs: int) -> tuple[int, int]:
    """The number of records and of bytes (keys and values) written."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "lz4", "linger.ms": 50,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    written = size = 0
    histories = [(job_id := str(uuid.uuid4()), history(job_id, records // jobs)) for _ in range(jobs)]
    while histories:
        going = []
        for job_id, events in histories:
            event = next(events, None)
            if event is None:
                continue
            key, value = event
            while True:
                try:
                    producer.produce(topic, value, key, partition_of_cached(job_id))
                    break
                except BufferError:
                    producer.poll(0.1)
            written, size = written + 1, size + len(key) + len(value or b"")
            going.append((job_id, events))
        producer.poll(0)
        histories = going
    producer.flush()
    return written, size


_PARTITION: dict[str, int] = {}


def partition_of_cached(job_id: str) -> int:
    if job_id not in _PARTITION:
        _PARTITION[job_id] = partition_of(job_id, PARTITIONS)
    return _PARTITION[job_id]


def bare(bootstrap: str, topic: str, records: int) -> float:
    """Seconds to consume the whole topic without using the records."""
    consumer = Consumer(
        {**FETCHING, "bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    began, seen = time.perf_counter(), 0
    while seen < records:
        messages = consumer.consume(BATCH, 0.05)
        errors = [error for message in messages if (error := message.error()) is not None]
        seen += len(messages) - len(errors)
        if any(error.code() != KafkaError._PARTITION_EOF for error in errors):
            raise SystemExit(str(errors))
    took = time.perf_counter() - began
    consumer.close()
    return took


def folded(log: KafkaLog, topic: str) -> tuple[float, float, int]:
    """Seconds to read the topic up to its high watermark into registers; seconds until all jobs are folded too; number
    of entries."""
    reader = log.reader([topic])
    marks = reader.high_watermarks()
    began = time.perf_counter()
    table = RegisterTable(PARTITIONS)
    while any(reader.position().get(place, 0) < mark for place, mark in marks.items()):
        table.apply(reader.poll(BATCH, 0.5), tell_touched=False)
    read_s, entries = time.perf_counter() - began, 0
    for jobs in table.jobs:
        for job_id, registers in jobs.items():
            entries += fold(job_id.decode(), registers, lambda r, held: avro.read(r, held[0])) is not None
    took = time.perf_counter() - began
    reader.close()
    return read_s, took, entries


def measure(bootstrap: str, records: int, jobs: int, rounds: int) -> None:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings)])[topic].result()
    written, size = write(bootstrap, topic, records, jobs)
    print(json.dumps({"records": written, "jobs": jobs, "bytes_per_record": round(size / written, 1)}), flush=True)
    log = KafkaLog({"bootstrap.servers": bootstrap}, SystemClock())
    spare_the_collector()
    ratios: list[tuple[float, float]] = []
    for round_ in range(rounds + 1):  # the first round fills the page cache and does not count
        bare_s = bare(bootstrap, topic, written)
        registers_s, fold_s, entries = folded(log, topic)
        if round_:
            ratios.append((bare_s / registers_s, bare_s / fold_s))
            rates = {"bare": bare_s, "registers": registers_s, "fold": fold_s}
            line = {f"{name}_records_per_s": round(written / seconds) for name, seconds in rates.items()}
            print(json.dumps({**line, "entries": entries}), flush=True)
    registers, fold_ = (round(statistics.median(column), 3) for column in zip(*ratios, strict=True))
    print(json.dumps({"registers_over_bare_consume": registers, "fold_over_bare_consume": fold_, "rounds": rounds}))
    admin.delete_topics([topic])[topic].result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bootstrap-server", default="")
    options = parser.parse_args()
    if options.bootstrap_server:
        measure(options.bootstrap_server, options.records, options.jobs, options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker.at(Path(folder))
        broker.prepare()
        process = subprocess.Popen(broker.command())
        try:
            broker.ready(60)
            measure(broker.bootstrap, options.records, options.jobs, options.rounds)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()

"""The ledger's topics as a Spark Structured Streaming query whose tasks store segments of the archive.

The query's checkpoint is discarded each time the stream is opened: the chains of the archive name the offsets to
continue from. So a damaged checkpoint of the query has no effect."""

from __future__ import annotations

import json
import queue
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ledger.archive.format.decoding import Decoded
from ledger.archive.format.objects import ObjectStore
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Beginning, Stored, store_all
from ledger.errors import TemporaryError
from ledger.ports import MemoryRecord, Record, TopicPartition

#: Called on the executor of a task. Returns the store, and the function that decodes a record.
World = Callable[[], tuple[ObjectStore, Callable[[Record], Decoded]]]


class SparkSegments:
    """Implements `archive.store.archiving.SegmentStream` on Spark.

    kafka: options of the Java client, without the prefix `kafka.`. folder: for the query's checkpoints. world: makes
    the store and the decoder of a task; it is sent to Spark's executors. trigger_interval_s: the least time between two
    batches, hence between two manifests."""

    def __init__(
        self, spark: SparkSession, kafka: Mapping[str, str], folder: Path, world: World, trigger_interval_s: float,
        records_max: int = 400_000,
    ) -> None:  # fmt: skip
        self._spark, self._kafka, self._folder, self._world = spark, dict(kafka), folder, world
        self._trigger, self._records_max = f"{int(trigger_interval_s * 1000)} milliseconds", records_max
        self._query: StreamingQuery | None = None
        self._stored: queue.Queue[list[Stored]] = queue.Queue()

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        tps: dict[str, dict[str, int]] = {}
        for (topic, partition), beginning in begin.items():
            tps.setdefault(topic, {})[str(partition)] = beginning.read
        options = {
            "assign": json.dumps({topic: [int(p) for p in partitions] for topic, partitions in tps.items()}),
            "startingOffsets": json.dumps(tps),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(self._records_max),
            "kafkaConsumer.pollTimeoutMs": "10000",
            **{f"kafka.{name}": value for name, value in self._kafka.items()},
            "kafka.isolation.level": "read_committed",
        }
        frame = self._spark.readStream.format("kafka").options(**options).load()
        stored: queue.Queue[list[Stored]] = queue.Queue()  # names and digests only: it may grow
        ends = {tp: beginning.sealed for tp, beginning in begin.items()}

        def take(batch: DataFrame, _: int) -> None:
            # As a number: a Python datetime would use this machine's time zone, and its conversion to float loses
            # precision.
            times = "unix_millis(timestamp) as timestamp_ms"
            rows = batch.selectExpr("topic", "partition", "offset", times, "key", "value", "headers").rdd
            found = rows.mapPartitions(partial(_store, self._world, dict(ends))).collect()
            found.sort(key=lambda one: (one.topic, one.partition, one.segment.first))
            for topic, partition, segment in found:
                ends[topic, partition] = segment.next
            if found:
                stored.put(found)

        self._stored = stored
        self._query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._folder / uuid.uuid4().hex))
            .trigger(processingTime=self._trigger)
            .queryName("archive")
            .start()
        )

    def take(self, timeout_s: float) -> Sequence[Stored]:
        try:
            return self._stored.get(timeout=timeout_s)
        except queue.Empty:
            if self._query is None or not self._query.isActive:
                error = self._query.exception() if self._query is not None else None
                raise TemporaryError(f"the archive's stream broke: {str(error)[-1500:]}") from None
            return []

    def close(self) -> None:
        if self._query is not None:
            query, self._query = self._query, None
            try:
                query.stop()
            except Exception as error:
                raise TemporaryError(f"the archive's stream did not stop: {error}") from error


def _store(world: World, ends: Mapping[TopicPartition, int], rows: Iterable[Any]) -> Iterator[Stored]:
    """One task: stores its records as segments and returns these. The connector passes it a range of one partition, in
    offset order."""
    store, decoded = world()
    archive = Archive(store)
    for tp, run in groupby(map(_record, rows), lambda record: (record.topic(), record.partition())):
        yield from store_all(archive, ends[tp], run, decoded)


def _record(row: Any) -> MemoryRecord:
    return MemoryRecord(
        row.topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value),
        tuple((header.key, _bytes(header.value)) for header in row.headers or ()),  # type: ignore[misc]
        row.timestamp_ms,
    )  # fmt: skip


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

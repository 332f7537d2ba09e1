"""`ledger.recovery` as a Spark Structured Streaming query.

The query's checkpoint belongs to the epoch of the reconciler: a new leader reads the whole topic again. So a damaged
checkpoint of the query has no effect, and a tombstone missed during a long pause can't keep a job alive.

The topic keeps every record for the compaction lag, which may be gigabytes. Batches are therefore bounded, and Spark's
tasks drop superseded records: the driver gets the claims, and one record for each key and batch (decision 46)."""

from __future__ import annotations

import queue
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ledger.core.model.latest import highest_claimed, latest_effective
from ledger.errors import TemporaryError
from ledger.ports import MemoryRecord, Record

BATCHES_KEPT = 3  # latest epochs whose checkpoints are kept, for inspection
BATCHES_AHEAD = 2  # batches that the driver holds until the reconciler takes them


class SparkRecoveryStream:
    """Implements `ports.RecoveryStream` with Spark's Kafka connector.

    kafka: options of the Java client, without the prefix `kafka.`. folder: holds the query's checkpoints, one per
    epoch. trigger_interval_s: the least time between two batches. batch_offsets_max: the most offsets that one batch
    covers, all partitions together."""

    def __init__(
        self, spark: SparkSession, topic: str, kafka: Mapping[str, str], folder: Path, trigger_interval_s: float = 0.0,
        batch_offsets_max: int = 50_000,
    ) -> None:  # fmt: skip
        self._spark, self._topic, self._kafka, self._folder = spark, topic, dict(kafka), folder
        self._trigger = f"{int(trigger_interval_s * 1000)} milliseconds"
        self._batch_offsets_max = batch_offsets_max
        self._query: StreamingQuery | None = None
        self._batches: queue.Queue[list[Record]] = queue.Queue(maxsize=BATCHES_AHEAD)

    def open(self, epoch: int) -> None:
        """Starts a query for this epoch. Raises: TemporaryError if the query can't start, for instance because the disk
        is full."""
        self.close()
        batches: queue.Queue[list[Record]] = queue.Queue(maxsize=BATCHES_AHEAD)
        claimed: dict[int, int] = {}
        self._batches = batches
        checkpoint = self._folder / f"epoch-{epoch}"
        self._make_way(checkpoint)
        self._delete_older(epoch)
        options = {
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self._batch_offsets_max),
            "includeHeaders": "true",  # the epoch of a tombstone is in its headers only
            "failOnDataLoss": "true",
            "kafkaConsumer.pollTimeoutMs": "10000",
            **{f"kafka.{name}": value for name, value in self._kafka.items()},
            "kafka.isolation.level": "read_committed",
        }
        frame = self._spark.readStream.format("kafka").options(**options).load()

        def take(batch: DataFrame, _: int) -> None:
            records = _latest(batch, self._topic, claimed)
            claimed.update(highest_claimed(records, claimed))
            if records:
                batches.put(records)

        query = (
            frame.select("partition", "offset", "timestamp", "key", "value", "headers")
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=self._trigger)
            .queryName(f"recovery-epoch-{epoch}")
        )
        try:
            self._query = query.start()
        except (Py4JError, PySparkException) as error:
            raise TemporaryError(
                f"the recovery stream can't begin in {checkpoint}: {str(error)[:500]}",
                hint="Check free space and permissions on that disk. The reconciler tries again by itself.",
            ) from error

    def take(self, timeout_s: float) -> Sequence[Record]:
        try:
            records = self._batches.get(timeout=timeout_s)
        except queue.Empty:
            if self._query is None or not self._query.isActive:
                error = self._query.exception() if self._query is not None else None
                raise TemporaryError(f"the recovery stream broke: {str(error)[:500]}") from None
            return []
        while not self._batches.empty():
            records += self._batches.get_nowait()
        return records

    def close(self) -> None:
        if self._query is not None:
            query, self._query = self._query, None
            try:
                query.stop()
            except Exception as error:  # a query that does not stop in time ends later; its batches are not used
                raise TemporaryError(f"the recovery stream of this epoch did not stop: {error}") from error

    def _make_way(self, checkpoint: Path) -> None:
        """Removes everything at the path of the checkpoint: the epoch is new. Removes files in place of folders too."""
        for path in (self._folder, checkpoint):
            if path.is_symlink() or path.is_file():
                path.unlink(missing_ok=True)
        shutil.rmtree(checkpoint, ignore_errors=True)

    def _delete_older(self, epoch: int) -> None:
        for path in self._folder.glob("epoch-*"):
            number = path.name.removeprefix("epoch-")
            if number.isdigit() and int(number) <= epoch - BATCHES_KEPT:
                shutil.rmtree(path, ignore_errors=True)


def _latest(batch: DataFrame, topic: str, claimed: Mapping[int, int]) -> list[Record]:
    """The reduced records of a batch, in offset order within each partition. A partition of the batch is one of the
    topic's."""
    reduce = partial(_reduce, topic=topic, claimed=dict(claimed))
    left: list[Record] = batch.rdd.mapPartitions(reduce).collect()
    return sorted(left, key=lambda record: (record.partition(), record.offset()))


def _reduce(rows: Iterable[Row], topic: str, claimed: Mapping[int, int]) -> Iterator[Record]:
    """The last effective record of each key, and the claims. Runs in a task. Spark reads a topic partition in offset
    order, so one pass is enough."""
    yield from latest_effective((_record(row, topic) for row in rows), claimed)


def _record(row: Row, topic: str) -> MemoryRecord:
    return MemoryRecord(
        topic, row.partition, row.offset, _bytes(row.key), _bytes(row.value),
        tuple((header.key, _bytes(header.value) or b"") for header in row.headers or ()),
        round(row.timestamp.timestamp() * 1000),
    )  # fmt: skip


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

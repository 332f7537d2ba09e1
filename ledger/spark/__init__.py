"""The archive as Spark DataFrames, for analyses with Spark.

    from ledger import load_config
    from ledger.spark import events
    events(spark, load_config()).where("fact = 'AttemptEnded'").groupBy("job_id").count()

They hold the same records as the views `events` and `recovery_records` of `jobledger archive query`. Each task fetches
objects through the archive's own store and checks them, so Spark needs no connector for S3. Objects that no manifest
names are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ledger.app.ledger import Ledger
from ledger.archive.format.parquet import SCHEMA
from ledger.archive.store.archive import Archive, RecordFile
from ledger.config.config import Config

SHAPE = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<name: STRING, value: BINARY>>, job_id STRING, register STRING, fact STRING, event_id STRING, "
    "event_time TIMESTAMP, source STRING, actor STRING, sequence BIGINT, epoch BIGINT, body STRING, unreadable STRING, "
    "value_sha256 BINARY"
)


def events(spark: SparkSession, config: Config) -> DataFrame:
    """Every archived record of ledger.events, in no order.

    Shape: partition, then the columns of `ledger.archive.format.parquet`. A record that was sent twice appears twice.
    Raises: ConfigError if there is no archive. LedgerError if a chain can't be read, or (in a task) if an object
    differs from what was sealed."""
    return _records(spark, config, config.topics.events)


def recovery(spark: SparkSession, config: Config) -> DataFrame:
    """Every archived record of ledger.recovery, including those that readers ignore. Shape, Raises: as `events`."""
    return _records(spark, config, config.topics.recovery)


def _records(spark: SparkSession, config: Config, topic: str) -> DataFrame:
    archive = _archive(config)
    files = [
        tuple(file)
        for tp, partition in archive.partitions() if tp == topic
        for file in archive.files(topic, partition)
    ]  # fmt: skip
    slices = max(1, min(len(files), spark.sparkContext.defaultParallelism * 4))
    rows = spark.sparkContext.parallelize(files, slices).mapPartitions(partial(_read, partial(_archive, config)))
    return spark.createDataFrame(rows, SHAPE, verifySchema=False)


def _archive(config: Config) -> Archive:
    return Ledger.open(config).archive


def _read(opened: Callable[[], Archive], files: Iterable[tuple[str, int, str, str]]) -> Iterator[tuple[Any, ...]]:
    """The records in the files, as plain rows, for one task. (Arrow batches would require pandas.)"""
    archive = opened()
    for file in (RecordFile(*file) for file in files):
        table = pq.read_table(pa.BufferReader(archive.file(file)))
        columns = [
            table.column(name).to_pylist() if name in table.schema.names else [None] * len(table) for name in SCHEMA.names
        ]
        yield from ((file.partition, *row) for row in zip(*columns, strict=True))

"""Records as a Parquet file: the raw bytes of each, and what they say.

Columns: offset, timestamp (append time), key, value, headers: the record itself. The others are those of
`decoding.Decoded`. Rows are in offset order. Any reader of Parquet reads it, without this library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.archive.decoding import Decoded
from ledger.core.published import headers_of
from ledger.ports import MemoryRecord, Record

_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema([
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER)),
    ("job_id", pa.string()), ("register", pa.string()), ("fact", pa.string()),
    ("event_id", pa.string()), ("event_time", pa.timestamp("us", "UTC")), ("source", pa.string()),
    ("actor", pa.string()), ("sequence", pa.int64()), ("epoch", pa.int64()), ("body", pa.string()),
    ("unreadable", pa.string()),
])  # fmt: skip
_RAW = ["offset", "timestamp", "key", "value", "headers"]
ROW_GROUP = 50_000  # rows of a joined file that are read at once
_TIME_MAX_S = 9e9  # the year 2255: what a producer's clock claims beyond is no time that a column could hold


def encode(records: Sequence[Record], decoded: Callable[[Record], Decoded]) -> bytes:
    """The same records and the same libraries give the same bytes."""
    rows = [_row(record, decoded(record)) for record in records]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def read(data: bytes, topic: str, partition: int) -> list[MemoryRecord]:
    """The records as they were; the decoded columns are not looked at.

    Raises: ValueError if that is no such file."""
    return Opened(data).records(topic, partition)


class Opened:
    """The raw records of a file, for asking for some of them. Raises: ValueError if that is no such file."""

    def __init__(self, data: bytes) -> None:
        try:
            table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read(columns=_RAW)
            if table.schema.names != _RAW or any(table.schema.field(n).type != SCHEMA.field(n).type for n in _RAW):
                raise ValueError("other columns than those of an archive")
            self._columns = [table.column(name) for name in _RAW]
            self._columns[1] = self._columns[1].cast(pa.int64())
            self._offsets: list[int] = self._columns[0].to_pylist()
        except (pa.ArrowException, OSError, TypeError) as error:
            raise ValueError(f"not a Parquet file of the archive: {error}") from error

    def records(self, topic: str, partition: int, first: int | None = None, end: int | None = None) -> list[MemoryRecord]:
        """Those at offsets from `first` up to, not including, `end`. Raises: ValueError."""
        begin = 0 if first is None else bisect_left(self._offsets, first)
        count = len(self._offsets) - begin if end is None else max(0, bisect_left(self._offsets, end) - begin)
        try:
            columns = [column.slice(begin, count).to_pylist() for column in self._columns]
            return [_record(topic, partition, *row) for row in zip(*columns, strict=True)]
        except (pa.ArrowException, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a Parquet file of the archive: {error}") from error


def join(files: Sequence[bytes]) -> bytes:
    """The rows of several files in one, all columns as they are. The same files give the same bytes."""
    tables = [pq.read_table(pa.BufferReader(data)) for data in files]
    sink = pa.BufferOutputStream()
    whole = pa.concat_tables(tables, promote_options="default")
    pq.write_table(whole, sink, compression="zstd", write_page_checksum=True, row_group_size=ROW_GROUP)
    return bytes(sink.getvalue())


def _record(topic: str, partition: int, offset: int, at_ms: int, key: Any, value: Any, headers: Any) -> MemoryRecord:
    pairs = tuple((header["name"], header["value"]) for header in headers or ())
    return MemoryRecord(topic, partition, offset, key, value, pairs, at_ms)


def _row(record: Record, said: Decoded) -> dict[str, Any]:
    time_s = said.event_time_s
    return {
        "offset": record.offset(), "timestamp": record.timestamp()[1], "key": record.key(), "value": record.value(),
        "headers": [{"name": name, "value": value} for name, value in headers_of(record)],
        "job_id": said.job_id, "register": said.register, "fact": said.fact, "event_id": said.event_id,
        "event_time": int(time_s * 1e6) if time_s is not None and abs(time_s) < _TIME_MAX_S else None,
        "source": said.source, "actor": said.actor, "sequence": said.sequence, "epoch": said.epoch,
        "body": said.body, "unreadable": said.unreadable,
    }  # fmt: skip

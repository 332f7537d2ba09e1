"""Records as a Parquet file: the raw bytes of each record, and columns that are decoded from them.

Columns: offset, timestamp (append time), key, value and headers are the record itself. value_sha256: for a redacted
record, the hash of its removed value. It is null for other records, and missing in files of older versions. The other
columns are those of `decoding.Decoded`. Rows are in offset order. Any Parquet reader can read the file without this
library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.archive.format.decoding import Decoded
from ledger.archive.format.redacted import RedactedRecord
from ledger.core.model.published import headers_of
from ledger.core.model.redaction import stand_in
from ledger.ports import MemoryRecord, Record

_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema([
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER)),
    ("job_id", pa.string()), ("register", pa.string()), ("fact", pa.string()),
    ("event_id", pa.string()), ("event_time", pa.timestamp("us", "UTC")), ("source", pa.string()),
    ("actor", pa.string()), ("sequence", pa.int64()), ("epoch", pa.int64()), ("body", pa.string()),
    ("unreadable", pa.string()), ("value_sha256", pa.binary()),
])  # fmt: skip
_RAW = ["offset", "timestamp", "key", "value", "headers"]
_HASH = "value_sha256"
#: Columns that do not come from the value. In a redacted record all others are emptied, and `unreadable` says why.
_BESIDE_VALUE = frozenset({
    "offset", "timestamp", "key", "headers", "job_id", "register", "event_id", "event_time", "source", "actor", "sequence",
    "epoch",
})  # fmt: skip
REDACTED = "the value is redacted"
UNPACKED_MAX = 8 << 30  # bytes of all columns, as the file claims: those that are read are about half of it
ROW_GROUP = 50_000  # rows of a joined file that are read at once
_TIME_MAX_S = 9e9  # the year 2255: a column can't hold a later time, whatever a producer's clock claims


def encode(records: Sequence[Record], decoded: Callable[[Record], Decoded]) -> bytes:
    """The records as a Parquet file. The same records and the same libraries give the same bytes."""
    rows = [_row(record, decoded(record)) for record in records]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def read(data: bytes, topic: str, partition: int) -> list[MemoryRecord]:
    """The raw records of a file; the decoded columns are ignored.

    Raises: ValueError if it is not such a file."""
    return Opened(data).records(topic, partition)


class Opened:
    """The raw records of a file, to read all or some of them. rows_max: the most rows that the file may have, None =
    any number. A file of some kilobytes can hold a billion identical rows.

    Raises: ValueError if it is no such Parquet file, or has more rows than rows_max; then no row is read.
    """

    def __init__(self, data: bytes, rows_max: int | None = None) -> None:
        try:
            file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
            _check_size(file.metadata, rows_max)
            self._take(file.read(columns=_raw(file), use_threads=False))  # threads would cost more than they save here
        except (pa.ArrowException, OSError, TypeError) as error:
            raise ValueError(f"not a Parquet file of the archive: {error}") from error

    @classmethod
    def of(cls, table: pa.Table) -> Opened:
        """The raw records of a table. Raises: ValueError; ArrowException."""
        made = cls.__new__(cls)
        made._take(table)
        return made

    def _take(self, table: pa.Table) -> None:
        names = table.schema.names
        if names not in (_RAW, [*_RAW, _HASH]) or any(table.schema.field(n).type != SCHEMA.field(n).type for n in names):
            raise ValueError("its columns are not those of an archive")
        if table.column("offset").null_count or table.column("timestamp").null_count:
            raise ValueError("a record without an offset or a time")
        self._columns = [table.column(name) for name in names]
        # A view as numbers: `cast` would import pyarrow.compute, which takes as long as the whole reading.
        self._columns[1] = pa.chunked_array([chunk.view(pa.int64()) for chunk in self._columns[1].chunks], pa.int64())
        self._offsets: list[int] = self._columns[0].to_pylist()

    def records(self, topic: str, partition: int, first: int | None = None, end: int | None = None) -> list[MemoryRecord]:
        """The records at offsets from `first` up to, not including, `end`. Raises: ValueError."""
        begin = 0 if first is None else bisect_left(self._offsets, first)
        count = len(self._offsets) - begin if end is None else max(0, bisect_left(self._offsets, end) - begin)
        try:
            columns = [column.slice(begin, count).to_pylist() for column in self._columns]
            return [_record(topic, partition, *row) for row in zip(*columns, strict=True)]
        except (pa.ArrowException, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"not a Parquet file of the archive: {error}") from error


def _check_size(about: Any, rows_max: int | None) -> None:
    """Raises: ValueError if the file is too large. about: its metadata, which can be read without its rows."""
    if rows_max is not None and about.num_rows > rows_max:
        raise ValueError(f"it has {about.num_rows} rows, but at most {rows_max} were sealed: they are not read")
    # pyarrow's column metadata, statistics included, abort the process if one bit is wrong. So they are not used.
    unpacked = sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups))
    if unpacked > UNPACKED_MAX:
        raise ValueError(f"it has {unpacked} bytes when unpacked, but at most {UNPACKED_MAX} are read")


def picked(
    data: bytes, topic: str, partition: int, first: int, end: int, keys: Sequence[bytes], rows_max: int | None = None
) -> list[MemoryRecord]:  # fmt: skip
    """The records at offsets from `first` up to, not including, `end` whose key begins with one of `keys`. If a row
    group has none, only its offsets and keys are read. rows_max: as in `Opened`.

    Raises: ValueError if it is not such a file."""
    import pyarrow.compute as pc  # a slow import of 300 functions that most reads don't need

    found: list[MemoryRecord] = []
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        _check_size(file.metadata, rows_max)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["offset", "key"])
            mask = pc.and_(pc.greater_equal(table["offset"], first), pc.less(table["offset"], end))
            begins = [pc.starts_with(table["key"], key) for key in keys]
            mask = pc.and_(mask, reduce(pc.or_, begins)).combine_chunks().fill_null(False)
            if pc.any(mask).as_py():
                opened = Opened.of(file.read_row_group(group, columns=_raw(file)).filter(mask))
                found += opened.records(topic, partition)
    except (pa.ArrowException, OSError, TypeError, KeyError) as error:
        raise ValueError(f"not a Parquet file of the archive: {error}") from error
    return found


def _raw(file: pq.ParquetFile) -> list[str]:
    """The raw columns of a file. Files of older versions have no hashes of redacted values."""
    return [*_RAW, _HASH] if _HASH in file.schema_arrow.names else _RAW


def join(files: Sequence[bytes]) -> bytes:
    """One file with the rows of several, all columns unchanged. The same files give the same bytes."""
    tables = [pq.read_table(pa.BufferReader(data)) for data in files]
    sink = pa.BufferOutputStream()
    whole = pa.concat_tables(tables, promote_options="default")
    pq.write_table(whole, sink, compression="zstd", write_page_checksum=True, row_group_size=ROW_GROUP)
    return bytes(sink.getvalue())


def same(one: bytes, other: bytes) -> bool:
    """Whether two files have the same rows, in all columns."""
    try:
        return one == other or pq.read_table(pa.BufferReader(one)).equals(pq.read_table(pa.BufferReader(other)))
    except (pa.ArrowException, OSError):
        return False


def rewrite(data: bytes, gone: Collection[int], redacted: Collection[int]) -> bytes:
    """The file without the rows at the offsets `gone`, and without the values of the rows at the offsets `redacted`.
    For these values, the decoded columns are emptied, and only the hash stays. The same file and offsets give the same
    bytes."""
    import pyarrow.compute as pc

    table = pq.read_table(pa.BufferReader(data))
    if _HASH not in table.schema.names:
        table = table.append_column(SCHEMA.field(_HASH), pa.nulls(len(table), SCHEMA.field(_HASH).type))
    offsets = table.column("offset").to_pylist()
    hit = [offset in redacted for offset in offsets]
    if any(hit):
        values, hashes = table.column("value").to_pylist(), table.column(_HASH).to_pylist()
        named = [sha256(v).digest() if at and v is not None else h for at, v, h in zip(hit, values, hashes, strict=True)]
        put = {_HASH: pa.array(named, SCHEMA.field(_HASH).type)}
        mask = pa.array(hit)
        for name in set(table.schema.names) - _BESIDE_VALUE - {_HASH}:
            kind = table.schema.field(name).type
            new = pa.scalar(REDACTED if name == "unreadable" else None, kind)
            put[name] = pc.if_else(mask, new, table.column(name))
        for name, column in put.items():
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    kept = table.filter(pa.array([offset not in gone for offset in offsets], pa.bool_()))
    sink = pa.BufferOutputStream()
    pq.write_table(kept, sink, compression="zstd", write_page_checksum=True, row_group_size=ROW_GROUP)
    return bytes(sink.getvalue())


def _record(
    topic: str, partition: int, offset: int, at_ms: int, key: Any, value: Any, headers: Any, hashed: bytes | None = None
) -> MemoryRecord:
    pairs = tuple([(header["name"], header["value"]) for header in headers or ()])
    if None in [name for name, _ in pairs]:
        raise ValueError("a header without a name")
    if hashed is not None and value is None:
        return RedactedRecord(topic, partition, offset, key, stand_in(hashed), pairs, at_ms, hashed)
    return MemoryRecord(topic, partition, offset, key, value, pairs, at_ms)


def _row(record: Record, said: Decoded) -> dict[str, Any]:
    time_s = said.event_time_s
    hashed = record.value_sha256 if isinstance(record, RedactedRecord) else None
    return {
        "offset": record.offset(), "timestamp": record.timestamp()[1], "key": record.key(),
        "value": None if hashed is not None else record.value(), _HASH: hashed,
        "headers": [{"name": name, "value": value} for name, value in headers_of(record)],
        "job_id": said.job_id, "register": said.register, "fact": said.fact, "event_id": said.event_id,
        "event_time": int(time_s * 1e6) if time_s is not None and abs(time_s) < _TIME_MAX_S else None,
        "source": said.source, "actor": said.actor, "sequence": said.sequence, "epoch": said.epoch,
        "body": None if hashed is not None else said.body,
        "unreadable": REDACTED if hashed is not None else said.unreadable,
    }  # fmt: skip

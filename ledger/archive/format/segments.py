"""The objects of an archive. A segment is a run of one partition's records in a Parquet file, and a list of their
leaves.

Names show the content: `records/<topic>/<partition>/<first>-<next>.parquet`, `leaves/…/<first>-<next>.leaves`,
`manifests/<topic>/<partition>/<sequence>.json`. An object counts once a manifest names it; until then it is an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from ledger.archive.format import merkle, parquet
from ledger.archive.format.chain import leaf_of, leaf_of_hashed
from ledger.archive.format.decoding import Decoded
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.redacted import RedactedRecord
from ledger.core.model.published import headers_of
from ledger.errors import LedgerError
from ledger.ports import Record

RECORDS_MAX = 50_000
BYTES_MAX = 32 << 20  # of keys and values
LEAF_BYTES = 8 + 32


class Leaf(NamedTuple):
    offset: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """A stored run of records that is not sealed yet. Fields as in `chain.Manifest`."""

    first: int
    next: int
    count: int
    root: str
    least_timestamp_ms: int
    greatest_timestamp_ms: int
    records: str
    records_sha256: str
    leaves: str
    leaves_sha256: str


def manifests_prefix(topic: str, partition: int) -> str:
    return f"manifests/{topic}/{partition}/"


def manifest_name(topic: str, partition: int, sequence: int) -> str:
    return f"{manifests_prefix(topic, partition)}{sequence:012}.json"


def runs(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Splits a partition's records into runs, each small enough for one object."""
    run: list[Record] = []
    size = 0
    for record in records:
        run.append(record)
        size += len(record.key() or b"") + len(record.value() or b"")
        if len(run) >= RECORDS_MAX or size >= BYTES_MAX:
            yield run
            run, size = [], 0
    if run:
        yield run


def store_segment(
    store: ObjectStore, first: int, records: Sequence[Record], decoded: Callable[[Record], Decoded]
) -> Segment:
    """Stores records (at least one, of one partition, in offset order) as the segment that begins at offset `first`. A
    repeated call stores nothing twice: an existing object with the same content, in all columns, is used."""
    topic, partition, next_ = records[0].topic(), records[0].partition(), records[-1].offset() + 1
    leaves = leaves_of(records)
    root = merkle.root([leaf.hash for leaf in leaves]).hex()
    times = [record.timestamp()[1] for record in records]
    where = f"{topic}/{partition}/{first:019}-{next_:019}"
    in_file, in_list = parquet.encode(records, decoded), pack(leaves)
    records_name, records_sha256 = store_object(store, f"records/{where}", ".parquet", in_file, parquet.same)
    leaves_name, leaves_sha256 = store_object(store, f"leaves/{where}", ".leaves", in_list)
    return Segment(
        first, next_, len(records), root, min(times), max(times), records_name, records_sha256, leaves_name,
        leaves_sha256,
    )  # fmt: skip


def store_object(
    store: ObjectStore, stem: str, suffix: str, data: bytes, same: Callable[[bytes, bytes], bool] = bytes.__eq__
) -> tuple[str, str]:
    """Name and digest of an object that holds the data. If other content has that name already, from a bad disk or from
    somebody, the old object stays as evidence. The new name then includes the digest."""
    digest = sha256(data).hexdigest()
    for name in (stem + suffix, f"{stem}.{digest[:16]}{suffix}"):
        if store.create(name, data):
            return name, digest
        if (found := store.read(name)) is not None and same(found, data):
            return name, sha256(found).hexdigest()
    raise LedgerError(f"{name} has other content than it should, and so has {stem}{suffix}.",
                      hint="Something else writes into this archive, or its disk is damaged.")  # fmt: skip


def leaves_of(records: Iterable[Record]) -> list[Leaf]:
    return [Leaf(record.offset(), _hash_of(record)) for record in records]


def _hash_of(record: Record) -> bytes:
    at = record.offset(), record.timestamp()[1]
    if isinstance(record, RedactedRecord):
        return leaf_of_hashed(*at, record.key(), record.value_sha256, headers_of(record))
    return leaf_of(*at, record.key(), record.value(), headers_of(record))


def pack(leaves: Iterable[Leaf]) -> bytes:
    """The leaves as bytes. Each takes 40: the offset (8 bytes, big-endian) and the hash."""
    return b"".join(leaf.offset.to_bytes(8, "big") + leaf.hash for leaf in leaves)


def unpack(data: bytes) -> list[Leaf]:
    """The leaves that `pack` encoded. Raises: ValueError if the bytes have another form."""
    if len(data) % LEAF_BYTES:
        raise ValueError("cut off within a leaf")
    rows = (data[i : i + LEAF_BYTES] for i in range(0, len(data), LEAF_BYTES))
    return [Leaf(int.from_bytes(row[:8], "big"), row[8:]) for row in rows]

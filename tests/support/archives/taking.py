"""Removals from an archive of four days, and checks of the remaining archive."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head, hash_of
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import EXPIRED, REDACTED
from ledger.archive.removal.rewriting import Wanted, rewrite
from ledger.archive.store.archive import Archive
from ledger.archive.store.verifying import PartitionVerdict, verify
from ledger.core.model.redaction import stand_in
from ledger.ports import MemoryRecord
from tests.support.archives.days import BEGIN_MS, DAYS, PER_DAY, spread
from tests.support.archives.given import TOPIC, read_out

BY, AT = "tester@host", "2026-02-01T00:00:00Z"
GONE = frozenset(record.offset() for record in spread(0)[3:60:4])
SECRET = frozenset(record.offset() for record in spread(0)[2:80:5] if record.value() is not None) - GONE
WANTED = [
    Wanted(EXPIRED, GONE, "prod", until_ms=BEGIN_MS, below=10**6),
    Wanted(REDACTED, SECRET, reason="a password in it"),
]


def take_out(archive: Archive, wanted: list[Wanted] = WANTED) -> int:
    return rewrite(archive, TOPIC, 0, wanted, BY, AT)


def as_left(record: MemoryRecord) -> MemoryRecord:
    """The record as a reader must see it after SECRET was redacted."""
    if record.offset() not in SECRET:
        return record
    hashed, at = hash_of(record.value()), record.timestamp()[1]
    return RedactedRecord(TOPIC, 0, record.offset(), record.key(), stand_in(hashed), record._headers, at, hashed)


LEFT = [as_left(record) for record in spread(0) if record.offset() not in GONE]
VALUES = [record.value() for record in spread(0) if record.offset() in GONE | SECRET and record.value() is not None]
#: Values that only records to be removed have. Afterwards the store may hold none of their bytes.
ONLY = [value for value in VALUES if sum(value == one.value() for p in (0, 1) for one in spread(p)) == VALUES.count(value)]


def must_be_gone(store: MemoryObjects) -> None:
    """Checks that no object in the store holds a removed value."""
    assert ONLY and SECRET and GONE
    for name, data in store.stored.items():
        if name.endswith(".parquet"):
            table = pq.read_table(pa.BufferReader(data))
            assert not set(ONLY).intersection(table.column("value").to_pylist()), name
            bodies = [body for body in table.column("body").to_pylist() if body]
            secrets = [said.body for record in spread(0) if record.value() in ONLY and (said := read_out(record)).body]
            assert not set(secrets).intersection(bodies), name


def verdict_of(archive: Archive, anchors: list[Head]) -> PartitionVerdict:
    return verify(Archive(archive.store), anchors)[0]


def check_remaining(archive: Archive, anchors: list[Head], strays: bool = False) -> None:
    """Checks the remaining archive: every anchor proves it, and the removed values are gone. strays: orphan objects are
    allowed, as a superseded writer may leave them; they hold no removed value."""
    heads = [*anchors, archive.head(TOPIC, 0)]
    verdict = verdict_of(archive, [one for one in heads if one.partition == 0])
    assert verdict.broken == () and (strays or verdict.orphans == ())
    assert (verdict.expired, verdict.redacted) == (len(GONE), len(SECRET))
    assert verdict.records == DAYS * PER_DAY
    assert verdict.proved == verdict.sealed
    assert list(Archive(archive.store).records(TOPIC, 0)) == LEFT

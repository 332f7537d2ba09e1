"""Snapshots: what is left of a partition up to an offset once everything that was superseded is left out.

A snapshot is nothing that anybody must believe: it is made from the archive, compared with it when it is made, and can be
made again at any time. With one, a set of the past costs what lies behind it and not the age of the ledger. It serves
whoever folds; a history is read whole.

Objects: `snapshots/<topic>/<partition>/<next>-<head>.parquet`, where `next` is the first offset that is not in it and
`head` the beginning of the hash of the manifest that seals up to there: one of another chain is not taken for one of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ledger.archive import parquet
from ledger.archive.archive import Archive
from ledger.archive.decoding import Decoded
from ledger.core.published import Decode, Published
from ledger.core.registers import parse_claim
from ledger.core.table import RegisterTable
from ledger.errors import LedgerError
from ledger.ports import MemoryRecord, Record

Thin = Callable[[Iterable[Record]], list[Record]]


class Snapshot(NamedTuple):
    """One that lies in a store. next: the first offset that is not in it. records: reads it, in offset order."""

    next: int
    name: str
    records: Callable[[], Iterator[Record]]


def thin_events(records: Iterable[Record]) -> list[Record]:
    """The last record of each key, if it is no tombstone: all that a fold reads."""
    last: dict[bytes | None, Record] = {}
    for record in records:
        if record.value() is None:
            last.pop(record.key(), None)
        else:
            last[record.key()] = record
    return sorted(last.values(), key=lambda record: record.offset())


def thin_recovery(records: Iterable[Record], decode: Decode) -> list[Record]:
    """Of each key the last record and the last that had an effect, which may be an older one: a stale leader's record hides
    what counts. And every claim."""
    view = Published(decode)
    last: dict[bytes, Record] = {}
    effective: dict[bytes, Record] = {}
    for record in records:
        view.apply(record)
        key = record.key()
        if key is None:
            continue
        last[key] = record
        if parse_claim(key) is None and view.last_is_effective(record.partition(), key):
            effective[key] = record
            if record.value() is None:
                del last[key], effective[key]
    kept = {record.offset(): record for record in (*last.values(), *effective.values())}
    return [kept[offset] for offset in sorted(kept)]


def make(
    archive: Archive, topic: str, partition: int, thin: Thin, decoded: Callable[[Record], Decoded],
    same: Callable[[Iterable[Record], Iterable[Record]], bool],
) -> Snapshot | None:  # fmt: skip
    """Of all that is sealed; None if that is nothing. One that is there is left as it is.

    same: whether a fold of some records gives what a fold of others gives.
    Raises: LedgerError if it would not stand for the whole."""
    head = archive.head(topic, partition)
    if head.sequence < 0:
        return None
    found = latest(archive, topic, partition, head.next)
    if found is not None and found.next == head.next:
        return found
    kept = thin(archive.records(topic, partition, end=head.next))
    if not same(kept, archive.records(topic, partition, end=head.next)):
        raise LedgerError(
            f"A snapshot of {topic}[{partition}] up to {head.next} does not fold to what the archive folds to.",
            hint="This is a defect of the ledger. Answers about the past go on without it.",
        )
    if kept:
        archive.store.create(_name(topic, partition, head.next, head.sha256), parquet.encode(kept, decoded))
    return latest(archive, topic, partition, head.next)


def latest(archive: Archive, topic: str, partition: int, end: int) -> Snapshot | None:
    """The newest one that holds nothing from `end` on, and was made of this chain."""
    prefix = f"snapshots/{topic}/{partition}/"
    names = {}
    for name in archive.store.names(prefix):
        next_, _, head = name.removeprefix(prefix).removesuffix(".parquet").partition("-")
        if next_.isdecimal() and int(next_) <= end:
            names[int(next_), head] = name
    if not names:
        return None
    heads = {(one.next, one.sha256[:16]) for one in archive.manifests(topic, partition)}
    fitting = names.keys() & heads
    if not fitting:
        return None
    name = names[max(fitting)]
    return Snapshot(max(fitting)[0], name, lambda: _read(archive, name, topic, partition))


def same_registers(one: Iterable[Record], other: Iterable[Record]) -> bool:
    return _registers(one) == _registers(other)


def same_entries(one: Iterable[Record], other: Iterable[Record], decode: Decode) -> bool:
    first, second = _published(one, decode), _published(other, decode)
    return all(getattr(first, name) == getattr(second, name) for name in ("entries", "unreadable", "claimed", "progress"))


def _registers(records: Iterable[Record]) -> object:
    table = RegisterTable(1)
    table.apply([_of_one_partition(record) for record in records], tell_touched=False)
    return table.jobs


def _of_one_partition(record: Record) -> MemoryRecord:
    return MemoryRecord(record.topic(), 0, record.offset(), record.key(), record.value(), (), record.timestamp()[1])


def _published(records: Iterable[Record], decode: Decode) -> Published:
    view = Published(decode)
    for record in records:
        view.apply(record)
    return view


def _read(archive: Archive, name: str, topic: str, partition: int) -> Iterator[MemoryRecord]:
    data = archive.store.read(name)
    try:
        yield from parquet.read(data or b"", topic, partition)
    except ValueError as error:
        hint = "Remove it from the store: jobledger archive snapshot makes another."
        raise LedgerError(f"{name} can't be read: {error}.", hint=hint) from error


def _name(topic: str, partition: int, next_: int, head: str) -> str:
    return f"snapshots/{topic}/{partition}/{next_:019}-{head[:16]}.parquet"

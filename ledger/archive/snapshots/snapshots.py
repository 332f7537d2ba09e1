"""Snapshots: the records of a partition up to an offset, without the superseded ones.

A snapshot needs no trust: it is made from the archive, compared with it when it is made, and can be made again at any
time. With a snapshot, the cost of a past recovery set depends on the records behind the snapshot, not on the age of the
ledger. A snapshot serves folds only: it does not hold the history.

Objects: `snapshots/<topic>/<partition>/<next>-<head>.parquet`. `next` is the first offset that is not covered. `head`
is the beginning of the hash of the manifest that seals up to there, so snapshots of another chain are recognized. A
snapshot that was made from an earlier one, and compared with that and the records sealed since, is named
`…-<steps>.parquet`. `steps` counts the snapshots back to one that was compared with a fold of the whole archive.
Source: docs/decisions/0038.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

from ledger.archive.format import parquet
from ledger.archive.format.decoding import Decoded
from ledger.archive.store.archive import Archive
from ledger.core.model.published import Decode, Published
from ledger.core.model.registers import PROGRESS_KEY, parse_claim
from ledger.core.model.table import RegisterTable
from ledger.errors import LedgerError, TemporaryError, Unreachable
from ledger.ports import MemoryRecord, Record
from ledger.util.loggers import Logger

log = Logger("ledger.archive")
_PROGRESS = PROGRESS_KEY.encode()
WHOLE_EVERY = 30  # every 30th snapshot is compared with a fold of the whole archive: once a month, if made daily
_NAME = re.compile(r"([0-9]{1,19})-([0-9a-f]{16})(?:-([1-9][0-9]{0,3}))?\.parquet\Z")
Thin = Callable[[Iterable[Record]], list[Record]]


class Listed(NamedTuple):
    """The facts in a snapshot's name. head: the first 16 characters of its manifest's hash. steps: the number of
    snapshots back to one that was compared with the whole archive; 0 = this snapshot was compared itself."""

    next: int
    head: str
    steps: int
    name: str


class Snapshot(NamedTuple):
    """A stored snapshot. next: the first offset that it does not cover. records: reads its records, in offset order.
    steps: as `Listed`."""

    next: int
    name: str
    records: Callable[[], Iterator[Record]]
    steps: int = 0


def thin_events(records: Iterable[Record]) -> list[Record]:
    """The last record of each key, unless it is a tombstone: all that a fold reads. Also the last record of each job
    that has such a key, even a tombstone: a projector is up to date with a job only if it has read the job's last
    record."""
    last: dict[bytes | None, Record] = {}
    of_job: dict[bytes, Record] = {}
    for record in records:
        key = record.key()
        of_job[_job_of(key)] = record
        if record.value() is None:
            last.pop(key, None)
        else:
            last[key] = record
    kept = {record.offset(): record for record in last.values()}
    for job in {_job_of(key) for key in last}:
        kept.setdefault(of_job[job].offset(), of_job[job])
    return [kept[offset] for offset in sorted(kept)]


def _job_of(key: bytes | None) -> bytes:
    return (key or b"").partition(b"/")[0]


def thin_recovery(records: Iterable[Record], decode: Decode) -> list[Record]:
    """The records that readers of ledger.recovery depend on.

    For each key: the last record, and the last effective one, which is older if a stale leader's record follows it. An
    unreadable record is effective too, because the job's earlier entry no longer counts. For each claim: the first and
    the last record, because a copy appended later must not replace the first one, which precedes the records of its
    epoch."""
    view = Published(decode)
    last: dict[bytes, Record] = {}
    effective: dict[bytes, Record] = {}
    claims: dict[bytes, Record] = {}
    for record in records:
        undecodable = view.dropped["undecodable"]
        view.apply(record)
        key = record.key()
        if key is None:
            continue
        last[key] = record
        if parse_claim(key) is not None and record.value() is not None:
            claims.setdefault(key, record)
        unread = view.dropped["undecodable"] > undecodable and key != _PROGRESS
        if parse_claim(key) is None and (unread or view.last_is_effective(record.partition(), key)):
            effective[key] = record
            if record.value() is None:
                del last[key], effective[key]
    kept = {record.offset(): record for record in (*claims.values(), *last.values(), *effective.values())}
    return [kept[offset] for offset in sorted(kept)]


def make(
    archive: Archive, topic: str, partition: int, thin: Thin, decoded: Callable[[Record], Decoded],
    same: Callable[[Iterable[Record], Iterable[Record]], bool], whole: bool = True,
) -> Snapshot | None:  # fmt: skip
    """Makes a snapshot of all sealed records. Returns the newest snapshot; None if there is none, because nothing is
    sealed or no record counts. An existing snapshot up to the same offset is kept, if it is correct.

    same: whether two sequences of records fold to the same result. whole: make the snapshot from the whole archive, and
    compare it with that. False: make it from the newest snapshot and the records sealed since, and compare it with
    these; one in WHOLE_EVERY is made from the whole archive all the same. Then the last snapshot that was compared with
    the whole archive, and all later ones, are compared again, and deleted if they differ.

    Raises: LedgerError if the new snapshot does not fold to the same result as the records that it was made from."""
    head = archive.head(topic, partition)
    if head.sequence < 0:
        return None
    found = latest(archive, topic, partition, head.next)
    if found is not None and found.next == head.next and not whole:
        return found
    steps = 0 if whole or found is None or found.steps + 1 >= WHOLE_EVERY else found.steps + 1
    records = partial(_since, archive, topic, partition, found if steps else None, head.next)
    kept = thin(records())
    if not same(kept, records()):
        raise LedgerError(
            f"A snapshot of {topic}[{partition}] up to {head.next} does not fold to what the archive folds to.",
            hint="This is a bug in the ledger. Questions about the past are answered without the snapshot.",
        )
    if not steps:
        _drop_unfit(archive, topic, partition, head.next, same)
    if kept:
        name = _name(topic, partition, head.next, head.sha256, steps)
        archive.store.create(name, parquet.encode(kept, decoded))
    return latest(archive, topic, partition, head.next)


def latest(archive: Archive, topic: str, partition: int, end: int) -> Snapshot | None:
    """The newest snapshot of this chain that covers no offset from `end` on. If two cover the same offsets, the one
    with fewer `steps`."""
    found = _of_this_chain(archive, topic, partition, end)
    return found[-1] if found else None


def _of_this_chain(archive: Archive, topic: str, partition: int, end: int) -> list[Snapshot]:
    """The snapshots of this chain that cover no offset from `end` on, by offset. If two cover the same offsets, the one
    with fewer `steps` comes later."""
    found = [one for one in listed(archive, topic, partition) if one.next <= end]
    heads = {(one.next, one.sha256[:16]) for one in archive.manifests(topic, partition)} if found else set()
    ours = sorted((one for one in found if one[:2] in heads), key=lambda one: (one.next, -one.steps, one.name))
    return [Snapshot(one.next, one.name, partial(_read, archive, one, topic, partition), one.steps) for one in ours]


def listed(archive: Archive, topic: str, partition: int) -> list[Listed]:
    """All stored snapshots, of this chain and others, by offset."""
    prefix = _prefix(topic, partition)
    found = ((name, _NAME.match(name.removeprefix(prefix))) for name in archive.store.names(prefix))
    return sorted(Listed(int(m[1]), m[2], int(m[3] or 0), name) for name, m in found if m is not None)


def _since(archive: Archive, topic: str, partition: int, base: Snapshot | None, end: int) -> Iterator[Record]:
    """The sealed records below `end`. With a base: the base's records, then the records sealed since."""
    if base is None:
        return archive.records(topic, partition, end=end)
    return chain(base.records(), archive.records(topic, partition, first=base.next, end=end))


def _drop_unfit(
    archive: Archive, topic: str, partition: int, end: int, same: Callable[[Iterable[Record], Iterable[Record]], bool]
) -> None:
    """Deletes wrong snapshots up to `end`, beginning with the last one that was compared with the whole archive. Each
    is compared with the last correct one before it and the records sealed since, or else with the whole archive.

    Raises: as `Archive.records`."""
    ours = _of_this_chain(archive, topic, partition, end)
    begin = max((at for at, one in enumerate(ours) if not one.steps), default=0)
    base: Snapshot | None = None
    for one in ours[begin:]:
        try:
            kept = list(one.records())
        except (TemporaryError, Unreachable):  # the snapshot may still be correct
            raise
        except LedgerError as error:
            why = str(error)
        else:
            if same(kept, _since(archive, topic, partition, base, one.next)):
                base = one
                continue
            why = "it does not fold to what the archive folds to"
        log.error("snapshot_dropped", snapshot=one.name, why=why)
        archive.store.delete(one.name)


def same_registers(one: Iterable[Record], other: Iterable[Record]) -> bool:
    return _registers(one) == _registers(other)


def same_entries(one: Iterable[Record], other: Iterable[Record], decode: Decode) -> bool:
    """Whether both sequences give the same view, for readers and for a leader. A leader also depends on the last record
    of each key, and on whether that record is effective."""
    first, second = _published(one, decode), _published(other, decode)
    names = ("entries", "unreadable", "claimed", "progress", "raw")
    return all(getattr(first, name) == getattr(second, name) for name in names) and _hidden(first) == _hidden(second)


def _hidden(view: Published) -> set[tuple[int, bytes]]:
    return {(p, key) for p, keys in view.raw.items() for key in keys if not view.last_is_effective(p, key)}


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


def _read(archive: Archive, listed_: Listed, topic: str, partition: int) -> Iterator[MemoryRecord]:
    data = archive.store.read(listed_.name)
    if data is None:
        raise TemporaryError(f"{listed_.name} was thinned out meanwhile.", hint="Try again.")
    try:
        records = parquet.read(data, topic, partition)
        offsets = [record.offset() for record in records]
        if offsets != sorted(set(offsets)) or (offsets and not 0 <= offsets[0] <= offsets[-1] < listed_.next):
            raise ValueError("its offsets do not match its name")
    except ValueError as error:
        hint = "Delete it from the store, and make another: jobledger archive snapshot"
        raise LedgerError(f"{listed_.name} can't be read: {error}.", hint=hint) from error
    yield from records


def _prefix(topic: str, partition: int) -> str:
    return f"snapshots/{topic}/{partition}/"


def _name(topic: str, partition: int, next_: int, head: str, steps: int) -> str:
    return f"{_prefix(topic, partition)}{next_:019}-{head[:16]}{f'-{steps}' if steps else ''}.parquet"

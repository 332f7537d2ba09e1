"""The layout of restored topics: the partition and offset of each record of an archive.

With the same number of partitions, every record keeps its partition and offset, so positions in the data (`as_of` in an
entry, `events[P]@OFFSET`) keep their meaning. Offsets without a record are filled with no-ops. With another number of
partitions, the partitioner places each job. Records of a partition itself are then left out, and so are records that
had no effect because they were in the wrong partition. The layout is pure: the same archive gives the same layout, so
an interrupted restore is recognized and resumed. Source: docs/decisions/0030.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger.archive.store.archive import Archive
from ledger.core.model.published import Published, headers_of
from ledger.core.model.registers import NOOP_KEY, is_job_id, parse_claim, partition_of
from ledger.errors import LedgerError, UsageError
from ledger.ports import MemoryRecord, Record, TopicPartition

#: How many offsets beyond the end of its archive a partition may be filled. No leader writes an `as_of` beyond that.
FILLED_MAX = 1_000_000
_NOOP = NOOP_KEY.encode()


class TopicPair(NamedTuple):
    """Full names of two topics."""

    events: str
    recovery: str


class Placed(NamedTuple):
    """A record at its new position. filled: whether the record is a no-op for an offset without a record."""

    record: MemoryRecord
    filled: bool


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore. archived, restored: the names of the topics in the archive and in the cluster. before,
    after: the number of partitions in each. ends: the least end of each restored events partition (only if the number
    of partitions stays)."""

    archived: TopicPair
    restored: TopicPair
    before: int
    after: int
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every record keeps its offset."""
        return self.before == self.after

    def partitions(self) -> list[TopicPartition]:
        return [(topic, p) for topic in self.restored for p in range(self.after)]


def plan(
    archive: Archive, archived: TopicPair, restored: TopicPair, after: int, before: int | None, published: Published | None
) -> RestorePlan:
    """The plan of a restore. before: the former number of partitions; None = derive it from the archive. published: the
    state of the archived recovery topic, needed if the number of partitions stays.

    Raises: UsageError if the archive holds no such topics, or more partitions than `before`. LedgerError if published
    records refer to offsets far beyond the archive's end."""
    tps = [tp for tp in archive.partitions() if tp[0] in archived]
    if not any(topic == archived.events for topic, _ in tps):
        found = ", ".join(sorted({topic for topic, _ in archive.partitions()})) or "nothing"
        raise UsageError(f"The archive holds no topic {archived.events}; it holds {found}.",
                         hint="Give the prefix of its topics with --archived-prefix.")  # fmt: skip
    shown = 1 + max(partition for _, partition in tps)
    if before is not None and before < shown:
        raise UsageError(f"The archive holds {shown} partitions, but the former number is given as {before}.")
    made = RestorePlan(archived, restored, before or _before(archive, archived.events, shown, after), after)
    if not made.exact or published is None:
        return made
    return RestorePlan(archived, restored, made.before, after, _ends(archive, archived.events, made.before, published))


def _before(archive: Archive, events: str, shown: int, after: int) -> int:
    """The former number of partitions. The archive shows fewer if the last partitions were never written to; then the
    number may be `after`, from the settings. `after` is taken only if at least as many jobs are in the right partition
    by it as by the number that the archive shows."""
    if shown >= after:
        return shown
    found: Counter[int] = Counter()
    for p in range(shown):
        heads = {(record.key() or b"").partition(b"/")[0] for record in archive.records(events, p)}
        for job_id in filter(is_job_id, (head.decode("ascii", "replace") for head in heads)):
            found.update(count for count in (shown, after) if partition_of(job_id, count) == p)
    return after if found[after] >= found[shown] else shown


def _ends(archive: Archive, events: str, partitions: int, published: Published) -> dict[int, int]:
    """The least end of each restored events partition. The archive of `ledger.recovery` may reach further than that of
    `ledger.events`; then an entry's `as_of` covers lost records. Their offsets must not be used again: a new fact would
    be below an `as_of` that does not reflect it, and a reconciler would plan as if the fact had been read."""
    ends = {p: archive.head(events, p).next for p in range(partitions)}
    said = [(entry.partition, entry.as_of) for entry in published.entries.values()]
    for partition, as_of in [*said, *published.progress.items()]:
        if partition in ends and ends[partition] < as_of:
            sealed = archive.head(events, partition).next
            if as_of - sealed > FILLED_MAX:
                raise LedgerError(
                    f"{events}[{partition}] is archived up to {sealed}, but published records refer to offset {as_of}.",
                    hint="Restore into another number of partitions.",
                )
            ends[partition] = as_of
    return ends


def lay_out(
    archive: Archive, plan: RestorePlan, archived: Callable[[Record], object], left_out: Counter[str]
) -> Iterator[Placed]:
    """Yields every record at its new position; in each partition, the offsets run from 0 without a gap.

    archived: called with every record of the archive at its old position. left_out: counts the records that are left
    out, by reason. Raises: as `Archive.records`."""
    for before, after in zip(plan.archived, plan.restored, strict=True):
        if plan.exact:
            for p in range(plan.before):
                end = plan.ends.get(p, 0) if before == plan.archived.events else 0
                records = _seen(archive.records(before, p), archived)
                yield from _exactly(records, (after, p), max(end, archive.head(before, p).next))
        else:
            # Merge by append time, so that a cut at a past moment is a prefix of every partition.
            parts = [_seen(archive.records(before, p), archived) for p in range(plan.before)]
            found = heapq.merge(*parts, key=lambda record: record.timestamp()[1])
            yield from _by_job(found, plan, before == plan.archived.events, after, left_out)


def _seen(records: Iterable[MemoryRecord], archived: Callable[[Record], object]) -> Iterator[MemoryRecord]:
    for record in records:
        archived(record)
        yield record


def _exactly(records: Iterable[MemoryRecord], tp: TopicPartition, end: int) -> Iterator[Placed]:
    offset, at_ms = 0, None
    for record in records:
        at_ms = record.timestamp()[1] if at_ms is None else at_ms
        while offset < record.offset():
            yield _filler(tp, offset, at_ms)
            offset += 1
        at_ms = record.timestamp()[1]
        yield Placed(_moved(record, tp, offset), filled=False)
        offset += 1
    for beyond in range(offset, end):
        yield _filler(tp, beyond, at_ms or 1)


def _by_job(
    records: Iterable[MemoryRecord], plan: RestorePlan, of_events: bool, topic: str, left_out: Counter[str]
) -> Iterator[Placed]:
    offsets: Counter[int] = Counter()
    for record in records:
        partition = _partition(record, plan, of_events)
        if isinstance(partition, str):
            left_out[partition] += 1
            continue
        yield Placed(_moved(record, (topic, partition), offsets[partition]), filled=False)
        offsets[partition] += 1


def _partition(record: Record, plan: RestorePlan, of_events: bool) -> int | str:
    """The new partition of a record, or the reason to leave the record out."""
    key = record.key()
    if key is not None and key.startswith(b"~"):
        # The reconciler's claims are kept: they show which epochs were used. The projector's claims are left out, so
        # the entries published under them have no effect. The next projector, with a higher epoch, writes all entries
        # again.
        claim = parse_claim(key)
        return record.partition() % plan.after if claim is not None and of_events else "of a partition"
    job_id = ((key or b"").partition(b"/")[0] if of_events else key or b"").decode("ascii", "replace")
    if not is_job_id(job_id) or partition_of(job_id, plan.before) != record.partition():
        return "foreign"  # it had no effect in its partition, but might have one in another
    return partition_of(job_id, plan.after)


def _moved(record: MemoryRecord, tp: TopicPartition, offset: int) -> MemoryRecord:
    headers = tuple(headers_of(record))
    return MemoryRecord(*tp, offset, record.key(), record.value(), headers, record.timestamp()[1])


def _filler(tp: TopicPartition, offset: int, at_ms: int) -> Placed:
    return Placed(MemoryRecord(*tp, offset, _NOOP, None, (), at_ms), filled=True)

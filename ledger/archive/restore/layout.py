"""Where each record of an archive comes to lie in topics that are restored: which partition, which offset.

With as many partitions as before everything lies where it lay, offset by offset, so that positions which the data names
(`as_of` in an entry, `events[P]@OFFSET`) mean the same as ever; offsets that hold no record any more are filled with
no-ops. With another number a job goes where the partitioner puts it, and what belonged to a partition, or had no effect for
lying in the wrong one, is left out. Pure: the same archive gives the same layout, so a restore that was broken off can be
told from anything else, and goes on. Source: docs/decisions/0030.
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

#: How far beyond the end of its archive a partition may be filled. What an entry claims beyond that, no leader wrote.
FILLED_MAX = 1_000_000
_NOOP = NOOP_KEY.encode()


class TopicPair(NamedTuple):
    """Full names of two topics."""

    events: str
    recovery: str


class Placed(NamedTuple):
    """filled: a no-op in the place of an offset that holds no record."""

    record: MemoryRecord
    filled: bool


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """archived, restored: the topics as they are called in the archive, and are to be called. before, after: numbers of
    partitions. ends: where the restored partitions of events end at least (the same number of partitions only)."""

    archived: TopicPair
    restored: TopicPair
    before: int
    after: int
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether every record keeps its offset."""
        return self.before == self.after

    def places(self) -> list[TopicPartition]:
        return [(topic, p) for topic in self.restored for p in range(self.after)]


def plan(
    archive: Archive, archived: TopicPair, restored: TopicPair, after: int, before: int | None, published: Published | None
) -> RestorePlan:
    """published: what the archive of the recovery topic says, wanted if the number of partitions stays.

    before None: as many as the archive shows. Raises: UsageError, LedgerError: the archive holds no such topics, or no such
    number of partitions."""
    places = [place for place in archive.places() if place[0] in archived]
    if not any(topic == archived.events for topic, _ in places):
        found = ", ".join(sorted({topic for topic, _ in archive.places()})) or "nothing"
        raise UsageError(f"The archive holds no topic {archived.events}; it holds {found}.",
                         hint="Name the prefix of its topics with --archived-prefix.")  # fmt: skip
    shown = 1 + max(partition for _, partition in places)
    if before is not None and before < shown:
        raise UsageError(f"The archive holds {shown} partitions, which is more than {before}.")
    made = RestorePlan(archived, restored, before or _before(archive, archived.events, shown, after), after)
    if not made.exact or published is None:
        return made
    return RestorePlan(archived, restored, made.before, after, _ends(archive, archived.events, made.before, published))


def _before(archive: Archive, events: str, shown: int, after: int) -> int:
    """How many partitions there were: as many as the archive shows, or more, if the last ones were never written to; then
    the settings may know. But only if every job lies where it belongs by that number: the other one is safe."""
    if shown >= after:
        return shown
    found: Counter[int] = Counter()
    for p in range(shown):
        heads = {(record.key() or b"").partition(b"/")[0] for record in archive.records(events, p)}
        for job_id in filter(is_job_id, (head.decode("ascii", "replace") for head in heads)):
            found.update(count for count in (shown, after) if partition_of(job_id, count) == p)
    return after if found[after] >= found[shown] else shown


def _ends(archive: Archive, events: str, partitions: int, published: Published) -> dict[int, int]:
    """The archive of `ledger.recovery` may reach further than that of the events: then an entry speaks of records that are
    lost. Their offsets are not given again: else a new fact would lie below an `as_of` that knows nothing of it, and a
    reconciler would plan as if it had been read."""
    ends = {p: archive.head(events, p).next for p in range(partitions)}
    said = [(entry.partition, entry.as_of) for entry in published.entries.values()]
    for partition, as_of in [*said, *published.progress.items()]:
        if partition in ends and ends[partition] < as_of:
            sealed = archive.head(events, partition).next
            if as_of - sealed > FILLED_MAX:
                raise LedgerError(
                    f"{events}[{partition}] is archived up to {sealed}, and what is published speaks of offset {as_of}.",
                    hint="Restore it into another number of partitions.",
                )
            ends[partition] = as_of
    return ends


def lay_out(
    archive: Archive, plan: RestorePlan, archived: Callable[[Record], object], left_out: Counter[str]
) -> Iterator[Placed]:
    """Every record as it is to lie, each partition by offsets from 0 on without a hole.

    archived: is shown every record of the archive, as it lay. left_out: counts what is left out, by reason.
    Raises: as `Archive.records`."""
    for before, after in zip(plan.archived, plan.restored, strict=True):
        if plan.exact:
            for p in range(plan.before):
                end = plan.ends.get(p, 0) if before == plan.archived.events else 0
                records = _seen(archive.records(before, p), archived)
                yield from _exactly(records, (after, p), max(end, archive.head(before, p).next))
        else:
            # By append time, so that a cut at a moment of the past is a beginning of every partition.
            parts = [_seen(archive.records(before, p), archived) for p in range(plan.before)]
            found = heapq.merge(*parts, key=lambda record: record.timestamp()[1])
            yield from _by_job(found, plan, before == plan.archived.events, after, left_out)


def _seen(records: Iterable[MemoryRecord], archived: Callable[[Record], object]) -> Iterator[MemoryRecord]:
    for record in records:
        archived(record)
        yield record


def _exactly(records: Iterable[MemoryRecord], place: TopicPartition, end: int) -> Iterator[Placed]:
    offset, at_ms = 0, None
    for record in records:
        at_ms = record.timestamp()[1] if at_ms is None else at_ms
        while offset < record.offset():
            yield _filler(place, offset, at_ms)
            offset += 1
        at_ms = record.timestamp()[1]
        yield Placed(_moved(record, place, offset), filled=False)
        offset += 1
    for beyond in range(offset, end):
        yield _filler(place, beyond, at_ms or 1)


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
    """Where it goes; or why it goes nowhere."""
    key = record.key()
    if key is not None and key.startswith(b"~"):
        # The reconciler's claims say which epochs are spent. The projector's are left out: so whatever it had published
        # under them has no effect, and the next one, whose epoch is above them all, writes every entry anew.
        claim = parse_claim(key)
        return record.partition() % plan.after if claim is not None and of_events else "of a partition"
    job_id = ((key or b"").partition(b"/")[0] if of_events else key or b"").decode("ascii", "replace")
    if not is_job_id(job_id) or partition_of(job_id, plan.before) != record.partition():
        return "foreign"  # it had no effect where it lay; elsewhere it might
    return partition_of(job_id, plan.after)


def _moved(record: MemoryRecord, place: TopicPartition, offset: int) -> MemoryRecord:
    headers = tuple(headers_of(record))
    return MemoryRecord(*place, offset, record.key(), record.value(), headers, record.timestamp()[1])


def _filler(place: TopicPartition, offset: int, at_ms: int) -> Placed:
    return Placed(MemoryRecord(*place, offset, _NOOP, None, (), at_ms), filled=True)

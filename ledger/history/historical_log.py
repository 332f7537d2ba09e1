"""The log of a past moment: all records up to a cut, from the archive if there is one, and from the topics.

`HistoricalLog` is an EventLog, so all code that reads a ledger can read its past. `resolve_moment` makes one from a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from typing import NamedTuple

from ledger.errors import UsageError
from ledger.ports import NOWHERE, EventLog, Marks, Reader, Record, TopicPartition, Writer
from ledger.reader.expiry_gaps import Expired, ExpiryGaps, left_out
from ledger.reader.reading import Source


class Span(NamedTuple):
    """A run of archived records: the offset behind it, and its latest append time in seconds since the epoch."""

    next: int
    greatest_s: float


class Want(NamedTuple):
    """A choice of records. thin: superseded records may be missing, as after log compaction; that is enough for a fold.
    keys: only records whose key begins with one of these; none = all. begin: partition -> the first offset; 0 for
    partitions not named."""

    thin: bool = False
    keys: tuple[bytes, ...] = ()
    begin: Marks = NOWHERE


@dataclass(frozen=True, slots=True)
class SealedRecords:
    """The archived records of one partition: all below `next`. records: reads them, from one offset up to another.
    sure_from_s: the oldest moment (seconds since the epoch) from which the archive is complete. spans: consecutive runs
    from offset 0, as many as are known; they speed up the search for a moment. snapshot: end -> the newest snapshot up
    to there, as (next, reads it). picked: as records, but only keys that begin with one of these bytes; None = not
    supported. expired: removals by retention. topic_id: of the archived topic, "" = unknown."""

    next: int
    sure_from_s: float
    records: Callable[[int, int], Iterator[Record]]
    spans: Sequence[Span] = ()
    snapshot: Callable[[int], tuple[int, Callable[[], Iterator[Record]]] | None] = lambda _end: None
    picked: Callable[[int, int, Sequence[bytes]], Iterator[Record]] | None = None
    expired: Sequence[Expired] = ()
    topic_id: str = ""

    def between(self, begin: int, end: int, want: Want) -> Iterator[Record]:
        """The records at offsets from `begin` up to, not including, `end`. thin: a snapshot may replace earlier records."""
        if want.keys and self.picked is not None:
            return self.picked(begin, end, want.keys)
        found = self.snapshot(end) if want.thin else None
        if found is None or found[0] <= begin:
            return self.records(begin, end)
        return chain((one for one in found[1]() if one.offset() >= begin), self.records(found[0], end))

    def last_before(self, end: int) -> tuple[int, float]:
        """Offset and append time (seconds since the epoch) of the last record below `end`; (-1, 0) if there is none."""
        ends = [span.next for span in self.spans if span.next < end]
        for begin in [*reversed(ends), 0]:
            if found := list(self.records(begin, end)):
                return found[-1].offset(), found[-1].timestamp()[1] / 1000
            end = begin
        return -1, 0.0


Archived = Mapping[TopicPartition, SealedRecords]
EVERYTHING = Want()


class HistoricalLog:
    """A read-only EventLog that ends at a cut. cut: partition -> the first offset behind the moment. left_out: jobs
    whose state is unknown, because records expired. holes: partitions that may lack records behind the archive's
    end."""

    def __init__(
        self, log: EventLog, cut: Mapping[TopicPartition, int], archived: Archived, want: Want = EVERYTHING,
        left_out: ExpiryGaps | None = None, holes: Collection[TopicPartition] = (),
    ) -> None:  # fmt: skip
        self._log, self.cut, self._archived, self._want = log, cut, archived, want
        self.left_out, self.holes = left_out or ExpiryGaps(), holes

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> PastReader:
        """A reader of the archived records, then of the topics from the archive's end up to the cut."""
        sealed = {tp: one.next for tp, one in self._archived.items()}
        live = self._log.reader(topics, partition, {**sealed, **{p: max(at, sealed.get(p, 0)) for p, at in begin.items()}})
        cut = {tp: min(end, self.cut.get(tp, end)) for tp, end in live.high_watermarks().items()}
        archived = {tp: self._archived[tp] for tp in cut if tp in self._archived}
        want = self._want._replace(begin={**self._want.begin, **begin})
        return PastReader(live, cut, archived, want, self.left_out)

    def ending(self, cut: Marks) -> HistoricalLog:
        """The same log up to these offsets, for a fold."""
        return HistoricalLog(self._log, {**self.cut, **cut}, self._archived, Want(thin=True), self.left_out)

    def wanting(self, want: Want) -> HistoricalLog:
        """The same log with this choice of records."""
        return HistoricalLog(self._log, self.cut, self._archived, want, self.left_out)

    def leaving_out(self, left_out: ExpiryGaps) -> HistoricalLog:
        """The same log without these jobs."""
        return HistoricalLog(self._log, self.cut, self._archived, self._want, left_out)

    def left_out_since(self, source: Source, begin: Marks) -> ExpiryGaps:
        """The jobs whose state is unknown at some moment between `begin` and the cut of this log, because records
        expired. source: reads this log."""
        return left_out_between(source, begin, self.cut, self._archived)

    def writer(self, transactional_id: str) -> Writer:  # noqa: ARG002
        raise UsageError("The past can't be written.")

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return self._log.topic_ids(topics)


@dataclass(frozen=True, slots=True)
class HistoricalSource(Source):
    """A ledger as it was at a moment."""

    log: HistoricalLog

    @property
    def expiry_gaps(self) -> ExpiryGaps:
        return self.log.left_out


class PastReader:
    """A Reader that ends at a cut. It reads the archived records first, then the later records from the topic."""

    def __init__(
        self, live: Reader, cut: Mapping[TopicPartition, int], archived: Archived, want: Want = EVERYTHING,
        left_out: ExpiryGaps | None = None,
    ) -> None:  # fmt: skip
        self._live, self._cut, self._keys = live, dict(cut), want.keys
        self._left_out = left_out or ExpiryGaps()
        self._position = {tp: min(want.begin.get(tp, 0), end) for tp, end in cut.items()}
        sealed = {tp: min(archived[tp].next, end) if tp in archived else 0 for tp, end in cut.items()}
        self._begin = {tp: max(sealed[tp], at) for tp, at in self._position.items()}
        self._old = [
            (tp, archived[tp].between(at, sealed[tp], want))
            for tp, at in self._position.items() if sealed[tp] > at
        ]  # fmt: skip

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        if self._old:
            tp, records = self._old[0]
            if found := list(islice(records, records_max)):
                self._position[tp] = found[-1].offset() + 1
            else:
                self._old.pop(0)
                self._position[tp] = self._begin[tp]
            return [record for record in found if self._is_wanted(record)]
        if self._position == self._cut:
            return []
        found = [record for record in self._live.poll(records_max, timeout_s) if self._counts(record)]
        for tp, position in self._live.position().items():
            self._position[tp] = min(self._cut[tp], max(self._begin[tp], position))
        return found

    def position(self) -> Marks:
        return dict(self._position)

    def high_watermarks(self) -> Marks:
        return dict(self._cut)

    def close(self) -> None:
        self._live.close()

    def _counts(self, record: Record) -> bool:
        tp = record.topic(), record.partition()
        return self._begin[tp] <= record.offset() < self._cut[tp] and self._is_wanted(record)

    def _is_wanted(self, record: Record) -> bool:
        """Whether the key of a record is wanted. Some archives cannot filter by key."""
        if self._keys and not (record.key() or b"").startswith(self._keys):
            return False
        return not self._left_out.hides(record)


def historical(source: Source, log: HistoricalLog) -> HistoricalSource:
    """The same ledger, read from a historical log."""
    return HistoricalSource(**{field.name: getattr(source, field.name) for field in fields(source)} | {"log": log})


def picked(source: Source, keys: tuple[bytes, ...]) -> Source:
    """A source of the past, with only the records whose key begins with one of these; any other source unchanged."""
    return replace(source, log=source.log.wanting(Want(keys=keys))) if isinstance(source, HistoricalSource) else source


def until(source: Source, cut: Marks) -> Source:
    """A source of the past, with only the records below these offsets that a fold needs; any other source unchanged."""
    return replace(source, log=source.log.ending(cut)) if isinstance(source, HistoricalSource) else source


def since(source: Source, cut: Marks) -> Source:
    """A source of the past, with only the records from these offsets on; any other source unchanged."""
    return replace(source, log=source.log.wanting(Want(begin=cut))) if isinstance(source, HistoricalSource) else source


def together(before: Source, after: Source, between: bool = False) -> tuple[Source, Source]:
    """Two moments of a ledger, without the jobs whose state is unknown at one of the moments; any other sources
    unchanged. between: also leave out jobs whose state is unknown at a moment between the two."""
    if not (isinstance(before, HistoricalSource) and isinstance(after, HistoricalSource)):
        return before, after
    one, other = before.log, after.log
    hidden = one.left_out | other.left_out
    if between:
        hidden |= other.left_out_since(after, one.cut)
    return replace(before, log=one.leaving_out(hidden)), replace(after, log=other.leaving_out(hidden))


def left_out_between(source: Source, begin: Marks, end: Marks, archived: Archived) -> ExpiryGaps:
    """The jobs whose state is unknown at some cut between `begin` and `end`: at that cut, one of their expired records
    was not superseded yet."""
    expired: dict[int, list[Expired]] = {}
    for tp, sealed in archived.items():
        if tp in end:
            found = (one.between(begin.get(tp, 0), end[tp]) for one in sealed.expired)
            expired.setdefault(tp[1], []).extend(one for one in found if one is not None)
    topics = source.topics.events, source.topics.recovery

    def kept(partition: int) -> Iterator[Record]:
        for topic in topics:
            if (sealed := archived.get((topic, partition))) is not None:
                yield from sealed.records(0, sealed.next)

    return left_out(source.codec, expired, kept)

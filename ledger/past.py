"""The log as it was: everything up to a cut, from the archive where there is one, and from the topics.

`PastLog` is an EventLog, so that whatever reads the ledger reads its past in the same way. What compaction may have removed
since then is not made up: where neither archive nor topic is sure to hold all of it, the question is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple

from ledger.core.moment import Moment, Places
from ledger.errors import LedgerError, NotFound, Unreachable, UsageError
from ledger.ports import EventLog, Marks, Reader, Record, TopicPartition, Writer
from ledger.reading import POLL_S, RECORDS_MAX, Source
from ledger.recorded import ThenClock


class Span(NamedTuple):
    """A run of records that an archive holds: the offset beyond it, and its latest append time, seconds since the epoch."""

    next: int
    greatest_s: float


@dataclass(frozen=True, slots=True)
class Sealed:
    """What an archive holds of one partition: all below `next`. records: reads it, from an offset up to another.
    sure_from_s: the oldest moment (seconds since the epoch) of which it is sure to hold everything. spans: one after the
    other from offset 0 on, as many as are known; a moment is looked for only where one ends later. snapshot: end -> the
    newest of its snapshots that goes no further, as (next, reads it)."""

    next: int
    sure_from_s: float
    records: Callable[[int, int], Iterator[Record]]
    spans: Sequence[Span] = ()
    snapshot: Callable[[int], tuple[int, Callable[[], Iterator[Record]]] | None] = lambda _end: None

    def below(self, end: int, thin: bool) -> Iterator[Record]:
        """Those at offsets below `end`; thin: without what is of no use to a fold, where a snapshot spares reading it."""
        found = self.snapshot(end) if thin else None
        if found is None:
            return self.records(0, end)
        return chain(found[1](), self.records(found[0], end))


Archived = Mapping[TopicPartition, Sealed]


class PastLog:
    """An EventLog that ends at `cut`: partition -> the first offset that does not count any more. It can't be written.
    thin: what is superseded may be missing, as after compaction: for whoever folds."""

    def __init__(
        self, log: EventLog, cut: Mapping[TopicPartition, int], archived: Archived, thin: bool = False
    ) -> None:
        self._log, self.cut, self._archived, self._thin = log, cut, archived, thin

    def reader(self, topics: Sequence[str], partition: int | None = None) -> PastReader:
        live = self._log.reader(topics, partition)
        cut = {place: min(end, self.cut.get(place, end)) for place, end in live.high_watermarks().items()}
        archived = {place: self._archived[place] for place in cut if place in self._archived}
        return PastReader(live, cut, archived, self._thin)

    def writer(self, transactional_id: str) -> Writer:  # noqa: ARG002
        raise UsageError("The past can't be written.")

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)


class PastReader:
    """A Reader that ends: first what the archive has, then what the topic has beyond that."""

    def __init__(self, live: Reader, cut: Mapping[TopicPartition, int], archived: Archived, thin: bool = False) -> None:
        self._live, self._cut = live, dict(cut)
        self._begin = {place: min(archived[place].next, end) if place in archived else 0 for place, end in cut.items()}
        self._position = dict.fromkeys(cut, 0)
        self._old = [(place, archived[place].below(end, thin)) for place, end in self._begin.items() if end > 0]

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        if self._old:
            place, records = self._old[0]
            if found := list(islice(records, records_max)):
                self._position[place] = found[-1].offset() + 1
            else:
                self._old.pop(0)
                self._position[place] = self._begin[place]
            return found
        if self._position == self._cut:
            return []
        found = [record for record in self._live.poll(records_max, timeout_s) if self._counts(record)]
        for place, position in self._live.position().items():
            self._position[place] = min(self._cut[place], max(self._begin[place], position))
        return found

    def position(self) -> Marks:
        return dict(self._position)

    def high_watermarks(self) -> Marks:
        return dict(self._cut)

    def close(self) -> None:
        self._live.close()

    def _counts(self, record: Record) -> bool:
        place = record.topic(), record.partition()
        return self._begin[place] <= record.offset() < self._cut[place]


def as_of(
    source: Source, moment: Moment, archived: Archived, lag_s: Mapping[str, float], thin: bool = False
) -> tuple[Source, Places]:
    """The ledger as it was at a moment, and the cut that this means: (which topic, partition) -> the first offset that does
    not count. lag_s: topic -> min.compaction.lag, for which a topic is complete. thin: as `PastLog`.

    Raises: NotFound: no such event or record. LedgerError: compaction may have removed what was there at that moment."""
    names = {"events": source.topics.events, "recovery": source.topics.recovery}
    log = source.log
    whole = PastLog(log, {}, archived)
    time_s, named = moment.time_s, _named(source, moment, names, whole)
    if moment.last is not None or moment.event_id:
        time_s = max((time for _, time in named.values()), default=0.0)
    assert time_s is not None
    cut = _cut_at(log, archived, list(names.values()), time_s, source.patience_s)
    if nowhere := sorted(set(named) - set(cut)):
        raise NotFound(f"There is no partition {nowhere[0][0]}[{nowhere[0][1]}].")
    cut |= {place: end for place, (end, _) in named.items()}
    _must_be_whole(cut, time_s, archived, lag_s, source.clock.time())
    short = {topic: name for name, topic in names.items()}
    told = {(short[topic], partition): end for (topic, partition), end in cut.items()}
    return replace(source, log=PastLog(log, cut, archived, thin), clock=ThenClock(source.clock, time_s)), told


def _named(
    source: Source, moment: Moment, names: Mapping[str, str], log: PastLog
) -> dict[TopicPartition, tuple[int, float]]:
    """place -> (the first offset that does not count, append time of the last record that does), where one is named."""
    wanted = {(names[topic], partition): last for (topic, partition), last in (moment.last or {}).items()}
    found = {place: (last + 1, 0.0) for place, last in wanted.items()}
    for record in _all(log, list(names.values()), source.patience_s) if wanted or moment.event_id else ():
        place = record.topic(), record.partition()
        time_s = record.timestamp()[1] / 1000
        if place in wanted and record.offset() <= wanted[place]:
            found[place] = wanted[place] + 1, time_s
        if moment.event_id and source.envelope.parse(record.headers()).id == moment.event_id:
            return {place: (record.offset() + 1, time_s)}
    if moment.event_id:
        raise NotFound(f"There is no record of the event {moment.event_id!r}, in the log or in the archive.")
    return found


def _cut_at(
    log: EventLog, archived: Archived, topics: Sequence[str], time_s: float, patience_s: float
) -> dict[TopicPartition, int]:
    """Behind the last record of each partition before the first that was appended after that time. Not its end: an archive
    knows nothing of what no record is in. Topics are read only where the archive does not go on beyond that time."""
    reader = log.reader(topics)
    try:
        cut = dict.fromkeys(reader.high_watermarks(), 0)
    finally:
        reader.close()
    over: set[TopicPartition] = set()
    for place in cut.keys() & archived.keys():
        cut[place], beyond = _cut_in(archived[place], time_s)
        if beyond:
            over.add(place)
    for record in _all(log, topics, patience_s) if over != cut.keys() else ():
        place = record.topic(), record.partition()
        if place in over or (place in archived and record.offset() < archived[place].next):
            continue
        if record.timestamp()[1] / 1000 > time_s:
            over.add(place)
        else:
            cut[place] = record.offset() + 1
    return cut


def _cut_in(sealed: Sealed, time_s: float) -> tuple[int, bool]:
    """As `_cut_at`, of what an archive has of one partition; whether it goes on beyond that time."""
    cut = 0
    for span in sealed.spans:
        if span.greatest_s > time_s:
            break
        cut = span.next
    for record in sealed.records(cut, sealed.next):
        if record.timestamp()[1] / 1000 > time_s:
            return cut, True
        cut = record.offset() + 1
    return cut, False


def _all(log: EventLog, topics: Sequence[str], patience_s: float) -> Iterator[Record]:
    """Raises: Unreachable."""
    reader = log.reader(topics)
    try:
        end, idle_s = reader.high_watermarks(), 0.0
        while any(reader.position().get(place, 0) < mark for place, mark in end.items()):
            before = reader.position()
            yield from reader.poll(RECORDS_MAX, POLL_S)
            idle_s = 0.0 if reader.position() != before else idle_s + POLL_S
            if idle_s > patience_s:
                raise Unreachable(f"Reading {' and '.join(topics)} stands still.", hint="Try again in a moment.")
    finally:
        reader.close()


def _must_be_whole(
    cut: Mapping[TopicPartition, int], time_s: float, archived: Archived, lag_s: Mapping[str, float], now_s: float
) -> None:
    """A topic keeps every record for its lag: so it is complete at moments that are no longer ago. An archive is complete
    up to where it is sealed, from the moment on at which it was not behind compaction."""
    for (topic, partition), end in sorted(cut.items()):
        sealed = archived.get((topic, partition))
        by_topic = time_s >= now_s - lag_s[topic]
        by_archive = sealed is not None and sealed.next >= end and time_s >= sealed.sure_from_s
        if not by_topic and not by_archive:
            if sealed is None:
                has = "there is no archive"
            elif sealed.next < end:
                has = f"the archive ends at {sealed.next}"
            else:
                has = "the archive was begun, or had caught up, only later"
            raise LedgerError(
                f"What was in {topic}[{partition}] at that moment may not be all there any more: compaction spares what is "
                f"younger than {lag_s[topic]:g} s, and {has}.",
                hint="See: jobledger archive status",
            )

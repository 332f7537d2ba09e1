"""Finds the cut of a moment in the log, and whether all records of that moment still exist.

Log compaction may have removed records since. If neither the archive nor the topic is certain to be complete, the question
is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ledger.core.model.published import headers_of
from ledger.errors import LedgerError, NotFound, Unreachable
from ledger.history.historical_log import Archived, HistoricalLog, SealedRecords, Want, historical, left_out_between
from ledger.history.historical_runner import ThenClock
from ledger.history.moment import FORMS, Cut, Moment
from ledger.ports import NOWHERE, EventLog, Marks, Record, TopicPartition
from ledger.reader.expiry_gaps import reaching
from ledger.reader.reading import POLL_S, RECORDS_MAX, STANDING_HINT, Source


def must_be_of(archived: Archived, topic_ids: Mapping[str, str]) -> None:
    """Checks that the archive belongs to the present topics. A topic that was deleted and created again has other offsets.
    topic_ids: topic -> id. Raises: LedgerError."""
    for (topic, _), sealed in sorted(archived.items(), key=lambda one: one[0]):
        now = topic_ids.get(topic, "")
        if sealed.topic_id and now and sealed.topic_id != now:
            raise LedgerError(
                f"{topic} was created again: the archive holds the records of another topic of that name (id "
                f"{sealed.topic_id}, now {now}).",
                hint="To read the archived records: jobledger archive query. If the new topic was restored from this "
                "archive: jobledger archive restore --adopt. Otherwise use another folder or prefix for its archive.",
            )


#: Makes the error for a partition: its name, its archived records, and its cut.
Refusal = Callable[[TopicPartition, SealedRecords | None, int], LedgerError]


def as_of(
    source: Source, moment: Moment, archived: Archived, lag_s: Mapping[str, float], thin: bool = False,
    refusal: Refusal | None = None,
) -> tuple[Source, Cut]:  # fmt: skip
    """The ledger as it was at a moment, and the cut: ("events" or "recovery", partition) -> the first offset behind the
    moment. lag_s: topic -> min.compaction.lag in seconds; a topic is complete for this time. thin: as in `Want`.
    refusal: makes the error for an incomplete partition; None = the error for a ledger with or without an archive.

    Raises: NotFound if there is no such event or record; LedgerError if log compaction may have removed records of that
    moment, or if the record that dates it has expired."""
    names = {"events": source.topics.events, "recovery": source.topics.recovery}
    log = source.log
    time_s, named = moment.time_s, _named(source, moment, names, archived)
    if moment.last is not None or moment.event_id:
        time_s = max((one.time_s for one in named.values()), default=0.0)
    assert time_s is not None
    by_time, behind = _cut_at(log, archived, list(names.values()), time_s, source.patience_s)
    if nowhere := sorted(set(named) - set(by_time)):
        raise NotFound(f"There is no partition {nowhere[0][0]}[{nowhere[0][1]}].")
    cut = by_time | {tp: one.end for tp, one in named.items()}
    now_s, holes = source.clock.time(), set[TopicPartition]()
    for tp, end in sorted(cut.items()):
        # The age of a named offset is that of its own record, even if the other partitions are cut later.
        own_s, until_s = named[tp][1:] if tp in named else (time_s, time_s)
        sealed, whole_s = archived.get(tp), now_s - lag_s[tp[0]]
        if hole := _hole(sealed, behind[tp], whole_s):
            holes.add(tp)
        if (time_s if end == by_time[tp] else until_s) >= whole_s:
            continue
        if (tp in named or not hole) and _has_all(sealed, end, own_s if end < by_time[tp] else time_s):
            continue
        raise (refusal or partial(_may_be_compacted, lag_s))(tp, sealed, end)
    short = {topic: name for name, topic in names.items()}
    named_ends = {(short[topic], partition): end for (topic, partition), end in cut.items()}
    then = HistoricalLog(log, cut, archived, Want(thin=thin), left_out_between(source, cut, cut, archived), holes)
    return historical(replace(source, clock=ThenClock(source.clock, time_s)), then), named_ends


class _Named(NamedTuple):
    """A named offset. end: the first offset behind it. time_s: append time of the last record below `end`. until_s: the
    time until which that record was the last one, as far as the remaining records show."""

    end: int
    time_s: float
    until_s: float


def _named(source: Source, moment: Moment, names: Mapping[str, str], archived: Archived) -> dict[TopicPartition, _Named]:
    """The named offsets. An event is searched for from offset 0."""
    topics = list(names.values())
    if moment.event_id:
        for record in _all(HistoricalLog(source.log, {}, archived), topics, source.patience_s):
            if source.envelope.parse(headers_of(record)).id == moment.event_id:
                tp, at_s = (record.topic(), record.partition()), record.timestamp()[1] / 1000
                return {tp: _Named(record.offset() + 1, at_s, at_s)}
        hint = f"If you did not mean an event, write {FORMS}."
        raise NotFound(f"There is no record of the event {moment.event_id!r}, in the log or in the archive.", hint=hint)
    wanted = {(names[topic], partition): last for (topic, partition), last in (moment.last or {}).items()}
    sealed = {tp: one.next for tp, one in archived.items()}
    ends = _ends(source.log, topics) if wanted else {}
    for tp, last in wanted.items():
        if tp in ends and last >= (end := max(ends[tp], sealed.get(tp, 0))):
            raise NotFound(f"{tp[0]}[{tp[1]}] ends at {end}: there is no offset {last} yet.")
    found = {tp: archived[tp].last_before(last + 1) if tp in archived else (-1, 0.0) for tp, last in wanted.items()}
    beyond = {tp for tp, last in wanted.items() if last >= sealed.get(tp, 0)}
    behind: dict[TopicPartition, Record] = {}
    # For an offset behind the archive, also read the record right behind it.
    for record in _all(source.log, topics, source.patience_s, sealed) if beyond or wanted.keys() - sealed.keys() else ():
        tp = record.topic(), record.partition()
        if tp not in wanted:
            continue
        if record.offset() > wanted[tp]:
            behind.setdefault(tp, record)
        elif tp in beyond:
            found[tp] = record.offset(), record.timestamp()[1] / 1000
    if ends.keys() - wanted.keys():
        _must_tell_when(wanted, found, archived)
    times = {tp: time_s for tp, (_, time_s) in found.items()}
    return {tp: _Named(last + 1, times[tp], max(times[tp], _until_s(last + 1, behind.get(tp))))
            for tp, last in wanted.items()}  # fmt: skip


def _must_tell_when(wanted: Marks, found: Mapping[TopicPartition, tuple[int, float]], archived: Archived) -> None:
    """Checks that the named records still exist, since their time cuts the other partitions. wanted: partition -> offset;
    found: partition -> offset and time of the last remaining record. Raises: LedgerError if one has expired."""
    for tp, last in sorted(wanted.items()):
        left, expired = found[tp][0], archived[tp].expired if tp in archived else ()
        if left < last and any(one.between(left + 1, last + 1) is not None for one in expired):
            raise LedgerError(
                f"The records at or right below {tp[0]}[{tp[1]}]@{last} have expired. So the time of that offset is "
                f"unknown, and the other partitions can't be cut at that time.",
                hint="Use a time, or an offset for every partition, as in the last line of answers: as of events[0]@….",
            )


def _until_s(end: int, behind: Record | None) -> float:
    """Until when a record was the last one. A gap of more than one offset before the next record means that records are
    missing; a single offset may be the end marker of a transaction."""
    return behind.timestamp()[1] / 1000 if behind is not None and behind.offset() <= end + 1 else 0.0


def _ends(log: EventLog, topics: Sequence[str]) -> Marks:
    reader = log.reader(topics)
    try:
        return reader.high_watermarks()
    finally:
        reader.close()


def _cut_at(
    log: EventLog, archived: Archived, topics: Sequence[str], time_s: float, patience_s: float
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The offset behind the last record of each partition that was appended up to a time. Counts expired records, but no
    offsets without a record, which an archive does not know. Topics are read only if the archive ends before that time; for
    these also returns the first remaining offset behind the archive (the partition's end if there is none), else 0."""
    ends = _ends(log, topics)
    cut, behind = dict.fromkeys(ends, 0), dict.fromkeys(ends, 0)
    left: dict[TopicPartition, int] = {}
    over: set[TopicPartition] = set()
    for tp in cut.keys() & archived.keys():
        found, beyond = _cut_in(archived[tp], time_s)
        cut[tp] = max(found, min(reaching(archived[tp].expired, time_s), archived[tp].next))
        if beyond:
            over.add(tp)
    in_archive = frozenset(over)
    sealed = {tp: one.next for tp, one in archived.items()}
    for record in _all(log, topics, patience_s, sealed) if over != cut.keys() else ():
        tp = record.topic(), record.partition()
        if tp in over:
            continue
        left.setdefault(tp, record.offset())
        if record.timestamp()[1] / 1000 > time_s:
            over.add(tp)
        else:
            cut[tp] = record.offset() + 1
    return cut, behind | {tp: left.get(tp, ends[tp]) for tp in ends.keys() - in_archive}


def _cut_in(sealed: SealedRecords, time_s: float) -> tuple[int, bool]:
    """As `_cut_at` for one archived partition, and whether the archive continues beyond that time."""
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


def _all(log: EventLog, topics: Sequence[str], patience_s: float, begin: Marks = NOWHERE) -> Iterator[Record]:
    """Yields the records of topics up to their high watermarks, from the offsets in `begin`. Raises: Unreachable if
    nothing moves for patience_s."""
    reader = log.reader(topics, None, begin)
    try:
        end, idle_s = reader.high_watermarks(), 0.0
        while any(reader.position().get(tp, 0) < mark for tp, mark in end.items()):
            before = reader.position()
            yield from reader.poll(RECORDS_MAX, POLL_S)
            idle_s = 0.0 if reader.position() != before else idle_s + POLL_S
            if idle_s > patience_s:
                raise Unreachable(f"Reading {' and '.join(topics)} makes no progress.", hint=STANDING_HINT)
    finally:
        reader.close()


def _has_all(sealed: SealedRecords | None, end: int, time_s: float) -> bool:
    """Whether an archive is complete for a cut: up to its last sealed record, and from the moment on at which it was not
    behind log compaction. A topic by itself is complete for moments within its min.compaction.lag."""
    return sealed is not None and sealed.next >= end and time_s >= sealed.sure_from_s


def _hole(sealed: SealedRecords | None, behind: int, whole_s: float) -> bool:
    """Whether records may be missing between the end of the archive and the topic, because an archiver was away. behind:
    as in `_cut_at`. A single offset without a record is the end marker of a transaction. Records since whole_s are all
    there."""
    if sealed is None or behind <= sealed.next + 1:
        return False
    return max((span.greatest_s for span in sealed.spans), default=0.0) < whole_s


def _may_be_compacted(
    lag_s: Mapping[str, float], tp: TopicPartition, sealed: SealedRecords | None, end: int
) -> LedgerError:
    if sealed is None:
        has = "there is no archive"
    elif sealed.next <= end:
        has = f"the archive ends at {sealed.next}"
    else:
        has = "the archive was begun, or caught up, only later"
    return LedgerError(
        f"Records of {tp[0]}[{tp[1]}] from that moment may be missing: log compaction keeps all records only for "
        f"{lag_s[tp[0]]:g} s, and {has}.",
        hint="See: jobledger archive status",
    )

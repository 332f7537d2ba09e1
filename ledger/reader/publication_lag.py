"""What was published beside what the log said: of one job, with the record of its entry, and how far the leader had come.

Both are answers to "what was so at that moment": the one is what everybody acted on, the other what they would have acted
on had the leader been quicker, or right.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ledger.core.model.clocks import skew
from ledger.core.model.published import Change, Published, headers_of
from ledger.core.model.recovery import RecoveryEntry
from ledger.ports import Record
from ledger.reader.reading import Source, Tail, registers_of

#: Fields of an entry that are the leader's own and no part of what the fold says.
STAMPS = ("as_of", "epoch", "due_at", "due", "stalls_at", "stalled", "savepoint_at", "savepoint_due")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The record that an entry came in. time_s: append time; ce_time_s: by the leader's clock; seconds since the epoch.
    skew: as `core.clocks.skew`."""

    partition: int
    offset: int
    time_s: float
    ce_time_s: float | None
    skew: str


class EntryProvenance:
    """Of the entries that there are: feed it what `Published.apply` made of each record."""

    def __init__(self, source: Source) -> None:
        self._source, self._records = source, dict[str, Record]()

    def take(self, record: Record, change: Change | None) -> None:
        if change is not None and change.after is not None:
            self._records[change.job_id] = record

    def of(self, job_id: str) -> Stamp | None:
        record = self._records.get(job_id)
        if record is None:
            return None
        time_s, ce_time_s = record.timestamp()[1] / 1000, self._source.envelope.parse(headers_of(record)).time_s
        return Stamp(record.partition(), record.offset(), time_s, ce_time_s, skew(time_s, ce_time_s))


def published_with_stamps(source: Source) -> tuple[Published, EntryProvenance]:
    """As `reading.published`."""
    view, stamps = Published(source.codec.decode), EntryProvenance(source)
    with Tail(source, [source.topics.recovery]) as tail:
        for records in tail.to_end():
            for record in records:
                stamps.take(record, view.apply(record))
    return view, stamps


@dataclass(frozen=True, slots=True)
class LogSaid:
    """entry: what the log says of a job, None: it is none, or retired. differs: names of the fields in which what is
    published differs from it. as_of: below this offset of the job's partition all is published. end: of what the partition
    holds. behind: how many offsets the leader had still to come to."""

    entry: RecoveryEntry | None
    differs: tuple[str, ...]
    as_of: int
    end: int
    behind: int


def compare_with_log(source: Source, job_id: str, view: Published) -> LogSaid:
    """view: what is published, read before."""
    log = registers_of(source, job_id)
    as_of, end = view.as_of(job_id, log.partition), end_of(source, log.partition)
    folded = log.entry()
    if folded is not None:
        folded = replace(folded, partition=log.partition)
    return LogSaid(folded, differs(view.entries.get(job_id), folded), as_of, end, max(0, end - as_of))


def end_of(source: Source, partition: int) -> int:
    """Where a partition of ledger.events ends, beyond its last record."""
    reader = source.log.reader([source.topics.events], partition)
    try:
        return reader.high_watermarks()[source.topics.events, partition]
    finally:
        reader.close()


def differs(published: RecoveryEntry | None, folded: RecoveryEntry | None) -> tuple[str, ...]:
    """In which fields, the stamps apart; ("entry",): only one of them is there."""
    if published is None or folded is None:
        return () if published is folded else ("entry",)
    names = (field.name for field in fields(RecoveryEntry) if field.name not in STAMPS)
    return tuple(name for name in names if getattr(published, name) != getattr(folded, name))

"""Compares the published entry of a job with the fold of the log, and measures how far the leader was behind.

Both entries describe one moment. Readers and roles acted on the published entry. A leader without delay or error would have
published the folded entry.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ledger.core.model.clocks import skew
from ledger.core.model.published import Change, Published, headers_of
from ledger.core.model.recovery import RecoveryEntry
from ledger.ports import Record
from ledger.reader.reading import Source, Tail, registers_of

#: Fields of an entry that the leader stamps, and the fold does not compute.
STAMPS = ("as_of", "epoch", "due_at", "due", "stalls_at", "stalled", "savepoint_at", "savepoint_due")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The record of an entry. time_s: append time; ce_time_s: by the leader's clock; both in seconds since the epoch. skew:
    as `core.model.clocks.skew`."""

    partition: int
    offset: int
    time_s: float
    ce_time_s: float | None
    skew: str


class EntryProvenance:
    """The record of each entry. Give it the result of `Published.apply` for each record."""

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
    """The published entries, and the record of each entry."""
    view, stamps = Published(source.codec.decode), EntryProvenance(source)
    with Tail(source, [source.topics.recovery]) as tail:
        for records in tail.to_end():
            for record in records:
                stamps.take(record, view.apply(record))
    return view, stamps


@dataclass(frozen=True, slots=True)
class LogSaid:
    """The fold of the log for one job, compared with the published entry. entry: the folded entry, None = the job is
    unknown or retired. differs: fields in which the published entry differs. as_of: all records of the job's partition
    below this offset are published. end: of the partition. behind: the number of offsets from as_of to end."""

    entry: RecoveryEntry | None
    differs: tuple[str, ...]
    as_of: int
    end: int
    behind: int


def compare_with_log(source: Source, job_id: str, view: Published) -> LogSaid:
    """The fold of the log for one job, compared with its published entry. view: the published entries, read before."""
    log = registers_of(source, job_id)
    as_of, end = view.as_of(job_id, log.partition), end_of(source, log.partition)
    folded = log.entry()
    if folded is not None:
        folded = replace(folded, partition=log.partition)
    return LogSaid(folded, differs(view.entries.get(job_id), folded), as_of, end, max(0, end - as_of))


def end_of(source: Source, partition: int) -> int:
    """The offset behind the last record of a partition of ledger.events."""
    reader = source.log.reader([source.topics.events], partition)
    try:
        return reader.high_watermarks()[source.topics.events, partition]
    finally:
        reader.close()


def differs(published: RecoveryEntry | None, folded: RecoveryEntry | None) -> tuple[str, ...]:
    """The fields that differ, without stamps; ("entry",) if only one of the two entries exists."""
    if published is None or folded is None:
        return () if published is folded else ("entry",)
    names = (field.name for field in fields(RecoveryEntry) if field.name not in STAMPS)
    return tuple(name for name in names if getattr(published, name) != getattr(folded, name))

"""Folds the log with and without some records, and compares the two results.

Only the fold runs again, not the roles: records that the roles wrote because of the dropped records stay. The answer
shows the states that depend on a record of the present log. It does not show how history would have continued.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger.core.model.published import headers_of
from ledger.core.model.registers import parse_key
from ledger.core.model.table import RegisterTable
from ledger.errors import NotFound, UsageError
from ledger.history.state_diff import Changed, differing, known
from ledger.ports import Record
from ledger.reader.reading import HistoryRecord, RetiredJob, Source, Tail, history_record, results

FORMS = "'drop EVENT_ID' or 'drop KEY@OFFSET'"
_DROP = re.compile(r"drop\s+(\S+)\Z")
_RECORD = re.compile(r"(.+/.+)@(0|[1-9][0-9]{0,17})\Z")


@dataclass(frozen=True, slots=True)
class Drop:
    """The records to leave out: all records of an event (it may have been sent twice), or one record, by key and
    offset."""

    event_id: str = ""
    key: bytes = b""
    offset: int = 0

    def __str__(self) -> str:
        return f"{_text(self.key)}@{self.offset}" if self.key else self.event_id


def parse(text: str) -> Drop:
    """The drop that a text names. Raises: UsageError if the text has neither of the FORMS."""
    found = _DROP.match(text.strip())
    if found is None:
        raise UsageError(f"Not a change to the log: {text[:200]!r}.", hint=f"Write {FORMS}.")
    if match := _RECORD.match(found[1]):
        # A key may hold any bytes; in an argument, bytes that are not UTF-8 are surrogates.
        return Drop(key=match[1].encode("utf-8", "surrogateescape"), offset=int(match[2]))
    return Drop(event_id=found[1])


@dataclass(frozen=True, slots=True)
class Without:
    """The comparison of the folds with and without some records. dropped: the records that were left out. changed: jobs
    on which the folds differ; before: with the records, after: without them; records: the dropped records of the job.
    outlived: retired jobs with dropped records whose result is the same without them."""

    dropped: tuple[HistoryRecord, ...]
    changed: tuple[Changed, ...]
    outlived: tuple[RetiredJob, ...] = ()


def without(source: Source, drops: Sequence[Drop]) -> Without:
    """Folds without some records and compares. drops: the records to leave out. Raises: NotFound if a drop matches no
    record of ledger.events."""
    partitions = source.log.partitions(source.topics.events)
    whole, rest = RegisterTable(partitions), RegisterTable(partitions)
    dropped, unseen = list[Record](), set(drops)
    with Tail(source, [source.topics.events]) as tail:
        for records in tail.to_end():
            left = []
            for record in records:
                if fitting := [drop for drop in drops if _fits(source, drop, record)]:
                    unseen.difference_update(fitting)
                    dropped.append(record)
                else:
                    left.append(record)
            whole.apply(records, tell_touched=False)
            rest.apply(left, tell_touched=False)
    for drop in drops:
        if drop in unseen:
            what = f"at offset {drop.offset} with the key {_text(drop.key)}" if drop.key else f"of the event {drop}"
            hint = "jobledger history JOB -o wide lists events and offsets; with --as-of 0s those in the archive too."
            raise NotFound(f"There is no record {what} in {source.topics.events}.", hint=hint)
    lines = [history_record(source, record) for record in dropped]
    one, other = known(source, whole), known(source, rest)
    concerned = {named[0] for line in lines if (named := parse_key(line.key.encode())) is not None}
    return Without(
        tuple(lines),
        tuple(
            Changed(job_id, one.get(job_id), other.get(job_id), tuple(line for line in lines if _is_of(line, job_id)))
            for job_id in differing(one, other)
        ),
        tuple(job for job_id, job in sorted(results(source, rest).items()) if job_id in concerned),
    )


def _fits(source: Source, drop: Drop, record: Record) -> bool:
    if drop.key:
        return record.offset() == drop.offset and record.key() == drop.key
    return str(source.envelope.parse(headers_of(record)).id) == drop.event_id


def _is_of(line: HistoryRecord, job_id: str) -> bool:
    named = parse_key(line.key.encode())
    return named is not None and named[0] == job_id


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")

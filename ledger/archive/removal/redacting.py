"""Redaction: values are taken out of the archive for a reason that is recorded; their hashes stay, and every proof holds.

What is redacted keeps its place, time, key and headers. It reaches the archive alone: the live topic has the record until
compaction removes it there, and so has whoever was given a copy. Source: docs/decisions/0035.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import REDACTED
from ledger.archive.removal.expiring import Held, job_of, nothing_held
from ledger.archive.removal.rewriting import Wanted, rewrite
from ledger.archive.snapshots.snapshots import Thin
from ledger.archive.store.archive import Archive
from ledger.core.model.registers import parse_key
from ledger.errors import LedgerError, NotFound, Refused, UsageError
from ledger.ports import Record, TopicPartition


class RecordPosition(NamedTuple):
    """A record by where it lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A record whose value is gone. value_sha256: of what it was, hex. before: an earlier run had taken it out already."""

    topic: str
    partition: int
    offset: int
    key: str
    value_sha256: str
    before: bool


@dataclass(frozen=True, slots=True)
class Redacting:
    """events: name of the topic of events; in any other, keys are jobs. thin: topic -> what of its records a fold reads."""

    archive: Archive
    events: str
    thin: Callable[[str], Thin]
    id_of: Callable[[Record], str]
    held: Held = nothing_held

    def run(
        self, named: Collection[RecordPosition | str], reason: str, by: str, at: str, *, force: bool = False
    ) -> list[Redacted]:
        """named: records by their places, or by the ids of their events: then all that bear it. force: also what a fold
        still reads. by, at: who, and when (RFC 3339). Repeated, it does what is left to do.

        Raises: NotFound. Refused: it is still needed, or held. UsageError: no id, or no value to redact. LedgerError: as
        `rewriting.rewrite`. Nothing is done if any of them can't be."""
        records = self._found(named)
        for record in records:
            self._must_be_redactable(record)
        if not force:
            self._must_be_needless(records)
        wanted = defaultdict[TopicPartition, set[int]](set)
        for record in records:
            wanted[record.topic(), record.partition()].add(record.offset())
        for place, offsets in sorted(wanted.items()):
            rewrite(self.archive, *place, [Wanted(REDACTED, frozenset(offsets), reason=reason)], by, at)
        return [_told(record) for record in records]

    def alike(self, done: Sequence[Redacted]) -> list[RecordPosition]:
        """Other records that still hold one of these very values."""
        hashes = {bytes.fromhex(one.value_sha256) for one in done}
        return [
            RecordPosition(record.topic(), record.partition(), record.offset())
            for place in self.archive.places() for record in self.archive.records(*place)
            if (value := record.value()) is not None and not isinstance(record, RedactedRecord)
            and sha256(value).digest() in hashes
        ]  # fmt: skip

    def _found(self, named: Collection[RecordPosition | str]) -> list[Record]:
        found = dict[RecordPosition, Record]()
        for one in (one for one in named if isinstance(one, RecordPosition)):
            record = next(self.archive.records(one.topic, one.partition, one.offset, one.offset + 1), None)
            if record is None:
                raise missing(self.archive, one)
            found[one] = record
        ids = {must_be_id(one) for one in named if isinstance(one, str)}
        seen = set[str]()
        for place in self.archive.places() if ids else ():
            for record in self.archive.records(*place):
                if (event_id := self.id_of(record)) in ids:
                    seen.add(event_id)
                    found[RecordPosition(*place, record.offset())] = record
        if unknown := sorted(ids - seen):
            raise unknown_event(self.archive, unknown[0])
        return [record for _, record in sorted(found.items())]

    def _must_be_redactable(self, record: Record) -> None:
        where, job_id = RecordPosition(record.topic(), record.partition(), record.offset()), job_of(record)
        if (record.key() or b"").startswith(b"~"):
            raise UsageError(f"{where} is the ledger's own record, and holds nothing of anybody's.")
        if record.value() is None:
            raise UsageError(f"{where} has no value: it is a tombstone.")
        if job_id is not None and self.held(job_id, record.timestamp()[1]):
            raise Refused(f"{where} is of {job_id}, which is pinned.", hint="See: jobledger audit pins")

    def _must_be_needless(self, records: Sequence[Record]) -> None:
        """Of ledger.events the last of a key is all that is known of a register; of ledger.recovery, all of a job."""
        by_place = defaultdict[TopicPartition, list[Record]](list)
        for record in records:
            mine = record.topic() != self.events or parse_key(record.key()) is not None
            if mine and job_of(record) is not None and not isinstance(record, RedactedRecord):
                by_place[record.topic(), record.partition()].append(record)
        for place, some in by_place.items():
            needed = {record.offset() for record in self.thin(place[0])(self.archive.records(*place))}
            for record in some:
                if record.offset() in needed:
                    key = (record.key() or b"").decode("utf-8", "replace")
                    raise Refused(
                        f"{RecordPosition(*place, record.offset())} is what the archive knows of {key}: without its value "
                        f"{job_of(record)} could not be brought back as it is.",
                        hint="Wait until the job is over and cleared away, or redact it all the same with --force.",
                    )


def must_be_id(event_id: str) -> str:
    """Raises: UsageError: an empty one, as of a variable of the shell that is not set, would name every record that bears
    none."""
    if not event_id:
        raise UsageError("The id of an event is not empty.", hint="See: jobledger history JOB -o json")
    return event_id


def missing(archive: Archive, place: RecordPosition) -> LedgerError:
    """Why there is no record at a place."""
    said = archive.chain(place.topic, place.partition).absences.expired(place.offset)
    if said is None:
        return NotFound(f"No record lies at {place} in the archive.", hint="See: jobledger archive status")
    gone, note = said
    return NotFound(
        f"{place} is gone since {note.at}: it had expired by the retention of the namespace {gone.namespace} "
        f"({note.by}). Its hash is still in the archive.", hint="A bundle that was made before may have it.",
    )  # fmt: skip


def unknown_event(archive: Archive, event_id: str) -> NotFound:
    """What expired is known by its place alone, so it may be that."""
    gone = sum(
        one.records for place in archive.places() for note in archive.chain(*place).rewritten for one in note.gone
        if one.why != REDACTED
    )  # fmt: skip
    hint = "Is it archived yet? See: jobledger archive status"
    if gone:
        hint = f"It may be among the {gone} records that have expired: of those, places are known and no ids. {hint}"
    return NotFound(f"No record of the event {event_id[:200]!r} is in the archive.", hint=hint)


def parse_place(text: str, topics: Mapping[str, str]) -> RecordPosition | None:
    """`events[P]@OFFSET`, or with the name of the topic; None if that is no place. topics: short name -> topic."""
    head, bracket, rest = text.rpartition("[")
    partition, closed, offset = rest.partition("]@")
    if not (bracket and closed and partition.isdecimal() and offset.isdecimal()) or len(rest) > 40:
        return None
    return RecordPosition(topics.get(head, head), int(partition), int(offset))


def _told(record: Record) -> Redacted:
    before = isinstance(record, RedactedRecord)
    digest = record.value_sha256 if isinstance(record, RedactedRecord) else sha256(record.value() or b"").digest()
    key = (record.key() or b"").decode("utf-8", "replace")
    return Redacted(record.topic(), record.partition(), record.offset(), key, digest.hex(), before)

"""Redaction: values are removed from the archive for a recorded reason. Their hashes stay, so every proof stays valid.

A redacted record keeps its offset, time, key and headers. Redaction affects the archive only: the live topic keeps the
value until log compaction removes it, and copies made before keep it too. Source: docs/decisions/0035.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import REDACTED
from ledger.archive.removal.expiring import HoldCheck, job_of, nothing_held
from ledger.archive.removal.rewriting import Wanted, rewrite
from ledger.archive.snapshots.snapshots import Thin
from ledger.archive.store.archive import Archive
from ledger.core.model.registers import parse_key
from ledger.errors import LedgerError, NotFound, Refused, UsageError
from ledger.ports import Record, TopicPartition


class RecordPosition(NamedTuple):
    """The topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A record whose value was removed. value_sha256: the hash of the removed value, in hex. before: whether an earlier
    run had removed it."""

    topic: str
    partition: int
    offset: int
    key: str
    value_sha256: str
    before: bool


@dataclass(frozen=True, slots=True)
class Redacting:
    """Redacts records of an archive. events: the events topic; in any other topic, a key is a job id. thin: topic -> a
    function that keeps only the records that a fold reads. id_of: record -> event id."""

    archive: Archive
    events: str
    thin: Callable[[str], Thin]
    id_of: Callable[[Record], str]
    held: HoldCheck = nothing_held

    def run(
        self, named: Collection[RecordPosition | str], reason: str, by: str, at: str, *, force: bool = False
    ) -> list[Redacted]:
        """Removes the values of the named records. Returns these records.

        named: positions, or event ids; an id names every record that has it. force: redact also records that a fold
        still reads. by, at: who redacts, and when (RFC 3339). A repeated call does what is left to do.

        Raises: NotFound if there is no such record. Refused if a record is still needed, or pinned. UsageError if an id
        is empty, or there is no value to redact. After these errors, nothing is redacted. LedgerError: as
        `rewriting.rewrite`.
        """
        records = self._found(named)
        for record in records:
            self._must_be_redactable(record)
        if not force:
            self._must_be_needless(records)
        wanted = defaultdict[TopicPartition, set[int]](set)
        for record in records:
            wanted[record.topic(), record.partition()].add(record.offset())
        for tp, offsets in sorted(wanted.items()):
            rewrite(self.archive, *tp, [Wanted(REDACTED, frozenset(offsets), reason=reason)], by, at)
        return [_redacted(record) for record in records]

    def alike(self, done: Sequence[Redacted]) -> list[RecordPosition]:
        """The positions of other records that still hold one of the redacted values."""
        hashes = {bytes.fromhex(one.value_sha256) for one in done}
        return [
            RecordPosition(record.topic(), record.partition(), record.offset())
            for tp in self.archive.partitions() for record in self.archive.records(*tp)
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
        for tp in self.archive.partitions() if ids else ():
            for record in self.archive.records(*tp):
                if (event_id := self.id_of(record)) in ids:
                    seen.add(event_id)
                    found[RecordPosition(*tp, record.offset())] = record
        if unknown := sorted(ids - seen):
            raise unknown_event(self.archive, unknown[0])
        return [record for _, record in sorted(found.items())]

    def _must_be_redactable(self, record: Record) -> None:
        where, job_id = RecordPosition(record.topic(), record.partition(), record.offset()), job_of(record)
        if (record.key() or b"").startswith(b"~"):
            raise UsageError(f"{where} is a record of the ledger itself. Only records of jobs can be redacted.")
        if record.value() is None:
            raise UsageError(f"{where} has no value: it is a tombstone.")
        if job_id is not None and self.held(job_id, record.timestamp()[1]):
            raise Refused(f"{where} is a record of the job {job_id}, which is pinned.", hint="See: jobledger audit pins")

    def _must_be_needless(self, records: Sequence[Record]) -> None:
        """Raises: Refused if a fold still reads one of the records. In ledger.events, the last record of a key is all
        that is known of a register; in ledger.recovery, it is all that is known of a job."""
        by_partition = defaultdict[TopicPartition, list[Record]](list)
        for record in records:
            mine = record.topic() != self.events or parse_key(record.key()) is not None
            if mine and job_of(record) is not None and not isinstance(record, RedactedRecord):
                by_partition[record.topic(), record.partition()].append(record)
        for tp, some in by_partition.items():
            needed = {record.offset() for record in self.thin(tp[0])(self.archive.records(*tp))}
            for record in some:
                if record.offset() in needed:
                    key = (record.key() or b"").decode("utf-8", "replace")
                    raise Refused(
                        f"{RecordPosition(*tp, record.offset())} is the record of {key} that still counts: without its "
                        f"value, the job {job_of(record)} could not be restored as it is.",
                        hint="Wait until the job is retired, or redact the record anyway with --force.",
                    )


def must_be_id(event_id: str) -> str:
    """The event id, unchanged. Raises: UsageError if it is empty, for example from an unset shell variable: an empty id
    would match every record without an id."""
    if not event_id:
        raise UsageError("The event id is empty.", hint="Find the id with: jobledger history JOB -o json")
    return event_id


def missing(archive: Archive, tp: RecordPosition) -> LedgerError:
    """The error for a position without a record: the record has expired, or there never was one."""
    said = archive.chain(tp.topic, tp.partition).absences.expired(tp.offset)
    if said is None:
        return NotFound(f"There is no record at {tp} in the archive.", hint="See: jobledger archive status")
    gone, note = said
    return NotFound(
        f"{tp} was removed at {note.at}: it had expired by the retention of the namespace {gone.namespace} "
        f"({note.by}). Its hash is still in the archive.", hint="A bundle that was made before may hold the record.",
    )  # fmt: skip


def unknown_event(archive: Archive, event_id: str) -> NotFound:
    """The error for an event id that the archive does not hold. Ids of expired records are not kept, so the event may
    be one of those."""
    gone = sum(
        one.records for tp in archive.partitions() for note in archive.chain(*tp).rewritten for one in note.gone
        if one.why != REDACTED
    )  # fmt: skip
    hint = "Is it archived yet? See: jobledger archive status"
    if gone:
        hint = f"It may be among the {gone} records that have expired, whose ids are not kept. {hint}"
    return NotFound(f"The archive holds no record of the event {event_id[:200]!r}.", hint=hint)


def parse_position(text: str, topics: Mapping[str, str]) -> RecordPosition | None:
    """The position that a text such as `events[P]@OFFSET` or `TOPIC[P]@OFFSET` names; None if it has another form.
    topics: short name -> topic."""
    head, bracket, rest = text.rpartition("[")
    partition, closed, offset = rest.partition("]@")
    if not (bracket and closed and partition.isdecimal() and offset.isdecimal()) or len(rest) > 40:
        return None
    return RecordPosition(topics.get(head, head), int(partition), int(offset))


def _redacted(record: Record) -> Redacted:
    before = isinstance(record, RedactedRecord)
    digest = record.value_sha256 if isinstance(record, RedactedRecord) else sha256(record.value() or b"").digest()
    key = (record.key() or b"").decode("utf-8", "replace")
    return Redacted(record.topic(), record.partition(), record.offset(), key, digest.hex(), before)

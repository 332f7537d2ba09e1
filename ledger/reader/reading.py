"""Reads the ledger: entries, registers and history of jobs. Nothing here writes.

Every answer covers the log up to the high watermark at the begin of the read, so it holds every record acknowledged before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.clocks import skew
from ledger.core.model.facts import Fact, JobResult
from ledger.core.model.published import Published, headers_of
from ledger.core.model.recovery import Entries, RecoveryEntry
from ledger.core.model.redaction import is_redacted
from ledger.core.model.registers import Register, is_job_id, parse_key, parse_register, partition_of, register_name
from ledger.core.model.table import RawValue, RegisterTable
from ledger.errors import Unreachable, UsageError
from ledger.ports import Clock, Codec, Envelope, EventLog, Marks, Reader, Record
from ledger.reader.expiry_gaps import NO_GAPS, ExpiryGaps

RECORDS_MAX = 10_000
POLL_S = 0.2
#: Advice for a reader that an open transaction blocks; only a leader can end that transaction (decision 14).
STANDING_HINT = (
    "Try again in a moment. If it lasts: does each role have a leader? A leader ends the open transactions of its role."
)


class TopicNames(Protocol):
    """Full names of the ledger's topics."""

    @property
    def events(self) -> str: ...
    @property
    def recovery(self) -> str: ...
    @property
    def rejects(self) -> str: ...


#: (topic, records read so far, records in all): called now and then during a long read.
Progressed = Callable[[str, int, int], None]


def _unseen(_what: str, _read: int, _total: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A ledger to read. patience_s: how long a read may make no progress before it raises Unreachable. keep: restore points
    in an entry, as in the projector's settings."""

    log: EventLog
    topics: TopicNames
    codec: Codec
    envelope: Envelope
    clock: Clock
    patience_s: float = 30.0
    keep: int = RESTORE_POINTS
    progressed: Progressed = _unseen

    @property
    def expiry_gaps(self) -> ExpiryGaps:
        """Jobs whose state this source does not know, because records of theirs expired; none for a source of the
        present."""
        return NO_GAPS

    def partition_of(self, job_id: str) -> int:
        if not is_job_id(job_id):
            raise UsageError(f"{job_id!r} is no job id: a job id matches [A-Za-z0-9._-]{{1,128}}.")
        return partition_of(job_id, self.log.partitions(self.topics.events))


class Tail:
    """A reader of topics from offset 0. partition: read only this one of a topic with several partitions; None =
    all."""

    def __init__(self, source: Source, topics: Sequence[str], partition: int | None = None) -> None:
        self._source, self._topics = source, topics
        self._reader: Reader = source.log.reader(topics, partition)

    def to_end(self) -> Iterator[Sequence[Record]]:
        """The records below the present high watermarks. Call it again for later records.

        Raises: Unreachable if no record arrives for patience_s: a transaction is open, or a broker does not answer.
        """
        marks = self._reader.high_watermarks()
        clock, source = self._source.clock, self._source
        moved_at, before = clock.monotonic(), -1
        while True:
            position = self._reader.position()
            behind = {tp: position.get(tp, 0) for tp, end in marks.items() if position.get(tp, 0) < end}
            read = sum(min(position.get(tp, 0), end) for tp, end in marks.items())
            source.progressed(" and ".join(self._topics), read, sum(marks.values()))
            if not behind:
                return
            if read != before:
                moved_at, before = clock.monotonic(), read
            elif clock.monotonic() - moved_at > source.patience_s:
                raise Unreachable(_standing(behind, marks, source.patience_s), hint=STANDING_HINT)
            yield self.more(POLL_S)

    def more(self, timeout_s: float) -> Sequence[Record]:
        """The next records, [] if none arrived within timeout_s."""
        return self._reader.poll(RECORDS_MAX, timeout_s)

    def high_watermarks(self) -> Marks:
        return self._reader.high_watermarks()

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _standing(behind: Mapping[tuple[str, int], int], marks: Marks, patience_s: float) -> str:
    (topic, partition), at = next(iter(behind.items()))
    return (
        f"Reading {topic}[{partition}] made no progress at offset {at} of {marks[topic, partition]} for {patience_s:g} s: "
        f"a transaction is open, or a broker is down."
    )


# -- all jobs ----------------------------------------------------------------------------------------------------------


def published(source: Source) -> Published:
    """The published entries: all of `ledger.recovery`, with the epoch filter applied."""
    view = Published(source.codec.decode)
    with Tail(source, [source.topics.recovery]) as tail:
        for records in tail.to_end():
            for record in records:
                view.apply(record)
    return view


def entries_of(source: Source) -> Entries:
    """The entry of every job that is not retired, by job id; its `.recovery_set()` are those to bring back."""
    return published(source).entries


def all_registers(source: Source) -> RegisterTable:
    """The last value of every register of every job."""
    table = RegisterTable(source.log.partitions(source.topics.events))
    with Tail(source, [source.topics.events]) as tail:
        for records in tail.to_end():
            table.apply(records, tell_touched=False)
    return table


def jobs_in(source: Source, table: RegisterTable) -> Iterator[tuple[Job, int]]:
    """Every job of a table, with its partition."""
    for partition, jobs in enumerate(table.jobs):
        for job_id, registers in jobs.items():
            yield Job(job_id.decode(), registers, lambda r, held: source.codec.read(r, held[0])), partition


@dataclass(frozen=True, slots=True)
class RetiredJob:
    """The result of a retired job, whose other registers are removed."""

    job_id: str
    state: str
    result: JobResult


def results(source: Source, table: RegisterTable) -> dict[str, RetiredJob]:
    """job id -> result of every job that is retired, or is being retired."""
    found = {}
    for job, _ in jobs_in(source, table):
        if (retired := result_of(job)) is not None:
            found[job.job_id] = retired
    return found


def result_of(job: Job) -> RetiredJob | None:
    """The result of a job that is retired or is being retired; None = it has none."""
    if job.result is None:
        return None
    fact = job.fact(job.result, JobResult)
    assert fact is not None  # the result that counts is a readable one
    return RetiredJob(job.job_id, job.result.state, fact)


# -- one job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One record of a job in the log. time_s: append time; ce_time_s: event time by the producer's clock; skew: as
    `core.model.clocks.skew`.

    register: "" = the key names none. fact: None = a tombstone; with readable False, an unreadable or redacted value."""

    partition: int
    offset: int
    time_s: float
    key: str
    register: str
    tombstone: bool
    readable: bool
    fact: Fact | None
    event_id: str
    source: str
    type: str
    ce_time_s: float | None
    actor: str
    sequence: int | None
    epoch: int | None
    skew: str = ""
    redacted: bool = False


class JobLog:
    """The records of one job in offset order, and its registers and entry. Give it records of the job's partition
    only."""

    def __init__(self, source: Source, job_id: str) -> None:
        self.source, self.job_id = source, job_id
        self.partition = source.partition_of(job_id)
        self.records: list[Record] = []
        self.registers: dict[bytes, RawValue] = {}
        self._prefix = f"{job_id}/".encode()

    def take(self, records: Sequence[Record]) -> list[Record]:
        """Keeps the job's records and returns them."""
        own = []
        for record in records:
            key = record.key()
            if record.topic() != self.source.topics.events or key is None or not key.startswith(self._prefix):
                continue
            own.append(record)
            name, value = key[len(self._prefix) :], record.value()
            if value is None:
                self.registers.pop(name, None)
            elif parse_register(name) is not None:
                self.registers[name] = (value, record.offset())
        self.records += own
        return own

    @property
    def known(self) -> bool:
        """Whether the log holds a record of this job."""
        return bool(self.registers)

    def job(self) -> Job:
        return Job(self.job_id, self.registers, lambda register, held: self.source.codec.read(register, held[0]))

    def entry(self) -> RecoveryEntry | None:
        """The folded entry of the job, without the leader's stamps; None = the job is unknown or retired."""
        return fold_job(self.job(), self.source.keep)

    def history(self) -> list[HistoryRecord]:
        return [history_record(self.source, record) for record in self.records]

    def offset_of(self, register: Register) -> int:
        """The offset of the record that holds the register now. Raises: KeyError if there is none."""
        return self.registers[register_name(register).encode()][1]


def registers_of(source: Source, job_id: str) -> JobLog:
    """The registers of one job. Reads only its partition."""
    log = JobLog(source, job_id)
    with Tail(source, [source.topics.events], log.partition) as tail:
        for records in tail.to_end():
            log.take(records)
    return log


def history(source: Source, job_id: str, follow: bool = False) -> Iterator[HistoryRecord]:
    """Every record of the job in the log, in offset order. follow: wait for later ones, for ever."""
    log = JobLog(source, job_id)
    with Tail(source, [source.topics.events], log.partition) as tail:
        for records in tail.to_end():
            for record in log.take(records):
                yield history_record(source, record)
        while follow:
            for record in log.take(tail.more(POLL_S)):
                yield history_record(source, record)


def history_record(source: Source, record: Record) -> HistoryRecord:
    key, value = record.key() or b"", record.value()
    parsed = parse_key(key)
    fact = source.codec.read(parsed[1], value) if parsed is not None and value is not None else None
    said = source.envelope.parse(headers_of(record))
    time_s = record.timestamp()[1] / 1000
    return HistoryRecord(
        record.partition(), record.offset(), time_s, key.decode("utf-8", "replace"),
        register_name(parsed[1]) if parsed else "", value is None, value is None or fact is not None, fact,
        said.id, said.source, said.type, said.time_s, said.actor, said.sequence, said.epoch,
        skew(time_s, said.time_s), is_redacted(value),
    )  # fmt: skip

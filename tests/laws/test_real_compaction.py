"""Log compaction by a real broker changes no job: the compacted log of a long history folds like its full copy.

Kafka compacts the topic as fast as it can, while the history is still being written. A second reader keeps every record
from the start. The test must *see* several passes: superseded records are gone, and then tombstones too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from ledger.adapters import avro
from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.reader import KafkaReader
from ledger.core.fold.fold import fold_job, prunable
from ledger.core.fold.job import Job
from ledger.core.model.facts import JobAdmitted, JobSubmitted
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Admitted, Ask, Ended, Register, Result, Spec, key_of, partition_of
from ledger.core.model.table import RegisterTable
from ledger.ports import Event
from tests.laws.drawn import CANCELS, World, registers_up_to, value
from tests.support.servers import COMPACT_NOW, create_topic
from tests.support.waiting import in_time, until

pytestmark = pytest.mark.kafka

PARTITIONS, JOBS, KEEP, HISTORY = 2, 60, 2, 2
EVENTS_MIN = 3000
EVENTS_MAX = 6000  # after ten thousand records all jobs would be over, which proves little
DEADLINE_S = 90.0


class Copy:
    """Reads a topic from its beginning and keeps every record."""

    def __init__(self, reader: KafkaReader) -> None:
        self._reader = reader
        self.records: list[Any] = []
        self.table = RegisterTable(PARTITIONS)

    def catch_up(self) -> None:
        """Reads to the current end of the topic."""
        ends, deadline = self._reader.high_watermarks(), time.monotonic() + 30
        while any(self._reader.position()[place] < end for place, end in ends.items()):
            in_time(time.monotonic() < deadline, "not within the time: the end of the topic")
            records = self._reader.poll(5000, 0.2)
            self.records += records
            self.table.apply(records)

    def tombstones(self) -> list[Any]:
        return [r for r in self.records if r.value() is None]


class Scribe:
    """Writes the histories of many jobs in transactions: facts, resent facts, prunes, retirements."""

    def __init__(self, log: KafkaLog, topic: str, seed: int) -> None:
        self._random, self._topic = Random(seed), topic
        self._writer = log.writer(topic + "-scribe")
        self._writer.init()
        self._sent: list[Event] = []
        self._table = RegisterTable(PARTITIONS)
        self._worlds = {f"job-{i}": World(from_outside=bool(i % 2)) for i in range(JOBS)}
        self._kinds = [kind for weight, kind in registers_up_to(4) for _ in range(weight)]
        ends = [Ended(n, outcome, "agent-1") for n in (2, 3) for outcome in ("finished", "canceled", "abandoned")]
        self._last: list[Register] = [*CANCELS, *ends]
        self.written = 0
        self._retired: set[str] = set()
        self.commit([event for job in self._worlds for event in self._submission(job)])

    def round(self) -> None:
        """Commits a transaction with events of many jobs."""
        events: list[Event] = []
        for job_id in self._random.sample(sorted(self._worlds), JOBS // 2):
            chance = self._random.random()
            if chance < 0.75:
                ends = job_id.endswith("7") and chance < 0.03
                register = self._random.choice(self._last if ends else self._random.choice(self._kinds))
                if not isinstance(register, Spec | Admitted) and job_id not in self._retired:
                    events.append(self._event(job_id, register, value(register, self._worlds[job_id])))
            elif chance < 0.85:
                events.append(self._random.choice(self._sent))
            else:
                events += [self._event(job_id, register, None) for register in self._prunable(job_id)]
        self.commit(events)

    def retire(self, jobs: int) -> None:
        """Writes results, then tombstones for all other registers of these jobs. Every third result gets a tombstone
        too."""
        for job_id in sorted(self._worlds)[:jobs]:
            self._retired.add(job_id)
            result = Result("FINISHED")
            self.commit([self._event(job_id, result, value(result, self._worlds[job_id]))])
            self.commit([self._event(job_id, register, None) for register in self._prunable(job_id)])
            if int(job_id.removeprefix("job-")) % 3 == 0:
                self.commit([self._event(job_id, result, None)])

    def nudge(self, i: int) -> None:
        """Appends records, because only an append closes a segment, and the active segment is never compacted. The keys
        are few, so the nudges never outnumber the removed records."""
        ask = Ask(f"u{i % 20}")
        for partition in range(PARTITIONS):
            job_id = next(f"nudge-{k}" for k in range(100) if partition_of(f"nudge-{k}", PARTITIONS) == partition)
            self.commit([self._event(job_id, ask, value(ask, World()))])

    def commit(self, events: list[Event]) -> None:
        if not events:
            return
        self._writer.commit(events)
        self.written += len(events)
        self._sent += [event for event in events if event.value is not None and not event.key.startswith(b"nudge")]
        self._sent = [e for e in self._sent[-400:] if e.key.partition(b"/")[0].decode() not in self._retired]
        self._table.apply([_as_record(event) for event in events])

    def close(self) -> None:
        self._writer.close()

    def _submission(self, job_id: str) -> list[Event]:
        spec: JobSubmitted = self._worlds[job_id].spec()
        digest = avro.spec_digest(spec)
        return [self._event(job_id, Spec(digest), spec), self._event(job_id, Admitted(), JobAdmitted(digest))]

    def _prunable(self, job_id: str) -> list[Register]:
        return prunable(_view(self._table, job_id), KEEP, HISTORY)

    def _event(self, job_id: str, register: Register, fact: Any) -> Event:
        key = key_of(job_id, register).encode()
        return Event(self._topic, partition_of(job_id, PARTITIONS), key, None if fact is None else avro.encode(fact))


class _as_record(NamedTuple):  # noqa: N801
    event: Event

    def key(self) -> bytes:
        return self.event.key

    def value(self) -> bytes | None:
        return self.event.value

    def partition(self) -> int:
        return self.event.partition

    def offset(self) -> int:
        return 0


def _view(table: RegisterTable, job_id: str) -> Job:
    registers = table.registers(job_id.encode(), partition_of(job_id, PARTITIONS))
    return Job(job_id, registers, lambda register, held: avro.read(register, held[0]))


def _entries(table: RegisterTable) -> dict[str, RecoveryEntry | None]:
    return {job_id: fold_job(_view(table, job_id), KEEP) for job_id in [f"job-{i}" for i in range(JOBS)]}


def _until(condition: Callable[[], bool], what: str, between: Callable[[int], None]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    for i in range(10_000):
        if condition():
            return
        in_time(time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}")
        between(i)


@pytest.fixture
def log(bootstrap: str) -> KafkaLog:
    return KafkaLog({"bootstrap.servers": bootstrap}, SystemClock())


@pytest.fixture
def topic(bootstrap: str, prefix: str) -> str:
    return create_topic(bootstrap, prefix + "ledger.events", PARTITIONS, COMPACT_NOW)


@pytest.fixture
def scribe(log: KafkaLog, topic: str) -> Iterator[Scribe]:
    scribe = Scribe(log, topic, seed=7)
    yield scribe
    scribe.close()


@pytest.mark.timeout(600)
def test_a_compacted_topic_folds_like_a_full_copy(log: KafkaLog, topic: str, scribe: Scribe) -> None:
    copy = Copy(log.reader([topic]))
    copy.catch_up()

    def left() -> Copy:
        """The current records of the topic, read from offset 0."""
        now = Copy(log.reader([topic]))
        now.catch_up()
        return now

    def folds_alike() -> Copy | None:
        """The current records of the topic, if they fold like the copy. Each call reads anew: a reader that pauses while a
        tombstone is removed has read the deleted record, but not the tombstone."""
        now = left()
        return now if _entries(now.table) == _entries(copy.table) else None

    def write(i: int) -> None:
        scribe.round() if scribe.written < EVENTS_MAX else scribe.nudge(i)
        copy.catch_up()
        assert len(copy.records) == scribe.written, "the copy missed records, so it proves nothing"

    # log compaction runs while the history is being written
    _until(lambda: scribe.written > EVENTS_MIN, "history", write)
    _until(lambda: len(left().records) < len(copy.records), "a first pass", write)
    copy.catch_up()
    half = until(folds_alike, "the compacted log folds like the copy")
    assert len(half.records) < len(copy.records)

    # it runs again, until the tombstones are gone too
    scribe.retire(JOBS // 4)
    copy.catch_up()
    assert len(copy.records) == scribe.written
    kinds = {str(entry.state) if entry else None for entry in _entries(copy.table).values()}
    assert {None, "RESTARTING", "SUSPENDED", "QUARANTINED"} <= kinds, "the history lacks important states"
    assert kinds & {"FINISHED", "CANCELED", "FAILED"}
    assert len(copy.tombstones()) > 300
    _until(lambda: not left().tombstones(), "the pass that removes tombstones", scribe.nudge)

    copy.catch_up()
    rest = until(folds_alike, "the compacted log folds like the copy")
    assert len(rest.records) < len(half.records) < len(copy.records)
    alive = {r.key() for r in copy.records} - {r.key() for r in rest.records}
    assert alive, "some keys have vanished completely"

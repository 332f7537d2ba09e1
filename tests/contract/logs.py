"""The implementations on which the suite of the log runs: in memory, and on a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.ports import Clock, Event, EventLog, Marks, Reader, Record
from ledger.ports import TopicPartition as Partition
from tests.support.servers import COMPACT_NOW, create_topic
from tests.support.waiting import in_time

WAIT_S = 60.0
OPEN_S = 300.0  # far longer than any test: only the test itself ends an open transaction


class Open(Protocol):
    """An open transaction of any producer."""

    def write(self, *events: Event) -> None:
        """Returns once the events are in the log, uncommitted."""

    def commit(self) -> None: ...
    def abort(self) -> None: ...


class World(Protocol):
    name: str
    log: EventLog
    clock: Clock

    def topic(self, partitions: int = 1) -> str: ...
    def unique(self, name: str) -> str: ...
    def open(self, transactional_id: str, timeout_s: float = OPEN_S) -> Open: ...
    def committed_offsets(self, group: str, tps: Sequence[Partition]) -> Marks: ...
    def delete(self, topic: str) -> None: ...
    def make_anew(self, topic: str) -> None: ...
    def compacted_topic(self) -> str: ...
    def close_segment(self, topic: str) -> None:
        """Moves all earlier records into closed segments, since the cleaner only takes whole ones."""

    def compact(self, topic: str, gone: Callable[[], bool]) -> None:
        """Returns once `gone` returns True; the cleaner decides when."""


class MemoryWorld:
    name = "memory"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({}, self.clock, delete_retention_s=2.0)
        self._made = 0

    def topic(self, partitions: int = 1) -> str:
        name = self.unique("topic")
        self.log.create(name, partitions)
        return name

    def unique(self, name: str) -> str:
        self._made += 1
        return f"{name}{self._made}"

    def open(self, transactional_id: str, timeout_s: float = OPEN_S) -> Open:
        return _MemoryOpen(self.log, transactional_id, timeout_s)

    def committed_offsets(self, group: str, tps: Sequence[Partition]) -> Marks:
        return {tp: self.log.committed_offsets.get(group, {}).get(tp, -1) for tp in tps}

    def delete(self, topic: str) -> None:
        raise NotImplementedError("topics in memory can't be deleted")

    def make_anew(self, topic: str) -> None:
        self.delete(topic)

    def compacted_topic(self) -> str:
        return self.topic()

    def close_segment(self, topic: str) -> None:
        """Does nothing: compaction in memory has no segments."""

    def compact(self, topic: str, gone: Callable[[], bool]) -> None:
        for _ in range(2):
            self.log.compact(topic)
            self.clock.advance(3.0)
        self.log.compact(topic)
        assert gone()


class _MemoryOpen:
    def __init__(self, log: MemoryLog, transactional_id: str, timeout_s: float) -> None:
        self._log, self._id = log, transactional_id
        self._transaction = log.begin(transactional_id, log.init(transactional_id), timeout_s)

    def write(self, *events: Event) -> None:
        for event in events:
            self._log.produce(self._transaction, event)

    def commit(self) -> None:
        self._log.end(self._id, committed=True)

    def abort(self) -> None:
        self._log.end(self._id, committed=False)


class KafkaWorld:
    name = "kafka"

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._client: Mapping[str, str | int] = {"bootstrap.servers": bootstrap}
        self._bootstrap, self._prefix = bootstrap, prefix
        self.clock = SystemClock()
        self.log = KafkaLog(self._client, self.clock, timeout_s=30.0, init_timeout_s=60.0, commit_timeout_s=30.0)
        self._made = 0

    def topic(self, partitions: int = 1) -> str:
        config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        return create_topic(self._bootstrap, self.unique("topic"), partitions, config)

    def unique(self, name: str) -> str:
        self._made += 1
        return f"{self._prefix}{name}{self._made}"

    def open(self, transactional_id: str, timeout_s: float = OPEN_S) -> Open:
        return _KafkaOpen(self._client, transactional_id, timeout_s)

    def committed_offsets(self, group: str, tps: Sequence[Partition]) -> Marks:
        consumer = Consumer({**self._client, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(*tp) for tp in tps], timeout=30)
            return {(tp.topic, tp.partition): max(-1, tp.offset) for tp in found}
        finally:
            consumer.close()

    def delete(self, topic: str) -> None:
        admin = AdminClient(dict(self._client))
        admin.delete_topics([topic], operation_timeout=10)[topic].result(60)

    def make_anew(self, topic: str) -> None:
        self.delete(topic)
        create_topic(self._bootstrap, topic)

    def compacted_topic(self) -> str:
        return create_topic(self._bootstrap, self.unique("topic"), 1, COMPACT_NOW)

    def close_segment(self, topic: str) -> None:
        time.sleep(1.1)  # segment.ms must pass; then the next append opens a new segment
        self._nudge(topic)

    def _nudge(self, topic: str) -> None:
        producer = Producer({**self._client, "enable.idempotence": True})
        producer.produce(topic, b"nudge", b"nudge", 0)
        assert producer.flush(30) == 0

    def compact(self, topic: str, gone: Callable[[], bool]) -> None:
        """Only an append closes a segment, and the cleaner skips the last one: so it appends until the cleaner has run."""
        deadline = time.monotonic() + 60
        while not gone():
            in_time(time.monotonic() < deadline, "not within the time: the cleaner has run")
            self._nudge(topic)
            time.sleep(0.3)


class _KafkaOpen:
    def __init__(self, client: Mapping[str, str | int], transactional_id: str, timeout_s: float) -> None:
        timeout_ms = int(timeout_s * 1000)
        self._producer = Producer(
            {**client, "transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms,
             "message.timeout.ms": timeout_ms}
        )  # fmt: skip
        self._producer.init_transactions(60)
        self._producer.begin_transaction()

    def write(self, *events: Event) -> None:
        for event in events:
            self._producer.produce(event.topic, event.value, event.key, event.partition, headers=list(event.headers))
        assert self._producer.flush(60) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(60)

    def abort(self) -> None:
        self._producer.abort_transaction(60)


# -- reading -----------------------------------------------------------------------------------------------------------


def reached(reader: Reader, marks: Marks) -> bool:
    position = reader.position()
    return all(position[tp] >= mark for tp, mark in marks.items())


def read_until(world: World, reader: Reader, done: Callable[[], bool]) -> list[Record]:
    """All records until `done` returns True; fails after WAIT_S."""
    records: list[Record] = []
    deadline = world.clock.monotonic() + WAIT_S
    while not done():
        missed = f"not within the time: {reader.position()} of {reader.high_watermarks()}"
        in_time(world.clock.monotonic() < deadline, missed)
        records += reader.poll(1000, 0.05)
    return records


def read_all(world: World, topic: str) -> list[Record]:
    """All records from offset 0 to the high watermark, read by a new reader."""
    reader = world.log.reader([topic])
    try:
        marks = reader.high_watermarks()
        return read_until(world, reader, lambda: reached(reader, marks))
    finally:
        reader.close()


def wait_for(world: World, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    deadline = world.clock.monotonic() + timeout_s
    while not condition():
        in_time(world.clock.monotonic() < deadline, "not within the time: the condition holds")
        world.clock.sleep(0.05)


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value() for record in records]

"""The port to the log: readers, writers and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, bytes], ...]
TopicPartition = tuple[str, int]
#: (topic, partition) -> offset
Marks = Mapping[TopicPartition, int]
NOWHERE: Marks = {}


class Record(Protocol):
    """A record that was read. It has the methods of confluent_kafka.Message, so that messages need not be copied.

    For a tombstone, value() is None. Never use the truth value of a record: a Message without a value is falsy.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Event:
    """A record to write. value: None means a tombstone. A resend of the same event writes the same bytes."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers = ()


class Reader(Protocol):
    """Reads whole partitions without end, in offset order within each, committed records only. It starts at offset 0
    unless `begin` was given.

    Raises: Unreachable if a call needs the broker and gets no answer in time; the position is then unchanged.
    LedgerError, at this and every later call, if unread records are gone or the topic was created again. The records
    that were read must then be discarded.
    """

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        """The next records, at most records_max; [] if none came within timeout_s. Each record is returned once."""

    def position(self) -> Marks:
        """For each partition, the offset below which `poll` has returned all records; control records count as read."""

    def high_watermarks(self) -> Marks:
        """The true ends of the partitions (read-uncommitted), queried from the broker now. A reader that has reached
        them has seen every record acknowledged before the call. `position` can't pass an open transaction below
        them."""

    def close(self) -> None: ...


class Writer(Protocol):
    """A fenced transactional writer. If several writers share a transactional id, only the last one initialised can
    commit."""

    def init(self) -> None:
        """Fences all earlier writers and aborts their open transaction. Call it before every term of leadership.

        Raises: Unreachable."""

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        """Writes all events in one transaction and returns their offsets, in order. `offsets` are committed only for
        tools that display consumer lag.

        Raises: Fenced if the writer was superseded or timed out, or the outcome is unknown for another reason. The
        writer is then unusable: the role must win the election again and call `init` on a new writer. TemporaryError if
        the transaction was aborted: none of its records will ever be read, and the same writer may retry.
        RecordTooLarge (it names the key) or ConfigError (no such topic or partition): the transaction was aborted as
        well, but a retry can't succeed."""

    def close(self) -> None: ...


class EventLog(Protocol):
    """The topics of one cluster. It makes readers and writers for them."""

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> Reader:
        """A reader of these topics. partition: read only this one in topics with several partitions; None means all.
        begin: start offsets other than 0. Records below them count as read."""

    def writer(self, transactional_id: str) -> Writer: ...
    def partitions(self, topic: str) -> int:
        """The number of partitions. Raises: ConfigError if there is no such topic."""

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The id of each topic (KIP-516): a topic that was deleted and created anew has another. "" if the log knows no
        ids."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A `Record` built from plain values."""

    _topic: str
    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: Headers = ()
    _timestamp_ms: int = 0

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 2, self._timestamp_ms  # 2 = LogAppendTime

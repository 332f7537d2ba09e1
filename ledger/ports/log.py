"""The log: what is read of it and written to it."""

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
    """One record as read. The methods are those of confluent_kafka.Message, so that reading costs no copy.

    A tombstone has value() None. Never judge a record by its truth value: a Message without value is falsy.
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
    """A record to be written. value None = tombstone. Written again, it is byte for byte the same."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers = ()


class Reader(Protocol):
    """Reads whole partitions, from offset 0 unless told otherwise, in offset order within each, committed records only, for
    ever.

    Raises: Unreachable where a call needs an answer and there is none within its time limit (position unchanged).
    LedgerError, from then on at every call, if records that it has not read are gone, or the topic was made anew: what
    was read is worth nothing then.
    """

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        """What has come, [] if nothing did within timeout_s. Each record is returned once."""

    def position(self) -> Marks:
        """Per partition the offset below which everything has been returned by `poll`, control records counted."""

    def high_watermarks(self) -> Marks:
        """The true ends (read-uncommitted), asked of the broker now. Reading up to them means having seen every
        record acknowledged before the call; an open transaction below them makes `position` wait for it."""

    def close(self) -> None: ...


class Writer(Protocol):
    """A fenced transactional writer: of all writers of one transactional id only the last initialised can commit."""

    def init(self) -> None:
        """Fences the predecessors and aborts their open transaction. Call before every term of leadership.

        Raises: Unreachable."""

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        """Writes all events in one transaction and returns their offsets, in order. `offsets` are stored
        beside it for lag tools, nothing more.

        Raises: Fenced: superseded, timed out or any indefinite error. The outcome is then unknown, the writer is
        dead; the role must prove its leadership and call `init` on a new one. TemporaryError: the transaction was
        aborted, nothing of it will ever be read, and the same writer may try again. RecordTooLarge (it names the key),
        ConfigError (no such place): as that, but trying the same again is useless."""

    def close(self) -> None: ...


class EventLog(Protocol):
    """A world of topics: `Reader`s and `Writer`s of it."""

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> Reader:
        """partition: of topics that have several, only this one is read; None = all. begin: offsets, where reading does not
        begin at 0: what lies below counts as read."""

    def writer(self, transactional_id: str) -> Writer: ...
    def partitions(self, topic: str) -> int:
        """Raises: ConfigError if there is no such topic."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A Record made of plain values."""

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

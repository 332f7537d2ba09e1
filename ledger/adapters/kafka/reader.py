"""Reads whole partitions of Kafka topics, committed records only."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ledger.adapters.kafka.cluster import EARLIEST, Cluster, Partition
from ledger.adapters.kafka.errors import DAMAGED, DAMAGED_HINT, PASSING, POSITION_LOST, describe_error, made
from ledger.errors import ConfigError, LedgerError
from ledger.ports import NOWHERE, Marks

log = logging.getLogger("ledger.kafka")
POLL_MAX = 5_000  # most records of one poll: few enough to stay in the processor's caches until they are applied
REBUILD = "This process must discard the records that it has read, and read again. It is safe to restart it."

#: Defaults that a user may override.
FETCHING: dict[str, str | int] = {
    "fetch.wait.max.ms": 50,  # so an end of partition, hence a control record, is passed within 50 ms
    "fetch.queue.backoff.ms": 10,  # the default of 1 s would delay a fast reader without need
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
    "check.crcs": "true",
    "topic.metadata.refresh.interval.ms": 30_000,
}
_SAFETY: dict[str, str | int] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
    "max.poll.interval.ms": 86_400_000,
}


class KafkaReader:
    """Implements `ports.Reader` with manually assigned partitions, without group membership, rebalance or committed
    offset."""

    def __init__(
        self, client: Mapping[str, str | int], cluster: Cluster, topics: Sequence[str], group_id: str,
        partition: int | None = None, begin: Marks = NOWHERE,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        shapes = cluster.shape(topics)
        self._ids = {topic: shape.id for topic, shape in shapes.items()}
        tps = [(topic, p) for topic in topics for p in _partitions(shapes[topic].partitions, partition)]
        self._position = {tp: max(at, begin.get(tp, 0)) for tp, at in self._beginnings(tps).items()}
        self._broken: LedgerError | None = None
        self._consumer = made(Consumer, {**FETCHING, **client, **_SAFETY, "group.id": group_id}, log)
        self._tps = [TopicPartition(*tp) for tp in tps]
        self._consumer.assign([TopicPartition(*tp, offset) for tp, offset in self._position.items()])

    def poll(self, records_max: int, timeout_s: float) -> list[Message]:
        """The next records. Raises: LedgerError, at this and every later call, if a topic was deleted, truncated or
        created again; ConfigError for another error of a partition, such as a damaged file of the broker."""
        self._must_be_whole()
        most = max(1, min(records_max, POLL_MAX))
        # consume() waits until it has all the requested records: so wait for one, then take those already fetched.
        messages = self._consumer.consume(1, timeout_s)
        if messages and most > 1:
            messages += self._consumer.consume(most - 1, 0)
        records: list[Any] = messages
        if any(map(Message.error, messages)):
            records = [message for message in messages if message.error() is None]
        if records:
            for at in self._consumer.position(self._tps):  # cheaper than reading the offset of each record
                tp = at.topic, at.partition  # an end of partition may have moved it further already
                self._position[tp] = max(self._position[tp], at.offset)
        if records is not messages:
            for message in messages:
                if (error := message.error()) is not None:
                    self._take_error(message, error)
        if not records:
            self._must_be_whole()
        return records

    def position(self) -> Marks:
        return dict(self._position)

    def high_watermarks(self) -> Marks:
        """The true ends of the partitions, open transactions included. Raises: Unreachable; LedgerError if a topic was
        deleted, created again or truncated, which only a query of the cluster can show."""
        self._must_be_whole()
        for topic, shape in self._cluster.shapes(self._ids).items():
            if shape is None or shape.id != self._ids[topic]:
                raise self._break(f"Topic {topic} was deleted{' and created again' if shape else ''} while it was read.")
        ends = self._cluster.ends(self._position)
        for tp, end in ends.items():
            if end < self._position[tp]:
                raise self._break(f"{_name(tp)} ends at {end}, but was read up to {self._position[tp]}: it was truncated.")
        return ends

    def close(self) -> None:
        self._consumer.close()

    def _beginnings(self, tps: Sequence[Partition]) -> dict[Partition, int]:
        """Partition -> its first offset: 0, unless the topic deletes records by age.

        Raises: LedgerError if the first records of a topic without `delete` in its cleanup policy are gone.
        """
        begins = self._cluster.ends(tps, EARLIEST)
        for tp, offset in begins.items():
            if offset > 0 and "delete" not in self._cluster.config(tp[0]).get("cleanup.policy", ""):
                raise LedgerError(
                    f"The records of {_name(tp)} below offset {offset} were deleted: the ledger is incomplete.",
                    hint="Stop the ledger and restore both topics from the archive: jobledger archive restore",
                )
        return begins

    def _must_be_whole(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _take_error(self, message: Any, error: KafkaError) -> None:
        """Handles an error message of a poll. "End of partition" is not the true end: it occurs at the last stable
        offset, and an open transaction may follow. It only shows that all offsets up to it are read or control
        records."""
        tp = topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._position[tp] = max(self._position[tp], message.offset())
        elif error.code() in PASSING and not error.fatal():
            log.info("transient_read_error", extra={"reason": describe_error(error)})
        elif error.code() in POSITION_LOST:
            self._break(f"{topic}[{partition}] can't be read from offset {self._position.get(tp)} on: "
                        f"{describe_error(error)}.")  # fmt: skip
        else:
            hint = DAMAGED_HINT if error.code() in DAMAGED else ""
            self._broken = ConfigError(f"Can't read {topic}[{partition}]: {describe_error(error)}.", hint=hint)

    def _break(self, why: str) -> LedgerError:
        self._broken = LedgerError(why, hint=REBUILD)
        return self._broken


def _partitions(count: int, only: int | None) -> Sequence[int]:
    return range(count) if only is None or count == 1 else [only]


def _name(tp: Partition) -> str:
    return f"{tp[0]}[{tp[1]}]"

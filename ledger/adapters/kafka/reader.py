"""Reads whole partitions of Kafka topics, committed records only."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ledger.adapters.kafka.cluster import EARLIEST, Cluster, Place
from ledger.adapters.kafka.errors import DAMAGED, DAMAGED_HINT, LOST_PLACE, PASSING, made, told
from ledger.errors import ConfigError, LedgerError
from ledger.ports import NOWHERE, Marks

log = logging.getLogger("ledger.kafka")
POLL_MAX = 5_000  # records that one poll returns at most: few enough to be in the processor's caches when applied
REBUILD = "This process must forget what it has read and begin again; it is safe to restart it."

#: Defaults that a user may override.
FETCHING: dict[str, str | int] = {
    "fetch.wait.max.ms": 50,  # how late an end of partition, hence a control record, is passed
    "fetch.queue.backoff.ms": 10,  # the default of 1 s makes a fast reader wait for nothing
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
    """Implements `ports.Reader` by assignment: no group, no rebalance, no committed offset."""

    def __init__(
        self, client: Mapping[str, str | int], cluster: Cluster, topics: Sequence[str], group_id: str,
        partition: int | None = None, begin: Marks = NOWHERE,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        shapes = cluster.shape(topics)
        self._ids = {topic: shape.id for topic, shape in shapes.items()}
        places = [(topic, p) for topic in topics for p in _partitions(shapes[topic].partitions, partition)]
        self._position = {place: max(at, begin.get(place, 0)) for place, at in self._beginnings(places).items()}
        self._broken: LedgerError | None = None
        self._consumer = made(Consumer, {**FETCHING, **client, **_SAFETY, "group.id": group_id}, log)
        self._places = [TopicPartition(*place) for place in places]
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._position.items()])

    def poll(self, records_max: int, timeout_s: float) -> list[Message]:
        """Raises: LedgerError if the place is lost (topic deleted, truncated or made anew); then at every call."""
        self._must_be_whole()
        most = max(1, min(records_max, POLL_MAX))
        # consume() waits for the full number: so wait for one, then take what lies there.
        messages = self._consumer.consume(1, timeout_s)
        if messages and most > 1:
            messages += self._consumer.consume(most - 1, 0)
        records: list[Any] = messages
        if any(map(Message.error, messages)):
            records = [message for message in messages if message.error() is None]
        if records:
            for at in self._consumer.position(self._places):  # asked of the client: to look at each record costs more
                place = at.topic, at.partition  # its end may have been told already, and lies beyond its last record
                self._position[place] = max(self._position[place], at.offset)
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
        """Raises: Unreachable; LedgerError if a topic was truncated or made anew, which only asking can show."""
        self._must_be_whole()
        for topic, shape in self._cluster.shapes(self._ids).items():
            if shape is None or shape.id != self._ids[topic]:
                raise self._break(f"Topic {topic} was deleted{' and made anew' if shape else ''} while it was read.")
        ends = self._cluster.ends(self._position)
        for place, end in ends.items():
            if end < self._position[place]:
                raise self._break(
                    f"{_name(place)} ends at {end}, but was read up to {self._position[place]}: it was truncated."
                )
        return ends

    def close(self) -> None:
        self._consumer.close()

    def _beginnings(self, places: Sequence[Place]) -> dict[Place, int]:
        """Where each partition begins: 0, unless its topic may forget records by age.

        Raises: LedgerError if the beginning of a topic that must keep everything is gone.
        """
        begins = self._cluster.ends(places, EARLIEST)
        for place, offset in begins.items():
            if offset > 0 and "delete" not in self._cluster.config(place[0]).get("cleanup.policy", ""):
                raise LedgerError(
                    f"The records of {_name(place)} below offset {offset} were deleted: what is left is no ledger.",
                    hint="Stop the ledger and bring both topics back from the archive: jobledger archive restore",
                )
        return begins

    def _must_be_whole(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _take_error(self, message: Any, error: KafkaError) -> None:
        """End of partition is no end: it comes at the last stable offset, so an open transaction may lie behind it. It
        only says that nothing but control records lies between the last record and there."""
        place = topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:
            self._position[place] = max(self._position[place], message.offset())
        elif error.code() in PASSING and not error.fatal():
            log.info("reading goes on: %s", told(error))
        elif error.code() in LOST_PLACE:
            self._break(f"{topic}[{partition}] can't be read on from {self._position.get(place)}: "
                        f"{told(error)}.")  # fmt: skip
        else:
            hint = DAMAGED_HINT if error.code() in DAMAGED else ""
            self._broken = ConfigError(f"Can't read {topic}[{partition}]: {told(error)}.", hint=hint)

    def _break(self, why: str) -> LedgerError:
        self._broken = LedgerError(why, hint=REBUILD)
        return self._broken


def _partitions(count: int, only: int | None) -> Sequence[int]:
    return range(count) if only is None or count == 1 else [only]


def _name(place: Place) -> str:
    return f"{place[0]}[{place[1]}]"

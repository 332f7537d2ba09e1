"""Sends the agent's events with an idempotent producer, acknowledged by all in-sync replicas."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from ledger.core.model.registers import parse_key, partition_of
from ledger.ports import RunnerEvent

log = logging.getLogger(__name__)


class EventSender(Protocol):
    """Sends events to the log. partitions: the number of partitions of `ledger.events`."""

    partitions: int

    def send(self, events: Sequence[RunnerEvent]) -> Collection[bytes]:
        """Sends the events in this order and waits for a bounded time. Returns the keys of the events that are in the
        log now.

        The outcome of all other events is unknown; the caller sends them again, with the same bytes. Never raises
        because a broker is missing."""

    def close(self) -> None: ...


class KafkaEventSender:
    """Sends events to Kafka. properties: librdkafka settings; this class sets those that safety needs. timeout_s: how
    long a call may wait for acknowledgements. Use the sender from one thread at a time, and never across a fork."""

    def __init__(self, topic: str, partitions: int, properties: Mapping[str, Any], *, timeout_s: float = 10.0) -> None:
        self.topic, self.partitions, self._timeout_s = topic, partitions, timeout_s
        self._properties = {
            **properties,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
        }
        self._producer: Any = None
        self._pending: set[bytes] = set()  # produced, no delivery report yet
        self._acknowledged: set[bytes] = set()
        self._trouble = ""

    def send(self, events: Sequence[RunnerEvent]) -> Collection[bytes]:
        producer = self._open()
        self._acknowledged.clear()
        for event in events:
            if event.key not in self._pending:
                self._produce(producer, event)
        producer.flush(self._timeout_s)
        wanted = {event.key for event in events}
        return wanted & self._acknowledged

    def close(self) -> None:
        """Waits once more for acknowledgements. The next agent sends all events that are not acknowledged then."""
        if self._producer is not None:
            self._producer.flush(self._timeout_s)
            self._producer = None

    def _open(self) -> Any:
        from confluent_kafka import Producer

        from ledger.adapters.kafka.errors import made

        if self._producer is None:
            self._producer = made(Producer, self._properties, log)
            self._pending.clear()
        return self._producer

    def _produce(self, producer: Any, event: RunnerEvent) -> None:
        from confluent_kafka import KafkaException

        named = parse_key(event.key)
        if named is None:
            raise ValueError(f"no key of a register: {event.key!r}")

        def report(error: Any, _message: Any) -> None:
            if self._producer is not producer:
                return  # a late report of a producer that was replaced
            self._pending.discard(event.key)
            if error is None:
                self._acknowledged.add(event.key)
                self._say("")
            else:
                self._fail(error)

        try:
            producer.produce(
                self.topic, key=event.key, value=event.value, headers=list(event.headers),
                partition=partition_of(named[0], self.partitions), on_delivery=report,
            )  # fmt: skip
            self._pending.add(event.key)
        except BufferError:
            producer.poll(0)  # the queue is full: a later call sends the rest
        except KafkaException as error:
            self._fail(error.args[0])

    def _fail(self, error: Any) -> None:
        """Logs an error. A fatal error ends an idempotent producer, and the next call makes another one: duplicates are
        harmless here."""
        self._say(f"events can't be sent: {error.str()}")
        if error.fatal():
            self._producer = None

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                log.warning("events_not_sent", extra={"reason": trouble})
            else:
                log.warning("events_sent_again")

"""Sends producers' events one by one, idempotently and acknowledged by all replicas. An unknown outcome is an error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ledger.adapters.kafka.errors import MISCONFIGURED, TOO_LARGE, describe_error, error_of, made
from ledger.adapters.kafka.writer import SENDING
from ledger.errors import ConfigError, OutcomeUnknown, Refused, Unreachable, UsageError
from ledger.ports import Clock, Event

log = logging.getLogger("ledger.kafka")

#: How long an acknowledgement counts as proof that Kafka can be reached.
PROOF_FOR_S = 5.0
#: Extra time for the report of a record's timeout: librdkafka checks for timeouts once a second.
_REPORT_SLACK_S = 5.0
_REFUSALS = MISCONFIGURED | TOO_LARGE | {KafkaError.INVALID_MSG, KafkaError.INVALID_MSG_SIZE, KafkaError._INVALID_ARG}
AGAIN = "Sending the same event again is harmless."
CHECK = "Is the broker up? Are kafka.bootstrap.servers and the credentials right?"


class _Report:
    """The delivery report of one record. The polling thread sets it and wakes the thread that waits for it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: KafkaError | None = None
        self.offset: int | None = None

    def __call__(self, error: KafkaError | None, message: Message | None) -> None:
        self.error = error
        if error is None and message is not None:
            self.offset = message.offset()
        self.done.set()


class KafkaSender:
    """Implements `ports.Sender` with an idempotent producer and one thread that serves its callbacks.

    client: librdkafka settings, except the settings that safety needs: this class sets them. timeout_s: time limit of
    `ready`, and of a record's acknowledgement. Don't use a sender across a fork."""

    def __init__(self, client: Mapping[str, str | int], clock: Clock, *, timeout_s: float) -> None:
        self._settings: dict[str, Any] = {
            **SENDING,
            "linger.ms": 0,  # each caller waits for its own record: nothing would fill the batch
            **client,
            "enable.idempotence": "true",
            "acks": "all",
            "message.timeout.ms": max(1, int(timeout_s * 1000)),
            "error_cb": self._on_error,
        }
        self._timeout_s, self._clock = timeout_s, clock
        self._lock = threading.Lock()
        self._proved_at: float | None = None
        self._trouble = ""
        self._closed = threading.Event()
        self._producer = self._make()
        self._broken: list[Producer] = []
        self._poller = threading.Thread(target=self._poll, name="jobledger-sender", daemon=True)
        self._poller.start()

    def partitions(self, topic: str) -> int:
        return len(self._metadata(topic).partitions)

    def ready(self, topic: str) -> None:
        """Checks that Kafka can be reached. Queries the broker only if no record was acknowledged within PROOF_FOR_S,
        or a connection broke.

        Raises: Unreachable, ConfigError."""
        proved_at = self._proved_at
        if proved_at is None or self._clock.monotonic() - proved_at > PROOF_FOR_S:
            self._metadata(topic)
            self._proved_at = self._clock.monotonic()

    def send(self, event: Event) -> int | None:
        if self._closed.is_set():
            raise UsageError("This sender is closed.")
        report, producer = _Report(), self._producer
        try:
            producer.produce(
                event.topic, event.value, event.key, event.partition, on_delivery=report, headers=list(event.headers)
            )
        except KafkaException as exception:
            report(error_of(exception), None)
        except BufferError as error:
            raise Unreachable(f"Too many events wait to be sent: {error}.", hint=CHECK) from error
        if not report.done.wait(self._timeout_s + _REPORT_SLACK_S):
            raise OutcomeUnknown(f"No acknowledgement of {_event_text(event)} within {self._timeout_s:g} s.", hint=AGAIN)
        if report.error is None:
            self._proved_at = self._clock.monotonic()
            return report.offset if report.offset is not None and report.offset >= 0 else None
        self._proved_at = None
        if report.error.fatal():
            self._replace(producer)
        elif report.error.code() in _REFUSALS:
            raise Refused(f"Kafka refuses {_event_text(event)}: {describe_error(report.error)}.")
        raise OutcomeUnknown(f"{_event_text(event)} may or may not be stored: {describe_error(report.error)}.", hint=AGAIN)

    def close(self) -> None:
        """Returns when all records in flight are reported, after timeout_s at the latest. Idempotent."""
        if self._closed.is_set():
            return
        self._producer.flush(self._timeout_s)
        self._closed.set()
        self._poller.join()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _make(self) -> Producer:
        return made(Producer, self._settings, log)

    def _replace(self, broken: Producer) -> None:
        """Replaces a producer after a fatal error, which makes an idempotent producer unusable. That is safe: a record
        sent twice is one fact. The broken producer is polled until it has reported all its records."""
        with self._lock:
            if self._producer is broken and not self._closed.is_set():
                log.warning("producer_replaced", extra={"reason": "it had a fatal error"})
                self._broken.append(broken)
                self._producer = self._make()

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.1)
            for producer in list(self._broken):
                if producer.poll(0) == 0 and len(producer) == 0:
                    self._broken.remove(producer)

    def _on_error(self, error: KafkaError) -> None:
        self._proved_at = None
        self._trouble = describe_error(error)

    def _metadata(self, topic: str) -> Any:
        """The metadata of a topic, once each of its partitions has a leader. Raises: Unreachable, ConfigError."""
        deadline = self._clock.monotonic() + self._timeout_s
        while (left_s := deadline - self._clock.monotonic()) > 0:
            try:
                metadata = self._producer.list_topics(topic, timeout=left_s).topics[topic]
            except KafkaException as exception:
                self._trouble = self._trouble or describe_error(error_of(exception))
                self._clock.sleep(min(0.1, left_s))
                continue
            if metadata.error is not None and metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise ConfigError(f"There is no topic {topic}.", hint="Run: jobledger topics create")
            if metadata.error is None and all(p.leader >= 0 for p in metadata.partitions.values()):
                return metadata
            self._trouble = f"not every partition of {topic} has a leader"
            self._clock.sleep(min(0.1, left_s))
        raise Unreachable(f"No answer from Kafka within {self._timeout_s:g} s: {self._trouble}.", hint=CHECK)


def _event_text(event: Event) -> str:
    return f"{event.key.decode('utf-8', 'replace')} for {event.topic}[{event.partition}]"

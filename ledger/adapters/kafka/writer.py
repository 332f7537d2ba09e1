"""A fenced transactional writer on Kafka.

librdkafka is a KIP-98 client: a delayed EndTxn of one transaction may end the next transaction of the same producer. So
a producer is never used again unless its commit or abort was clearly answered. Source: KIP-890;
tests/adapters/test_kafka_faults.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ledger.adapters.kafka.errors import MISCONFIGURED, TOO_LARGE, FailureAction, classify, describe_error, error_of, made
from ledger.adapters.kafka.watchdog import Watchdog
from ledger.errors import ConfigError, Fenced, LedgerError, RecordTooLarge, TemporaryError, Unreachable
from ledger.ports import Clock, Event, Marks
from ledger.util import failpoints

log = logging.getLogger("ledger.kafka")
TRANSACTION_TIMEOUT_MS = 10_000
CLOSE_S = 0.5
RETRY_S = 0.02
_NOT_DELIVERED = -1

#: Defaults that a user may override.
SENDING: dict[str, str | int] = {
    "compression.type": "lz4",
    "linger.ms": 5,
    "message.max.bytes": 1_048_576,
}
_SAFETY: dict[str, str | int] = {
    "enable.idempotence": "true",
    "acks": "all",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    # _Lines reads the lines about broken connections. Python's logging decides which lines people see.
    "log.connection.close": "true",
    "log_level": 6,
}
#: After a fatal error within flush() or poll(), confluent_kafka runs delivery callbacks with an exception already set,
#: and Python raises SystemError. Once, an AttributeError for an existing, inherited method of a logger followed such an
#: error. The next transactional call then returns the real error.
BROKEN = (KafkaException, SystemError, AttributeError)
STAND_BACK = "This writer is unusable. Win the election again, then create a new writer. No job is affected."


class KafkaWriter:
    """Implements `ports.Writer`. After `Fenced` the writer is unusable; after any other error it can be used again.

    Raises: TemporaryError if the transaction was aborted: none of its records will ever be read, and the same writer
    may retry. RecordTooLarge (it names the key) if the transaction was aborted and a retry can't succeed."""

    def __init__(
        self, client: Mapping[str, str | int], transactional_id: str, clock: Clock, *,
        init_timeout_s: float = 20.0, commit_timeout_s: float = 10.0,
    ) -> None:  # fmt: skip
        self._client = dict(client)
        self._id = transactional_id
        self._clock = clock
        self._init_timeout_s, self._commit_timeout_s = init_timeout_s, commit_timeout_s
        self._producer: Producer | None = None
        self._dead = ""
        self._lag: Consumer | None = None
        self.watchdog = Watchdog()
        self._lines = _Lines()

    def init(self) -> None:
        """Fences all earlier writers of this transactional id. Raises: Unreachable if no answer came; then `init` may
        be called again. ConfigError; Fenced if this writer is unusable."""
        if self._dead:
            raise self._fenced()
        self._drop()
        settings = {**SENDING, **self._client, **_SAFETY, "transactional.id": self._id}
        producer = made(Producer, settings, self._lines)
        deadline = self._clock.monotonic() + self._init_timeout_s
        while True:
            try:
                left_s = max(0.1, deadline - self._clock.monotonic())
                with self.watchdog.over("init_transactions", left_s):
                    producer.init_transactions(left_s)
                break
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() in MISCONFIGURED:
                    raise ConfigError(
                        f"Kafka refuses the transactional id {self._id}: {describe_error(error)}."
                    ) from exception
                if classify(error) is not FailureAction.RETRY:
                    raise Unreachable(f"{self._id} could not be initialised: {describe_error(error)}.") from exception
                if self._clock.monotonic() >= deadline:
                    raise Unreachable(
                        f"{self._id}: no answer from Kafka within {self._init_timeout_s:g} s: {describe_error(error)}."
                    ) from exception
        self._producer = producer

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        if self._dead:
            raise self._fenced()
        if self._producer is None:
            raise LedgerError(f"{self._id} was not initialised: call init() before commit().")
        if not events and not offsets:
            return []
        written: list[int] = []
        if events:
            self._lines.shaken = False
            transaction = _Transaction(self, self._producer, self._clock.monotonic() + self._commit_timeout_s)
            try:
                written = transaction.run(events)
            finally:
                self._retire_if_shaken()
        self._tell_lag(offsets or {})
        failpoints.hit("transaction.offsets")
        return written

    def close(self) -> None:
        self._drop()
        self._dead = self._dead or "it was closed"
        lag, self._lag = self._lag, None
        if lag is not None:
            # While a broker does not answer, close() waits without limit for offsets in flight, and destroying the
            # consumer waits for its time limits. A leader that steps down waits for neither.
            closing = threading.Thread(target=lag.close, name="close", daemon=True)
            closing.start()
            closing.join(CLOSE_S)

    # -- for the transaction -------------------------------------------------------------------------------------------

    def die(self, why: str) -> NoReturn:
        """Makes this writer unusable. The producer is dropped without another request: its last requests may still
        arrive at the broker.

        Raises: Fenced, always. The error contains `why`."""
        self._dead = why
        self._drop()
        raise self._fenced()

    def now(self) -> float:
        return self._clock.monotonic()

    def wait(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def asked_again(self) -> None:
        """Notes that the end of the transaction was requested more than once."""
        self._lines.shaken = True

    def _tell_lag(self, offsets: Marks) -> None:
        """Commits the offsets of a group without members, for lag tools. It does so outside the transaction and does
        not wait for an answer: no decision depends on them, and such a call may hang (decision 7)."""
        if not offsets:
            return
        if self._lag is None:
            settings = {**self._client, "group.id": self._id, "enable.auto.commit": False}
            self._lag = made(Consumer, settings, self._lines)
        try:
            self._lag.commit(offsets=[TopicPartition(*tp, at) for tp, at in offsets.items()], asynchronous=True)
        except BROKEN as exception:
            log.info("lag_offsets_not_stored", extra={"writer": self._id, "reason": repr(exception)})

    def _fenced(self) -> Fenced:
        return Fenced(f"{self._id} can't write any more: {self._dead}.", hint=STAND_BACK)

    def _retire_if_shaken(self) -> None:
        """Makes the writer unusable if a connection broke in the last transaction. The outcome of that one is known,
        but the producer must not begin another."""
        if self._producer is None:
            return
        try:
            self._producer.poll(0)
        except BROKEN as exception:
            log.info("poll_failed", extra={"writer": self._id, "reason": repr(exception)})
        if self._lines.shaken:
            self._dead = "a connection broke within a transaction, and a late request could end the next one"
            self._drop()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.purge()
                producer.flush(0)
            except BROKEN as exception:
                log.info("broken_producer_dropped", extra={"writer": self._id, "reason": repr(exception)})


class _Lines:
    """The logger for librdkafka's lines. Only these lines show that librdkafka repeated a transaction's requests over a
    new connection. A repeated EndTxn may end the next transaction, and a killed broker may omit markers (decision 14).
    So after any broken connection in a transaction the producer is dropped, and the next take-over repairs the
    partitions.

    shaken: whether a connection broke, or a request was repeated, since it was last reset."""

    def __init__(self) -> None:
        self.shaken = False

    def log(self, level: int, line: str, *parts: str) -> None:
        """Logs a line, and notes whether it reports a broken connection or a request timeout. parts: facility, client,
        text."""
        log.log(level, line, *parts)
        if parts and parts[0] in ("FAIL", "REQTMOUT"):
            self.shaken = True


class _Transaction:
    """One transaction: begin, produce, commit; all steps together have until `deadline` (monotonic seconds)."""

    def __init__(self, writer: KafkaWriter, producer: Producer, deadline: float) -> None:
        self._writer, self._producer, self._deadline = writer, producer, deadline
        self._offsets: list[int] = []
        self._failed: dict[int, KafkaError] = {}
        self._ending = False

    def run(self, events: Sequence[Event]) -> list[int]:
        self._call("begin", lambda _: self._producer.begin_transaction(), self._abort)
        failpoints.hit("transaction.begun")
        self._produce(events)
        failpoints.hit("transaction.delivered")
        self._end("commit", self._producer.commit_transaction, self._abort)
        failpoints.hit("transaction.committed")
        if _NOT_DELIVERED in self._offsets:
            self._writer.die("it committed, but not all offsets are known")
        return self._offsets

    def _produce(self, events: Sequence[Event]) -> None:
        self._offsets = [_NOT_DELIVERED] * len(events)
        for index, event in enumerate(events):
            while True:
                try:
                    self._producer.produce(
                        event.topic, event.value, event.key, event.partition,
                        on_delivery=partial(self._delivered, index), headers=list(event.headers),
                    )  # fmt: skip
                    break
                except BufferError:
                    self._serve(self._producer.poll, 0.05)
                    if self._remaining() <= 0:
                        self._abort(KafkaError(KafkaError._QUEUE_FULL))
                except KafkaException as exception:
                    self._failed[index] = error_of(exception)
                    self._give_up(events)
        failpoints.hit("transaction.produced")
        if self._serve(self._producer.flush, max(0.0, self._remaining())) > 0:
            self._abort(KafkaError(KafkaError._MSG_TIMED_OUT))
        if self._failed:
            self._give_up(events)

    def _serve(self, function: Callable[[float], int], timeout_s: float) -> int:
        """The result of poll or flush, which run the delivery callbacks. On a fatal error, aborts instead."""
        try:
            with self._writer.watchdog.over("producing", timeout_s):
                return function(timeout_s)
        except BROKEN as exception:
            self._abort(error_of(exception))

    def _delivered(self, index: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed[index] = error
        else:
            offset = message.offset()
            self._offsets[index] = _NOT_DELIVERED if offset is None else offset

    def _give_up(self, events: Sequence[Event]) -> NoReturn:
        """Aborts because a record was refused. Raises: RecordTooLarge or ConfigError that names the record's key or
        place; else as `_abort`."""
        large = [index for index, error in self._failed.items() if error.code() in TOO_LARGE]
        if large:
            event = max((events[index] for index in large), key=_size)
            self._abort(self._failed[large[0]], RecordTooLarge(event.topic, event.partition, event.key, _size(event)))
        index, error = next(iter(self._failed.items()))
        event = events[index]
        if error.code() in MISCONFIGURED:
            self._abort(error, ConfigError(f"Can't write to {event.topic}[{event.partition}]: {describe_error(error)}."))
        self._abort(error)

    def _end(self, name: str, function: Callable[[float], object], abort: Callable[[KafkaError], NoReturn]) -> None:
        self._ending = True
        self._call(name, function, abort)

    def _call(self, name: str, function: Callable[[float], object], abort: Callable[[KafkaError], NoReturn]) -> None:
        """Calls `function` until it succeeds. On an error that allows it, aborts; on any other, makes the writer
        unusable."""
        while True:
            try:
                left_s = max(0.1, self._remaining())
                with self._writer.watchdog.over(name, left_s):
                    function(left_s)
                return
            except BROKEN as exception:
                error = error_of(exception)
                verdict = classify(error)
                if verdict is FailureAction.ABORT:
                    abort(error)
                if verdict is FailureAction.FENCED:
                    self._writer.die(f"{name}: {describe_error(error)}")
                if self._ending:
                    self._writer.asked_again()
                self._writer.wait(RETRY_S)  # while the broker is down, the call fails at once each time
                if self._remaining() <= 0:
                    self._writer.die(f"{name}: no answer in time, the outcome is unknown: {describe_error(error)}")

    def _abort(self, error: KafkaError, instead: LedgerError | None = None) -> NoReturn:
        """Aborts the transaction, then raises `instead` or TemporaryError. If the abort has no clear answer, makes the
        writer unusable and raises Fenced."""
        self._deadline = max(self._deadline, self._writer.now() + 2.0)
        self._end("abort", self._producer.abort_transaction, self._cant_abort)
        raise instead or TemporaryError(
            f"The transaction was aborted; none of its records are in the log: {describe_error(error)}."
        )

    def _cant_abort(self, error: KafkaError) -> NoReturn:
        self._writer.die(f"abort: {describe_error(error)}")

    def _remaining(self) -> float:
        return self._deadline - self._writer.now()


def _size(event: Event) -> int:
    headers = sum(len(name) + len(value) for name, value in event.headers)
    return len(event.key) + len(event.value or b"") + headers

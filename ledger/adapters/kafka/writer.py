"""A fenced transactional writer on Kafka.

librdkafka is a KIP-98 client: a delayed EndTxn of one transaction may still hit the next one of the same producer. So
one whose commit or abort was not plainly answered is never used again. Source: KIP-890; tests/adapters/test_kafka_faults.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ledger.adapters.kafka.errors import MISCONFIGURED, TOO_LARGE, FailureAction, classify, error_of, made, told
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
    # The lines about broken connections are read by _Lines; which lines people see is the business of Python's logging.
    "log.connection.close": "true",
    "log_level": 6,
}
#: A fatal error within flush() or poll() makes confluent_kafka run delivery callbacks with an exception already set,
#: which Python reports as SystemError. Right after such an error there was also, once, an AttributeError for an inherited
#: method of a logger, though it has it. The next transactional call then tells what it was.
BROKEN = (KafkaException, SystemError, AttributeError)
STAND_BACK = "This writer is dead. Prove leadership anew, then take a new one; no job is touched."


class KafkaWriter:
    """Implements `ports.Writer`. After `Fenced` it is dead; after any other error it goes on.

    Raises, beyond the port: TemporaryError: the transaction was aborted, nothing of it will ever be read; the same
    writer may try again. RecordTooLarge: as that, but trying again is useless; it names the key.
    """

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
        """Raises: Unreachable (nothing was changed); ConfigError; Fenced if this writer is dead."""
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
                    raise ConfigError(f"Kafka refuses the transactional id {self._id}: {told(error)}.") from exception
                if classify(error) is not FailureAction.RETRY:
                    raise Unreachable(f"{self._id} could not be initialised: {told(error)}.") from exception
                if self._clock.monotonic() >= deadline:
                    raise Unreachable(
                        f"{self._id}: no answer from Kafka within {self._init_timeout_s:g} s: {told(error)}."
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
            # While a broker does not answer, close() waits for the offsets that are under way, without end; and to drop
            # the consumer takes its time limits. A leader that steps down waits for neither.
            closing = threading.Thread(target=lag.close, name="close", daemon=True)
            closing.start()
            closing.join(CLOSE_S)

    # -- for the transaction -------------------------------------------------------------------------------------------

    def die(self, why: str) -> NoReturn:
        """Drops the producer without another word to the broker: what it sent may still arrive."""
        self._dead = why
        self._drop()
        raise self._fenced()

    def now(self) -> float:
        return self._clock.monotonic()

    def wait(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def asked_again(self) -> None:
        """The end of the transaction was asked for more than once."""
        self._lines.shaken = True

    def _tell_lag(self, offsets: Marks) -> None:
        """Offsets of a group that nobody is in, for lag tools. Beside the transaction, not within it, and without waiting
        for an answer: nothing is decided by them, and a call that may hang is not worth it (decision 7)."""
        if not offsets:
            return
        if self._lag is None:
            settings = {**self._client, "group.id": self._id, "enable.auto.commit": False}
            self._lag = made(Consumer, settings, self._lines)
        try:
            self._lag.commit(offsets=[TopicPartition(*place, at) for place, at in offsets.items()], asynchronous=True)
        except BROKEN as exception:
            log.info("%s: offsets for lag tools were not stored: %r", self._id, exception)

    def _fenced(self) -> Fenced:
        return Fenced(f"{self._id} can't write any more: {self._dead}.", hint=STAND_BACK)

    def _retire_if_shaken(self) -> None:
        """What has been committed or aborted is known to be so; but nothing more is risked on this producer."""
        if self._producer is None:
            return
        try:
            self._producer.poll(0)
        except BROKEN as exception:
            log.info("%s: %r", self._id, exception)
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
                log.info("%s: dropped a broken producer: %r", self._id, exception)


class _Lines:
    """What librdkafka logs. It repeats the requests of a transaction over a new connection without telling, except here.
    A repeated end may hit the next transaction, and a broker that was killed may leave out markers (decision 14): so
    whatever breaks within a transaction, the producer is not used for another, and a take-over sets things right."""

    def __init__(self) -> None:
        self.shaken = False

    def log(self, level: int, line: str, *parts: str) -> None:
        """parts: facility, client, text."""
        log.log(level, line, *parts)
        if parts and parts[0] in ("FAIL", "REQTMOUT"):
            self.shaken = True


class _Transaction:
    """One transaction: begin, produce, commit; every step until `deadline` (monotonic)."""

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
        """Lets delivery callbacks run."""
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
        """Some record was not taken: aborts, and says which."""
        large = [index for index, error in self._failed.items() if error.code() in TOO_LARGE]
        if large:
            event = max((events[index] for index in large), key=_size)
            self._abort(self._failed[large[0]], RecordTooLarge(event.topic, event.partition, event.key, _size(event)))
        index, error = next(iter(self._failed.items()))
        event = events[index]
        if error.code() in MISCONFIGURED:
            self._abort(error, ConfigError(f"Can't write to {event.topic}[{event.partition}]: {told(error)}."))
        self._abort(error)

    def _end(self, name: str, function: Callable[[float], object], abort: Callable[[KafkaError], NoReturn]) -> None:
        self._ending = True
        self._call(name, function, abort)

    def _call(self, name: str, function: Callable[[float], object], abort: Callable[[KafkaError], NoReturn]) -> None:
        """Calls until it succeeds; aborts where that is possible, else the writer dies."""
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
                    self._writer.die(f"{name}: {told(error)}")
                if self._ending:
                    self._writer.asked_again()
                self._writer.wait(RETRY_S)  # a broker that is away is told so at once, again and again
                if self._remaining() <= 0:
                    self._writer.die(f"{name}: no answer in time, the outcome is unknown: {told(error)}")

    def _abort(self, error: KafkaError, instead: LedgerError | None = None) -> NoReturn:
        """Aborts, and raises what the caller is to know; if not even that goes plainly, the writer dies."""
        self._deadline = max(self._deadline, self._writer.now() + 2.0)
        self._end("abort", self._producer.abort_transaction, self._cant_abort)
        raise instead or TemporaryError(f"The transaction was aborted, nothing of it is in the log: {told(error)}.")

    def _cant_abort(self, error: KafkaError) -> NoReturn:
        self._writer.die(f"abort: {told(error)}")

    def _remaining(self) -> float:
        return self._deadline - self._writer.now()


def _size(event: Event) -> int:
    headers = sum(len(name) + len(value) for name, value in event.headers)
    return len(event.key) + len(event.value or b"") + headers

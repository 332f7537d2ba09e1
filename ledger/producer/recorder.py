"""The recorder, which producers use to write facts to the log. It needs only the base installation.

    with Recorder("launcher", namespace="prod") as recorder:
        recorder.record(job_id, Running(1), AttemptRunning("application_17"))

`record` returns once the event is durable. If the outcome is unknown, it raises `Unacknowledged`. An event is built
once, so a resend has the same bytes. Its key names the fact, so two stored copies count as one fact. Manual:
docs/RECORDER.md.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from ledger.adapters import avro, cloudevents
from ledger.adapters.clock import SystemClock
from ledger.config.config import Config, load_config
from ledger.core.model.facts import Fact, JobSubmitted
from ledger.core.model.registers import Register, Spec, is_job_id, is_writer, key_of, parse_key, partition_of
from ledger.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from ledger.ports import Clock, Event, Sender
from ledger.producer.outbox import Outbox
from ledger.util.identity import whoami
from ledger.util.ids import RANDOM_BYTES, uuid7

if TYPE_CHECKING:
    from ledger.producer.outside import OutsideJob

R = TypeVar("R")
#: Seconds between retries of a recorder that blocks while Kafka does not answer.
RETRY_INTERVAL_S = 1.0


class Recorded(NamedTuple):
    """The position of a durable event. offset: None if an earlier send stored it, but its acknowledgement was lost."""

    partition: int
    offset: int | None
    event_id: str


class Unacknowledged(OutcomeUnknown):
    """The event may or may not be in the log. Call `Recorder.send_again(error.event)`: it safely sends the same bytes
    under the same key. You may also stop trying; then nobody may rely on the fact."""

    def __init__(self, message: str, event: Event, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.event = event


class Recorder:
    """Writes facts of one producer. Thread-safe. Create one per process, and don't use it across a fork.

    name, namespace: identify the writer in `ce_source`. timeout_s: how long Kafka may take to answer. when_away: if
    Kafka does not answer, "raise" raises Unreachable or Unacknowledged after timeout_s, and "block" retries until Kafka
    is back. outbox: a folder in which each event is stored and fsynced before it is sent, and from which it is removed
    once it is durable. The constructor sends events that an earlier process left there. None: events are kept in memory
    only. actor: the person or system behind the writer, for audits; default user@host. config: default `load_config()`.
    """

    def __init__(
        self, name: str, *, namespace: str = "default", config: Config | None = None, sender: Sender | None = None,
        timeout_s: float = 30.0, when_away: Literal["raise", "block"] = "raise", outbox: Path | None = None,
        actor: str | None = None, clock: Clock | None = None, new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        if not is_writer(name) or not is_writer(namespace):
            raise UsageError(f"name and namespace of a recorder match [A-Za-z0-9._-]{{1,64}}: {namespace}/{name}")
        if when_away not in ("raise", "block"):
            raise UsageError(f'when_away is "raise" or "block", not {when_away!r}')
        config = config if config is not None else load_config()
        self._clock = clock if clock is not None else SystemClock()
        self._new_id = new_id or (lambda: uuid7(self._clock.time(), os.urandom(RANDOM_BYTES)))
        self._topic = config.topics.events
        self._sender = sender if sender is not None else _kafka_sender(config, self._clock, timeout_s)
        self._actor = actor if actor is not None else whoami()
        self._when_away = when_away
        self.instance = self._new_id()
        self.source = f"/ns/{namespace}/producer/{name}/{self.instance}"
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._sequence: Counter[int] = Counter()
        self._partition_count = 0
        self._closed = threading.Event()
        self._outbox = Outbox(outbox) if outbox is not None else None
        self.send_outstanding()

    # -- writing -------------------------------------------------------------------------------------------------------

    def record(self, job_id: str, register: Register, fact: Fact) -> Recorded:
        """Writes a fact into a register of a job. Returns once it is durable: acknowledged by all in-sync replicas.

        Raises: UsageError if job id, register or fact is invalid. Unreachable if Kafka does not answer; nothing was
        sent. Unacknowledged if the event may be stored; with an outbox it stays there and is sent again. Refused if
        Kafka will never accept the event.
        """
        self._check(job_id, register, fact)
        value = avro.encode(fact)
        self._ask_partition_count()
        if self._outbox is None:
            self._when_ready(lambda: self._sender.ready(self._topic))  # before any event exists: surely nothing was sent
        event_id, event = self._build(job_id, register, type(fact).__name__, value)
        if self._outbox is not None:
            self._outbox.put(event_id, event)
        return self._deliver(event_id, event)

    def submit(self, job_id: str, spec: JobSubmitted) -> Recorded:
        """Writes a job's spec under its digest. The graph that it names must already be in the blob store."""
        return self.record(job_id, Spec(avro.spec_digest(spec)), spec)

    def send_again(self, event: Event) -> Recorded:
        """Sends the event of an `Unacknowledged` again, byte for byte. It is safe to repeat."""
        return self._deliver(cloudevents.parse(event.headers).id, event, maybe_stored=True)

    def send_outstanding(self) -> int:
        """Sends the events in the outbox, oldest first, and returns how many it processed. Events that Kafka will never
        accept are logged and set aside.

        Raises: Unacknowledged if Kafka does not answer; events that were not sent stay in the outbox."""
        if self._outbox is None:
            return 0
        sent = 0
        for event_id, event in self._outbox.outstanding():
            try:
                self._deliver(event_id, event, maybe_stored=True)
            except Refused as error:
                self._outbox.set_aside(event_id, event, str(error))
            sent += 1
        return sent

    def job(
        self, name: str, *, namespace: str = "default", priority: int = 0, labels: Mapping[str, str] | None = None
    ) -> AbstractContextManager[OutsideJob]:
        """A context manager for a job that this process runs itself. The ledger shows and audits it, and never starts
        it."""
        from ledger.producer.outside import OutsideJob

        return OutsideJob(self, name, namespace=namespace, priority=priority, labels=labels, clock=self._clock)

    def new_id(self) -> str:
        """A new id for a job (a UUIDv7)."""
        return self._new_id()

    def close(self) -> None:
        """Closes the connection. Calls that block in other threads raise. Idempotent."""
        self._closed.set()
        self._sender.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _check(self, job_id: str, register: Register, fact: Fact) -> None:
        if not is_job_id(job_id):
            raise UsageError(f"a job id matches [A-Za-z0-9._-]{{1,128}}: {job_id!r}")
        if parse_key(key_of(job_id, register).encode("utf-8", "replace")) != (job_id, register):
            raise UsageError(f"invalid register: {register!r}", hint="The grammar is in docs/PROTOCOL.md, section 2.")
        wanted = avro.FACT_OF[type(register)]
        if type(fact) is not wanted:
            raise UsageError(f"{type(register).__name__} holds {wanted.__name__}, not {type(fact).__name__}")
        if isinstance(register, Spec) and isinstance(fact, JobSubmitted) and register.digest != avro.spec_digest(fact):
            raise UsageError("the register's digest differs from that of the spec", hint="Use Recorder.submit.")

    def _ask_partition_count(self) -> None:
        if not self._partition_count:
            self._partition_count = self._when_ready(lambda: self._sender.partitions(self._topic))

    def _build(self, job_id: str, register: Register, fact_name: str, value: bytes) -> tuple[str, Event]:
        """A new event with the next sequence number of its source and partition. Its bytes never change later."""
        if os.getpid() != self._process:
            raise UsageError("a recorder can't be used across a fork", hint="Create one in each process.")
        partition = partition_of(job_id, self._partition_count)
        key, event_id = key_of(job_id, register), self._new_id()
        with self._lock:
            self._sequence[partition] += 1
            sequence = self._sequence[partition]
        headers = cloudevents.headers(
            fact_name, event_id=event_id, source=self.source, subject=job_id, key=key, time_s=self._clock.time(),
            sequence=sequence, actor=self._actor,
        )  # fmt: skip
        return event_id, Event(self._topic, partition, key.encode(), value, headers)

    def _deliver(self, event_id: str, event: Event, maybe_stored: bool = False) -> Recorded:
        """Sends the event until it is durable or an error must be raised. maybe_stored: an earlier send may have stored
        it."""
        while True:
            try:
                self._sender.ready(event.topic)
                offset = self._sender.send(event)
                break
            except Refused:
                self._settled(event_id)
                raise
            except (Unreachable, OutcomeUnknown) as error:
                maybe_stored = maybe_stored or isinstance(error, OutcomeUnknown)
                if self._when_away == "block":
                    self._pause(error)
                elif maybe_stored or self._outbox is not None:
                    kept = f"; it is kept in {self._outbox.folder} and sent again" if self._outbox is not None else ""
                    raise Unacknowledged(f"event {event_id}: {error}{kept}", event, hint=error.hint) from error
                else:
                    raise
        self._settled(event_id)
        return Recorded(event.partition, offset, event_id)

    def _settled(self, event_id: str) -> None:
        if self._outbox is not None:
            self._outbox.remove(event_id)

    def _when_ready(self, ask: Callable[[], R]) -> R:
        while True:
            try:
                return ask()
            except Unreachable as error:
                if self._when_away == "raise":
                    raise
                self._pause(error)

    def _pause(self, error: Exception) -> None:
        if self._closed.is_set():
            raise UsageError("the recorder was closed while it waited for Kafka") from error
        self._clock.sleep(RETRY_INTERVAL_S)


def _kafka_sender(config: Config, clock: Clock, timeout_s: float) -> Sender:
    from ledger.adapters.kafka.sender import KafkaSender

    return KafkaSender(config.client(), clock, timeout_s=timeout_s)

"""The sender of the agent's events, on librdkafka's mock cluster and on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters import avro, cloudevents
from ledger.adapters.runners.subprocess.sender import KafkaEventSender
from ledger.core.model.facts import AttemptRunning
from ledger.core.model.registers import Running, key_of, partition_of
from ledger.ports import RunnerEvent
from tests.support.waiting import until

pytestmark = pytest.mark.slow

TOPIC = "ledger.events"
PARTITIONS = 4
PATIENCE_S = 60.0
JOB = "job-2"  # not in partition 0


def event(job_id: str, n: int = 1) -> RunnerEvent:
    key = key_of(job_id, Running(n))
    headers = cloudevents.headers(
        "AttemptRunning", event_id=f"{job_id}-{n}", source="agent-1", subject=job_id, key=key, time_s=1.5, sequence=n
    )
    return RunnerEvent(key.encode(), headers, avro.encode(AttemptRunning(str(n))))


@pytest.fixture
def mock() -> Iterator[str]:
    """bootstrap.servers of a mock cluster, which exists as long as its producer."""
    owner = Producer({"bootstrap.servers": "mock:9", "test.mock.num.brokers": 1, "allow.auto.create.topics": True})
    brokers = owner.list_topics(timeout=20).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(5)


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Any] = []

    def enough() -> bool:
        found.extend(message for message in consumer.consume(100, 0.2) if message.error() is None)
        return len(found) >= count

    try:
        until(enough, f"{count} records")
    finally:
        consumer.close()
    return found


def check_what_is_sent(bootstrap: str, topic: str) -> None:
    sender = KafkaEventSender(topic, PARTITIONS, {"bootstrap.servers": bootstrap}, timeout_s=PATIENCE_S)
    events = [event(JOB, n) for n in range(1, 6)] + [event("job-1")]
    assert set(sender.send(events)) == {e.key for e in events}
    assert set(sender.send(events[:2])) == {e.key for e in events[:2]}  # as after a lost acknowledgement
    partition = partition_of(JOB, PARTITIONS)
    assert partition != 0
    found = [m for m in read(bootstrap, topic, partition, 7) if m.key().startswith(f"{JOB}/".encode())]
    assert [m.key() for m in found] == [e.key for e in [*events[:5], *events[:2]]]
    assert [(m.value(), tuple(m.headers())) for m in found[:5]] == [(e.value, e.headers) for e in events[:5]]
    assert (found[5].value(), found[5].headers()) == (found[0].value(), found[0].headers())
    sender.close()


def test_events_are_sent_in_order_to_the_partition_of_their_job(mock: str) -> None:
    check_what_is_sent(mock, TOPIC)


@pytest.mark.kafka
def test_events_are_sent_in_order_to_a_real_broker(bootstrap: str, prefix: str) -> None:
    topic = f"{prefix}{TOPIC}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        future.result()
    check_what_is_sent(bootstrap, topic)


def test_without_a_broker_nothing_is_acknowledged_and_it_heals(mock: str) -> None:
    sender = KafkaEventSender(TOPIC, PARTITIONS, {"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.3)
    assert sender.send([event(JOB)]) == set()
    assert sender.send([event(JOB)]) == set()
    sender.close()
    healed = KafkaEventSender(TOPIC, PARTITIONS, {"bootstrap.servers": mock}, timeout_s=PATIENCE_S)
    assert set(healed.send([event(JOB)])) == {event(JOB).key}
    healed.close()


def test_what_safety_needs_cant_be_configured_away() -> None:
    sender = KafkaEventSender(TOPIC, PARTITIONS, {"acks": "0", "enable.idempotence": False, "client.id": "x"})
    assert (sender._properties["acks"], sender._properties["enable.idempotence"]) == ("all", True)
    assert sender._properties["client.id"] == "x"


class ScriptedProducer:
    """A fake producer. `fates`: for each message an error, None for success, or "silence" for no delivery report."""

    def __init__(self, fates: list[Any]) -> None:
        self.fates, self.produced = fates, []
        self._reports: list[Callable[[], None]] = []

    def produce(self, topic: str, *, key: bytes, on_delivery: Any, **_: Any) -> None:
        fate = self.fates.pop(0)
        if isinstance(fate, BufferError):
            raise fate
        self.produced.append(key)
        if fate != "silence":
            self._reports.append(lambda: on_delivery(fate, None))

    def flush(self, timeout: float) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report()

    def poll(self, timeout: float) -> None: ...


class Trouble:
    def __init__(self, fatal: bool) -> None:
        self._fatal = fatal

    def fatal(self) -> bool:
        return self._fatal

    def str(self) -> str:
        return "it failed"


def scripted(monkeypatch: pytest.MonkeyPatch, *fates: Any) -> tuple[KafkaEventSender, list[ScriptedProducer]]:
    made: list[ScriptedProducer] = []
    left = list(fates)

    def make(_: Any, logger: Any) -> ScriptedProducer:
        made.append(ScriptedProducer(left))
        return made[-1]

    monkeypatch.setattr("confluent_kafka.Producer", make)
    return KafkaEventSender(TOPIC, PARTITIONS, {}), made


def test_a_message_without_a_report_is_not_produced_again_while_it_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, made = scripted(monkeypatch, "silence", None)
    one, two = event(JOB, 1), event(JOB, 2)
    assert sender.send([one]) == set()
    assert sender.send([one, two]) == {two.key}
    assert made[0].produced == [one.key, two.key]


def test_a_message_that_failed_is_produced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, made = scripted(monkeypatch, Trouble(fatal=False), None)
    assert sender.send([event(JOB)]) == set()
    assert sender.send([event(JOB)]) == {event(JOB).key}
    assert len(made) == 1


def test_a_fatal_error_brings_a_new_producer_and_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, made = scripted(monkeypatch, "silence", Trouble(fatal=True), None, None)
    one, two = event(JOB, 1), event(JOB, 2)
    assert sender.send([one, two]) == set()
    assert sender.send([one, two]) == {one.key, two.key}
    assert [p.produced for p in made] == [[one.key, two.key], [one.key, two.key]]


def test_a_full_queue_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, made = scripted(monkeypatch, None, BufferError("full"), None)
    one, two = event(JOB, 1), event(JOB, 2)
    assert sender.send([one, two]) == {one.key}
    assert sender.send([two]) == {two.key}
    assert len(made) == 1

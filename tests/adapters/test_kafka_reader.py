"""Conditions that break a Kafka reader: deleted records, and end offsets that went back. It must never skip silently."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.cluster import LATEST, Cluster, Partition
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.reader import KafkaReader
from ledger.errors import LedgerError
from ledger.ports import Event
from tests.support.servers import create_topic
from tests.support.waiting import in_time

Client = dict[str, str | int]


@pytest.fixture
def client(bootstrap: str) -> Client:
    return {"bootstrap.servers": bootstrap}


def write(client: Client, topic: str, count: int) -> None:
    writer = KafkaLog(client, SystemClock()).writer(topic + "-writer")
    writer.init()
    writer.commit([Event(topic, 0, b"k%d" % n, b"v") for n in range(count)])
    writer.close()


def set_policy(client: Client, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(client)
    admin.incremental_alter_configs([resource])[resource].result(60)
    deadline = time.monotonic() + 60
    while Cluster(client).config(topic)["cleanup.policy"] != policy:
        in_time(time.monotonic() < deadline, "not within the time")
        time.sleep(0.05)


def delete_below(client: Client, topic: str, offset: int) -> None:
    admin = AdminClient(client)
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(60)


def test_a_topic_is_known_by_its_id(client: Client, bootstrap: str, prefix: str) -> None:
    one, other = (create_topic(bootstrap, prefix + name) for name in "ab")
    ids = KafkaLog(client, SystemClock()).topic_ids([one, other])
    assert ids == {topic: Cluster(client).shape([topic])[topic].id for topic in (one, other)}
    assert ids[one] and ids[other] and ids[one] != ids[other]


def test_a_topic_whose_beginning_was_deleted_is_no_ledger(client: Client, bootstrap: str, prefix: str) -> None:
    topic = create_topic(bootstrap, prefix + "t", config={"cleanup.policy": "delete"})
    write(client, topic, 10)
    delete_below(client, topic, 5)
    set_policy(client, topic, "compact")
    with pytest.raises(LedgerError, match="below offset 5 were deleted"):
        KafkaLog(client, SystemClock()).reader([topic])


def test_a_topic_that_forgets_by_age_is_read_from_where_it_begins(client: Client, bootstrap: str, prefix: str) -> None:
    topic = create_topic(bootstrap, prefix + "t", config={"cleanup.policy": "compact,delete"})
    write(client, topic, 10)
    delete_below(client, topic, 5)
    reader = KafkaLog(client, SystemClock()).reader([topic])
    assert reader.position() == {(topic, 0): 5}
    offsets, deadline = [], time.monotonic() + 60
    while reader.position() != {(topic, 0): 11}:
        in_time(time.monotonic() < deadline, "not within the time")
        offsets += [record.offset() for record in reader.poll(100, 0.1)]
    assert offsets == [5, 6, 7, 8, 9]
    reader.close()


def test_records_that_vanish_before_they_are_read_break_the_reader(client: Client, bootstrap: str, prefix: str) -> None:
    topic = create_topic(bootstrap, prefix + "t", config={"cleanup.policy": "delete"})
    write(client, topic, 3)
    reader = KafkaLog(client, SystemClock()).reader([topic])
    deadline = time.monotonic() + 60
    while reader.position() != {(topic, 0): 4}:
        in_time(time.monotonic() < deadline, "not within the time")
        reader.poll(100, 0.1)
    reader._consumer.pause([TopicPartition(topic, 0)])  # a slow reader that fetches nothing ahead
    write(client, topic, 10)
    delete_below(client, topic, 10)
    reader._consumer.resume([TopicPartition(topic, 0)])
    deadline = time.monotonic() + 60
    with pytest.raises(LedgerError, match=r"can't be read from offset 4 on") as told:
        while time.monotonic() < deadline:
            assert list(reader.poll(100, 0.1)) == []
    assert "read again" in told.value.hint
    with pytest.raises(LedgerError):
        reader.high_watermarks()
    reader.close()


class Truncated(Cluster):
    """A cluster that has lost the newest record of each partition."""

    def ends(self, places: Iterable[Partition], spec: OffsetSpec = LATEST) -> dict[Partition, int]:
        return {place: end - 1 if spec is LATEST else end for place, end in super().ends(places, spec).items()}


def test_an_end_before_the_position_breaks_the_reader(client: Client, bootstrap: str, prefix: str) -> None:
    topic = create_topic(bootstrap, prefix + "t")
    write(client, topic, 3)
    settings: Mapping[str, str | int] = client
    reader = KafkaReader(settings, Truncated(client), [topic], prefix + "g")
    deadline = time.monotonic() + 60
    while reader.position() != {(topic, 0): 4}:
        in_time(time.monotonic() < deadline, "not within the time")
        reader.poll(100, 0.1)
    with pytest.raises(LedgerError, match="truncated"):
        reader.high_watermarks()
    with pytest.raises(LedgerError, match="truncated"):
        reader.poll(1, 0.1)
    reader.close()

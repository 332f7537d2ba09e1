"""A header whose name is no UTF-8: clients in other languages can send one, and confluent_kafka can't read it. No JVM:
the broker is librdkafka's mock, in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from ledger.core.model.published import epoch_of, headers_of
from ledger.reader.rejects import reject_of
from tests.support.bare_producer import send_with_headers

DEADLINE_S = 30.0
COUNT = 200  # enough calls for the interpreter to specialise the code


@pytest.fixture
def odd() -> Iterator[list[Message]]:
    quiet = logging.getLogger("tests.quiet")
    quiet.setLevel(logging.CRITICAL)
    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock"}, logger=quiet)
    bootstrap = ",".join(f"{b.host}:{b.port}" for b in broker.list_topics(timeout=DEADLINE_S).brokers.values())
    headers = [(b"good", b"1"), (b"\xff\xfe", b"2"), (b"ledger_epoch", b"3")]
    send_with_headers(bootstrap, "t", 0, b"key", b"value", headers, COUNT)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}, logger=quiet)
    consumer.assign([TopicPartition("t", 0, 0)])
    yield consumer.consume(COUNT, DEADLINE_S)
    consumer.close()


def test_headers_that_can_not_be_read_are_none_however_often_they_are_asked_for(odd: list[Message]) -> None:
    """Without the guard, the library crashes the process: at the second access, or at the first one in hot code."""
    assert len(odd) == COUNT
    for message in odd:
        assert message.error() is None and message.key() == b"key"
        for _ in range(2):
            assert epoch_of(headers_of(message)) == 0
            assert reject_of(message, "why").headers == ()
        assert message.headers() in ([], None)

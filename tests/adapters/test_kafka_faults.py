"""How the writer and the reader behave when the broker is silent, or a request arrives late. Uses a separate broker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.embedded.broker import Broker
from ledger.errors import Fenced, Unreachable
from ledger.ports import Event
from tests.support.proxy import END_TXN, Proxy
from tests.support.servers import RunningBroker, create_topic
from tests.support.waiting import in_time, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, Proxy]]:
    """A broker with a second listener whose clients connect through a proxy."""
    folder = tmp_path_factory.mktemp("proxied")
    plain = Broker.at(folder)
    listener = Broker.at(tmp_path_factory.mktemp("port")).port  # a port that is free
    proxy = Proxy(("127.0.0.1", listener))
    settings = plain.settings()
    extra = {
        "listeners": f"{settings['listeners']},PROXIED://127.0.0.1:{listener}",
        "advertised.listeners": f"{settings['advertised.listeners']},PROXIED://127.0.0.1:{proxy.port}",
        "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},PROXIED:PLAINTEXT",
    }
    running = RunningBroker(Broker.at(folder, extra=extra))
    try:
        running.start()
        yield running, proxy
    finally:
        proxy.close()
        running.stop()


@pytest.fixture
def topic(proxied: tuple[RunningBroker, Proxy], prefix: str) -> str:
    return create_topic(proxied[0].bootstrap, prefix + "topic")


def log_of(bootstrap: str, patience_s: float = 30.0) -> KafkaLog:
    return KafkaLog(
        {"bootstrap.servers": bootstrap}, SystemClock(), timeout_s=patience_s, init_timeout_s=patience_s,
        commit_timeout_s=patience_s,
    )  # fmt: skip


def read(log: KafkaLog, topic: str) -> list[bytes | None]:
    reader = log.reader([topic])
    marks, records, deadline = reader.high_watermarks(), [], time.monotonic() + 60
    while any(reader.position().get(place, 0) < end for place, end in marks.items()):
        in_time(time.monotonic() < deadline, "not within the time")
        records += reader.poll(1000, 0.1)
    reader.close()
    return [record.value() for record in records]


def test_a_late_end_of_one_transaction_tears_the_next_one_of_a_plain_producer(
    proxied: tuple[RunningBroker, Proxy], topic: str, prefix: str
) -> None:
    """The reason to discard a producer whose commit was interrupted: the broker can't tell its transactions apart."""
    running, proxy = proxied
    proxy.kept.clear(), proxy.answered_late.clear()
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "transactional.id": prefix + "w"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"first", b"k", 0)
    assert producer.flush(30) == 0
    proxy.keep_back(END_TXN)
    producer.commit_transaction(20)
    assert proxy.kept.is_set()
    producer.begin_transaction()
    producer.produce(topic, b"half of the second", b"k", 0)
    assert producer.flush(30) == 0
    proxy.hand_in()
    assert proxy.answered_late.wait(60)
    log = log_of(running.bootstrap)
    assert read(log, topic) == [b"first", b"half of the second"]  # no client has committed the second one


def test_a_writer_whose_commit_was_shaken_writes_no_more(
    proxied: tuple[RunningBroker, Proxy], topic: str, prefix: str
) -> None:
    running, proxy = proxied
    proxy.kept.clear(), proxy.answered_late.clear()
    log = log_of(f"127.0.0.1:{proxy.port}")
    writer = log.writer(prefix + "w")
    writer.init()
    writer.commit([Event(topic, 0, b"k", b"zeroth")])
    proxy.keep_back(END_TXN)
    (offset,) = writer.commit([Event(topic, 0, b"k", b"first")])
    assert proxy.kept.is_set()
    assert offset == 2  # this record is known to be stored
    with pytest.raises(Fenced, match="late request"):
        writer.commit([Event(topic, 0, b"k", b"second")])
    successor = log.writer(prefix + "w")
    successor.init()
    proxy.hand_in()
    assert proxy.answered_late.wait(60)
    successor.commit([Event(topic, 0, b"k", b"third")])
    assert read(log_of(running.bootstrap), topic) == [b"zeroth", b"first", b"third"]


def test_a_silent_broker_fences_the_writer_in_time_and_costs_the_reader_nothing(
    proxied: tuple[RunningBroker, Proxy], topic: str, prefix: str
) -> None:
    running, _ = proxied
    log, patient = log_of(running.bootstrap, 3.0), log_of(running.bootstrap)
    writer, late = patient.writer(prefix + "w"), log.writer(prefix + "late")
    reader = until(lambda: log.reader([topic]), "a reader, which has no patience either")
    writer.init()
    (first,) = writer.commit([Event(topic, 0, b"k", b"1")])
    writer._commit_timeout_s = 3.0

    def caught_up() -> bool:
        reader.poll(10, 0.1)
        return reader.position()[topic, 0] >= first + 2

    until(caught_up, "the record was read")
    before = reader.position()
    assert running.process is not None
    os.kill(running.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(Fenced):
            writer.commit([Event(topic, 0, b"k", b"2")])
        with pytest.raises(Fenced):
            writer.commit([Event(topic, 0, b"k", b"2")])
        writer.close()
        with pytest.raises(Unreachable):
            reader.high_watermarks()
        with pytest.raises(Unreachable):
            late.init()
        with pytest.raises(Unreachable):
            log.partitions(topic)
        assert list(reader.poll(10, 0.1)) == []
        assert reader.position() == before
        in_time(time.monotonic() - began < 25, "not within 25 s")
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    until(lambda: late.init() or True, "a repeated init succeeds, as nothing was changed")
    successor = patient.writer(prefix + "w")
    successor.init()
    successor.commit([Event(topic, 0, b"k", b"3")])
    marks, seen, deadline = until(reader.high_watermarks, "an answer"), [], time.monotonic() + 60
    while any(reader.position().get(place, 0) < end for place, end in marks.items()):
        in_time(time.monotonic() < deadline, "not within the time")
        seen += reader.poll(10, 0.1)
    assert seen[-1].value() == b"3"
    assert [record.value() for record in seen] in ([b"3"], [b"2", b"3"])  # the outcome of 2 was unknown

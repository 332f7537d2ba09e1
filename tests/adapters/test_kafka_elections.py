"""Leadership by Kafka on a broker that is killed, and with other group members. It adds to the contract
(tests/contract)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer

from ledger.adapters.kafka.leadership import ElectionNames, KafkaLeadership, candidates
from ledger.adapters.kafka.membership import settings
from ledger.embedded.broker import Broker
from ledger.errors import Unreachable
from tests.support.candidates import LASTING_S, SESSION_S, leading, overlaps
from tests.support.servers import RunningBroker, create_topic
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    extra = {"group.min.session.timeout.ms": "1000"}
    running = RunningBroker(Broker.at(tmp_path_factory.mktemp("killed-broker"), extra=extra))
    try:
        running.start()
        yield running
    finally:
        running.kill()


@pytest.fixture
def names(server: RunningBroker, prefix: str) -> ElectionNames:
    made = ElectionNames.of(prefix, "projector")
    create_topic(server.bootstrap, made.topic)
    return made


class Sampled:
    """A candidate whose `valid` is sampled every few milliseconds, by a separate thread."""

    def __init__(self, server: RunningBroker, names: ElectionNames, who: str, session_timeout_s: float = SESSION_S) -> None:
        client = {"bootstrap.servers": server.bootstrap}
        self.leadership = KafkaLeadership(client, names, who=who, session_timeout_s=session_timeout_s)
        self.spans: list[tuple[float, float]] = []
        self._ended = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()

    @property
    def leads(self) -> bool:
        return self.leadership.valid()

    def _look(self) -> None:
        led = False
        while not self._ended.wait(0.003):
            before, leads, after = time.monotonic(), self.leadership.valid(), time.monotonic()
            self.leadership.acquire()
            if leads:  # only times between two samples count, however long a sample takes
                since = self.spans.pop()[0] if led else after
                self.spans.append((since, max(since, before)))
            led = leads

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.leadership.close()


@contextmanager
def sampled(
    server: RunningBroker, names: ElectionNames, *whos: str, session_timeout_s: float = SESSION_S
) -> Iterator[list[Sampled]]:
    made = [Sampled(server, names, who, session_timeout_s) for who in whos]
    try:
        yield made
    finally:
        for each in made:
            each.close()
    assert overlaps([span for each in made for span in each.spans]) == []


@contextmanager
def member(server: RunningBroker, names: ElectionNames) -> Iterator[None]:
    """Another member of the group that does what no candidate does: it joins while the group has a leader."""
    ended, assigned = Event(), Event()

    def stay() -> None:  # one thread for all calls: two threads that call one consumer may deadlock
        client = {"bootstrap.servers": server.bootstrap, "group.id": names.group}
        consumer = Consumer({**client, **settings(LASTING_S)})
        consumer.subscribe([names.topic], on_assign=lambda *_: assigned.set())
        while not ended.is_set():
            consumer.poll(0.05)
        consumer.unsubscribe()
        while consumer.memberid():
            consumer.poll(0.05)
        consumer.close()

    thread = Thread(target=stay)
    thread.start()
    try:
        until(assigned.is_set, "the member has joined the group")
        yield
    finally:
        ended.set()
        thread.join()


def test_who_holds_the_partition_keeps_it_when_others_join_and_leave(server: RunningBroker, names: ElectionNames) -> None:
    with sampled(server, names, "leader", session_timeout_s=LASTING_S) as [leader]:
        until(lambda: leader.leads, "leading")
        for _ in range(2):
            with member(server, names), member(server, names):
                assert leader.leads
        assert len(leader.spans) == 1


def test_kill_9_of_the_broker_for_less_than_the_lease_changes_nothing(server: RunningBroker, names: ElectionNames) -> None:
    """The session is longer than a broker takes to come back."""
    leader, standby = (Sampled(server, names, who, session_timeout_s=90.0) for who in ("leader", "standby"))
    try:
        until(lambda: leader.leads or standby.leads, "a leader")
        if standby.leads:
            leader, standby = standby, leader
        server.kill()
        server.start()
        back_at = time.monotonic()

        def renewed() -> bool:
            left_s = leader.leadership.standing().lease_left_s
            return left_s is not None and left_s > 60.0 - (time.monotonic() - back_at)

        until(renewed, "a renewal by the restarted broker", 30)
        assert len(leader.spans) == 1
        assert standby.spans == []
    finally:
        leader.close()
        standby.close()


def test_kill_9_of_the_broker_for_longer_than_a_session(server: RunningBroker, names: ElectionNames) -> None:
    """The lease ends. A candidate leads again once the broker is back, and never two at a time."""
    with sampled(server, names, "one", "two", "three") as running:
        before = until(lambda: next((each for each in running if each.leads), None), "a leader")
        server.kill()
        until(lambda: not before.leads, "the end of the lease", SESSION_S)
        time.sleep(1.5 * SESSION_S)
        assert not any(each.leads for each in running)
        server.start()
        until(lambda: any(each.leads for each in running), "a leader once the broker is back", 8 * SESSION_S)
        deadline = time.monotonic() + SESSION_S
        while time.monotonic() < deadline:
            assert leading(each.leadership for each in running) < 2
            time.sleep(0.01)


def test_a_session_that_the_broker_does_not_grant_is_told_of(server: RunningBroker, names: ElectionNames) -> None:
    one = Sampled(server, names, "one", session_timeout_s=0.5)
    try:
        until(lambda: "group.min.session.timeout.ms" in one.leadership.standing().waits_for, "saying why")
    finally:
        one.close()


def test_a_topic_that_is_not_there_is_told_of(server: RunningBroker, prefix: str) -> None:
    one = Sampled(server, ElectionNames.of(prefix, "projector"), "one")
    try:
        until(lambda: "UNKNOWN_TOPIC_OR_PART" in one.leadership.standing().waits_for, "saying why")
    finally:
        one.close()


def test_who_leads_is_listed(server: RunningBroker, names: ElectionNames) -> None:
    client = {"bootstrap.servers": server.bootstrap}
    until(lambda: candidates(client, names) == [], "no candidate listed yet")
    with sampled(server, names, "anna@host", session_timeout_s=LASTING_S) as [leader]:
        until(lambda: leader.leads, "leading")
        [found] = until(lambda: candidates(client, names, session_timeout_s=LASTING_S), "the leader listed")
        assert (found.who, found.leads) == ("anna@host", True)
        assert found.lease_left_s is not None
        assert 0 < found.lease_left_s <= LASTING_S * 2 / 3
    until(lambda: candidates(client, names) == [], "no candidate listed any more")


def test_a_broker_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        candidates({"bootstrap.servers": "127.0.0.1:9"}, ElectionNames.of("", "projector"), timeout_s=0.5)

"""A session with ZooKeeper as the calling thread sees it, without a server: the test plays the part of kazoo."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KeeperState

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.zookeeper.client import ZooKeeperClient
from ledger.adapters.zookeeper.link import Link
from ledger.adapters.zookeeper.names import ResolvedNames
from ledger.adapters.zookeeper.settings import ZooKeeperSettings

T = 10.0
SETTINGS = ZooKeeperSettings(hosts="zk1:2181,zk2:2181", session_timeout_s=T)


class Answer:
    """A fake AsyncResult. takes_s: the time until the result is there."""

    def __init__(self, clock: ManualClock, takes_s: float, value: Any) -> None:
        self._clock, self._takes_s, self._value = clock, takes_s, value

    def wait(self, timeout_s: float) -> bool:
        self._clock.advance(min(timeout_s, self._takes_s))
        return self._takes_s <= timeout_s

    def get(self) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def woken() -> list[int]:
    return []


@pytest.fixture
def link(clock: ManualClock, woken: list[int], monkeypatch: pytest.MonkeyPatch) -> Link:
    made = Link(SETTINGS, [], ResolvedNames(), clock, lambda: woken.append(1))
    made.connected(7, T, "zk1", 2181)
    return made


def test_the_lease_may_count_from_the_sending_of_what_was_answered(link: Link, clock: ManualClock) -> None:
    clock.advance(3)
    sent = clock.monotonic()
    assert link.ask(lambda client: Answer(clock, T / 5 - 0.1, "yes")) == "yes"
    assert link.answered == sent
    assert clock.monotonic() > sent


def test_no_is_an_answer_too(link: Link, clock: ManualClock) -> None:
    clock.advance(3)
    sent = clock.monotonic()
    with pytest.raises(NoNodeError):
        link.ask(lambda client: Answer(clock, 1, NoNodeError()))
    assert link.answered == sent


@pytest.mark.parametrize("error", [ConnectionLoss(), SessionExpiredError()])
def test_a_lost_connection_is_none(link: Link, clock: ManualClock, error: Exception) -> None:
    before = link.answered
    clock.advance(3)
    with pytest.raises(ConnectionLoss):
        link.ask(lambda client: Answer(clock, 1, error))
    assert link.answered == before


def test_a_connection_that_owes_an_answer_for_a_fifth_of_the_session_is_given_up(
    link: Link, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = []
    monkeypatch.setattr(link._client, "drop", lambda: dropped.append(clock.monotonic()))
    sent, before = clock.monotonic(), link.answered
    with pytest.raises(ConnectionLoss):
        link.ask(lambda client: Answer(clock, 1000, "too late"))
    assert dropped == [sent + T / 5]
    assert link.answered == before
    with pytest.raises(ConnectionLoss):
        link.ask(lambda client: pytest.fail("no request may be made while there is no connection"))


def test_what_the_servers_grant_is_what_counts(clock: ManualClock, link: Link) -> None:
    assert link.session_s == T
    link.connected(7, 4.0, "zk2", 2181)
    assert (link.session_s, link.server) == (4.0, "zk2:2181")


def test_another_session_under_the_same_client_ends_this_one(link: Link, woken: list[int]) -> None:
    link.disconnected()
    link.connected(7, T, "zk2", 2181)
    assert not link.over
    link.disconnected()
    link.connected(8, T, "zk1", 2181)
    assert link.over == "the server gave it a new session unasked"
    assert len(woken) == 5


def test_the_first_reason_for_an_end_is_the_one_that_is_told(link: Link) -> None:
    link.ended("its session expired")
    link.ended("its client ended")
    assert (link.over, link.is_connected) == ("its session expired", False)


def test_the_list_of_members_is_read_after_each_connection_and_when_it_has_changed(link: Link, clock: ManualClock) -> None:
    class Servers:
        members = link._client.members
        reads = 0

        def get_async(self, path: str, watch: Any) -> Answer:
            assert path == "/zookeeper/config"
            self.reads, self.watch = self.reads + 1, watch
            return Answer(clock, 0, (b"server.9=zk9:2888:3888:participant;0.0.0.0:2189\n", None))

    servers = link._client = Servers()  # type: ignore[assignment]
    link.follow_members()
    link.follow_members()
    assert servers.reads == 1
    assert link.members == [("zk9", 2189)]
    servers.watch(None)
    link.follow_members()
    link.connected(7, T, "zk9", 2189)
    link.follow_members()
    assert servers.reads == 3


# -- kazoo's client ----------------------------------------------------------------------------------------------------


class Deaf:
    def connected(self, *_: Any) -> None: ...
    def disconnected(self) -> None: ...
    def ended(self, reason: str) -> None: ...


@pytest.fixture
def client() -> Iterator[ZooKeeperClient]:
    made = ZooKeeperClient(SETTINGS, [("127.0.0.1", 1)], [("127.0.0.2", 1)], ResolvedNames(), Deaf())
    yield made
    made.close()


@pytest.mark.parametrize("state", [KeeperState.CONNECTING, KeeperState.CLOSED, KeeperState.EXPIRED_SESSION])
def test_nothing_waits_in_a_queue_for_better_times(client: ZooKeeperClient, state: str) -> None:
    client._state = state
    with pytest.raises(ConnectionLoss):
        client.create_async("/x").get(timeout=1)
    assert not client._queue


def test_what_comes_just_as_the_connection_is_lost_does_not_wait_either(
    client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client was connected at the call. When the request entered the queue, the connection was lost and the queue
    cleared."""
    client._state = KeeperState.CONNECTED
    queue = client._queue

    class Losing(list[Any]):
        def append(self, request: Any) -> None:
            client._session_callback(KeeperState.CONNECTING)
            super().append(request)

    client._queue = Losing(queue)
    client._connection._write_sock = type("Socket", (), {"send": lambda self, data: None, "close": lambda self: None})()
    client._connection._notify = None
    monkeypatch.setattr(client, "_notify_pending", lambda state: None)
    with pytest.raises(ConnectionLoss):
        client.create_async("/x").get(timeout=1)
    assert client._queue == []


def test_who_is_dialled(client: ZooKeeperClient) -> None:
    """The members; after a fruitless round also the hosts from the settings. The server that was just lost comes last."""
    connection = client._connection
    connection._rounds = 1
    assert connection._expand_client_hosts() == [("127.0.0.1", "127.0.0.1", 1)]
    assert client.handler.dial_timeout_s == T / 4
    connection._rounds, connection._last = 2, ("127.0.0.1", "127.0.0.1", 1)
    for _ in range(10):
        assert [host for host, _, _ in connection._expand_client_hosts()] == ["127.0.0.2", "127.0.0.1"]
    assert client.handler.dial_timeout_s == T / 8
    connection._session_s = 4.0  # the session that the servers granted
    connection._expand_client_hosts()
    assert client.handler.dial_timeout_s == 0.5


def test_pauses_between_rounds_are_at_most_a_second(client: ZooKeeperClient) -> None:
    retry = client._conn_retry
    assert retry.max_tries == -1
    assert retry.max_delay * (1 + retry.max_jitter) < 1
    assert isinstance(client.handler, SequentialThreadingHandler)

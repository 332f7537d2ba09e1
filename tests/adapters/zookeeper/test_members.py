"""Leadership by ZooKeeper while its members are killed, stopped, wiped and replaced."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NewConfigNoQuorumError, ReconfigInProcessError, SessionExpiredError

from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership, candidates
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.embedded.zookeeper import members_at
from tests.adapters.zookeeper.world import LONG, PATIENCE_S, T, World, always, leads_on, node_of, port_of
from tests.support import waiting
from tests.support.waiting import seconds_until
from tests.support.zookeepers import Zookeepers

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]  # it starts a JVM for each member


@contextmanager
def dialling(port: int) -> Iterator[None]:
    """Within it, a new connection tries this member first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ledger.adapters.zookeeper.client.random.shuffle", lambda found: found.sort(key=lambda one: one[2] != port)
        )
        yield


def serving_as(zookeepers: Zookeepers, mode: str) -> int:
    """The port of a member in this mode (leader or follower)."""
    return waiting.until(lambda: next((port for port, one in zookeepers.members.items() if one.mode() == mode), None), mode)


def connected_to(port: int, world: World) -> tuple[ZooKeeperLeadership, ZooKeeperLeadership]:
    """A leader that is connected to this member, and a standby. Both are made again if another member was faster."""

    def found() -> tuple[ZooKeeperLeadership, ZooKeeperLeadership] | None:
        with dialling(port):
            anna = world.leader("anna")
        bert = world.standby("bert")
        if port_of(anna) == port:
            return anna, bert
        anna.close()
        bert.close()
        return None

    return waiting.until(found, f"a leader that is connected to {port}")


@pytest.mark.parametrize("mode", ["leader", "follower"])
def test_kill_9_of_the_member_that_the_leader_is_connected_to_changes_nothing(
    mode: str, zookeepers: Zookeepers, lasting: World
) -> None:
    port = serving_as(zookeepers, mode)
    anna, bert = connected_to(port, lasting)
    node = node_of(anna)
    zookeepers.kill(port)
    leads_on(anna, LONG)
    assert not bert.valid()
    assert node_of(anna) == node
    assert port_of(anna) != port


@pytest.mark.parametrize("mode", ["leader", "follower"])
def test_a_member_that_falls_silent_changes_nothing(mode: str, zookeepers: Zookeepers, lasting: World) -> None:
    """If the member is the ensemble's leader, the others notice after syncLimit, here 2 s, and then elect another."""
    port = serving_as(zookeepers, mode)
    anna, bert = connected_to(port, lasting)
    node = node_of(anna)
    with zookeepers.stopped(port):
        leads_on(anna, LONG)
        assert port_of(anna) != port
    assert node_of(anna) == node
    assert not bert.valid()


def test_members_that_take_connections_and_say_nothing_cost_little(
    zookeepers: Zookeepers, lasting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.adapters.zookeeper.client.random.shuffle", lambda found: None)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]
        hosts = [f"127.0.0.1:{one.getsockname()[1]}" for one in silent]
        lonely = World(replace(lasting.settings, hosts=",".join([*hosts, zookeepers.hosts.partition(",")[0]])), stack)
        anna = lonely.candidate("anna")
        seconds_until(anna.acquire, LONG / 2)  # half of that is for dialling all of them


def test_without_a_quorum_nobody_leads_and_soon_after_its_return_one_does(zookeepers: Zookeepers, world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    first, second, third = zookeepers.members
    zookeepers.kill(first, second)
    held = anna._strategy.lease
    assert held is not None
    seconds_until(lambda: not anna.valid(), T)
    assert time.monotonic() >= held.until  # not earlier than necessary
    seconds_until(lambda: re.search(r"no answer from 127\.0\.0\.1:.* for ", anna.standing().waits_for), T)
    always(lambda: not anna.valid() and not bert.valid(), 1.5 * T)
    zookeepers.launch()
    seconds_until(lambda: zookeepers.members[third].mode(), PATIENCE_S)
    seconds_until(lambda: anna.valid() or bert.valid(), 2 * T)
    seconds_until(lambda: len(candidates(world.settings, world.path)) == 2, PATIENCE_S)


def test_wiped_data_cost_one_change_of_leader(zookeepers: Zookeepers, lasting: World) -> None:
    """The new ensemble knows no old session, and refuses a client that has seen a higher zxid."""
    anna, bert = lasting.leader("anna"), lasting.standby("bert")
    zookeepers.kill()
    zookeepers.wipe()
    zookeepers.start()
    seconds_until(lambda: anna.valid() or bert.valid(), 2 * LONG)
    seconds_until(lambda: len(candidates(lasting.settings, lasting.path)) == 2, PATIENCE_S)
    # The candidate that led first may have to ask the wiped ensemble again.
    seconds_until(lambda: anna.valid() != bert.valid(), 2 * LONG)
    always(lambda: anna.valid() != bert.valid(), 1)


def test_members_that_are_added_are_found_and_survive_those_that_were_configured(tmp_path: Path) -> None:
    """A rolling replacement, as this adapter sees it: at the end none of the configured hosts is left."""
    password = "changing"
    all_six = members_at(tmp_path, 6, super_password=password)
    old, new = all_six[:3], all_six[3:]
    first = [member.server for member in old]
    zookeepers = Zookeepers({member.server.client_port: replace(member, ensemble=first) for member in old})
    with ExitStack() as stack:
        stack.callback(lambda: zookeepers.kill())
        zookeepers.start()
        settings = ZooKeeperSettings(hosts=zookeepers.hosts, session_timeout_s=LONG)
        anna = World(settings, stack).leader()
        node = node_of(anna)
        for leaving, joining in zip(old, new, strict=True):
            current = [member.server for member in zookeepers.members.values()]
            zookeepers.members[joining.server.client_port] = replace(joining, ensemble=current, joining=True)
            zookeepers.start(joining.server.client_port)
            reconfigure(zookeepers, password, joining=joining.server.line())
            reconfigure(zookeepers, password, leaving=str(leaving.server.id))
            zookeepers.kill(leaving.server.client_port)
            del zookeepers.members[leaving.server.client_port]
            leads_on(anna, 1)
        leads_on(anna, LONG)
        assert node_of(anna) == node
        seconds_until(lambda: {port for _, port in anna._strategy._link.members} == set(zookeepers.members), T)  # type: ignore[union-attr]


def reconfigure(zookeepers: Zookeepers, password: str, joining: str | None = None, leaving: str | None = None) -> None:
    """Changes the ensemble. Retries if the connection is lost (it may be to the member that leaves) or the members are
    not ready. A repetition has no effect."""

    def done() -> bool:
        client = KazooClient(zookeepers.hosts, auth_data=[("digest", f"super:{password}")], timeout=T)
        client.start(30)
        try:
            client.reconfig(joining=joining, leaving=leaving, new_members=None)
            return True
        except (ConnectionLoss, SessionExpiredError, ReconfigInProcessError, NewConfigNoQuorumError):
            return False
        finally:
            client.stop()
            client.close()

    seconds_until(done, 60)

"""Leadership by ZooKeeper on real members: the leader, the next candidate, and the ends of sessions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from ledger.adapters.zookeeper.leadership import candidates
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.errors import Unreachable
from tests.adapters.zookeeper.world import LEASE, LONG, T, World, always, leads_on
from tests.support.waiting import in_time, seconds_until
from tests.support.zookeepers import Zookeepers

pytestmark = pytest.mark.kafka  # it starts a JVM for each member

# -- the leader and the next candidate ---------------------------------------------------------------------------------


def test_a_release_is_followed_by_the_next_leader_at_once(lasting: World) -> None:
    anna, bert = lasting.leader("anna"), lasting.standby("bert")
    assert bert.standing().leader == "anna"
    assert "candidate anna (pid" in bert.standing().waits_for
    anna.release()
    assert not anna.valid()
    seconds_until(bert.valid, LONG / 2)  # long before the session expires
    assert bert.standing().because.startswith("gone: candidate anna")
    seconds_until(lambda: [one.who for one in candidates(lasting.settings, lasting.path)] == ["bert"], 20)
    anna.acquire()
    seconds_until(lambda: anna.standing().leader == "bert", 20)
    seen = candidates(lasting.settings, lasting.path)
    assert [(one.who, one.pid, one.leads) for one in seen] == [("bert", os.getpid(), True), ("anna", os.getpid(), False)]
    assert seen[0].lease_left_s is not None
    assert 0 < seen[0].lease_left_s <= LONG * 2 / 3


def test_handovers_do_not_wait_for_the_next_look(settings: ZooKeeperSettings) -> None:
    """Each candidate watches the node before its own. Without watches it would poll every second: five changes would
    take 5 s."""
    with ExitStack() as stack:
        world = World(replace(settings, session_timeout_s=LONG), stack)
        leader, waiting = world.leader("anna"), world.standby("bert")
        took = 0.0
        for who in ("bert", "anna", "bert", "anna", "bert"):
            leader.release()
            took += seconds_until(waiting.valid, LONG)
            leader, waiting = waiting, leader
            waiting.acquire()
            # before that, it names itself
            seconds_until(lambda one=waiting, who=who: one.standing().leader == who, LONG)
        in_time(took < 2.5, "not within 2.5 s: five changes")


def test_what_the_servers_grant_is_the_session(settings: ZooKeeperSettings) -> None:
    """The servers grant at most 20 ticks: 10 s instead of the 60 s requested."""
    with ExitStack() as stack:
        anna = World(replace(settings, session_timeout_s=60.0), stack).leader()
        left = anna.standing().lease_left_s
        assert left is not None
        assert left <= 10 * 2 / 3
        leads_on(anna, 1)


def test_a_closed_leader_leaves_at_once(lasting: World) -> None:
    anna, bert = lasting.leader("anna"), lasting.standby("bert")
    anna.close()
    anna.close()
    assert not anna.valid()
    assert not anna.acquire()
    seconds_until(bert.valid, LONG / 2)


_LEAD = """
import sys, time
from pathlib import Path
from tests.support.zookeepers import candidate
one = candidate(sys.argv[1], sys.argv[2], float(sys.argv[3]), "child")
while not one.acquire():
    time.sleep(0.01)
print("leads", flush=True)
while True:
    print(one.valid(), flush=True)
    time.sleep(0.05)
"""


@contextmanager
def child(hosts: str, prefix: str) -> Iterator[subprocess.Popen[str]]:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _LEAD, hosts, prefix, str(T)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "leads\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_leader_that_is_killed_or_stopped_is_replaced_after_its_session(zookeepers: Zookeepers, world: World) -> None:
    prefix = f"{uuid.uuid4().hex}."
    settings = ZooKeeperSettings(hosts=zookeepers.hosts, session_timeout_s=T)
    other = World(settings, world._stack)
    other.path = settings.candidates(prefix, "projector")
    with child(zookeepers.hosts, prefix) as process:
        bert = other.standby("bert")
        began = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        seconds_until(bert.valid, 3 * T)
        assert time.monotonic() - began > LEASE
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "False\n" in lines  # and from then on:
        for _ in range(20):
            assert next(lines) == "False\n"
        seconds_until(bert.valid, T)
        seconds_until(lambda: [one.who for one in candidates(settings, other.path)] == ["bert", "child"], 4 * T)


def test_a_strategy_that_hangs_does_not_block_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo keeps the session alive by its own pings, and with it the node of a leader that does not renew."""
    anna, bert = world.leader("anna"), world.standby("bert")
    hanging = threading.Event()
    monkeypatch.setattr(anna._strategy, "step", lambda request: float(hanging.wait(60)))
    seconds_until(bert.valid, 3 * T)
    assert not anna.valid()
    hanging.set()


def test_a_forked_child_leads_nothing(lasting: World) -> None:
    anna = lasting.leader()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, bytes([anna.valid(), anna.acquire()]))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 2) == b"\0\0"
    os.close(read)
    os.close(write)
    assert anna.valid()


# -- sessions ------------------------------------------------------------------------------------------------------------


def test_a_session_that_is_ended_from_outside_ends_the_lead_at_once(lasting: World) -> None:
    anna, bert = lasting.leader("anna"), lasting.standby("bert")
    link = anna._strategy._link
    assert link is not None
    session = link._client.client_id

    def steal() -> None:
        thief = KazooClient(lasting.settings.hosts, timeout=T, client_id=session)
        thief.start(30)
        thief.stop()
        thief.close()

    # The theft is repeated if the owner reconnected to the session before the thief ended it.
    seconds_until(lambda: steal() or bert.valid(), LONG / 2)
    seconds_until(lambda: not anna.valid(), 1)
    seconds_until(lambda: [one.who for one in candidates(lasting.settings, lasting.path)] == ["bert", "anna"], 30)
    assert "it lost the lead" in anna.standing().because


def all_deleted(client: KazooClient, path: str) -> bool:
    """Deletes all nodes in one transaction; False if a node was added meanwhile. One by one, the first candidate would
    be back before the last node is deleted."""
    deletion = client.transaction()
    for name in client.get_children(path):
        deletion.delete(f"{path}/{name}")
    deletion.delete(path)
    return not any(isinstance(result, Exception) for result in deletion.commit())


def test_all_nodes_deleted_by_hand_cost_one_change_of_leader(lasting: World) -> None:
    anna, bert = lasting.leader("anna"), lasting.standby("bert")
    client = lasting.client()
    seconds_until(lambda: all_deleted(client, lasting.path), 30)
    seconds_until(lambda: len(candidates(lasting.settings, lasting.path)) == 2, 30)
    seconds_until(lambda: anna.valid() or bert.valid(), 20)
    always(lambda: anna.valid() != bert.valid(), 1)


def test_a_create_whose_answer_was_lost_leaves_no_orphan(lasting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    anna = lasting.candidate("anna")
    strategy = anna._strategy
    opened = strategy._open_link

    def open_link(known: object) -> object:
        link = opened(known)  # type: ignore[arg-type]
        create = link.create_candidate

        def create_and_lose(*arguments: str | bytes) -> str:
            create(*arguments)  # type: ignore[arg-type]
            monkeypatch.undo()
            link.create_candidate = create  # type: ignore[method-assign]
            link._client.drop()
            raise ConnectionLoss

        link.create_candidate = create_and_lose  # type: ignore[method-assign,assignment]
        return link

    monkeypatch.setattr(strategy, "_open_link", open_link)
    seconds_until(anna.acquire, 30)
    seconds_until(lambda: len(candidates(lasting.settings, lasting.path)) == 1, 30)
    bert = lasting.standby("bert")
    anna.release()
    seconds_until(bert.valid, LONG / 2)


def test_nothing_is_sent_late(zookeepers: Zookeepers, world: World) -> None:
    """By default kazoo queues requests while it is not connected, and sends them after the reconnection."""
    anna = world.leader()
    link = anna._strategy._link
    assert link is not None
    client = link._client
    with zookeepers.stopped(*zookeepers.members):
        seconds_until(lambda: not link.is_connected, 2 * T)
        seconds_until(lambda: client._state == "CONNECTING", 2 * T)
        late = client.create_async(f"{world.path}/late", b"")
        assert late.wait(1)
        assert late.exception is not None
    seconds_until(anna.acquire, 6 * T)
    assert world.client().exists(f"{world.path}/late") is None


def test_who_is_not_there_is_named(world: World) -> None:
    settings = ZooKeeperSettings(hosts="127.0.0.1:1,127.0.0.2:1", session_timeout_s=T)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1,127\.0\.0\.2:1: no answer within 0\.3 s"):
        candidates(settings, world.path, timeout_s=0.3)
    nobody = World(settings, world._stack).candidate("anna")
    assert not nobody.acquire()
    silence = "zookeeper: no answer from 127.0.0.1:1,127.0.0.2:1 for "
    seconds_until(lambda: nobody.standing().waits_for.startswith(silence), 30)

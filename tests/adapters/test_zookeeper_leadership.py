"""Leadership by ZooKeeper on real members: they are killed, stopped, wiped, replaced; sessions end; strangers look."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoAuthError

from ledger.adapters.embedded.ports import free_ports
from ledger.adapters.embedded.zookeeper import members_at
from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership, candidates
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.errors import Unreachable
from tests.zookeepers import Zookeepers

pytestmark = pytest.mark.kafka  # a JVM for each member

T = 5.0
LEASE = T * 2 / 3


def until(condition: Callable[[], object], within: float) -> float:
    """Seconds until it was so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, "not within the time"
        time.sleep(0.002)
    return time.monotonic() - began


def always(condition: Callable[[], object], for_s: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < for_s:
        assert condition(), f"after {time.monotonic() - began:.2f} s"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def zookeepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeepers]:
    with Zookeepers.open(tmp_path_factory.mktemp("zookeepers")) as running:
        yield running


@pytest.fixture
def settings(zookeepers: Zookeepers) -> ZooKeeperSettings:
    zookeepers.start()
    return ZooKeeperSettings(hosts=zookeepers.hosts, chroot=f"/t{uuid.uuid4().hex[:8]}/x", session_timeout_s=T)


class World:
    def __init__(self, settings: ZooKeeperSettings, stack: ExitStack) -> None:
        self.settings, self.path, self._stack = settings, settings.candidates("", "projector"), stack

    def candidate(self, who: str) -> ZooKeeperLeadership:
        made = ZooKeeperLeadership(self.settings, self.path, who=who)
        self._stack.callback(made.close)
        return made

    def leader(self, who: str = "anna") -> ZooKeeperLeadership:
        made = self.candidate(who)
        until(made.acquire, 15)
        return made

    def standby(self, who: str = "bert") -> ZooKeeperLeadership:
        made = self.candidate(who)
        made.acquire()
        until(lambda: made.standing().leader, 15)
        return made

    def client(self) -> KazooClient:
        made = KazooClient(self.settings.hosts, timeout=T)
        made.start(30)
        self._stack.callback(made.close)
        self._stack.callback(made.stop)
        return made


@pytest.fixture
def world(settings: ZooKeeperSettings) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(settings, stack)


def port_of(leadership: ZooKeeperLeadership) -> int:
    """Of the member that it is connected to."""
    link = leadership._keeper._link
    assert link is not None
    return int(link.server.rpartition(":")[2])


def node_of(leadership: ZooKeeperLeadership) -> str:
    return leadership._keeper._node


# -- who leads, and who is next ----------------------------------------------------------------------------------------


def test_a_release_is_followed_by_the_next_leader_within_milliseconds(world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    assert bert.standing().leader == "anna"
    assert "candidate anna (pid" in bert.standing().waits_for
    began = time.monotonic()
    anna.release()
    assert time.monotonic() - began < 0.05  # it does not wait for anybody
    assert not anna.valid()
    assert until(bert.valid, 5) < T / 10
    assert bert.standing().because.startswith("gone: candidate anna")
    until(lambda: [one.who for one in candidates(world.settings, world.path)] == ["bert"], 5)
    anna.acquire()
    until(lambda: anna.standing().leader == "bert", 5)
    seen = candidates(world.settings, world.path)
    assert [(one.who, one.pid, one.leads) for one in seen] == [("bert", os.getpid(), True), ("anna", os.getpid(), False)]
    assert seen[0].lease_left_s is not None
    assert 0 < seen[0].lease_left_s <= LEASE


def test_handovers_do_not_wait_for_the_next_look(settings: ZooKeeperSettings) -> None:
    """Each candidate watches the one before it. Without, it looks every second here."""
    with ExitStack() as stack:
        world = World(replace(settings, session_timeout_s=10.0), stack)
        leader, waiting = world.leader("anna"), world.standby("bert")
        took = 0.0
        for _ in range(5):
            leader.release()
            took += until(waiting.valid, 5)
            leader, waiting = waiting, leader
            waiting.acquire()
            until(lambda one=waiting: one.standing().leader, 5)
        assert took < 0.6, "not within 0.6 s: five changes"


def test_what_the_servers_grant_is_the_session(settings: ZooKeeperSettings) -> None:
    """At most 20 ticks: 10 s of the 60 that are asked for."""
    with ExitStack() as stack:
        anna = World(replace(settings, session_timeout_s=60.0), stack).leader()
        left = anna.standing().lease_left_s
        assert left is not None
        assert left <= 10 * 2 / 3
        always(anna.valid, 1)


def test_a_closed_leader_leaves_at_once(world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    began = time.monotonic()
    anna.close()
    anna.close()
    assert time.monotonic() - began < 1.5
    assert not anna.valid()
    assert not anna.acquire()
    assert until(bert.valid, 5) < 1.5


_LEAD = """
import sys, time
from pathlib import Path
from tests.zookeepers import candidate
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
    root = Path(__file__).parents[2]
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
        process.send_signal(signal.SIGSTOP)
        took = until(bert.valid, 3 * T)
        assert took > LEASE
        assert took < T + 2, f"not within {T + 2:g} s of {took:g}"
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert "False\n" in lines  # and from then on:
        for _ in range(20):
            assert next(lines) == "False\n"
        assert bert.valid()
        until(lambda: [one.who for one in candidates(settings, other.path)] == ["bert", "child"], 2 * T)


def test_a_keeper_that_hangs_does_not_block_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo would keep the session alive by pings of its own, and with it the node of a leader that does not renew."""
    anna, bert = world.leader("anna"), world.standby("bert")
    hanging = threading.Event()
    monkeypatch.setattr(anna._keeper, "step", lambda: float(hanging.wait(60)))
    assert until(bert.valid, 3 * T) < T + 2
    assert not anna.valid()
    hanging.set()


def test_a_forked_child_leads_nothing(world: World) -> None:
    anna = world.leader()
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


# -- members -----------------------------------------------------------------------------------------------------------


def test_kill_9_of_the_member_that_the_leader_is_connected_to_changes_nothing(zookeepers: Zookeepers, world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    node, port = node_of(anna), port_of(anna)
    zookeepers.kill(port)
    always(anna.valid, T)
    assert not bert.valid()
    assert node_of(anna) == node
    assert port_of(anna) != port


# A lease is kept by whoever gets to renew it: where the machine gives nobody a turn for seconds, it is lost, and rightly.
@pytest.mark.flaky(reruns=2)
def test_a_member_that_falls_silent_changes_nothing(zookeepers: Zookeepers, world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    node, port = node_of(anna), port_of(anna)
    with zookeepers.stopped(port):
        always(anna.valid, T)
        assert port_of(anna) != port
    assert node_of(anna) == node
    assert not bert.valid()


def test_members_that_take_connections_and_say_nothing_cost_little(
    zookeepers: Zookeepers, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.adapters.zookeeper.client.random.shuffle", lambda found: None)
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(6)]
        hosts = [f"127.0.0.1:{one.getsockname()[1]}" for one in silent]
        lonely = World(replace(world.settings, hosts=",".join([*hosts, zookeepers.hosts.partition(",")[0]])), stack)
        anna = lonely.candidate("anna")
        assert until(anna.acquire, 30) < T / 2  # T/4 to dial all of them


def test_without_a_quorum_nobody_leads_and_soon_after_its_return_one_does(zookeepers: Zookeepers, world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    held = anna._keeper.held
    assert held is not None
    first, second, third = zookeepers.members
    zookeepers.kill(first, second)
    cut = time.monotonic()
    until(lambda: not anna.valid(), LEASE + 0.2)
    assert time.monotonic() - cut > LEASE - 2 * T / 10 - 0.5  # not earlier than it must
    waits_for = anna.standing().waits_for
    assert "no answer from 127.0.0.1:" in waits_for
    assert " for " in waits_for
    always(lambda: not anna.valid() and not bert.valid(), 1.5 * T)
    zookeepers.launch()
    until(lambda: zookeepers.members[third].mode(), 30)
    assert until(lambda: anna.valid() or bert.valid(), 10) < 2
    until(lambda: len(candidates(world.settings, world.path)) == 2, 10)


def test_wiped_data_cost_one_change_of_leader(zookeepers: Zookeepers, world: World) -> None:
    """The new ensemble knows no session of the old one and refuses whoever has seen more than it has."""
    anna, bert = world.leader("anna"), world.standby("bert")
    zookeepers.kill()
    zookeepers.wipe()
    zookeepers.start()
    until(lambda: anna.valid() or bert.valid(), 2 * T)
    until(lambda: len(candidates(world.settings, world.path)) == 2, 10)
    until(lambda: anna.valid() != bert.valid(), 2 * T)  # whoever led at first may have to ask the wiped ensemble anew
    always(lambda: anna.valid() != bert.valid(), 1)


def test_members_that_are_added_are_found_and_survive_those_that_were_configured(tmp_path: Path) -> None:
    """A rolling replacement, as far as this adapter sees it: no host that it was configured with is left in the end."""
    password = "changing"
    all_six = members_at(tmp_path, 6, super_password=password)
    old, new = all_six[:3], all_six[3:]
    first = [member.server for member in old]
    zookeepers = Zookeepers({member.server.client_port: replace(member, ensemble=first) for member in old})
    with ExitStack() as stack:
        stack.callback(lambda: zookeepers.kill())
        zookeepers.start()
        settings = ZooKeeperSettings(hosts=zookeepers.hosts, session_timeout_s=T)
        world = World(settings, stack)
        anna = world.leader()
        node = node_of(anna)
        for leaving, joining in zip(old, new, strict=True):
            current = [member.server for member in zookeepers.members.values()]
            zookeepers.members[joining.server.client_port] = replace(joining, ensemble=current, joining=True)
            zookeepers.start(joining.server.client_port)
            reconfigure(zookeepers, password, joining=joining.server.line())
            reconfigure(zookeepers, password, leaving=str(leaving.server.id))
            zookeepers.kill(leaving.server.client_port)
            del zookeepers.members[leaving.server.client_port]
            always(anna.valid, 1)
        always(anna.valid, T)
        assert node_of(anna) == node
        assert {port for _, port in anna._keeper._link.members} == set(zookeepers.members)  # type: ignore[union-attr]


def reconfigure(zookeepers: Zookeepers, password: str, joining: str | None = None, leaving: str | None = None) -> None:
    """Again if the connection is lost: it may be to the very member that leaves. Either is harmless twice."""
    for last in (False, False, False, True):
        client = KazooClient(zookeepers.hosts, auth_data=[("digest", f"super:{password}")], timeout=T)
        client.start(30)
        try:
            client.reconfig(joining=joining, leaving=leaving, new_members=None)
            return
        except ConnectionLoss:
            if last:
                raise
        finally:
            client.stop()
            client.close()


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_that_is_ended_from_outside_ends_the_lead_at_once(world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    link = anna._keeper._link
    assert link is not None
    thief = KazooClient(world.settings.hosts, timeout=T, client_id=link._client.client_id)
    thief.start(30)
    thief.stop()
    thief.close()
    until(bert.valid, 5)
    until(lambda: not anna.valid(), 1)
    until(lambda: [one.who for one in candidates(world.settings, world.path)] == ["bert", "anna"], 10)
    assert "it lost the lead" in anna.standing().because


def test_all_nodes_deleted_by_hand_cost_one_change_of_leader(world: World) -> None:
    anna, bert = world.leader("anna"), world.standby("bert")
    world.client().delete(world.path, recursive=True)
    until(lambda: len(candidates(world.settings, world.path)) == 2, 10)
    until(lambda: anna.valid() or bert.valid(), 5)
    always(lambda: anna.valid() != bert.valid(), 1)


def test_a_create_whose_answer_was_lost_leaves_no_orphan(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    anna = world.candidate("anna")
    keeper = anna._keeper
    opened = keeper._open_link

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

    monkeypatch.setattr(keeper, "_open_link", open_link)
    until(anna.acquire, 10)
    assert len(candidates(world.settings, world.path)) == 1
    bert = world.standby("bert")
    anna.release()
    assert until(bert.valid, 5) < 1


def test_nothing_is_sent_late(zookeepers: Zookeepers, world: World) -> None:
    """kazoo would keep what is asked while nobody is connected, and send it after the reconnection."""
    anna = world.leader()
    link = anna._keeper._link
    assert link is not None
    client = link._client
    with zookeepers.stopped(*zookeepers.members):
        until(lambda: not link.is_connected, T)
        until(lambda: client._state == "CONNECTING", T)
        late = client.create_async(f"{world.path}/late", b"")
        assert late.wait(1)
        assert late.exception is not None
    until(anna.acquire, 3 * T)
    assert world.client().exists(f"{world.path}/late") is None


# -- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["digest", "sasl"])
def test_with_a_user_nobody_else_reads_or_writes_what_we_make(
    auth: str, zookeepers: Zookeepers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(with_sasl(tmp_path)) if auth == "sasl" else zookeepers
        running.start()
        settings = ZooKeeperSettings(
            hosts=running.hosts, chroot=f"/t{uuid.uuid4().hex[:8]}", session_timeout_s=T,
            auth=auth, username="ledger", password="geheim",
        )  # fmt: skip
        world = World(settings, stack)
        anna, bert = world.leader("anna"), world.standby("bert")
        assert [one.who for one in candidates(settings, world.path)] == ["anna", "bert"]
        stranger = world.client()
        for refused in (
            lambda: stranger.get_children(world.path),
            lambda: stranger.get(f"{world.path}/{node_of(anna)}"),
            lambda: stranger.set(f"{world.path}/{node_of(anna)}", b""),
            lambda: stranger.delete(f"{world.path}/{node_of(anna)}"),
            lambda: stranger.create(f"{world.path}/{'0' * 32}-1-0000000000"),
        ):
            with pytest.raises(NoAuthError):
                refused()
        with pytest.raises(Unreachable, match="NoAuthError"):
            candidates(replace(settings, auth=""), world.path)
        wrong = World(replace(settings, password="falsch"), stack).candidate("carl")
        wrong.acquire()
        until(lambda: wrong.standing().waits_for.startswith("zookeeper: "), 10)
        assert not wrong.valid()
        anna.release()
        until(bert.valid, 5)


@contextmanager
def with_sasl(folder: Path) -> Iterator[Zookeepers]:
    """One member that knows the user ledger by SASL."""
    jaas = folder / "jaas.conf"
    jaas.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_ledger="geheim"; };\n', encoding="ascii"
    )
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with Zookeepers.open(folder / "sasl", 1, extra, java=[f"-Djava.security.auth.login.config={jaas}"]) as running:
        yield running


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_by_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    make_certificate(tmp_path, "server")
    make_certificate(tmp_path, "client")
    (secure,) = free_ports(1)
    extra = {
        "secureClientPort": str(secure),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(tmp_path / "server.both.pem"),
        "ssl.trustStore.location": str(tmp_path / "client.pem"),
        "ssl.clientAuth": "need",
    }
    with Zookeepers.open(tmp_path / "tls", 1, extra), ExitStack() as stack:
        settings = ZooKeeperSettings(
            hosts=f"127.0.0.1:{secure}", session_timeout_s=T, tls=True,
            tls_ca=tmp_path / "server.pem", tls_cert=tmp_path / "client.pem", tls_key=tmp_path / "client.key",
        )  # fmt: skip
        world = World(settings, stack)
        anna, bert = world.leader("anna"), world.standby("bert")
        always(anna.valid, 2)
        anna.release()
        assert until(bert.valid, 5) < 1
        for stranger in (
            replace(settings, tls_ca=None),  # does not trust the server
            replace(settings, tls_ca=tmp_path / "client.pem"),
            replace(settings, tls_cert=None, tls_key=None),  # is not trusted
            replace(settings, hosts=f"localhost:{secure}"),  # another name than in the certificate
            replace(settings, tls=False),
        ):
            with pytest.raises(Unreachable):
                candidates(stranger, world.path, timeout_s=1)
        assert candidates(replace(settings, hosts=f"localhost:{secure}", tls_verify_hostname=False), world.path)


def make_certificate(folder: Path, name: str) -> None:
    """<name>.pem, <name>.key, and both in one, as the servers take it."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", certificate, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / f"{name}.both.pem").write_text(key.read_text() + certificate.read_text())


def test_who_is_not_there_is_named(world: World) -> None:
    settings = ZooKeeperSettings(hosts="127.0.0.1:1,127.0.0.2:1", session_timeout_s=T)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1,127\.0\.0\.2:1: no answer within 0\.3 s"):
        candidates(settings, world.path, timeout_s=0.3)
    nobody = World(settings, world._stack).candidate("anna")
    assert not nobody.acquire()
    until(lambda: nobody.standing().waits_for.startswith("zookeeper: no answer from 127.0.0.1:1,127.0.0.2:1 for "), 5)

"""The test networks themselves: a cut is silent and affects one network only, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import network as module
from tests.cluster.network import KAFKA, ZK, Network, sweep
from tests.cluster.node import Node, state
from tests.support.waiting import until

pytestmark = pytest.mark.slow

PORT = 7000
#: The time limit for hosts that answer, on a busy machine. For hosts that do not, tests wait less.
ANSWER_S = 20.0
ECHO = """
import socket, threading
def answer(one):
    while said := one.recv(100): one.sendall(said)
server = socket.create_server(("0.0.0.0", 7000))
while True: threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()
"""
DIAL = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), float(sys.argv[2])) as there:
        there.sendall(b"x"); print(there.recv(9).decode())
except OSError as error: print(type(error).__name__)
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with Network.open(tmp_path) as made:
        yield made


@pytest.fixture
def echo(network: Network) -> Callable[..., Node]:
    """Starts a host that echoes every message."""

    def start(name: str, *networks: str) -> Node:
        network.add(name, networks or (ZK, KAFKA))
        node = Node(name, network, network.folder, lambda: [sys.executable, "-I", "-S", "-c", ECHO]).start()
        addresses = network.hosts[name].addresses.values()
        until(lambda: all(dialled(address, 1.0) == "x" for address in addresses), f"{name} answers", every_s=0.01)
        return node

    return start


def dialled(address: str, timeout_s: float = ANSWER_S) -> str:
    try:
        with socket.create_connection((address, PORT), timeout_s) as there:
            there.sendall(b"x")
            return there.recv(9).decode()
    except OSError as error:
        return type(error).__name__


def dialled_from(network: Network, name: str, target: str, timeout_s: float = ANSWER_S) -> str:
    command = network.hosts[name].command([sys.executable, "-I", "-S", "-c", DIAL, target, str(timeout_s)])
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_hosts_reach_each_other_by_name_and_in_their_networks_only(network: Network, echo: Callable[..., Node]):
    echo("member", ZK)
    echo("broker", KAFKA)
    network.add("role")
    assert [dialled_from(network, "role", one) for one in ("member", "broker")] == ["x", "x"]
    # there is no route, so it fails at once
    assert dialled_from(network, "member", "broker") in {"OSError", "gaierror"}
    assert network.address("member") != network.address("broker")
    told = subprocess.run(network.hosts["role"].command(["uname", "-n"]), capture_output=True, text=True, check=True)
    assert told.stdout == "role\n"
    assert os.uname().nodename != "role"


def test_a_cut_is_silent_and_takes_one_network_alone(network: Network, echo: Callable[..., Node]):
    echo("member", ZK)
    echo("broker", KAFKA)
    role = echo("role")
    standing = socket.create_connection((role.address(ZK), PORT), 2)
    role.cut(ZK)
    # Neither side gets a signal: no refusal, no "unreachable"; not even after the time in which ARP would have given
    # up.
    assert dialled_from(network, "role", "member", 4.0) == "TimeoutError"
    assert dialled(role.address(ZK), 4.0) == "TimeoutError"
    shown = network.hosts["role"].command(["ip", "link", "show", ZK])
    # The interface keeps its carrier.
    assert "LOWER_UP" in subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert (dialled_from(network, "role", "broker"), dialled(role.address(KAFKA))) == ("x", "x")
    assert dialled(network.address("member")) == "x"
    standing.settimeout(0.5)
    standing.sendall(b"y")
    with pytest.raises(TimeoutError):
        standing.recv(9)
    role.heal(ZK)
    assert dialled_from(network, "role", "member") == "x"
    # The open connection survives, and data sent during the cut arrives: TCP retransmits it.
    standing.settimeout(20)
    assert standing.recv(9) == b"y"
    standing.close()


def test_what_stands_still_answers_later_and_what_is_killed_is_refused(network: Network, echo: Callable[..., Node]):
    node = echo("role")
    address = node.address(KAFKA)
    node.stop()
    with socket.create_connection((address, PORT), 2) as there:  # the kernel accepts, but the process does not answer
        there.sendall(b"x")
        there.settimeout(0.5)
        with pytest.raises(TimeoutError):
            there.recv(9)
        node.cont()
        there.settimeout(20)
        assert there.recv(9) == b"x"
    node.kill()
    assert dialled(address) == "ConnectionRefusedError"
    node.start()
    assert node.address(KAFKA) == address


def test_a_host_that_comes_anew_has_another_address_and_running_ones_know(network: Network, echo: Callable[..., Node]):
    old = echo("member", ZK)
    network.add("role")
    before = network.address("member")
    old.vanish()
    assert dialled_from(network, "role", "member", 2.0) == "TimeoutError"
    echo("member", ZK)
    assert network.address("member") != before
    assert dialled_from(network, "role", "member") == "x"


def test_the_tests_own_code_may_know_the_names(network: Network, echo: Callable[..., Node]):
    echo("member", ZK)
    with pytest.raises(socket.gaierror), network.resolving():
        socket.create_connection(("no-such-member", PORT), 1)
    with network.resolving():
        assert dialled("member") == "x"
    assert dialled("member") == "gaierror"


def test_all_ends_with_the_network_and_other_networks_go_on(network: Network, echo: Callable[..., Node], tmp_path: Path):
    node = echo("role")
    with Network.open(tmp_path / "other") as other:
        assert other.slot != network.slot
        other.add("role")
        detached = "import os, time; os.fork() or os.setsid(); time.sleep(1000)"
        Node("role", other, other.folder, lambda: [sys.executable, "-I", "-S", "-c", detached]).start()
        namespace = other.hosts["role"].namespace
        assert not {network.slot, other.slot} & set(sweep())  # other runs may have left something
    assert not (Path("/run/netns") / namespace).exists()
    assert not Path("/sys/class/net", f"jlt{other.slot}z").exists()
    assert node.alive()


def test_a_firewall_of_the_machine_drops_nothing_between_hosts(tmp_path: Path):
    """Docker's engine forwards only packets of its own containers, and packets on a bridge count as forwarded."""
    with Network.open(tmp_path / "here"):
        pass  # skips on a machine without test networks
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    code = f"""
        import pathlib, subprocess, sys
        sys.path.insert(0, {str(Path.cwd())!r})
        from tests.cluster import Network, Node
        from tests.cluster.network import KAFKA
        from tests.cluster.test_network import ECHO, dialled, dialled_from
        from tests.support.waiting import until
        with Network.open(pathlib.Path({str(tmp_path)!r})) as network:
            for name in ("one", "other"):
                network.add(name, (KAFKA,))
            echo = lambda: [sys.executable, "-I", "-S", "-c", ECHO]
            node = Node("other", network, network.folder, echo).start()
            until(lambda: dialled(node.address(KAFKA), 1.0) == "x", "it answers", every_s=0.01)
            print(dialled_from(network, "one", "other", 5.0))
    """
    # The rules as Docker's engine leaves them, in a separate namespace. Without the sysctl no bridge uses the firewall.
    drop = "iptables --policy FORWARD DROP; echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables || true"
    machine = ["unshare", "--net", "sh", "-c", f'{drop}; exec "$@"', "sh"]
    command = [*machine, sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stdout.strip(), done.returncode) == ("x", 0), done.stderr


def test_what_a_killed_run_has_left_is_swept(tmp_path: Path):
    """The children of a killed run die with it, but not their detached children, and namespaces stay."""
    with Network.open(tmp_path / "here"):
        pass  # skips on a machine without test networks
    code = f"""
        import pathlib, sys, time
        from tests.cluster import Network, Node
        network = Network.open(pathlib.Path({str(tmp_path)!r}))
        host = network.add("role")
        free = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(1000)"
        Node("role", network, network.folder, lambda: [sys.executable, "-c", free]).start().process.wait()
        print(network.slot, host.namespace, host.pids()[0], flush=True)
        time.sleep(1000)
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout is not None
        slot, namespace, pid = run.stdout.readline().split()
        assert int(slot) not in sweep()
    finally:
        run.kill()
        run.communicate()
    left = Path("/run/netns") / namespace
    lived = state(int(pid)) not in {"", "Z"}
    if int(slot) not in sweep():  # another run swept it earlier, or is doing so
        until(lambda: not left.exists(), "another run has swept the slot")
    else:
        assert lived
    assert not left.exists()
    assert not Path("/sys/class/net", f"jlt{slot}k").exists()
    assert state(int(pid)) in {"", "Z"}


def test_a_slot_can_be_taken_again_at_once(tmp_path: Path):
    for _ in range(5):
        with Network.open(tmp_path) as network:
            network.add("role")
            network.add("other")
            network.remove("other")


def test_an_address_that_was_asked_for_too_early_is_known_all_the_same(network: Network):
    """After the address is set and before the list of neighbours, a client of the last network may send an ARP request."""
    neighbours = network._neighbours(KAFKA, network.gateway(KAFKA), network._device(KAFKA))
    wrong = neighbours[0].replace("lladdr 02", "lladdr 06")
    module._ip([wrong, *neighbours])
    known = subprocess.check_output(["ip", "neigh", "show", "dev", network._device(KAFKA)], text=True)
    assert " 06:" not in known and known.count("PERMANENT") == len(neighbours)


def test_where_it_cannot_be_done_tests_are_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.os, "geteuid", lambda: 1000)
    with pytest.raises(module.SkipTest, match="need root"):
        Network.open(tmp_path)

"""Two networks on one machine, with hosts in them, so that a process can silently lose ZooKeeper, Kafka, or both.

Each host is a network namespace with one link (a veth pair) into each of its networks (bridges). The test itself has a
link to both bridges, so it reaches every host. `cut` makes the bridge drop all packets from and to a link. No carrier
is lost and no ARP entry ages (all are permanent), so neither side gets a signal. It resembles a cable that leads
nowhere, not an interface that is down, nor a host that answers "unreachable".

The bridges are in a separate namespace, the switch. In the machine's own namespace the machine's firewall would filter
their packets, and Docker's engine sets one up that drops them.

A `Network` holds the lock of a slot. The slot determines names and addresses, so parallel runs do not conflict. The
next run that takes a slot removes what a killed run left there. Addresses are from 198.18.0.0/15, which is reserved for
network tests (RFC 2544) and not routed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import SkipTest

from tests.support.waiting import NotInTime

ZK, KAFKA = "zk", "kafka"
NETWORKS = (ZK, KAFKA)

_SLOTS = range(1, 250)
_LOCKS = Path("/run/jobledger-tests")
_NAMESPACES = Path("/run/netns")
#: Hosts have the addresses .2 to .62; the test has .1.
_HOSTS = range(2, 63)
_PREFIX = "jlt"
#: States of a bridge port, as the kernel numbers them.
_DISABLED, _FORWARDING = "0", "3"


def why_no_networks() -> str | None:
    """The reason why this machine can't run test networks; None if it can. Installs iproute2 where that is possible."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "bridge", "nsenter", "unshare", "mount") if shutil.which(tool) is None]
    if "ip" in missing and shutil.which("apt-get"):
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "iproute2"]
        for command in (["apt-get", "update"], install):
            subprocess.run(command, check=False, capture_output=True)
        missing = [tool for tool in missing if shutil.which(tool) is None]
    if missing:
        return f"network namespaces need {' and '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


@dataclass
class Host:
    """A namespace with links. `command` starts processes in it."""

    name: str
    namespace: str
    addresses: dict[str, str]
    """Network -> its address there, for each of its networks."""
    links: dict[str, str]
    """Network -> the switch's end of its link."""
    hosts_file: Path

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a program inside. The process keeps the pid that it is started with. Names are
        those of the network, and the hostname is that of this host."""
        become = 'mount --bind "$1" /etc/hosts && echo "$2" > /proc/sys/kernel/hostname && shift 2 && exec "$@"'
        inside = ["nsenter", f"--net={_NAMESPACES / self.namespace}", "unshare", "--mount", "--uts", "sh", "-c", become]
        return [*inside, "sh", str(self.hosts_file), self.name, *command]

    def pids(self) -> list[int]:
        """The pids of all processes inside, whoever started them."""
        return _pids(self.namespace)


@dataclass
class Network:
    """Both networks. folder: for the file of names. `close` kills all processes inside and removes the networks."""

    folder: Path
    slot: int = 0
    hosts: dict[str, Host] = field(default_factory=dict)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Processes that the test started inside; `close` waits for them."""
    _lock: int = -1
    _names: dict[str, str] = field(default_factory=dict)
    _used: int = 0

    @classmethod
    def open(cls, folder: Path) -> Network:
        """Takes a free slot, removes what dead runs left in any slot, and makes the bridges.

        Raises: SkipTest where that is not possible; OSError if all slots are taken; RuntimeError if the kernel refuses.
        """
        if (reason := why_no_networks()) is not None:
            raise SkipTest(reason)
        _LOCKS.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        sweep()
        # The first slot varies from run to run, so that a port of the last run is not reused soon.
        first = os.getpid() % len(_SLOTS)
        for slot in (*_SLOTS[first:], *_SLOTS[:first]):
            lock = _locked(slot)
            if lock is None:
                continue
            network = cls(folder=folder, slot=slot, _lock=lock)
            try:
                network._make()
            except BaseException:
                network.close()
                raise
            return network
        raise OSError(f"all {len(_SLOTS)} slots of test networks are taken: see {_LOCKS}")

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes and removes the networks. Idempotent."""
        if self._lock >= 0:
            for child in self.children:
                child.kill()  # a process that was just started may not be inside yet
                child.wait()
            _clear(self.slot)
            (_LOCKS / str(self.slot)).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    @property
    def hosts_file(self) -> Path:
        """The file that is /etc/hosts inside: the machine's own lines, then these names. It is changed in place, so
        running processes see changes."""
        return self.folder / "hosts"

    def gateway(self, network: str) -> str:
        """The address of the test itself in a network."""
        return self._address(network, 1)

    def add(self, name: str, networks: Sequence[str] = NETWORKS) -> Host:
        """Adds a host, which is reachable at once. Its name resolves to its address in the first of its networks;
        `<name>-<network>` resolves to its address in each. A reused name gets a new address; addresses are never
        reused."""
        self._used += 1
        number = _HOSTS[self._used - 1]
        namespace = f"{_PREFIX}{self.slot}-{self._used}"
        addresses = {network: self._address(network, number) for network in networks}
        links = {network: f"{_PREFIX}{self.slot}{network[0]}{self._used}" for network in networks}
        outside, inside = list[str](), ["link set lo up"]
        for network in networks:
            link, address = links[network], addresses[network]
            outside.append(
                f"link add {link} master {_bridge(network)} type veth"
                f" peer name {network} netns {namespace} address {_mac(address)}"
            )
            outside.append(f"link set {link} up")
            inside += [f"addr add {address}/26 dev {network}", f"link set {network} up"]
            inside += self._neighbours(network, address, network)
        host = Host(name, namespace, addresses, links, self.hosts_file)
        _ip([f"netns add {namespace}"])
        _ip(outside, "-n", self._switch)
        _ip(inside, "-n", namespace)
        self.hosts[name] = host
        self.name(name, addresses[networks[0]])
        for network in networks:
            self.name(f"{name}-{network}", addresses[network])
        return host

    def remove(self, name: str) -> None:
        """Kills all processes of a host and removes it. Its name stays known, as a lost host stays in the DNS."""
        host = self.hosts.pop(name)
        _kill([host.namespace])
        _ip([f"link del {link}" for link in host.links.values()], "-n", self._switch)
        _ip([f"netns del {host.namespace}"])

    def cut(self, name: str, network: str) -> None:
        """Drops all packets between a host and a network, in both directions, without any error to either side."""
        self._state(name, network, _DISABLED)

    def heal(self, name: str, network: str) -> None:
        """Undoes `cut`."""
        self._state(name, network, _FORWARDING)

    def name(self, name: str, address: str | None) -> None:
        """Sets the address of a name, for running and future processes; None makes the name unknown."""
        if address is None:
            self._names.pop(name, None)
        else:
            self._names[name] = address
        own = "".join(f"{address} {name}\n" for name, address in self._names.items())
        self.hosts_file.write_text(f"{Path('/etc/hosts').read_text().rstrip()}\n{own}")

    def address(self, name: str) -> str:
        """The current address of a name. Raises: KeyError if it is unknown."""
        return self._names[name]

    @contextmanager
    def resolving(self) -> Iterator[None]:
        """Within it, Python code of the test can resolve host names too. librdkafka can't, as it asks the system."""
        genuine = socket.getaddrinfo

        def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
            return genuine(self._names.get(host, host), *arguments, **options)

        socket.getaddrinfo = getaddrinfo
        try:
            yield
        finally:
            socket.getaddrinfo = genuine

    def _make(self) -> None:
        _clear(self.slot)
        switch, ours = list[str](), list[str]()
        for network in NETWORKS:
            bridge, device, own = _bridge(network), self._device(network), self.gateway(network)
            switch += [f"link add {bridge} type bridge", f"link set {bridge} up"]
            switch += [f"link set {device} master {bridge}", f"link set {device} up"]
            ours.append(f"link add {device} address {_mac(own)} type veth peer name {device} netns {self._switch}")
            ours += [f"addr add {own}/26 dev {device}", f"link set {device} up"]
            ours += self._neighbours(network, own, device)
        _ip([f"netns add {self._switch}"])
        _ip(ours)
        _ip(switch, "-n", self._switch)
        self.hosts_file.write_text(Path("/etc/hosts").read_text())

    def _state(self, name: str, network: str, state: str) -> None:
        # `ip link set … type bridge_slave state` reports success, but does nothing.
        _run(["bridge", "-n", self._switch, "link", "set", "dev", self.hosts[name].links[network], "state", state])

    @property
    def _switch(self) -> str:
        """The namespace of the bridges. Hosts are numbered from 1."""
        return f"{_PREFIX}{self.slot}-0"

    def _device(self, network: str) -> str:
        """The test's own link into a network."""
        return f"{_PREFIX}{self.slot}{network[0]}"

    def _address(self, network: str, number: int) -> str:
        return f"198.{18 + NETWORKS.index(network)}.{self.slot}.{number}"

    def _neighbours(self, network: str, own: str, device: str) -> list[str]:
        """Lines for permanent ARP entries of all possible hosts. Without ARP requests no host can notice that another
        is gone."""
        others = (self._address(network, number) for number in (1, *_HOSTS))
        return [f"neigh replace {one} lladdr {_mac(one)} dev {device} nud permanent" for one in others if one != own]


def sweep() -> list[int]:
    """Removes what dead runs have left; returns their slots."""
    swept = []
    for path in _LOCKS.glob("[0-9]*"):
        slot = int(path.name)
        lock = _locked(slot)
        if lock is not None:
            _clear(slot)
            path.unlink(missing_ok=True)
            os.close(lock)
            swept.append(slot)
    return swept


def _locked(slot: int) -> int | None:
    """The lock of a slot; None if another process holds it. It ends with the process; no child inherits it."""
    path = _LOCKS / str(slot)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have removed the file between open and lock: then this lock protects nothing.
        if os.fstat(lock).st_ino == path.stat().st_ino:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _clear(slot: int) -> None:
    """Kills all processes in the namespaces of a slot, and removes the namespaces and this side's links.

    The links are removed first. The kernel removes the devices of a namespace later, even minutes later if a connection
    inside was cut before it was closed. Until then the names of the links would be taken.
    """
    ours = re.compile(rf"{_PREFIX}{slot}-\d+")
    namespaces = [path.name for path in _NAMESPACES.glob(f"{_PREFIX}{slot}-*") if ours.fullmatch(path.name)]
    _kill(namespaces)
    devices = re.compile(rf"{_PREFIX}{slot}[a-z]\d*")
    # Asks the kernel for the devices of this process's namespace: /sys may show another's. Links are removed before
    # bridges.
    lines = [
        f"link del {one}"
        for _, one in sorted(socket.if_nameindex(), reverse=True, key=lambda one: one[1])
        if devices.fullmatch(one)
    ]
    _ip([*lines, *(f"netns del {namespace}" for namespace in namespaces)])


def _kill(namespaces: Sequence[str], timeout_s: float = 20.0) -> None:
    """Sends SIGKILL to all processes inside until none is left: a process that was forked meanwhile is killed in the
    next round."""
    deadline = time.monotonic() + timeout_s
    while inside := {pid for namespace in namespaces for pid in _pids(namespace)}:
        if time.monotonic() > deadline:
            left = f"{sorted(inside)} in {', '.join(namespaces)}"
            raise NotInTime(f"not within {timeout_s:g} s: an end of {left}")
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _pids(namespace: str) -> list[int]:
    """The pids of the living processes in a namespace. Zombies belong to no namespace."""
    try:
        inode = (_NAMESPACES / namespace).stat().st_ino
    except FileNotFoundError:
        return []
    inside = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.stat(f"/proc/{entry.name}/ns/net").st_ino == inode:
                    inside.append(int(entry.name))
            except OSError:
                continue
    return inside


def _bridge(network: str) -> str:
    return f"{network}-bridge"


def _mac(address: str) -> str:
    """The MAC address that belongs to an IP address, so that all ARP entries can be made in advance."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def _ip(lines: Sequence[str], *options: str) -> None:
    """Runs lines of `ip` in one process. Raises: RuntimeError with its output."""
    _run(["ip", *options, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}\n{given}")

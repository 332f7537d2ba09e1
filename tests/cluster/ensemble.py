"""The ZooKeeper members of a cluster, and changes of the ensemble while it runs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from ledger.embedded.zookeeper import EnsembleMember, ServerAddress
from tests.cluster.network import ZK, Network
from tests.cluster.node import READY_S, Node
from tests.support.waiting import NotInTime

#: Password of the user `super`, which ZooKeeper requires for `reconfig`.
PASSWORD = "reconfiguring"


@dataclass
class Ensemble:
    """Members by name: `zookeeper-1` and so on. A name and an id are used once; only a replaced member keeps its name."""

    network: Network
    folder: Path
    tick_ms: int
    settings: Mapping[str, str]
    """By ZooKeeper's names."""
    nodes: dict[str, Node] = field(default_factory=dict)
    members: dict[str, EnsembleMember] = field(default_factory=dict)
    _last: int = 0

    def start(self, count: int) -> None:
        """Starts the first members together. `wait` waits for them."""
        assert not self.nodes
        servers = [self._server() for _ in range(count)]
        for server in servers:
            self._add(server, servers)
        for node in self.nodes.values():
            node.start()

    def wait(self, timeout_s: float = READY_S) -> None:
        """Waits until each member serves."""
        for node in self.nodes.values():
            node.wait(timeout_s)

    @property
    def hosts(self) -> str:
        """The connect string by name, for processes inside the networks."""
        return ",".join(member.server.address for member in self.members.values())

    @property
    def addresses(self) -> str:
        """The connect string by address, for the test itself, which can't resolve the names."""
        return ",".join(f"{node.address(ZK)}:{self.members[name].server.client_port}" for name, node in self.nodes.items())

    def mode(self, name: str) -> str | None:
        """The mode of a member: leader, follower or observer; None if it does not serve."""
        return self._seen(name).mode()

    def leader(self, timeout_s: float = 30.0) -> str:
        """The name of the ensemble's leader, once there is one."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for name in self.nodes:
                if self.mode(name) == "leader":
                    return name
            time.sleep(0.05)
        raise NotInTime(f"not within {timeout_s:g} s: a leader of {', '.join(self.nodes)}")

    def connected_to(self, address: str) -> str | None:
        """The member that a host with this address is connected to; None if there is none. Tests use it to cut that
        connection."""
        for name, node in self.nodes.items():
            if not node.alive():
                continue
            port = self.members[name].server.client_port
            for line in Path(f"/proc/{node.pid}/net/tcp").read_text().splitlines()[1:] + _tcp6(node.pid):
                local, remote, state = line.split()[1:4]
                if state == "01" and int(local.rpartition(":")[2], 16) == port and _ipv4(remote) == address:
                    return name
        return None

    def join(self, timeout_s: float = READY_S) -> str:
        """Starts a new member at a new address and adds it to the ensemble; its name, once it votes."""
        server = self._server()
        node = self._add(server, [member.server for member in self.members.values()], joining=True)
        node.start().wait(timeout_s)
        self.reconfig(joining=server.line())
        return node.name

    def leave(self, name: str) -> None:
        """Removes a member from the ensemble, then ends its process."""
        self.reconfig(leaving=str(self.members[name].server.id))
        del self.members[name]
        self.nodes.pop(name).vanish()

    def replace(self, name: str) -> str:
        """Replaces a member by a new one; the new member's name."""
        new = self.join()
        self.leave(name)
        return new

    def reconfig(self, joining: str | None = None, leaving: str | None = None, timeout_s: float = 30.0) -> str:
        """Changes the list of members, as soon as that is possible; the new list. Idempotent."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            while True:
                try:
                    told, _ = client.reconfig(joining=joining, leaving=leaving, new_members=None)
                    return told.decode()
                except Exception:
                    # NewConfigNoQuorum while a new member is not in sync yet; a lost connection if the leader itself
                    # leaves.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)

    @contextmanager
    def client(self, **options: Any) -> Iterator[KazooClient]:
        """A client of the test, by addresses, with all rights."""
        auth = [("digest", f"super:{PASSWORD}")]
        client = KazooClient(hosts=self.addresses, auth_data=auth, **{"timeout": 4.0} | options)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def wipe(self) -> None:
        """Kills all members, deletes their data, starts them with the same list of members, and waits until they serve."""
        for node in self.nodes.values():
            node.kill()
        for member in self.members.values():
            shutil.rmtree(member.data)
            for written in member.folder.glob("*.cfg*"):
                written.unlink()
            (member.folder / "members.dynamic").unlink(missing_ok=True)
        servers = [member.server for member in self.members.values()]
        self.members = {name: replace(one, joining=False, ensemble=servers) for name, one in self.members.items()}
        for node in self.nodes.values():
            node.start()
        self.wait()

    def _server(self) -> ServerAddress:
        self._last += 1
        name = f"zookeeper-{self._last}"
        self.network.add(name, [ZK])
        return ServerAddress(id=self._last, host=name)

    def _add(self, server: ServerAddress, servers: list[ServerAddress], joining: bool = False) -> Node:
        name = server.host
        member = EnsembleMember(
            folder=self.folder / name, server=server, ensemble=list(servers), joining=joining, tick_ms=self.tick_ms,
            super_password=PASSWORD, extra=self.settings,
        )  # fmt: skip
        self.members[name] = member

        def program() -> list[str]:
            self.members[name].prepare()
            return self.members[name].command()

        node = Node(name, self.network, self.folder, program, lambda *waits: self._seen(name).ready(*waits))
        self.nodes[name] = node
        return node

    def _seen(self, name: str) -> EnsembleMember:
        """A member with its address instead of its name, as only hosts inside the networks can resolve names."""
        member = self.members[name]
        return replace(member, server=replace(member.server, host=self.network.hosts[name].addresses[ZK]))


def _tcp6(pid: int) -> list[str]:
    path = Path(f"/proc/{pid}/net/tcp6")
    return path.read_text().splitlines()[1:] if path.exists() else []


def _ipv4(remote: str) -> str:
    """The IPv4 address in `0202C612:0885`, or in the same mapped to IPv6, as /proc writes it: the last four bytes,
    reversed."""
    word = bytes.fromhex(remote.rpartition(":")[0])[-4:]
    return ".".join(str(byte) for byte in reversed(word))

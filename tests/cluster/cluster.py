"""A ledger on a cluster: the topology of deploy/topology.toml, or a part of it, as processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.brokers import Brokers
from tests.cluster.ensemble import Ensemble
from tests.cluster.network import NETWORKS, Network
from tests.cluster.node import Node
from tests.cluster.topology import Topology, read
from tests.support import waiting
from tests.support.waiting import in_time

JOBLEDGER = str(Path(sys.executable).with_name("jobledger"))

#: Settings in which tests differ from the topology: the same servers, but faster to start and to notice failures.
QUICK_KAFKA: Mapping[str, str] = {
    "broker.session.timeout.ms": "5000",
    "controlled.shutdown.enable": "true",
    "replica.lag.time.max.ms": "8000",
    "num.network.threads": "2",
    "num.io.threads": "2",
}
#: Sessions may last from 1 s to 10 s.
QUICK_ZOOKEEPER: Mapping[str, str] = {"initLimit": "40", "syncLimit": "4"}
QUICK_TICK_MS = 500
QUICK_ROLES: Mapping[str, str] = {"LEDGER_TOPICS__PARTITIONS": "4", "LEDGER_TOPICS__MIN_COMPACTION_LAG_S": "0"}


@dataclass
class Cluster:
    """Servers and roles. Use it as a context manager, which ends everything that it started.

    with Cluster.open(tmp_path) as cluster:
        cluster.start()
        projector = cluster.role("projector", "projector-1")
    """

    folder: Path
    network: Network
    zookeeper: Ensemble
    kafka: Brokers
    topology: Topology
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for every role and command, in addition to the topology's."""
    roles: dict[str, Node] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, tick_ms: int = QUICK_TICK_MS, topology: Topology | None = None) -> Iterator[Cluster]:
        """A cluster that is not started yet. folder: for all its files; its path must be short, for the socket of an
        agent."""
        topology = topology or read()
        with Network.open(folder) as network:
            yield cls(
                folder=folder,
                network=network,
                zookeeper=Ensemble(network, folder, tick_ms, {**topology.zookeeper_settings, **QUICK_ZOOKEEPER}
                                   | {"tickTime": str(tick_ms)}),
                kafka=Brokers(network, folder, topology, QUICK_KAFKA),
                topology=topology,
            )  # fmt: skip

    def start(self, *, zookeepers: int | None = None, brokers: int | None = None, topics: bool = True) -> Cluster:
        """Starts the servers together, and makes the topics once they serve. None: as many as in the topology; 0: none."""
        zookeepers = self.topology.zookeeper["count"] if zookeepers is None else zookeepers
        brokers = self.topology.kafka["count"] if brokers is None else brokers
        if zookeepers:
            self.zookeeper.start(zookeepers)
        if brokers:
            self.kafka.start(brokers)
        self.network.add("client")
        self.zookeeper.wait()
        self.kafka.wait()
        if brokers and topics:
            self.first()
        return self

    def first(self) -> None:
        """Runs the command that must come before any role: it makes the topics."""
        done = self.run(*self.topology.first[1:])
        assert done.returncode == 0, done.stderr

    def role(
        self, kind: str, name: str = "", env: Mapping[str, str] | None = None, *, arguments: Sequence[str] = (),
    ) -> Node:  # fmt: skip
        """Starts a role on a separate host, in both networks. kind: projector, reconciler or agent."""
        name = name or f"{kind}-{1 + sum(one.rpartition('-')[0] == kind for one in self.roles)}"
        self.network.add(name, NETWORKS)
        command = [JOBLEDGER, "serve", kind, "--name", name, *arguments]
        environment = self.settings() | dict(env or {})
        node = Node(name, self.network, self.folder, lambda: command, environment=environment)
        self.roles[name] = node
        node.start()
        return node

    def start_roles(self, *kinds: str) -> None:
        """Starts as many roles of each kind as in the topology; all kinds if none is named."""
        for kind in kinds or reversed(self.topology.roles):
            for name in self.topology.names(kind):
                self.role(kind, name)

    def settings(self) -> dict[str, str]:
        """The environment of roles and commands: the topology's, with this folder and the servers that run now."""
        now = {"LEDGER_DIR": str(self.ledger)}
        if self.kafka.brokers:
            now["LEDGER_KAFKA__BOOTSTRAP_SERVERS"] = self.kafka.bootstrap
            if len(self.kafka.brokers) < self.topology.kafka["count"]:
                now |= {"LEDGER_TOPICS__REPLICATION_FACTOR": "1", "LEDGER_TOPICS__MIN_INSYNC_REPLICAS": "1"}
        if self.zookeeper.members:
            now["LEDGER_ZOOKEEPER__HOSTS"] = self.zookeeper.hosts
        return {**self.topology.environment, **now, **QUICK_ROLES, **self.environment}

    @property
    def ledger(self) -> Path:
        """The folder that all roles share."""
        return self.folder / "ledger"

    def run(self, *arguments: str, timeout_s: float = 60.0, host: str = "client") -> subprocess.CompletedProcess[str]:
        """Runs a `jobledger` command on a host; by default on the host `client`, which is in both networks."""
        command, environment = self.network.hosts[host].command([JOBLEDGER, *arguments]), {**os.environ, **self.settings()}
        return waiting.run(command, timeout_s, env=environment, stdin=subprocess.DEVNULL, cwd=self.folder)

    def run_until(self, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Repeats the command until it exits with 0. Raises: AssertionError with the last output."""
        deadline = time.monotonic() + timeout_s
        while (done := self.run(*arguments, timeout_s=timeout_s)).returncode != 0:
            in_time(time.monotonic() < deadline, f"not within {timeout_s:g} s: {done.args}: {done.stdout}{done.stderr}")
            time.sleep(0.2)
        return done

"""The brokers of a cluster: three nodes, each of them also a controller, and three replicas of everything."""

from __future__ import annotations

import atexit
import base64
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ledger.embedded.broker import Broker
from tests.cluster.network import KAFKA, Network
from tests.cluster.node import READY_S, Node
from tests.cluster.topology import Topology


@dataclass
class Brokers:
    """Brokers by name: `kafka-1` and so on. They advertise names to each other and to roles. A listener of its own
    advertises addresses to the test, like the listener for outside clients in a compose file."""

    network: Network
    folder: Path
    topology: Topology
    settings: Mapping[str, str]
    """Settings in addition to the topology's, by Kafka's names."""
    nodes: dict[str, Node] = field(default_factory=dict)
    brokers: dict[str, Broker] = field(default_factory=dict)

    def start(self, count: int) -> None:
        """Starts all brokers at once. `wait` waits for them."""
        assert not self.nodes
        kafka = self.topology.kafka
        port, controller_port = kafka["port"], kafka["controller_port"]
        names = {f"kafka-{number}": number for number in range(1, count + 1)}
        voters = [f"{number}@{name}:{controller_port}" for name, number in names.items()]
        for name, number in names.items():
            address = self.network.add(name, [KAFKA]).addresses[KAFKA]
            broker = Broker(
                folder=self.folder / name, host=name, port=port, controller_port=controller_port, node_id=number,
                voters=voters, cluster_id=kafka["cluster_id"],
                extra=self.topology.broker_settings(name, address, count) | dict(self.settings),
            )  # fmt: skip
            self._format(broker)
            self._add(name, broker)
        for node in self.nodes.values():
            node.start()

    def wait(self, timeout_s: float = READY_S) -> None:
        """Waits until each broker serves."""
        for node in self.nodes.values():
            node.wait(timeout_s)

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers by name, for processes inside the networks."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def addresses(self) -> str:
        """bootstrap.servers by address, for the test itself, which can't resolve the names."""
        return ",".join(f"{node.address(KAFKA)}:{self.topology.external_port(name)}" for name, node in self.nodes.items())

    def _add(self, name: str, broker: Broker) -> None:
        def program() -> list[str]:
            broker.prepare()
            return broker.command()

        seen = replace(broker, host=self.network.hosts[name].addresses[KAFKA], port=self.topology.external_port(name))
        self.brokers[name] = broker
        self.nodes[name] = Node(name, self.network, self.folder, program, seen.ready)

    def _format(self, broker: Broker) -> None:
        """Writes what `StorageTool format` would write, without a JVM for each node."""
        formatted = _formatted()
        broker.data.mkdir(parents=True)
        shutil.copy(formatted / "bootstrap.checkpoint", broker.data)
        directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        lines = {"version": 1, "cluster.id": broker.cluster_id, "node.id": broker.node_id, "directory.id": directory}
        (broker.data / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


@cache
def _formatted() -> Path:
    """A storage folder that Kafka formatted, once per test process. Its contents do not depend on the settings."""
    folder = Path(tempfile.mkdtemp(prefix="jobledger-formatted-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    broker = Broker(folder=folder, port=9092, controller_port=9093)
    broker.prepare()
    return broker.data

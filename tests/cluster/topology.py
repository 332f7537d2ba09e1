"""deploy/topology.toml as values."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).parents[2] / "deploy" / "topology.toml"


@dataclass(frozen=True)
class Topology:
    """The number of servers and roles of each kind, and their settings. The fields have the names of the file."""

    kafka: Mapping[str, Any]
    zookeeper: Mapping[str, Any]
    roles: Mapping[str, int]
    environment: Mapping[str, str]
    first: tuple[str, ...]
    health: Mapping[str, Any]

    @property
    def kafka_settings(self) -> dict[str, str]:
        return {name: text(value) for name, value in self.kafka["settings"].items()}

    @property
    def zookeeper_settings(self) -> dict[str, str]:
        return {name: text(value) for name, value in self.zookeeper["settings"].items()}

    def external_port(self, name: str) -> int:
        """The port of a broker for clients outside the networks."""
        return int(self.kafka["external_ports"][int(name.rpartition("-")[2]) - 1])

    def broker_settings(self, name: str, outside: str, count: int | None = None) -> dict[str, str]:
        """All settings of a broker.

        outside: the host name under which outside clients reach it. count: the number of brokers; None means that of
        the topology. With fewer brokers than in the topology, all replication factors are 1.
        """
        port, controller, external = self.kafka["port"], self.kafka["controller_port"], self.external_port(name)
        voters = (f"{one.rpartition('-')[2]}@{one}:{controller}" for one in self.names("kafka")[:count])
        copies = [key for key in self.kafka_settings if key.endswith(("replication.factor", "min.isr", "insync.replicas"))]
        fewer = {} if count is None or count == self.kafka["count"] else dict.fromkeys(copies, "1")
        own = {
            "node.id": name.rpartition("-")[2],
            "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{controller},EXTERNAL://:{external}",
            "advertised.listeners": f"PLAINTEXT://{name}:{port},EXTERNAL://{outside}:{external}",
            "controller.quorum.voters": ",".join(voters),
        }
        return self.kafka_settings | fewer | own

    def names(self, kind: str) -> list[str]:
        """The names of a kind, such as projector-1 and projector-2."""
        count = self.roles[kind] if kind in self.roles else getattr(self, kind)["count"]
        return [f"{kind}-{number}" for number in range(1, count + 1)]


def text(value: object) -> str:
    """The value as a properties file spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(path: Path = PATH) -> Topology:
    given = tomllib.loads(path.read_text())
    roles = dict(given["roles"])
    environment = roles.pop("environment")
    return Topology(
        kafka=given["kafka"], zookeeper=given["zookeeper"], roles=roles, environment=environment,
        first=tuple(given["first"]["command"]), health=given["health"],
    )  # fmt: skip

"""One member of a ZooKeeper ensemble in one folder, from the jars that PySpark ships: how it is written, started, asked.

The folder: `zoo.cfg` and `members.dynamic` (who the members are; ZooKeeper itself goes on from there with
`zoo.cfg.dynamic.<version>` after every change), `log4j2.properties`, `zookeeper.log` (rotated), `lock` (held while it
runs) and `data/`, ZooKeeper's own, with `myid`. Whoever starts `command()` owns the process. It may be killed at any
moment and started again on the same folder: what was acknowledged is still there, because the page cache outlives the
process (`forceSync` is off; only a crash of the machine can lose what the kernel had not yet written).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger.adapters.java.jars import zookeeper_classpath
from ledger.adapters.java.java import find_java
from ledger.embedded.ports import HOST, free_ports
from ledger.embedded.writing import LOG4J, LOG_PROPERTY, properties, unescaped, write_whole
from ledger.errors import ConfigError, Unreachable

HEAP_MB = 128
TICK_MS = 500
"""ZooKeeper's unit of time. A session lasts between 2 and 20 ticks, so this one allows 1 s to 10 s."""

_SETTINGS: Mapping[str, str] = {
    "standaloneEnabled": "false",
    "reconfigEnabled": "true",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "ruok,srvr,mntr",
    # Ticks: how long a member may take to follow its leader at first, and how long either may be silent afterwards.
    "initLimit": "20",
    "syncLimit": "4",
    "maxClientCnxns": "0",
    "autopurge.purgeInterval": "0",
    "forceSync": "no",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """One line of the list of members, as ZooKeeper writes it and as `reconfig` takes it."""

    id: int
    """1 to 255, never used again for another member."""
    host: str
    """Name or address that the other members and the clients reach it by."""
    client_port: int = 2181
    quorum_port: int = 2888
    election_port: int = 3888
    client_host: str = "0.0.0.0"  # noqa: S104 # what the official image writes too: clients take `host` then
    """Where it listens for clients."""

    def line(self, role: str = "participant") -> str:
        """`server.1=host:2888:3888:participant;0.0.0.0:2181`"""
        quorum = f"{self.host}:{self.quorum_port}:{self.election_port}:{role}"
        return f"server.{self.id}={quorum};{self.client_host}:{self.client_port}"

    @property
    def address(self) -> str:
        """The address for clients: host:port."""
        return f"{self.host}:{self.client_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleMember:
    """A member and all that it knows at its first start."""

    folder: Path
    """Everything about it lies here."""
    server: ServerAddress
    """Itself."""
    ensemble: Sequence[ServerAddress]
    """Who the members are at its first start, itself included or not. Later the ensemble itself knows better."""
    joining: bool = False
    """It comes to a running ensemble: it begins as an observer, so that it can't make a quorum with other newcomers, and
    takes part once `reconfig` has added its line."""
    tick_ms: int = TICK_MS
    heap_mb: int = HEAP_MB
    """The most the Java heap may take; the process needs about 70 MB more."""
    super_password: str = ""
    """Of the user `super`, who may do everything and whom `reconfig` asks for; "": there is none."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Settings by ZooKeeper's own names; they win over those of this module."""

    @property
    def log(self) -> Path:
        """Where the running member writes what it does; the older ones are `zookeeper.log.1` to `.3`."""
        return self.folder / "zookeeper.log"

    @property
    def data(self) -> Path:
        """ZooKeeper's own folder. Removed while the member is down, its data is lost; `prepare` makes it again."""
        return self.folder / "data"

    @property
    def config_file(self) -> Path:
        return self.folder / "zoo.cfg"

    def prepare(self) -> None:
        """Write the settings; the list of members only the first time, for afterwards ZooKeeper keeps it.

        Idempotent. Not while the member runs."""
        self.data.mkdir(parents=True, exist_ok=True)
        write_whole(self.data / "myid", f"{self.server.id}\n")
        write_whole(self.folder / "log4j2.properties", LOG4J)
        members = self._members_file()
        if members is None:
            members = self.folder / "members.dynamic"
            write_whole(members, self.first_members())
        write_whole(self.config_file, properties({**self.settings(), "dynamicConfigFile": str(members)}))

    def settings(self) -> dict[str, str]:
        """All that `zoo.cfg` holds, the list of members apart."""
        secret = {}
        if self.super_password:
            secret["DigestAuthenticationProvider.superDigest"] = digest("super", self.super_password)
        return {**_SETTINGS, "tickTime": str(self.tick_ms), "dataDir": str(self.data), **secret, **self.extra}

    def first_members(self) -> str:
        """The list of members as it is at the first start: one line each."""
        others = [server.line() for server in self.ensemble if server.id != self.server.id]
        return "".join(f"{line}\n" for line in [*others, self.server.line("observer" if self.joining else "participant")])

    def command(self) -> list[str]:
        """The program that is the member. It runs in the foreground, writes to `log` and ends on SIGTERM (143).

        Started a second time on the same folder it ends at once with `hold.HELD`, having touched nothing.
        Raises: ConfigError without Java or PySpark."""
        return [
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("hold.py")), str(self.folder / "lock")),
            str(find_java()),
            f"-Xmx{self.heap_mb}m",
            # Small and soon there: the serial collector, and no second, slower compiler.
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            f"-D{LOG_PROPERTY}={self.log}",
            "-Dzookeeper.jmx.log4j.disable=true",
            *("-cp", zookeeper_classpath()),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.config_file),
        ]

    def mode(self, timeout_s: float = 1.0) -> str | None:
        """leader, follower or observer; None while it serves nobody, that is without a quorum, or does not answer."""
        told = re.search(r"^Mode: (\w+)", self.ask("srvr", timeout_s), re.MULTILINE)
        return told[1] if told else None

    def alive(self, timeout_s: float = 1.0) -> bool:
        """Whether the process answers at all, with or without a quorum."""
        return self.ask("ruok", timeout_s) == "imok"

    def ask(self, word: str, timeout_s: float = 1.0) -> str:
        """The answer to one of ZooKeeper's four-letter words; "" if there is none within timeout_s."""
        try:
            with socket.create_connection((self.server.host, self.server.client_port), timeout=timeout_s) as connection:
                connection.settimeout(timeout_s)
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return ""

    def ready(self, timeout_s: float, alive: Callable[[], bool] = lambda: True) -> None:
        """Return once it serves clients, for which a quorum of the members is needed: start them all, then wait for each.

        `alive` tells whether the process still runs, so that a member that gave up is not waited for.
        Raises: Unreachable if it ended or does not serve in time."""
        deadline = time.monotonic() + timeout_s
        while alive():
            if self.mode() is not None:
                return
            if time.monotonic() >= deadline:
                what = f"ZooKeeper at {self.server.address} did not serve within {timeout_s:g} s"
                raise Unreachable(what, hint=f"See {self.log}.")
            time.sleep(0.05)
        raise Unreachable(f"ZooKeeper at {self.server.address} ended before it served", hint=f"See {self.log}.")

    def _members_file(self) -> Path | None:
        """The list of members that ZooKeeper last wrote; None before the first start."""
        if not self.config_file.exists():
            return None
        # ZooKeeper writes the path as it is, `prepare` with the escapes of a properties file.
        lines = re.findall(r"^dynamicConfigFile\s*=\s*(.+)$", self.config_file.read_text(), re.MULTILINE)
        named = Path(unescaped(lines[-1].strip())) if lines else None
        return named if named is not None and named.exists() else None


def members_at(
    folder: Path, count: int = 3, *, tick_ms: int = TICK_MS, super_password: str = "",
    extra: Mapping[str, str] | None = None,
) -> list[EnsembleMember]:  # fmt: skip
    """An ensemble on the loopback interface. Its ports are chosen and written down the first time, then always the same.

    Raises: ConfigError without free ports, or if what was written down is damaged."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = folder / "ports.json"
    if not chosen.exists():
        write_whole(chosen, json.dumps(free_ports(3 * count)) + "\n")
    try:
        ports = [int(port) for port in json.loads(chosen.read_text())]
        servers = [
            ServerAddress(
                id=number + 1,
                host=HOST,
                client_host=HOST,
                client_port=ports[3 * number],
                quorum_port=ports[3 * number + 1],
                election_port=ports[3 * number + 2],
            )
            for number in range(count)
        ]
    except (ValueError, TypeError, IndexError) as damaged:
        hint = f"It is a list of {3 * count} numbers: client, quorum and election port of each. Remove it for new ones."
        raise ConfigError(f"{chosen} does not hold the ports of {count} members", hint=hint) from damaged
    return [
        EnsembleMember(
            folder=folder / str(server.id),
            server=server,
            ensemble=servers,
            tick_ms=tick_ms,
            super_password=super_password,
            extra=dict(extra or {}),
        )
        for server in servers
    ]


def connect_string(members: Sequence[EnsembleMember]) -> str:
    """The list of hosts for clients."""
    return ",".join(member.server.address for member in members)


def digest(user: str, password: str) -> str:
    """`user:hash`, as ZooKeeper's digest scheme writes it in ACLs."""
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"

"""One member of a ZooKeeper ensemble in one folder, run from jars that PySpark ships: its files, its command, its
status.

The folder: `zoo.cfg`, `members.dynamic` (the first list of members; after every change ZooKeeper itself writes
`zoo.cfg.dynamic.<version>`), `log4j2.properties`, `zookeeper.log` (rotated), `lock` (held while the member runs) and
`data/`, ZooKeeper's own, with `myid`.

The starter of `command()` owns the process. The process may be killed at any moment and started again on the same
folder: acknowledged writes are still in `data/`, because the page cache outlives the process. `forceSync` is off, so a
crash of the machine can lose data that the kernel had not written yet.
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
from ledger.embedded.java_configs import LOG4J, LOG_PROPERTY, properties, unescaped, write_whole
from ledger.embedded.ports import HOST, free_ports
from ledger.errors import ConfigError, Unreachable

HEAP_MB = 128
TICK_MS = 500
"""ZooKeeper's unit of time. A session lasts between 2 and 20 ticks, so this one allows 1 s to 10 s."""

_SETTINGS: Mapping[str, str] = {
    "standaloneEnabled": "false",
    "reconfigEnabled": "true",
    "admin.enableServer": "false",
    "4lw.commands.whitelist": "ruok,srvr,mntr",
    # In ticks: how long a member may take to start following its leader, and how long either may be silent afterwards.
    "initLimit": "20",
    "syncLimit": "4",
    "maxClientCnxns": "0",
    "autopurge.purgeInterval": "0",
    "forceSync": "no",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The addresses of one member of the ensemble."""

    id: int
    """1 to 255; never reused for another member."""
    host: str
    """The name or address that the other members and clients connect to."""
    client_port: int = 2181
    quorum_port: int = 2888
    election_port: int = 3888
    client_host: str = "0.0.0.0"  # noqa: S104 # as in the official image: clients then connect to `host`
    """The address that it listens on for clients."""

    def line(self, role: str = "participant") -> str:
        """The member's line in a list of members, as ZooKeeper and `reconfig` take it:
        `server.1=host:2888:3888:participant;0.0.0.0:2181`."""
        quorum = f"{self.host}:{self.quorum_port}:{self.election_port}:{role}"
        return f"server.{self.id}={quorum};{self.client_host}:{self.client_port}"

    @property
    def address(self) -> str:
        """The member's address for clients: host:port."""
        return f"{self.host}:{self.client_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleMember:
    """One member of a ZooKeeper ensemble, with its settings for the first start."""

    folder: Path
    """Holds all its files."""
    server: ServerAddress
    """The addresses of this member."""
    ensemble: Sequence[ServerAddress]
    """The members at its first start, with or without itself. Later, ZooKeeper's own list counts."""
    joining: bool = False
    """Whether it joins a running ensemble. It then starts as an observer, so that it can't form a quorum with other new
    members, and becomes a participant once `reconfig` has added its line."""
    tick_ms: int = TICK_MS
    heap_mb: int = HEAP_MB
    """The maximum size of the Java heap; the process needs about 70 MB more."""
    super_password: str = ""
    """The password of the user `super`, who has all permissions and whom `reconfig` requires; "" = no such user."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Settings by ZooKeeper's own names; they override those of this module."""

    @property
    def log(self) -> Path:
        """The log file of the member; older log files are `zookeeper.log.1` to `.3`."""
        return self.folder / "zookeeper.log"

    @property
    def data(self) -> Path:
        """ZooKeeper's own folder. If it is removed while the member is down, the member's data is lost; `prepare`
        creates it again."""
        return self.folder / "data"

    @property
    def config_file(self) -> Path:
        return self.folder / "zoo.cfg"

    def prepare(self) -> None:
        """Writes the configuration files. The list of members is written only the first time: afterwards ZooKeeper
        maintains it.

        Idempotent. Don't call it while the member runs.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        write_whole(self.data / "myid", f"{self.server.id}\n")
        write_whole(self.folder / "log4j2.properties", LOG4J)
        members = self._members_file()
        if members is None:
            members = self.folder / "members.dynamic"
            write_whole(members, self.first_members())
        write_whole(self.config_file, properties({**self.settings(), "dynamicConfigFile": str(members)}))

    def settings(self) -> dict[str, str]:
        """The settings of the member, as `zoo.cfg` holds them: name -> value. `prepare` adds `dynamicConfigFile`."""
        secret = {}
        if self.super_password:
            secret["DigestAuthenticationProvider.superDigest"] = digest("super", self.super_password)
        return {**_SETTINGS, "tickTime": str(self.tick_ms), "dataDir": str(self.data), **secret, **self.extra}

    def first_members(self) -> str:
        """The list of members for the first start of this member, one line for each member."""
        others = [server.line() for server in self.ensemble if server.id != self.server.id]
        return "".join(f"{line}\n" for line in [*others, self.server.line("observer" if self.joining else "participant")])

    def command(self) -> list[str]:
        """The command that runs the member in the foreground. It logs to `log` and ends on SIGTERM (exit code 143).

        A second process on the same folder exits at once with `hold.HELD` and changes nothing.
        Raises: ConfigError without Java or PySpark."""
        return [
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("hold.py")), str(self.folder / "lock")),
            str(find_java()),
            f"-Xmx{self.heap_mb}m",
            # For little memory and a fast start: the serial collector, and no C2 compiler.
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
        """The member's role in the ensemble: leader, follower or observer. None while the member does not answer, or
        serves no clients because there is no quorum."""
        matched = re.search(r"^Mode: (\w+)", self.ask("srvr", timeout_s), re.MULTILINE)
        return matched[1] if matched else None

    def alive(self, timeout_s: float = 1.0) -> bool:
        """Whether the member's process answers, with or without a quorum."""
        return self.ask("ruok", timeout_s) == "imok"

    def ask(self, word: str, timeout_s: float = 1.0) -> str:
        """The answer to one of ZooKeeper's four-letter words, such as `srvr`; "" without an answer within timeout_s."""
        try:
            with socket.create_connection((self.server.host, self.server.client_port), timeout=timeout_s) as connection:
                connection.settimeout(timeout_s)
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return ""

    def ready(self, timeout_s: float, alive: Callable[[], bool] = lambda: True) -> None:
        """Waits until the member serves clients. That needs a quorum: start all members, then wait for each.

        alive: whether the member's process still runs; the wait ends once it returns False. Raises: Unreachable if the
        process ended, or the member does not serve clients in time.
        """
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
        """The path of the list of members that ZooKeeper last wrote; None before the first `prepare`."""
        if not self.config_file.exists():
            return None
        # ZooKeeper writes the path unescaped; `prepare` writes it with the escapes of a properties file.
        lines = re.findall(r"^dynamicConfigFile\s*=\s*(.+)$", self.config_file.read_text(), re.MULTILINE)
        named = Path(unescaped(lines[-1].strip())) if lines else None
        return named if named is not None and named.exists() else None


def members_at(
    folder: Path, count: int = 3, *, tick_ms: int = TICK_MS, super_password: str = "",
    extra: Mapping[str, str] | None = None,
) -> list[EnsembleMember]:  # fmt: skip
    """The members of an ensemble on the loopback interface, each in a subfolder of `folder`. The first call chooses the
    ports and records them; later calls reuse them.

    Raises: ConfigError without free ports, or if the recorded ports are damaged."""
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
        hint = f"It must list {3 * count} numbers: client, quorum and election port of each. Remove it to choose new ports."
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
    """The connect string for clients: `host:port` of all members."""
    return ",".join(member.server.address for member in members)


def digest(user: str, password: str) -> str:
    """`user:hash`, the form in which ZooKeeper's digest scheme names a user in ACLs."""
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"

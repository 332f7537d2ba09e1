"""One Kafka broker in one folder: its files, its command, and the check whether it is ready.

The folder: `ports.json` (chosen once), `cluster_id`, `server.properties` and `log4j2.properties` (written at every
`prepare`), `broker.log` (rotated), `lock` (held while the broker runs) and `data/`, Kafka's own. The starter of
`command()` owns the process. The process may be killed at any moment and started again on the same folder and address:
acknowledged records are still in `data/`, because the page cache outlives the process. Only a crash of the machine can
lose data that the kernel had not written yet.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters.java.class_archives import class_archive, sharing
from ledger.adapters.java.jars import broker_classpath
from ledger.adapters.java.java import find_java
from ledger.config.broker_ports import FILE, HOST, BrokerPorts, read_ports
from ledger.embedded.java_configs import LOG4J, LOG_PROPERTY, properties, write_whole
from ledger.embedded.ports import free_ports
from ledger.errors import ConfigError, Unreachable

HEAP_MB = 384

_FORMAT_S = 60.0

_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # Few partitions of the internal topics: each costs files and time at every start.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    # A topic with a mistyped name must be an error, not an empty topic.
    "auto.create.topics.enable": "false",
    # After kill -9 the controller refuses the new incarnation until the session of the old one has run out, nine
    # seconds by default. A shorter one costs a moment without leaders after a stall, which clients retry.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    # A transaction left open holds back every read_committed reader: look for timed-out ones each second, not each ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.retention.check.interval.ms": "60000",
    # The default of 128 MB is a third of the heap; 16 MB hold some 600,000 keys in one pass.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A Kafka node in combined mode, broker and controller: the only node, on the loopback interface, or one of
    several."""

    folder: Path
    """Holds all its files. The path must not contain a comma: Kafka reads it as a list of folders."""
    port: int
    controller_port: int
    heap_mb: int = HEAP_MB
    """The maximum size of the Java heap; the process needs about 150 MB more."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Broker settings by Kafka's own names; they override those of this module."""
    node_id: int = 1
    host: str = HOST
    """The address that it listens on, and that clients and other nodes connect to."""
    voters: Sequence[str] = ()
    """All controllers of the cluster, this one included, as `id@host:port`. Empty: it is the only node."""
    cluster_id: str = ""
    """The id of the cluster, the same for all its nodes. Empty: the first `prepare` chooses one."""
    java_options: Sequence[str] | None = None
    """More options for the JVM that `command` starts. None: map the class archive if it exists."""

    @classmethod
    def at(cls, folder: Path, *, heap_mb: int = HEAP_MB, extra: Mapping[str, str] | None = None) -> Broker:
        """The broker of a folder. The first call chooses its ports and records them; later calls reuse them."""
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        ports = read_ports(folder)
        if ports is None:
            ports = BrokerPorts(*free_ports(2))
            write_whole(folder / FILE, json.dumps(ports._asdict()) + "\n")
        return cls(
            folder=folder, port=ports.port, controller_port=ports.controller_port, heap_mb=heap_mb,
            extra=dict(extra or {}),
        )  # fmt: skip

    @property
    def bootstrap(self) -> str:
        """The bootstrap.servers for clients."""
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """The log file of the broker; older log files are `broker.log.1` to `.3`."""
        return self.folder / "broker.log"

    @property
    def data(self) -> Path:
        """The folder in which Kafka stores its records and metadata."""
        return self.folder / "data"

    def prepare(self) -> None:
        """Writes the configuration files and, the first time, formats the storage.

        Idempotent, also after a crash in the middle. Don't call it while the broker runs, if settings have changed.
        Raises: ConfigError without Java or jars, or if the storage can't be formatted.
        """
        if "," in str(self.folder):
            hint = "Choose another folder: Kafka would read this path as two."
            raise ConfigError(f"{self.folder} has a comma in its name", hint=hint)
        self.data.mkdir(parents=True, exist_ok=True)
        cluster_id = self.folder / "cluster_id"
        if not cluster_id.exists():
            write_whole(cluster_id, (self.cluster_id or new_cluster_id()) + "\n")
        write_whole(self.folder / "log4j2.properties", LOG4J)
        write_whole(self.folder / "server.properties", properties(self.settings()))
        # Formatting writes this file last, so it proves that the storage is complete.
        if not (self.data / "meta.properties").exists():
            self._format(cluster_id.read_text().strip())

    def settings(self) -> dict[str, str]:
        """The settings of the broker, as `server.properties` holds them: name -> value."""
        voters = self.voters or [f"{self.node_id}@{self.host}:{self.controller_port}"]
        return {
            **_SETTINGS,
            **_replication(len(voters)),
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": str(self.data),
            **self.extra,
        }

    def command(self) -> list[str]:
        """The command that runs the broker in the foreground. It logs to `log` and shuts down cleanly on SIGTERM (exit
        code 143).

        A second process on the same folder exits at once with `hold.HELD` and changes nothing.
        Raises: ConfigError without Java or jars."""
        hold = [sys.executable, "-I", "-S", str(Path(__file__).with_name("hold.py")), str(self.folder / "lock")]
        options = sharing(broker_archive()) if self.java_options is None else self.java_options
        java = self._java(f"-Xmx{self.heap_mb}m", *options)
        return [*hold, *java, "kafka.Kafka", str(self.folder / "server.properties")]

    def ready(self, timeout_s: float, alive: Callable[[], bool] = lambda: True) -> None:
        """Waits until the broker answers and its controller accepts requests.

        alive: whether the broker's process still runs; the wait ends once it returns False. Raises: Unreachable if the
        process ended, if the broker is not ready in time, or if another cluster answers on its port.
        """
        deadline = time.monotonic() + timeout_s
        while alive():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise Unreachable(f"{self.bootstrap} was not ready within {timeout_s:g} s", hint=f"See {self.log}.")
            # A plain socket first: librdkafka logs every refusal, and its backoff is longer than a start takes.
            if _accepts(self.host, self.port) and self._answers(min(left_s, 5.0)):
                return
            time.sleep(0.05)
        raise Unreachable(f"the broker at {self.bootstrap} ended before it was ready", hint=f"See {self.log}.")

    def _answers(self, timeout_s: float) -> bool:
        """Whether the controller accepts a request. It is a validation of a new topic: it passes all stages, and
        creates nothing.

        Raises: Unreachable if another cluster answers."""
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 5000},
            logger=_SILENT,
        )
        try:
            answer = admin.describe_cluster(request_timeout=timeout_s).result().cluster_id
            expected = (self.folder / "cluster_id").read_text().strip()
            if answer != expected:
                raise Unreachable(
                    f"cluster {answer} answers on {self.bootstrap}, not cluster {expected} of {self.folder}",
                    hint="Stop the other broker, or remove ports.json so that new ports are chosen.",
                )
            probe = NewTopic("ledger.ready", num_partitions=1, replication_factor=1)
            admin.create_topics([probe], validate_only=True, request_timeout=timeout_s)["ledger.ready"].result()
        except KafkaException:
            return False
        return True

    def _format(self, cluster_id: str) -> None:
        tool = [*self._java("-Xmx128m", *sharing(broker_archive())), "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*tool, "--cluster-id", cluster_id, "--config", str(self.folder / "server.properties"), "--ignore-formatted"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FORMAT_S,
            check=False,
        )
        if done.returncode != 0:
            answer = " | ".join(done.stdout.strip().splitlines()[:3])
            hint = f"See {self.log}; the settings are in {self.folder / 'server.properties'}."
            raise ConfigError(f"Kafka could not format {self.data}: {answer}", hint=hint)

    def _java(self, *options: str) -> list[str]:
        return [
            str(find_java()),
            *options,
            # With few cores and a small heap, the serial collector needs the least memory.
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            f"-D{LOG_PROPERTY}={self.log}",
            "-cp",
            broker_classpath(),
        ]


def broker_archive() -> Path:
    """The path of the broker's class archive, whether or not it exists. Raises: ConfigError as `broker_classpath`."""
    return class_archive("broker", [Path(jar) for jar in broker_classpath().split(os.pathsep)])


def _replication(nodes: int) -> dict[str, str]:
    """The replication settings: with at least three nodes, three copies, and one may be down; with fewer, one copy."""
    copies, in_sync = (3, 2) if nodes >= 3 else (1, 1)
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    settings = {"default.replication.factor": copies, "min.insync.replicas": in_sync}
    settings |= {f"{topic}.replication.factor": copies for topic in internal}
    settings |= {f"{topic}.min.isr": in_sync for topic in internal[1:]}
    return {name: str(value) for name, value in settings.items()}


_SILENT = logging.getLogger("ledger.embedded.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def new_cluster_id() -> str:
    """A random cluster id in Kafka's format: 16 bytes in URL-safe base64. No leading dash, because the id is passed as
    an argument."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text

"""Real servers for tests: they start on demand in a folder of the test run, and are ended only by their process id."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters.kafka.cluster import Cluster
from ledger.embedded.broker import Broker
from ledger.embedded.ports import PORTS
from ledger.errors import Unreachable
from tests.support.waiting import NotInTime, until

READY_S = 100.0

# With COMPACT_NOW on a topic, a superseded record is removed within a few seconds. Log compaction never touches the active
# segment, and only an append closes a segment: write, wait, write; twice for a tombstone.
CLEAN_ALWAYS: Mapping[str, str] = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "1000",
}
COMPACT_NOW: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "min.compaction.lag.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
    "message.timestamp.type": "LogAppendTime",
}

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Lets the kernel kill the server when the test run dies (PR_SET_PDEATHSIG)."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def deadline(alive: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Turns Unreachable inside the block into NotInTime, if the server's process still runs: it was not ready in time."""
    try:
        yield alive
    except Unreachable as error:
        if alive():
            raise NotInTime(f"not within its time: {error}") from error
        raise


def ports_of(worker: str, count: int) -> str:
    """The range of ports for a worker (gw0, gw1 …) of a run, in the format of ledger.embedded.ports. count: the number of
    workers."""
    share, number = len(PORTS) // count, int(worker.removeprefix("gw"))
    return f"{PORTS.start + number * share}-{PORTS.start + (number + 1) * share - 1}"


@dataclass
class RunningBroker:
    """A broker and its process. `kill` and `start` in turn is a crash; the address stays the same."""

    broker: Broker
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def start(self, timeout_s: float = READY_S) -> None:
        """Starts the broker and waits until it is ready. Its output (there should be none) goes to `printed`."""
        self.broker.prepare()
        with self.printed.open("ab") as printed:
            process = subprocess.Popen(
                self.broker.command(),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        self.process = process
        with deadline(lambda: process.poll() is None) as alive:
            self.broker.ready(timeout_s, alive=alive)

    def stop(self) -> None:
        """Shuts the broker down, and kills it if that takes more than 20 s."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """Kills the broker with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def printed(self) -> Path:
        return self.broker.folder / "printed"


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Creates a topic with one replica, waits until it can be used, and returns its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([topic], operation_timeout=10)[name].result(60)
    # The broker learns of the topic some time after the controller created it, and leads its partitions even later.
    places = [(name, partition) for partition in range(partitions)]
    cluster = Cluster({"bootstrap.servers": bootstrap})
    until(lambda: cluster.ends(places), f"{name} is known and has leaders")
    return name

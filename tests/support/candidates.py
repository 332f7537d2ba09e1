"""The elections for the contract suite of leadership: in memory, by a file lock, by ZooKeeper, by Kafka.

    python -m tests.support.candidates KIND WHERE WHO

is a candidate in its own process. It wants to lead until it is ended. It checks its leadership every few milliseconds and
prints lines `<monotonic time> <word>`: `ready` at its start, `leads` with the time of the first check that saw it lead,
`stands` with the time of the last check that saw it lead. If the process was not scheduled for WOKE_S, it first prints
`woke leads` or `woke stands` with the time of its last check before. So it never claims leadership for a moment at which
it did not check.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ledger.adapters.local.leadership import FileLockLeadership
from ledger.adapters.memory.leadership import MemoryElection, MemoryLeadership
from ledger.ports import Leadership

SESSION_S = 4.0  # session timeout T of the real elections, in tests where a lease must end
LASTING_S = 10.0  # T in tests where the lease must last: ZooKeeper's maximum, so that a busy machine does not end it
LOOK_S = 0.005
WOKE_S = 1.0


def made(kind: str, where: dict[str, Any], who: str) -> Leadership:
    """Makes a candidate from plain values, so that another process can do the same."""
    if kind == "file":
        return FileLockLeadership(Path(where["path"]), who=who)
    if kind == "kafka":
        from ledger.adapters.kafka.leadership import ElectionNames, KafkaLeadership

        client, names = {"bootstrap.servers": where["bootstrap"]}, ElectionNames.of(where["prefix"], "projector")
        return KafkaLeadership(client, names, who=who, session_timeout_s=where["session_s"])
    from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
    from ledger.adapters.zookeeper.settings import ZooKeeperSettings

    settings = ZooKeeperSettings(hosts=where["hosts"], session_timeout_s=where["session_s"])
    return ZooKeeperLeadership(settings, settings.candidates(where["prefix"], "projector"), who=who)


def leading(candidates: Iterable[Leadership]) -> int:
    """How many candidates lead now. Each is checked twice: the first may lose its lead before the last is checked."""
    return sum(one.valid() for one in [one for one in candidates if one.valid()])


def overlaps(spans: list[tuple[float, float]]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The pairs of consecutive spans, by begin, that overlap."""
    ordered = sorted(spans)
    return [(a, b) for a, b in pairwise(ordered) if b[0] < a[1]]


class Server:
    """The server of an election. This base class stands for elections without a server (memory, file): nothing can be
    stopped."""

    def stop(self) -> None:
        """Pauses the server with SIGSTOP."""

    def go_on(self) -> None: ...


@dataclass
class KafkaServer(Server):
    broker: Any

    def stop(self) -> None:
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGCONT)


@dataclass
class ZooKeeperServer(Server):
    zookeepers: Any

    def stop(self) -> None:
        for process in self.zookeepers.processes.values():
            process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        for process in self.zookeepers.processes.values():
            process.send_signal(signal.SIGCONT)


@dataclass
class Election:
    """One election. moment_s: maximum time until another candidate leads after the leader released. after_death_s: the
    same after the leader was killed. session_s: the lease's session timeout T; 0 = leadership has no timeout and ends
    with the process."""

    kind: str
    where: dict[str, Any] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    moment_s: float = 5.0
    after_death_s: float = 10.0
    session_s: float = 0.0
    shared: MemoryElection = field(default_factory=MemoryElection)
    candidates: list[Leadership] = field(default_factory=list)

    @property
    def lease_s(self) -> float:
        return self.session_s * 2 / 3

    def candidate(self, who: str = "anna@host") -> Leadership:
        if self.kind == "memory":
            new: Leadership = MemoryLeadership(self.shared, who=who)
        else:
            new = made(self.kind, self.where, who)
        self.candidates.append(new)
        return new

    def leader(self, who: str = "anna@host") -> Leadership:
        """Makes a candidate and waits until it leads."""
        new = self.candidate(who)
        # Imported here, because a candidate in its own process needs no Kafka client.
        from tests.support.waiting import seconds_until

        seconds_until(new.acquire, self.moment_s + 20, f"{who} leading")
        return new

    def close(self) -> None:
        self.server.go_on()
        for candidate in self.candidates:
            candidate.close()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Pauses the server (SIGSTOP). The kernel still accepts connections for it."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.go_on()

    @contextmanager
    def process(self, who: str) -> Iterator[Process]:
        """A candidate in its own process."""
        running = Process(self.kind, self.where, who)
        try:
            yield running
        finally:
            running.kill()


class Process:
    def __init__(self, kind: str, where: dict[str, Any], who: str) -> None:
        arguments = [sys.executable, "-m", "tests.support.candidates", kind, json.dumps(where), who]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        self.said: list[tuple[float, str]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_said(self, word: str) -> bool:
        return any(said == word for _, said in self.said)

    @property
    def leads(self) -> bool:
        return bool(self.said) and self.said[-1][1] in ("leads", "woke leads")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at, _, word = line.strip().partition(" ")
            self.said.append((float(at), word))


def main() -> None:
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    candidate = made(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3])
    candidate.acquire()
    print(time.monotonic(), "ready", flush=True)
    parent, led, looked_at = os.getppid(), False, time.monotonic()
    while not ending.is_set() and os.getppid() == parent:
        before, looked_at = looked_at, time.monotonic()
        leads, seen_at = candidate.valid(), time.monotonic()
        if looked_at - before > WOKE_S:
            print(before, f"woke {'leads' if leads else 'stands'}", flush=True)
        elif leads != led:
            print(seen_at if leads else before, "leads" if leads else "stands", flush=True)
        led = leads
        candidate.acquire()
        ending.wait(LOOK_S)
    candidate.close()


if __name__ == "__main__":
    main()

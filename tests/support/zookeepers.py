"""A ZooKeeper ensemble on the loopback interface, for tests that kill, stop and wipe its members."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from ledger.embedded.zookeeper import EnsembleMember, connect_string, members_at
from tests.support.servers import READY_S, deadline, die_with_parent
from tests.support.waiting import until


@dataclass
class Zookeepers:
    """Members by the port that clients dial. `kill` and `start` in turn is a crash; what was acknowledged stays."""

    members: dict[int, EnsembleMember]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    java: Sequence[str] = ()
    """Options of every member's Java."""

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, count: int = 3, extra: Mapping[str, str] | None = None, java: Sequence[str] = ()
    ) -> Iterator[Zookeepers]:
        """Running, all of them serving."""
        made = cls({member.server.client_port: member for member in members_at(folder, count, extra=extra)}, java=java)
        try:
            made.start()
            yield made
        finally:
            for port in list(made.processes):
                made.kill(port)

    @property
    def hosts(self) -> str:
        return connect_string(list(self.members.values()))

    def launch(self, *ports: int) -> None:
        """Those named, or all that do not run, without waiting."""
        for port in ports or self.members:
            if port not in self.processes:
                member = self.members[port]
                member.prepare()
                with (member.folder / "printed").open("ab") as printed:
                    self.processes[port] = subprocess.Popen(
                        member.command(), stdin=subprocess.DEVNULL, stdout=printed, stderr=printed,
                        preexec_fn=die_with_parent, env={**os.environ, "JDK_JAVA_OPTIONS": " ".join(self.java)},
                    )  # fmt: skip

    def start(self, *ports: int) -> None:
        """As `launch`, until they serve."""
        self.launch(*ports)
        for port in ports or self.members:
            process = self.processes[port]
            with deadline(partial(_runs, process)) as alive:
                self.members[port].ready(READY_S, alive=alive)

    def kill(self, *ports: int) -> None:
        """With SIGKILL, together; all if none is named."""
        ending = [self.processes.pop(port) for port in ports or list(self.processes)]
        for process in ending:
            process.kill()
        for process in ending:
            process.wait()

    def wipe(self) -> None:
        """All members lose their data, as if it had never been. None may run."""
        assert not self.processes
        for member in self.members.values():
            shutil.rmtree(member.data)

    @contextmanager
    def stopped(self, *ports: int) -> Iterator[None]:
        """They are silent, and the kernel still takes connections for them."""
        for port in ports:
            self.processes[port].send_signal(signal.SIGSTOP)
        try:
            for port in ports:
                until(partial(_halted, self.processes[port].pid), "it stands still")
            yield
        finally:
            for port in ports:
                self.processes[port].send_signal(signal.SIGCONT)


def _halted(pid: int) -> bool:
    """With all its threads: each one goes on until it has heard of it."""
    return all(") T " in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def candidate(hosts: str, prefix: str, session_s: float, who: str) -> ZooKeeperLeadership:
    """prefix: elections of another prefix have nothing to do with this one. Close it."""
    settings = ZooKeeperSettings(hosts=hosts, session_timeout_s=session_s)
    return ZooKeeperLeadership(settings, settings.candidates(prefix, "projector"), who=who)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None

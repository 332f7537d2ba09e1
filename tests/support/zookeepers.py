"""A ZooKeeper ensemble on the loopback interface, for tests that kill, pause and wipe its members."""

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
    """The members, by their client ports. `kill` and `start` in turn is a crash; acknowledged data survives it."""

    members: dict[int, EnsembleMember]
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    java: Sequence[str] = ()
    """Java options of every member."""

    @classmethod
    @contextmanager
    def open(
        cls, folder: Path, count: int = 3, extra: Mapping[str, str] | None = None, java: Sequence[str] = ()
    ) -> Iterator[Zookeepers]:
        """Starts an ensemble and waits until all members serve."""
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
        """Starts the named members, or all that do not run, without waiting."""
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
        """As `launch`, and waits until the members serve."""
        self.launch(*ports)
        for port in ports or self.members:
            process = self.processes[port]
            with deadline(partial(_runs, process)) as alive:
                self.members[port].ready(READY_S, alive=alive)

    def kill(self, *ports: int) -> None:
        """Kills the named members (all, if none is named) together, with SIGKILL."""
        ending = [self.processes.pop(port) for port in ports or list(self.processes)]
        for process in ending:
            process.kill()
        for process in ending:
            process.wait()

    def wipe(self) -> None:
        """Deletes the data of all members. No member may run."""
        assert not self.processes
        for member in self.members.values():
            shutil.rmtree(member.data)

    @contextmanager
    def stopped(self, *ports: int) -> Iterator[None]:
        """Pauses the members (SIGSTOP). The kernel still accepts connections for them."""
        for port in ports:
            self.processes[port].send_signal(signal.SIGSTOP)
        try:
            for port in ports:
                until(partial(_halted, self.processes[port].pid), "the member is paused")
            yield
        finally:
            for port in ports:
                self.processes[port].send_signal(signal.SIGCONT)


def _halted(pid: int) -> bool:
    """Whether all threads of the process are stopped. Each thread runs on until it gets the signal."""
    return all(") T " in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def candidate(hosts: str, prefix: str, session_s: float, who: str) -> ZooKeeperLeadership:
    """A candidate, which the caller must close. prefix: elections with different prefixes are independent."""
    settings = ZooKeeperSettings(hosts=hosts, session_timeout_s=session_s)
    return ZooKeeperLeadership(settings, settings.candidates(prefix, "projector"), who=who)


def _runs(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None

"""A program on a separate host: start, kill, stop, cut, heal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.network import Network
from tests.support.servers import deadline, die_with_parent
from tests.support.waiting import NotInTime, in_time

READY_S = 60.0


@dataclass
class Node:
    """One process in a separate namespace. The test's end also ends the process and its children.

    `die_with_parent` watches the thread that started the process: start nodes in the main thread.
    """

    name: str
    network: Network
    folder: Path
    program: Callable[[], Sequence[str]]
    """Returns the command, and writes the files that it needs. Called at each start."""
    ready: Callable[[float, Callable[[], bool]], None] = lambda timeout_s, alive: None
    """Waits until it serves. Arguments: the time limit in seconds; a function that returns whether it is alive."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to the test's own."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def printed(self) -> Path:
        """The file with its stdout and stderr."""
        return self.folder / f"{self.name}.printed"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    def address(self, network: str) -> str:
        return self.network.hosts[self.name].addresses[network]

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> Node:
        """Starts the process, again if it has ended. `wait` waits until it is ready."""
        assert not self.alive(), f"{self.name} runs"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.network.hosts[self.name].command(self.program())
        with self.printed.open("ab") as printed:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, cwd=self.folder,
                env={**os.environ, **self.environment}, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.network.children.append(self.process)
        return self

    def wait(self, timeout_s: float = READY_S) -> Node:
        """Waits until it is ready. Raises: NotInTime; Unreachable if it has ended."""
        with deadline(self.alive) as alive:
            self.ready(timeout_s, alive)
        return self

    def kill(self) -> None:
        """kill -9 of this process alone: its children live on, unless they watch their parent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, then SIGKILL if it takes too long; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise NotInTime(f"{self.name}: {error}") from error

    def stop(self) -> None:
        """SIGSTOP to all processes on this host: it halts as a paused machine does."""
        self._signal_all(signal.SIGSTOP, "T")

    def cont(self) -> None:
        """SIGCONT to all processes on this host."""
        for pid in self.network.hosts[self.name].pids():
            _signal(pid, signal.SIGCONT)

    def cut(self, *networks: str) -> None:
        """Cuts the host off from these networks silently; from all of them if none is named."""
        for network in networks or self.network.hosts[self.name].links:
            self.network.cut(self.name, network)

    def heal(self, *networks: str) -> None:
        for network in networks or self.network.hosts[self.name].links:
            self.network.heal(self.name, network)

    def vanish(self) -> None:
        """Removes the whole host at once and for ever. Its name then leads to an address without a host."""
        self.kill()  # a process that was just started may not be inside yet
        self.network.remove(self.name)

    def _signal_all(self, number: signal.Signals, wanted: str, timeout_s: float = 10.0) -> None:
        """Repeats the signal until all are in the wanted state (a letter from /proc): a process that was being forked
        gets it in the next round."""
        deadline = time.monotonic() + timeout_s
        while others := [pid for pid in self.network.hosts[self.name].pids() if state(pid) not in {wanted, "Z", ""}]:
            in_time(time.monotonic() < deadline, f"not within {timeout_s:g} s: {self.name}: {others} in state {wanted}")
            for pid in others:
                _signal(pid, number)
            time.sleep(0.005)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def state(pid: int) -> str:
    """The state letter that `ps` shows; "" if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

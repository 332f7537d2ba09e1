"""A program on a host of its own: started, killed, stopped, cut off, healed."""

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
    """One process in its own namespace. It ends with the test, and what it has started too.

    `die_with_parent` watches the thread that started it: start nodes in the main thread."""

    name: str
    network: Network
    folder: Path
    program: Callable[[], Sequence[str]]
    """The command, made (and what it needs written) at each start."""
    ready: Callable[[float, Callable[[], bool]], None] = lambda timeout_s, alive: None
    """Waits until it serves: seconds, whether it is alive."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside the test's own."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def printed(self) -> Path:
        """What it writes to stdout and stderr."""
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
        """Start it, again if it has ended; `wait` waits until it is ready."""
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
        """Until it is ready. Raises: NotInTime; Unreachable if it has ended."""
        with deadline(self.alive) as alive:
            self.ready(timeout_s, alive)
        return self

    def kill(self) -> None:
        """kill -9 of this process alone: what it has started lives on, unless it looks after that itself."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self, timeout_s: float = 30.0) -> int:
        """SIGTERM; the exit code. By force if it takes longer."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise NotInTime(f"{self.name}: {error}") from error

    def stop(self) -> None:
        """SIGSTOP to all on this host: it stands still, as a paused machine does."""
        self._signal_all(signal.SIGSTOP, "T")

    def cont(self) -> None:
        """SIGCONT to all on this host."""
        for pid in self.network.hosts[self.name].pids():
            _signal(pid, signal.SIGCONT)

    def cut(self, *networks: str) -> None:
        """Lose these networks silently; all of them if none is named."""
        for network in networks or self.network.hosts[self.name].links:
            self.network.cut(self.name, network)

    def heal(self, *networks: str) -> None:
        for network in networks or self.network.hosts[self.name].links:
            self.network.heal(self.name, network)

    def vanish(self) -> None:
        """The whole host goes, at once and for ever; its name leads to where nobody answers."""
        self.kill()  # one that was just started may not be inside yet
        self.network.remove(self.name)

    def _signal_all(self, number: signal.Signals, wanted: str, timeout_s: float = 10.0) -> None:
        """Until all are in the state that /proc names so: who was just being forked is met in the next round."""
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
    """As `ps` shows it; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

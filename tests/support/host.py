"""A host for tests: an agent on a folder, and jobs that obey commands. No process survives the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ledger.adapters import avro
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.runners.plain import event_from_json
from ledger.adapters.runners.subprocess import SubprocessRunner, pack
from ledger.adapters.runners.subprocess.digests import Limits
from ledger.adapters.runners.subprocess.server import run_agent
from ledger.adapters.runners.subprocess.supervisor import procs
from ledger.core.model.facts import Fact, GraphRef, RestorePoint
from ledger.core.model.registers import Ended, Register, parse_key
from ledger.ports import RunnerEvent
from tests.support.waiting import until

T = TypeVar("T")
DEADLINE_S = 60.0
PARTITIONS = 4
STEP_S = 0.02
JOB = Path(__file__).with_name("job.py")


class SystemClock:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class LogFile:
    """An EventSender that appends to a file. up: False = it stores nothing. lose: it stores, but does not acknowledge.

    Incomplete last lines are ignored: a reader may read during a write, and a writer may be killed during a write."""

    partitions = PARTITIONS

    def __init__(self, path: Path, up: bool = True) -> None:
        self.path, self.up, self.lose = path, up, False

    def send(self, events: Sequence[RunnerEvent]) -> Collection[bytes]:
        if not self.up:
            return []
        with self.path.open("ab") as file:
            os.truncate(self.path, len(self._whole()))
            for event in events:
                line = json.dumps([event.key.decode(), event.headers, event.value], default=bytes.hex)
                file.write(line.encode() + b"\n")
        return [] if self.lose else [event.key for event in events]

    def close(self) -> None: ...

    def read(self) -> list[RunnerEvent]:
        rows = [json.loads(line) for line in self._whole().splitlines()]
        unhex = bytes.fromhex
        return [RunnerEvent(k.encode(), tuple((n, unhex(v)) for n, v in h), unhex(value)) for k, h, value in rows]

    def _whole(self) -> bytes:
        data = self.path.read_bytes() if self.path.exists() else b""
        return data[: data.rfind(b"\n") + 1]


def facts_in(events: Sequence[RunnerEvent]) -> list[tuple[Register, Fact]]:
    found = []
    for event in events:
        named = parse_key(event.key)
        assert named is not None and event.value is not None
        fact = avro.read(named[1], event.value)
        assert fact is not None
        found.append((named[1], fact))
    return found


class Host:
    """An agent in this process (`start_agent`) or in its own process (`spawn_agent`), and the agent's jobs."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = folder / "agent"
        self.blobs = FileBlobs(folder / "blobs")
        self.log = LogFile(folder / "log")
        self.runner = SubprocessRunner(self.folder, DEADLINE_S)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self._told = 0
        self.limits = Limits()

    # -- agents ------------------------------------------------------------------------------------------------------

    def start_agent(self, at: Callable[[str], None] = lambda _: None) -> None:
        self._stop = threading.Event()
        arguments = self.folder, self.blobs, self.log, SystemClock(), self._stop
        how = {"at": at, "step_s": STEP_S, "limits": self.limits}
        self._thread = threading.Thread(target=run_agent, args=arguments, kwargs=how, daemon=True)
        self._thread.start()
        until(lambda: self.runner.observe() is not None, "the agent answers")

    def stop_agent(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive()
            self._thread = None

    def restart_agent(self) -> None:
        self.stop_agent()
        self.start_agent()

    def spawn_agent(self, crash_at: str = "") -> int:
        """Starts an agent in its own process and returns the pid. crash_at: the failpoint where it kills itself with
        SIGKILL."""
        command = [sys.executable, "-m", "tests.adapters.runners.agent_main", str(self.root), crash_at]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        if not crash_at:
            until(lambda: self.runner.observe() is not None, "the agent answers")
        return self.process.pid

    def kill_agent(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self.process = None

    # -- jobs --------------------------------------------------------------------------------------------------------

    def graph(self, job_id: str, command: Sequence[str] = (), **limits: Any) -> GraphRef:
        """The graph of a job. Without a command, it is a job that obeys `tell`."""
        control = self.control(job_id)
        control.mkdir(parents=True, exist_ok=True)
        words = list(command) or [sys.executable, "-ISE", "job.py", str(control)]
        blob = pack(words, [JOB], folder=self.root, **{"stop_grace_s": 0.5, **limits})
        try:
            return self.blobs.put(job_id, blob)
        finally:
            blob.unlink()

    def control(self, job_id: str) -> Path:
        return self.root / "control" / job_id

    def tell(self, job_id: str, order: str) -> None:
        self._told += 1
        path = self.control(job_id) / f"{self._told:06d}"
        path.write_text(order)
        path.rename(path.with_suffix(".do"))

    def said(self, job_id: str, name: str) -> str:
        """Waits for the job's report of this name, and returns it."""
        path = self.control(job_id) / f"{name}.said"
        return until(lambda: path.read_text() if path.exists() else None, f"{job_id} says {name}")

    def hush(self, job_id: str) -> None:
        """Deletes the job's reports and commands, before another attempt of it."""
        for path in self.control(job_id).iterdir():
            path.unlink()

    def start(self, job_id: str, n: int = 1, base: RestorePoint | None = None, **graph: Any) -> int:
        """Starts a job that obeys `tell`, waits until it is ready, and returns its pid."""
        reference = self.graph(job_id, **graph)
        self.hush(job_id)
        assert self.runner.start(job_id, n, reference, base, {}).value == "started"
        return int(self.said(job_id, "ready"))

    def run_folder(self, job_id: str, n: int = 1) -> Path:
        return self.folder / "jobs" / job_id / "attempts" / str(n)

    def supervisor(self, job_id: str, n: int = 1) -> int:
        path = self.run_folder(job_id, n) / "supervisor.json"
        until(path.exists, "a supervisor")
        return int(json.loads(path.read_text())["pid"])

    def alive(self, job_id: str) -> list[int]:
        return [a.n for a in self.runner.observe() if a.job_id == job_id and a.alive]

    # -- events ------------------------------------------------------------------------------------------------------

    def logged(self, job_id: str) -> list[tuple[Register, Fact]]:
        """The registers and facts of the job in the log, in order."""
        return facts_in([event for event in self.log.read() if event.key.startswith(f"{job_id}/".encode())])

    def end(self, job_id: str, n: int = 1) -> tuple[Register, Any]:
        """Waits for the end of the attempt in the log, and returns it."""

        def found() -> list[tuple[Register, Any]]:
            return [(r, fact) for r, fact in self.logged(job_id) if isinstance(r, Ended) and r.n == n]

        ends = until(found, f"{job_id} has ended")
        assert len(ends) == 1
        return ends[0]

    # -- teardown ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends all processes by pid: first agents, then supervisors and jobs."""
        self.stop_agent()
        if self.process is not None:
            self.kill_agent()
        for path in self.folder.glob("jobs/*/attempts/*"):
            if (path / "started").exists() and (path / "logs").exists():
                until((path / "supervisor.json").exists, "a supervisor that is starting has claimed the attempt")
            for name in ("supervisor.json", "child.json"):
                if procs.alive(who := _process_in(path / name)):
                    procs.kill(who["pid"])  # a job may be dying with its supervisor at this moment
                    until(partial(_is_dead, who), "the process ends")
        for path in self.root.glob("control/*/*.said"):
            if path.stem in ("fork", "escape", "vanish"):
                kill_if(int(path.read_text()), self.root)
        shutil.rmtree(self.root, ignore_errors=True)


def _process_in(path: Path) -> dict[str, Any]:
    """The contents of the process file; {} if there is none, or a test has damaged it."""
    with suppress(FileNotFoundError, ValueError):
        who: dict[str, Any] = json.loads(path.read_text())
        return who
    return {}


def kill_if(pid: int, root: Path) -> None:
    """Kills a process that a test left behind. The process reported its pid itself; the pid may belong to another process
    by now, so this is checked first."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if os.fsencode(root) in words or words == b"sleep\x001000\0":
            procs.kill(pid)


def gone(pid: int) -> bool:
    found = procs.stat(pid)
    return found is None or found.dead


def printed_by(folder: Path, job_id: str, n: int, text: str) -> None:
    logs = folder / "jobs" / job_id / "attempts" / str(n) / "logs"
    logs.mkdir(parents=True)
    (logs / "stdout.log").write_text(text)


__all__ = ["Host", "LogFile", "event_from_json", "facts_in", "gone", "printed_by", "until"]


def _is_dead(process: Any) -> bool:
    return not procs.alive(process)

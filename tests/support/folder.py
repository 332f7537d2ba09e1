"""An embedded ledger in a folder of the test run. Tests drive it by the installed command and watch it by the library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from ledger.adapters import avro
from ledger.app.ledger import Ledger
from ledger.config.config import Config, load_config
from ledger.core.model.published import Published
from ledger.core.model.recovery import RecoveryEntry
from ledger.ports import ObservedAttempt, Record
from ledger.reader.reading import published
from tests.support import waiting
from tests.support.waiting import NotInTime, until

T = TypeVar("T")
DEADLINE_S = 240.0  # on a busy machine a Spark driver takes more than a minute for its first task
LATE = {3, 4}  # exit codes for no answer in time and for an unknown outcome: both may happen on a busy machine
JOBLEDGER = Path(sys.executable).with_name("jobledger")

TICKER = """
import os, signal, sys, time
ticks, asked = 0, []
signal.signal(signal.SIGUSR1, lambda *_: asked.append("sav"))
if "LEDGER_RESTORE_FROM" in os.environ:
    ticks = int(open(os.environ["LEDGER_RESTORE_FROM"]).read())
print("begins at", ticks, flush=True)
folder = os.environ["LEDGER_CHECKPOINT_DIR"]
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
    ticks += 1
    if asked or ticks % 5 == 0:
        open(folder + "/.part", "w").write(str(ticks))
        os.rename(folder + "/.part", folder + "/%s-%d" % (asked.pop() if asked else "chk", ticks))
"""


class Folder:
    """An embedded ledger. path: its folder. enough: a file; once it exists, all ticker jobs end."""

    def __init__(self, path: Path) -> None:
        self.path, self.enough = path, path.parent / "enough"

    # -- the installed command

    def run(
        self, verb: str, *arguments: str, expect: int | None = 0, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [JOBLEDGER, *verb.split(), "--dir", str(self.path), *arguments]
        done = waiting.run(command, timeout_s, stdin=subprocess.DEVNULL)
        if expect is not None and done.returncode != expect:
            said = f"jobledger {verb} {arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
            raise NotInTime(f"not within its time: {said}") if done.returncode in LATE else AssertionError(said)
        return done

    def up(self, *arguments: str) -> None:
        self.run("up", "--detach", *arguments)

    def submit(self, job_id: str, *command: str, options: tuple[str, ...] = ()) -> str:
        self.run("submit", "--id", job_id, "--name", job_id, *options, "--", *command)
        return job_id

    def ticker(self, job_id: str) -> str:
        return self.submit(job_id, sys.executable, "-c", TICKER, str(self.enough))

    def show(self, job_id: str) -> dict[str, object]:
        shown: dict[str, object] = json.loads(self.run("show", job_id, "-o", "json").stdout)
        return shown

    def retired(self, job_id: str) -> bool:
        """Whether the job is FINISHED and retired. The topic is checked first, because a command costs more."""
        if self.entry(job_id) is not None:
            return False
        done = self.run("show", job_id, "-o", "json", expect=None)
        return done.returncode == 0 and '"FINISHED"' in done.stdout

    # -- observation

    @property
    def config(self) -> Config:
        return load_config(self.path)

    def published(self) -> Published:
        return published(Ledger.open(self.config).source())

    def entry(self, job_id: str) -> RecoveryEntry | None:
        return self.published().entries.get(job_id)

    def attempts(self) -> dict[tuple[str, int], ObservedAttempt]:
        return {(a.job_id, a.n): a for a in Ledger.open(self.config).runners["subprocess"].observe()}

    def alive(self) -> dict[str, tuple[int, str]]:
        """Job id -> (attempt, pid of its process) of running attempts. Raises if a job has two."""
        out: dict[str, tuple[int, str]] = {}
        for attempt in self.attempts().values():
            if attempt.alive:
                assert attempt.job_id not in out, f"two attempts of {attempt.job_id} run"
                out[attempt.job_id] = (attempt.n, attempt.engine_id)
        return out

    def running(self) -> dict[str, tuple[int, str]]:
        """As `alive`, without attempts whose process is not known yet."""
        return {job_id: found for job_id, found in self.alive().items() if found[1]}

    def records(self, topic: str) -> list[Record]:
        """All records that a reader of the topic gets now."""
        reader = Ledger.open(self.config).event_log.reader([topic])
        marks, out = reader.high_watermarks(), list[Record]()
        while any(reader.position().get(place, 0) < mark for place, mark in marks.items()):
            out += reader.poll(10_000, 0.2)
        reader.close()
        return out

    def until(self, seen: Callable[[], T | None], what: str, timeout_s: float = DEADLINE_S) -> T:
        return until(seen, what, timeout_s, every_s=0.2, story=self.story)

    def story(self) -> str:
        """The last lines of all logs, for the report of a failed test."""
        logs = sorted((self.path / "log").glob("*.log"))
        return "\n".join(f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:]) for log in logs)

    # -- kills

    def pid(self, process: str) -> int:
        """The pid of a process of `up`: broker, agent, projector-1, reconciler-1, up."""
        return int(json.loads((self.path / "run" / f"{process}.pid").read_text())["pid"])

    def processes(self) -> list[psutil.Process]:
        """All processes of this folder, jobs and supervisors included. They are found by command line or environment."""
        out = []
        for process in psutil.process_iter():
            try:
                told = [*process.cmdline(), *process.environ().values()]
                if process.pid != os.getpid() and any(str(self.path) in text for text in told):
                    out.append(process)
            except (psutil.Error, OSError):
                continue
        return out

    def kill_everything(self) -> None:
        """Kills all processes, as a power cut would. The page cache survives."""
        while found := self.processes():
            for process in found:
                try:
                    process.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(found, timeout=10)

    def clear(self) -> None:
        self.kill_everything()


def decode_entry(record: Record) -> RecoveryEntry | None:
    value = record.value()
    return None if value is None else avro.decode(RecoveryEntry, value)

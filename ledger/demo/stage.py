"""The environment of the demonstration: one embedded ledger in a folder, the commands of a user, and queries of its
state."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ledger.adapters.java.java import SHORT_LIVED
from ledger.app.ledger import Ledger
from ledger.config.config import load_config
from ledger.core.model.recovery import Entries, RecoveryEntry
from ledger.errors import LedgerError, OutcomeUnknown
from ledger.ports import ObservedAttempt
from ledger.reader.claims import read_claims
from ledger.reader.leaders import led
from ledger.reader.reading import Source, entries_of

POLL_S = 0.25
T = TypeVar("T")


class Stage:
    """Runs commands on one ledger and prints them. folder: the folder of the ledger. say: prints one line."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self._say, self._began = folder, say, time.monotonic()
        self._source: Source | None = None

    def tell(self, text: str) -> None:
        self._say(f"[{time.monotonic() - self._began:5.1f} s] {text}")

    def scene(self, title: str) -> None:
        self._say("")
        self.tell(f"== {title}")

    # -- acting --------------------------------------------------------------------------------------------------------

    def command(self, *arguments: str, expect: Sequence[int] = (0,), show: int = 20) -> str:
        """Runs `jobledger ARGUMENTS` on this folder, as a user would, and returns its stdout. Prints the command and
        the first `show` lines of its output.

        Raises: LedgerError if the exit code of the command is not in `expect`.
        """
        self._say(f"          $ jobledger {shlex.join(_shortened(arguments))}")
        done = subprocess.run(
            [sys.executable, "-m", "ledger", *_with_folder(arguments, self.folder)],
            capture_output=True, text=True, check=False, env=_environment(),
        )  # fmt: skip
        for line in (done.stdout + done.stderr).splitlines()[:show]:
            self._say(f"            {line}")
        if done.returncode not in expect:
            raise LedgerError(f"jobledger {arguments[0]} exited {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def kill(self, pid: int, who: str) -> None:
        self.tell(f"kill -9 {pid}, {who}")
        os.kill(pid, signal.SIGKILL)

    # -- seeing --------------------------------------------------------------------------------------------------------

    @property
    def source(self) -> Source:
        if self._source is None:
            self._source = Ledger.open(load_config(self.folder)).source()
        return self._source

    def entries(self) -> Entries:
        return entries_of(self.source)

    def entry(self, job_id: str) -> RecoveryEntry | None:
        return self.entries().get(job_id)

    def attempts(self, job_id: str) -> list[ObservedAttempt]:
        """The attempts of a job, as the agent reports them."""
        runner = Ledger.open(load_config(self.folder)).runners["subprocess"]
        return [attempt for attempt in runner.observe() if attempt.job_id == job_id]

    def pid_of(self, job_id: str) -> int | None:
        """The process id of the job's running attempt; None if none runs."""
        return next((int(a.engine_id) for a in self.attempts(job_id) if a.alive and a.engine_id.isdigit()), None)

    def leader(self, role: str) -> int | None:
        """The process id of a role's leader: the process that holds the lock and made the newest claim in the log. None
        without a leader."""
        claims = [claim for claim in read_claims(self.source) if claim.role == role]
        elected = Ledger.open(load_config(self.folder)).candidates(role)
        found = led(role, claims, elected, [], socket.gethostname(), time.time())
        return found.pid if found.led else None

    def until(self, what: str, seen: Callable[[], T | None], timeout_s: float = 60.0) -> T:
        """Calls `seen` until it returns a true value, and returns that value. what: the awaited condition, for the
        error. Raises: OutcomeUnknown if `seen` returns none within timeout_s."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = seen()
            except LedgerError:  # a broker or agent that is being restarted
                answer = None
            if answer:
                self.tell(what)
                return answer
            if time.monotonic() > deadline:
                raise OutcomeUnknown(f"this did not happen within {timeout_s:g} s: {what}")
            time.sleep(POLL_S)

    def state(self, job_id: str) -> str:
        entry = self.entry(job_id)
        return str(entry.state) if entry else ""


def _with_folder(arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments with `--dir`, which is inserted after the verb and thus before the command of a job."""
    verb, *rest = arguments
    return [verb, "--dir", str(folder), *rest]


def _environment() -> dict[str, str]:
    """The environment for commands: without the settings of the caller's own ledger, but with those of Java."""
    callers = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    return {"JDK_JAVA_OPTIONS": SHORT_LIVED} | callers | {"COLUMNS": "160"}


def _shortened(arguments: Sequence[str]) -> list[str]:
    """The arguments as a person would type them: file names without their folders."""
    return [Path(a).name if a.startswith("/") and len(a) > 24 else a for a in arguments]

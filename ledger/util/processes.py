"""Programs of the embedded ledger: started in a session of their own, they outlive whoever started them, and are found
again by whoever comes next.

A pid alone names nothing, for pids are used again: with it goes the start time in clock ticks since boot, and the boot.
(Not the start time of day: it moves when the clock is set.) Linux only, as /proc is.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from ledger.errors import ConfigError

LOG_BYTES_MAX = 10 * 1024 * 1024
LOGS_KEPT = 3
_POLL_S = 0.02


class Identity(NamedTuple):
    """What names a process for ever. start_time: clock ticks since boot."""

    pid: int
    start_time: int
    boot_id: str


def identity(pid: int) -> Identity | None:
    """Of a process that runs; None if there is none, or what is left of it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name in parentheses may hold anything, blanks and parentheses too.
        fields = stat.rpartition(")")[2].split()
        state, threads, start_time = fields[0], int(fields[17]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None  # it ended while we looked
    # A main thread that has ended looks like a zombie while others go on.
    if state in "XxZ" and threads <= 1:
        return None
    return Identity(pid, start_time, _boot_id())


def alive(who: Identity) -> bool:
    """Whether exactly this process still runs."""
    return identity(who.pid) == who


def pid_namespace() -> str:
    """The namespace in which this process counts processes, as in `pid:[4026531836]`; "" where it can't be told."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def read_identity(path: Path) -> Identity | None:
    """Of the process noted in a pid file, if it runs. Whatever else the file holds is no obstacle."""
    try:
        said = json.loads(path.read_text())
        who = Identity(int(said["pid"]), int(said["start_time"]), str(said["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return who if alive(who) else None


def note_identity(path: Path, who: Identity) -> None:
    """Writes a pid file, in full or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(who._asdict()) + "\n")
    temporary.replace(path)


def send(who: Identity, number: int) -> None:
    """Signals exactly this process; one that has gone is no error."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return
    try:
        if alive(who):  # the handle was made before: what is checked is what is signalled
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def stop(who: Identity, grace_s: float, gone: Callable[[], bool] | None = None) -> bool:
    """SIGTERM, and SIGKILL after grace_s. False if it had to be killed. gone: reaps a child of ours."""
    gone = gone or (lambda: not alive(who))
    send(who, signal.SIGTERM)
    if _wait(gone, grace_s):
        return True
    send(who, signal.SIGKILL)
    _wait(gone, grace_s)
    return False


def find(*arguments: str) -> Identity | None:
    """A session leader of this user whose command line holds all these arguments.

    For a process whose pid was never noted, because its starter was killed just then. Children that a program forks have
    its command line too, but do not lead a session.
    """
    for process in psutil.process_iter():
        try:
            if set(arguments) <= set(process.cmdline()) and process.uids().real == os.getuid():
                who = identity(process.pid)
                if who is not None and os.getsid(process.pid) == process.pid:
                    return who
        except (psutil.Error, OSError):
            continue
    return None


class Process:
    """One program. `<folder>/run/<name>.pid` says who it is, `<folder>/log/<name>.log` holds what it says.

    command: made anew for each start. marks: arguments that tell it from any other program.
    """

    def __init__(
        self, name: str, command: Callable[[], Sequence[str]], folder: Path, *, marks: Sequence[str] = (),
        environment: Mapping[str, str] | None = None, log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:  # fmt: skip
        self.name, self._command, self._folder, self._marks = name, command, folder, marks
        self._environment, self._log_bytes_max = environment, log_bytes_max
        self.pid_file = folder / "run" / f"{name}.pid"
        self.log = folder / "log" / f"{name}.log"
        self._who: Identity | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def adopt(self) -> Identity | None:
        """Finds the process if it runs, whoever started it."""
        self._who = read_identity(self.pid_file)
        if self._who is None and self._marks:
            self._who = find(*self._marks)
            if self._who is not None:
                note_identity(self.pid_file, self._who)
        if self._child is not None and self._child.pid != self.pid:
            self._child = None
        return self._who

    def start(self) -> Identity:
        """Raises: ConfigError if the program can't be started, or what `command` raises."""
        try:
            command = list(self._command())
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.rotate_log()
            with self.log.open("ab") as log:
                self._child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                    env=self._environment, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"{self.name} can't be started: {error}.") from error
        # A child that we have not reaped keeps its pid, so this names it even if it has ended already.
        who = identity(self._child.pid) or Identity(self._child.pid, 0, _boot_id())
        try:
            note_identity(self.pid_file, who)
        except OSError as error:  # nobody could find it again: a second one would stand beside it
            self._child.kill()
            self._child.wait()
            raise ConfigError(f"{self.name} can't be started: {error}.") from error
        self._who = who
        return who

    @property
    def pid(self) -> int:
        """0 if it was never seen."""
        return self._who.pid if self._who else 0

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return self._who is not None and alive(self._who)

    @property
    def exit_code(self) -> int | None:
        """Of one that ended, negative: the signal. Of a process that was adopted nobody can say: None."""
        return self._child.returncode if self._child is not None else None

    def ended_how(self) -> str:
        """For people."""
        code = self.exit_code
        if code is None:
            return "ended"
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def stop(self, grace_s: float) -> bool:
        """SIGTERM, SIGKILL after grace_s; False if that was needed. Idempotent."""
        ended_well = stop(self._who, grace_s, lambda: not self.alive()) if self._who is not None else True
        if not self.alive():
            self.pid_file.unlink(missing_ok=True)
        return ended_well

    def last_line(self, chars_max: int = 300) -> str:
        """The last thing it said, hints apart, at most so many characters."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        said = (line.strip() for line in reversed(lines) if not line.startswith("hint: "))
        return next((line[:chars_max] for line in said if line), "")

    def rotate_log(self) -> None:
        """Copies the log away and empties it, if it is too long. The program goes on writing to the same file, for nobody
        stands between; a line that it writes between copy and cut is lost. On a disk that is full no copy is kept."""
        try:
            if self.log.stat().st_size < self._log_bytes_max:
                return
        except FileNotFoundError:
            return
        for number in range(LOGS_KEPT - 1, 0, -1):
            older = self.log.with_name(f"{self.log.name}.{number}")
            if older.exists():
                older.replace(self.log.with_name(f"{self.log.name}.{number + 1}"))
        copy = self.log.with_name(f"{self.log.name}.1")
        try:
            shutil.copyfile(self.log, copy)
        except OSError:
            with suppress(OSError):
                copy.unlink(missing_ok=True)
        os.truncate(self.log, 0)


def texts_of(line: str) -> list[str]:
    """A line of a log in JSON as it would be told on a terminal. One that is no object is what it is."""
    try:
        told = json.loads(line)
        event, level, hint = str(told["event"]), told.get("level"), told.get("hint")
    except (ValueError, KeyError, TypeError, AttributeError):
        return [line]
    if level not in ("error", "critical"):
        return [event]
    return [f"error: {event}", *([f"hint: {hint}"] if hint else [])]


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _wait(holds: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True

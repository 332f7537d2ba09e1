"""Daemon processes of the embedded ledger. Each runs in a separate session, outlives its starter, and can be found
again by any later command.

A pid does not identify a process, because pids are reused. So a process is identified by its pid, its start time in
clock ticks since boot, and the id of the boot. (The wall clock can't be used, because it can be set.) Linux only,
because of /proc.
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
    """Identifies a process uniquely and for ever. start_time: in clock ticks since boot. boot_id: changes at every
    boot."""

    pid: int
    start_time: int
    boot_id: str


def identity(pid: int) -> Identity | None:
    """The identity of a running process; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name in parentheses may contain any characters, including blanks and parentheses.
        fields = stat.rpartition(")")[2].split()
        state, threads, start_time = fields[0], int(fields[17]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile
    # A process looks like a zombie if its main thread has ended while other threads run.
    if state in "XxZ" and threads <= 1:
        return None
    return Identity(pid, start_time, _boot_id())


def alive(who: Identity) -> bool:
    """Whether this process, and not another one with its pid, still runs."""
    return identity(who.pid) == who


def pid_namespace() -> str:
    """The pid namespace of this process, as in `pid:[4026531836]`; "" if the namespace can't be read."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def read_identity(path: Path) -> Identity | None:
    """The identity of the process in a pid file; None if it does not run, or the file is missing or damaged."""
    try:
        said = json.loads(path.read_text())
        who = Identity(int(said["pid"]), int(said["start_time"]), str(said["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return who if alive(who) else None


def note_identity(path: Path, who: Identity) -> None:
    """Writes the identity of a process to a pid file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(who._asdict()) + "\n")
    temporary.replace(path)


def send(who: Identity, number: int) -> None:
    """Sends a signal to a process. number: the signal. It is no error if the process has ended."""
    try:
        handle = os.pidfd_open(who.pid)
    except ProcessLookupError:
        return
    try:
        if alive(who):  # the pidfd was opened before the check, so the signal goes to the checked process
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def stop(who: Identity, grace_s: float, gone: Callable[[], bool] | None = None) -> bool:
    """Sends SIGTERM to the process, and SIGKILL after grace_s seconds. Returns False if SIGKILL was needed.

    gone: returns whether the process has ended; for a child process it must also reap the child. None: check `alive`.
    """
    gone = gone or (lambda: not alive(who))
    send(who, signal.SIGTERM)
    if _wait(gone, grace_s):
        return True
    send(who, signal.SIGKILL)
    _wait(gone, grace_s)
    return False


def find(*arguments: str) -> Identity | None:
    """The process of this user that leads its session and whose command line contains all these arguments; None if
    there is none.

    A process without a pid file is found too: its starter may have been killed before writing the file. Forked children
    have the same command line, but lead no session.
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
    """One daemon process. Its identity is in `<folder>/run/<name>.pid`, its output in `<folder>/log/<name>.log`.

    command: returns the program and its arguments; called for each start. marks: arguments that distinguish this
    process from all other programs.
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
        """The identity of the running process, also if another command started it; None if the process does not run."""
        self._who = read_identity(self.pid_file)
        if self._who is None and self._marks:
            self._who = find(*self._marks)
            if self._who is not None:
                note_identity(self.pid_file, self._who)
        if self._child is not None and self._child.pid != self.pid:
            self._child = None
        return self._who

    def start(self) -> Identity:
        """Starts the program and writes its pid file. Raises: ConfigError if the start fails; errors of `command`."""
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
        # A child that is not reaped keeps its pid, so this identifies it even if it has already ended.
        who = identity(self._child.pid) or Identity(self._child.pid, 0, _boot_id())
        try:
            note_identity(self.pid_file, who)
        except OSError as error:  # without a pid file, the next command would start a second one
            self._child.kill()
            self._child.wait()
            raise ConfigError(f"{self.name} can't be started: {error}.") from error
        self._who = who
        return who

    @property
    def pid(self) -> int:
        """The pid; 0 if the process was never found or started."""
        return self._who.pid if self._who else 0

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return self._who is not None and alive(self._who)

    @property
    def exit_code(self) -> int | None:
        """The exit code of an ended child, or its signal as a negative number; None if it runs or is no child."""
        return self._child.returncode if self._child is not None else None

    def ended_how(self) -> str:
        """How the process ended, as a text for people."""
        code = self.exit_code
        if code is None:
            return "ended"
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def stop(self, grace_s: float) -> bool:
        """Sends SIGTERM, and SIGKILL after grace_s seconds. Returns False if SIGKILL was needed. Idempotent."""
        ended_well = stop(self._who, grace_s, lambda: not self.alive()) if self._who is not None else True
        if not self.alive():
            self.pid_file.unlink(missing_ok=True)
        return ended_well

    def last_line(self, chars_max: int = 300) -> str:
        """The last line of the process's log that is neither empty nor a hint, cut to chars_max characters; "" if there
        is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        said = (line.strip() for line in reversed(lines) if not line.startswith("hint: "))
        return next((line[:chars_max] for line in said if line), "")

    def rotate_log(self) -> None:
        """Copies the log of the process and truncates it if it is too long. The program keeps writing to the same file,
        so a line written between copy and truncation is lost. If the disk is full, no copy is kept."""
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
    """The lines that a terminal shows for one JSON line of a log. A line that is no JSON object is returned
    unchanged."""
    try:
        event_fields = json.loads(line)
        event, level, hint = str(event_fields["event"]), event_fields.get("level"), event_fields.get("hint")
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

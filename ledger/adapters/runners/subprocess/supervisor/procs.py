"""Finds and signals processes, as /proc shows them. A pid alone identifies no process: pids are reused, so start time
and boot are needed too."""

from __future__ import annotations

import os
import signal
from functools import cache

from .files import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


@cache
def boot_id() -> str:
    """The id of this boot; it changes with every start of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


class ProcessStat:
    """A line of /proc/<pid>/stat. `start_time`: clock ticks since boot."""

    __slots__ = ("dead", "pgid", "pid", "ppid", "sid", "start_time")

    def __init__(self, line: str) -> None:
        # The name in parentheses may contain anything, including blanks and parentheses.
        head, _, tail = line.rpartition(")")
        fields = tail.split()
        self.pid = int(head.split(" ", 1)[0])
        self.ppid, self.pgid, self.sid = int(fields[1]), int(fields[2]), int(fields[3])
        self.start_time = int(fields[19])
        # A main thread that has ended looks like a zombie while other threads still run.
        self.dead = fields[0] in "XxZ" and int(fields[17]) <= 1


def stat(pid: int) -> ProcessStat | None:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return ProcessStat(file.read())
    except (OSError, ValueError, IndexError):
        return None  # it ended while we looked


def all_stats() -> list[ProcessStat]:
    """Every process that lives now, as far as it is visible."""
    found = (stat(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [s for s in found if s is not None and not s.dead]


def identity(pid: int) -> dict[str, Any]:
    """The values that identify a process for ever: {"pid", "start_time", "boot_id"}.

    Raises: ProcessLookupError if the process does not exist."""
    found = stat(pid)
    if found is None:
        raise ProcessLookupError(f"no process {pid}")
    return {"pid": pid, "start_time": found.start_time, "boot_id": boot_id()}


def alive(who: dict[str, Any]) -> bool:
    """Whether exactly this process still runs: pid, start time and boot must all match. A zombie does not run."""
    pid = who.get("pid")
    if not isinstance(pid, int) or pid <= 0 or who.get("boot_id") != boot_id():
        return False
    found = stat(pid)
    return found is not None and not found.dead and found.start_time == who.get("start_time")


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for this signal; without one, the signal might kill it."""
    try:
        with open(f"/proc/{pid}/status", errors="replace") as file:
            for line in file:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Sends the signal `number` to a process; it is no error if the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        say(f"can't signal process {pid}: {error}")


def kill_group(pgid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.killpg(pgid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        say(f"can't signal process group {pgid}: {error}")


def children(pid: int) -> list[int]:
    """The child processes of a process, zombies included."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [s.pid for s in all_stats() if s.ppid == pid]

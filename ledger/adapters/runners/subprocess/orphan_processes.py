"""Finds and kills processes of an attempt whose supervisor is dead, whichever session or process group they have moved
to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger.adapters.runners.subprocess.supervisor import procs
from ledger.adapters.runners.subprocess.supervisor.procs import ProcessStat

KILL_S = 2.0
_MAIN = b"/supervisor/__main__.py"
#: This variable holds the checkpoint folder of the attempt. It marks every process that descends from its job.
MARK = "LEDGER_CHECKPOINT_DIR"


def leftovers(folder: str, child: dict[str, Any] | None) -> list[ProcessStat]:
    """Living processes of the attempt in this run folder.

    A process belongs to the attempt if its environment has the attempt's mark. It also belongs if it is in the session
    or process group of the job, and that group is proved to be still the job's: the number of a group can be reused
    once all its members are gone. A process that left the group *and* dropped its environment is not found; a living
    supervisor finds even such a process."""
    processes = [process for process in procs.all_stats() if process.pid not in (1, os.getpid())]
    mark = f"{MARK}={folder}/checkpoints".encode()
    marked = {process.pid for process in processes if mark in _environment(process.pid)}
    group = [] if child is None else _group(processes, child)
    if not any(process.pid in marked or _is(process, child) or _writes_logs(process.pid, folder) for process in group):
        group = [process for process in group if child is not None and _held_by_zombie(child)]
    found = {process.pid: process for process in group}
    found.update({process.pid: process for process in processes if process.pid in marked})
    return list(found.values())


def supervisor_of(folder: str) -> int | None:
    """The pid of the running supervisor of this run folder, found by its command line; None if there is none."""
    for process in procs.all_stats():
        words = _words(process.pid)
        if words and words[-1] == os.fsencode(folder) and any(word.endswith(_MAIN) for word in words):
            return process.pid
    return None


def lives(folder: str) -> bool:
    """Whether any process of the attempt in this run folder runs. Only the process table is consulted."""
    return supervisor_of(folder) is not None or bool(leftovers(folder, None))


def kill_leftovers(folder: str, child: dict[str, Any] | None, timeout_s: float = KILL_S) -> list[ProcessStat]:
    """Kills leftover processes until none is left. Returns the processes that still live timeout_s seconds after the
    first look."""
    left, looked_at = leftovers(folder, child), time.monotonic()
    while left:
        for process in left:
            now = procs.stat(process.pid)
            if now is not None and now.start_time == process.start_time:
                procs.kill(process.pid)
        time.sleep(0.01)
        left = leftovers(folder, child)
        if time.monotonic() >= looked_at + timeout_s:
            break
    return left


def _group(processes: Iterable[ProcessStat], child: dict[str, Any]) -> list[ProcessStat]:
    if child.get("boot_id") != procs.boot_id():
        return []
    number, since = int(child["pid"]), int(child["start_time"])
    return [p for p in processes if number in (p.pgid, p.sid) and p.start_time >= since]


def _is(process: ProcessStat, child: dict[str, Any] | None) -> bool:
    return child is not None and (process.pid, process.start_time) == (child["pid"], child["start_time"])


def _held_by_zombie(child: dict[str, Any]) -> bool:
    """Whether the job's process has ended but was not reaped. Then its number can't have been reused."""
    found = procs.stat(int(child["pid"]))
    return found is not None and found.start_time == child["start_time"]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it ended, or belongs to another user


def _writes_logs(pid: int, folder: str) -> bool:
    """Whether the process can write to the logs of the attempt. Only its job can; an operator only reads them."""
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                if link.readlink().parent == Path(folder, "logs") and _for_writing(process / "fdinfo" / link.name):
                    return True
    return False


def _for_writing(fdinfo: Path) -> bool:
    flags = next(line for line in fdinfo.read_text().splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY

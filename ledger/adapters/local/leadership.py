"""Leadership on one host: who holds the lock on a file.

The kernel frees the lock when its holder ends, however it ends: so the lease is the life of the process, and a holder
that is merely stopped (SIGSTOP) keeps it. The lock is advice, the epoch is law. Not for network file systems.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import NamedTuple

from ledger.adapters.clock import SystemClock
from ledger.ports import Clock, Standing


class Holder(NamedTuple):
    """What the file says to people. since: seconds since the epoch."""

    who: str
    pid: int
    since: float


class FileLockLeadership:
    """Implements `ports.Leadership` with flock on `path`, e.g. `<dir>/leader-<role>.lock`. The file is never deleted."""

    def __init__(self, path: Path, *, who: str = "", clock: Clock | None = None) -> None:
        self._path, self._who = path, who
        self._clock = clock or SystemClock()
        self._handle: int | None = None
        self._because = ""
        os.register_at_fork(after_in_child=self._forget)

    def acquire(self) -> bool:
        if self.valid():
            return True
        self.release()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        if not self.valid():  # the file was replaced between open and lock
            self.release()
            return False
        self._sign(handle)
        self._because = f"the lock on {self._path} was free"
        return True

    def valid(self) -> bool:
        """Held, and the file that is locked is still the one that others would lock."""
        if self._handle is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                os.ftruncate(handle, 0)
                fcntl.flock(handle, fcntl.LOCK_UN)
            except OSError:
                pass  # closing frees the lock too, and what people read in the file is a courtesy
            finally:
                os.close(handle)

    def standing(self) -> Standing:
        if self.valid():
            return Standing(True, None, self._who, because=self._because)
        found = holder(self._path)
        leader = "" if found is None else found.who or "another process"
        waits_for = f"the lock on {self._path}, held by {leader} (pid {found.pid})" if found else "its next try"
        return Standing(False, None, leader, waits_for, self._because)

    def close(self) -> None:
        self.release()

    def _forget(self) -> None:
        """In a forked child: it must neither lead nor keep the lock when its parent dies."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _sign(self, handle: int) -> None:
        text = json.dumps({"who": self._who, "pid": os.getpid(), "since": self._clock.time()})
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)


def holder(path: Path) -> Holder | None:
    """Who leads now, by the lock at `path`; None if nobody does. For people: never decide by it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _signature(os.pread(handle, 4096, 0))
    finally:
        os.close(handle)
    return None


def _signature(text: bytes) -> Holder:
    """A file that can't be read (just taken, or scribbled on) still has a holder: somebody."""
    try:
        found = json.loads(text)
        return Holder(str(found["who"]), int(found["pid"]), float(found["since"]))
    except (ValueError, KeyError, TypeError):
        return Holder("", 0, 0.0)

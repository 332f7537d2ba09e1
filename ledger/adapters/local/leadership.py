"""Leadership on one host: the process that holds the lock on a file leads.

The kernel frees the lock when its holder ends, for whatever reason. So the lease lasts as long as the process, and a
process that is only stopped (SIGSTOP) keeps its lease. The lock is only a hint; the epoch in the log decides. Not for
network file systems."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ledger.adapters.clock import SystemClock
from ledger.adapters.local.private import OWNER_ALONE
from ledger.ports import Clock, Standing
from ledger.util.processes import Identity, alive, identity, pid_namespace


class Holder(NamedTuple):
    """The content of the lock file, for people: the candidate that signed the file. since: seconds since the epoch.
    outsider: whether that candidate's process is gone. The current holder of the lock is then not a candidate, because
    candidates sign."""

    who: str
    pid: int
    since: float
    outsider: bool = False


class FileLockLeadership:
    """Implements `ports.Leadership` with flock on `path`, e.g. `<dir>/leader-<role>.lock`. The file is never
    deleted."""

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
        self._path.parent.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(handle, 0o600)  # an earlier version created it readable by other users
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
        """Whether this process holds the lock, and `path` still names the locked file, so that others would lock it
        too."""
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
                pass  # closing frees the lock too, and the file's content is only information for people
            finally:
                os.close(handle)

    def standing(self) -> Standing:
        if self.valid():
            return Standing(True, None, self._who, because=self._because)
        found = holder(self._path)
        if found is None:
            return Standing(False, None, "", "its next try", self._because)
        if found.outsider:
            return Standing(False, None, "", outsider(self._path), self._because)
        leader = found.who or "another process"
        return Standing(False, None, leader, f"the lock on {self._path}, held by {leader}", self._because)

    def close(self) -> None:
        self.release()

    def _forget(self) -> None:
        """Closes the lock file in a forked child: the child must not lead, nor keep the lock after its parent's
        death."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _sign(self, handle: int) -> None:
        own = identity(os.getpid())
        process = {**own._asdict(), "pid_namespace": pid_namespace()} if own else {"pid": os.getpid()}
        text = json.dumps({"who": self._who, "since": self._clock.time(), **process})
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)


def holder(path: Path) -> Holder | None:
    """The current holder of the lock at `path`; None if the lock is free. For people only: no decision may depend on
    the result."""
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
    """The holder that the file's text names; a holder without a name if the text is not readable (the lock was taken
    just now, or someone has overwritten the file)."""
    try:
        found = json.loads(text)
        return Holder(str(found["who"]), int(found["pid"]), float(found["since"]), _gone(found))
    except (ValueError, KeyError, TypeError):
        return Holder("", 0, 0.0)


def _gone(signed: Mapping[str, Any]) -> bool:
    """Whether the process that signed is certainly gone. For one in another PID namespace, or of an older version, that
    can't be known: False."""
    if "start_time" not in signed or signed.get("pid_namespace") != pid_namespace():
        return False
    return not alive(Identity(int(signed["pid"]), int(signed["start_time"]), str(signed["boot_id"])))


def outsider(path: Path) -> str:
    """The text for a candidate's status while a process that is not a candidate holds the lock."""
    return f"the lock on {path}, held by a process that is no role of this ledger; `fuser {path}` names it"

"""The folder of an embedded ledger: its lock, and the processes that belong to it."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from ledger.adapters.local.private import private_folder
from ledger.embedded.broker import Broker
from ledger.errors import ConfigError
from ledger.util.processes import Identity, Process, identity, note_identity, read_identity

BROKER, AGENT, PROJECTOR, RECONCILER, ARCHIVER = "broker", "agent", "projector", "reconciler", "archiver"
#: The order of starting. Processes stop in the reverse order, so that no role acts on jobs while its dependencies stop.
ORDER = (BROKER, AGENT, PROJECTOR, RECONCILER, ARCHIVER)
_POLL_S = 0.05


def kind_of(name: str) -> str:
    """The kind of a process by its name: `projector-2` -> `projector`."""
    return name.rpartition("-")[0] or name


def program(
    folder: Path, name: str, environment: Mapping[str, str] | None = None, extra: Sequence[str] = (),
) -> Process:  # fmt: skip
    """The process with a name such as `broker` or `projector-2`, of the ledger in a folder; it is not started. extra:
    more arguments of a role's command."""
    if name == BROKER:
        broker = Broker.at(folder / BROKER)

        def command() -> list[str]:
            broker.prepare()
            return broker.command()

        return Process(name, command, folder, marks=[f"-Dledger.broker.log={broker.log}"], environment=environment)
    role = ["serve", kind_of(name), "--dir", str(folder), "--name", name]
    return Process(
        name, lambda: [sys.executable, "-m", "ledger", *role, *extra], folder, marks=role, environment=environment
    )


def noted(folder: Path) -> list[str]:
    """The names of the folder's processes that were started and not stopped, in the order in which to stop them."""
    names = [path.stem for path in (folder / "run").glob("*.pid") if kind_of(path.stem) in ORDER]
    return sorted(names, key=lambda name: (-ORDER.index(kind_of(name)), name))


def up_runs(folder: Path) -> Identity | None:
    """The process of the `up` that manages this folder now; None if there is none."""
    return read_identity(folder / "run" / "up.pid")


@contextmanager
def only_one(folder: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Locks the folder inside the `with` block: only one `up` or `down` works on it at a time. The kernel releases the
    lock when its holder ends.

    Raises: ConfigError if another process holds the lock, or the folder can't be created.
    """
    lock = folder / "run" / "up.lock"
    try:
        private_folder(folder)
        private_folder(lock.parent)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} can't be the folder of a ledger: {error}.", hint="Choose one: --dir DIR") from error
    try:
        deadline = time.monotonic() + wait_s
        while not _locked(handle):
            if time.monotonic() >= deadline:
                raise _taken(folder)
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(handle)


@contextmanager
def noted_as_up(folder: Path) -> Iterator[None]:
    """Inside the `with` block, this process is recorded as the `up` of the folder."""
    path = folder / "run" / "up.pid"
    who = identity(os.getpid())
    assert who is not None  # this process runs
    note_identity(path, who)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def users_of(folder: Path) -> list[int]:
    """The pids of supervisors and jobs in this folder, known to the ledger or not. Such a process has its working
    directory, or a path in its arguments, in a folder of the agent."""
    inside = str(folder.resolve() / AGENT) + os.sep
    found = []
    for process in psutil.process_iter():
        try:
            if any(word.startswith(inside) for word in [*process.cmdline(), process.cwd() + os.sep]):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return sorted(set(found) - {os.getpid()})


def wait_until(holds: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _taken(folder: Path) -> ConfigError:
    who = up_runs(folder)
    by = f"`jobledger up`, pid {who.pid}" if who else "another `jobledger up` or `down`"
    return ConfigError(f"{folder} is managed by {by}.", hint="Stop it first; the processes that it started keep running.")

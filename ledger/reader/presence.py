"""The report of each instance of a role on its host: a file for people, `<dir>/run/candidates/<instance>.json`.

The ledger makes no decision by this file. A thread of its own writes it, since the role's thread may hang in a call; the
same thread raises the alarm that no instance leads. A process removes its file when it ends; the file of a killed process
is ignored. Containers that share the folder have PID namespaces of their own. A process of another namespace can't be
checked from here, so its file counts while it is fresh.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.ports import Clock
from ledger.util.processes import Identity, alive, identity, pid_namespace

EVERY_S = 1.0
#: An unchanged file is written again this often; in another namespace it counts for three times as long.
HEARTBEAT_S = 5.0
#: Files of processes in another namespace are removed after this.
LEFT_S = 3600.0
#: These fields change all the time. The file is written for them only while it holds a lease's remaining time.
_PASSING = ("lease_left_s", "leaderless_s")
log = logging.getLogger("ledger.reader.presence")


class Presence:
    """A context manager that updates the file every second. look: returns the instance's state as plain values."""

    def __init__(self, path: Path, look: Callable[[], Mapping[str, Any]], clock: Clock) -> None:
        self._path, self._look, self._clock = path, look, clock
        self._who = identity(os.getpid())
        self._said: Mapping[str, Any] = {}
        self._written = float("-inf")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def __enter__(self) -> Self:
        sweep(self._path.parent, self._clock.time())
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(2 * EVERY_S)
        self._path.unlink(missing_ok=True)

    def step(self) -> None:
        seen = self._look()
        lasting = {name: value for name, value in seen.items() if name not in _PASSING}
        fresh = self._clock.monotonic() - self._written < HEARTBEAT_S
        if lasting == self._said and fresh and seen.get("lease_left_s") is None:
            return
        self._said, self._written = lasting, self._clock.monotonic()
        who = {**self._who._asdict(), "pid_namespace": pid_namespace()} if self._who else {}
        text = json.dumps({**seen, **who, "at": self._clock.time()})
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text)
            part.replace(self._path)
        except OSError:  # a full disk must not stop the role
            self._said = {}

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.step()
            except Exception:  # the next look may succeed, and the alarm must not die
                log.exception("presence_not_written")
            self._over.wait(EVERY_S)


def sweep(folder: Path, now: float) -> None:
    """Removes the files of dead processes. now: seconds since the epoch."""
    for path in folder.glob("*.json"):
        said = _read(path)
        if said is None or not _runs(said, now, LEFT_S):
            path.unlink(missing_ok=True)


def present(folder: Path, role: str, now: float = math.inf) -> list[Mapping[str, Any]]:
    """The reports of a role's instances in this folder, ordered by name: reports of running processes, and fresh
    reports from another PID namespace. now: seconds since the epoch; inf = no reports from another namespace."""
    read = (_read(path) for path in sorted(folder.glob(f"{role}-*.json")))
    return [said for said in read if said is not None and said["role"] == role and _runs(said, now, 3 * HEARTBEAT_S)]


def _runs(said: Mapping[str, Any], now: float, fresh_s: float) -> bool:
    if said.get("pid_namespace", pid_namespace()) == pid_namespace():
        return alive(Identity(int(said["pid"]), int(said["start_time"]), str(said["boot_id"])))
    return abs(now - float(said["at"])) < fresh_s


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        said: Mapping[str, Any] = json.loads(path.read_text())
        int(said["pid"]), int(said["start_time"]), str(said["boot_id"]), float(said["at"])
        said["role"], said["who"], said["leads"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said

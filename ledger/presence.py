"""What each instance of a role says of itself on its host: a file for people, `<dir>/run/candidates/<instance>.json`.

Nothing is decided by it. It is kept up by a thread of its own, beside the role, whose thread may hang in a call; the same
thread raises the alarm that nobody leads. It goes with its process: of one that was killed it is left, and not read.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ledger.adapters.embedded.processes import Identity, alive, identity
from ledger.ports import Clock

EVERY_S = 1.0
#: Change by themselves; the file is written anew for them only while it says how long a lease lasts.
_PASSING = ("lease_left_s", "leaderless_s")
log = logging.getLogger("ledger.presence")


class Presence:
    """Within `with`, looks every second and keeps the file up. look: how things stand, as plain values."""

    def __init__(self, path: Path, look: Callable[[], Mapping[str, Any]], clock: Clock) -> None:
        self._path, self._look, self._clock = path, look, clock
        self._who = identity(os.getpid())
        self._said: Mapping[str, Any] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def __enter__(self) -> Self:
        sweep(self._path.parent)
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(2 * EVERY_S)
        self._path.unlink(missing_ok=True)

    def step(self) -> None:
        seen = self._look()
        lasting = {name: value for name, value in seen.items() if name not in _PASSING}
        if lasting == self._said and seen.get("lease_left_s") is None:
            return
        self._said = lasting
        text = json.dumps({**seen, **(self._who._asdict() if self._who else {}), "at": self._clock.time()})
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text)
            part.replace(self._path)
        except OSError:  # a disk that is full is no reason to stop
            self._said = {}

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.step()
            except Exception:  # whatever it is: the next look may go well, and an alarm that died is never heard
                log.exception("how this instance stands could not be told")
            self._over.wait(EVERY_S)


def sweep(folder: Path) -> None:
    """Removes what processes left that are gone."""
    for path in folder.glob("*.json"):
        if _read(path) is None:
            path.unlink(missing_ok=True)


def present(folder: Path, role: str) -> list[Mapping[str, Any]]:
    """What the instances of a role on this host say of themselves, by name; only of those that run."""
    read = (_read(path) for path in sorted(folder.glob(f"{role}-*.json")))
    return [said for said in read if said is not None and said["role"] == role]


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        said = json.loads(path.read_text())
        who = Identity(int(said["pid"]), int(said["start_time"]), str(said["boot_id"]))
        said["role"], said["who"], said["leads"], said["at"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return said if alive(who) else None

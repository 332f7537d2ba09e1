"""One attempt on disk, and its state in memory.

Two processes write into the run folder `jobs/<job_id>/attempts/<n>/`: the supervisor (see `supervisor.main`) and the
agent. The agent's files are `started` (the marker: created once, before anything runs; it holds the restore point),
`order.json` and `progress.json` (which facts are events already, and which checkpoints are in the log). A damaged file
counts as unknown, and its content is derived again from the other files."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

from ledger.adapters.runners.plain import point_from_json, point_to_json
from ledger.adapters.runners.subprocess.log_retention import log_folder
from ledger.adapters.runners.subprocess.orphan_processes import supervisor_of
from ledger.adapters.runners.subprocess.supervisor import checkpoints, procs
from ledger.adapters.runners.subprocess.supervisor.files import create_once, read_json, to_json, write_durably
from ledger.core.model.facts import CheckpointKind, RestorePoint

T = TypeVar("T")
log = logging.getLogger(__name__)

MARKER = "started"
GONE = -1  # in place of the pid, if all that is known about a supervisor is that it no longer runs
ANSWERED = ".answered"
ANSWERED_MAX = 100  # answered asks that are remembered


class Phase(Enum):
    LIVE = auto()  # a process of the attempt runs, or may run
    ENDED = auto()  # its end is an event


@dataclass
class MarkedAttempt:
    """An attempt that has a marker. The lock of its job guards all fields.

    collected: facts up to this number are events. newest: the highest checkpoint id among the events, -1 = none.
    acknowledged: id -> kind of the checkpoints that are in the log and whose files still exist."""

    job_id: str
    n: int
    folder: Path
    base: RestorePoint | None = None
    phase: Phase = Phase.LIVE
    collected: int = 0
    newest: int = -1
    running: bool = False
    engine_id: str = ""
    acknowledged: dict[int, CheckpointKind] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    facts_seen: tuple[int, float] = (0, 0.0)  # mtime of the facts folder, and when we saw it change (monotonic)
    doubtful: bool = False  # it is no longer known which facts are events
    waited: tuple[int, float] = (-1, 0.0)  # checkpoint whose record waits for its digest, and since when (monotonic)
    claim: dict[str, Any] | None = None  # the claim as read by `supervisor`; it never changes

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def facts(self) -> Path:
        return self.folder / "facts"

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def supervisor(self) -> dict[str, Any] | None:
        """The identity of the supervisor that claimed the attempt; None if the attempt is not claimed yet."""
        if self.claim is None:
            self.claim = self._readable("supervisor.json", _identity)
            if self.claim is None and Path(self.file("supervisor.json")).exists():
                self.claim = self._claim_anew()
        return self.claim

    def _claim_anew(self) -> dict[str, Any]:
        """Replaces an unreadable claim: by the supervisor that runs, or by GONE if none runs. None can claim the
        attempt now."""
        pid = supervisor_of(str(self.folder))
        who = {"pid": GONE, "start_time": 0, "boot_id": procs.boot_id()}
        if pid is not None:
            with suppress(ProcessLookupError):
                who = procs.identity(pid)
        write_durably(self.file("supervisor.json"), to_json(who))
        return who

    def child(self) -> dict[str, Any] | None:
        """The identity of the job's process; None if the process was not started yet, or is unknown."""
        return self._readable("child.json", _identity)

    def _readable(self, name: str, convert: Callable[[dict[str, Any]], T]) -> T | None:
        """The converted content of a file that is not essential; None if it is missing or damaged. Raises: OSError."""
        try:
            value = read_json(self.file(name))
            return None if value is None else convert(value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            about = {"path": self.file(name), "reason": f"{type(error).__name__}: {error}", "then": "counts as unknown"}
            log.warning("damaged_file", extra=about)
            return None

    def order(self, outcome: str, savepoint: bool = False, reason: str = "") -> dict[str, Any]:
        """Stores, once, how the attempt is to end, and returns the stored order. The first call decides; later calls
        return its order."""
        wanted = {"outcome": outcome, "savepoint": savepoint, "reason": reason}
        if create_once(self.file("order.json"), to_json(wanted)):
            return wanted
        try:
            return read_json(self.file("order.json")) or wanted
        except ValueError as error:
            about = {"path": self.file("order.json"), "reason": str(error), "then": "is written again"}
            log.warning("damaged_file", extra=about)
            write_durably(self.file("order.json"), to_json(wanted))
            return wanted

    def ask(self, ask: str) -> None:
        """Requests a savepoint from the job, once per ask: `asks/<number>-<ask>.ask`, see `supervisor.main`."""
        folder = self.folder / "asks"
        names = sorted(path.name for path in folder.iterdir() if path.name[:9].isdigit())
        if any(name.partition("-")[2].removesuffix(ANSWERED) == f"{ask}.ask" for name in names):
            return
        number = 1 + int(names[-1].partition("-")[0]) if names else 0
        create_once(str(folder / f"{number:09d}-{ask}.ask"), b"")
        # Years of savepoints must not fill the folder. A repeated call can only concern one of the newest asks.
        for name in [name for name in names if name.endswith(ANSWERED)][:-ANSWERED_MAX]:
            (folder / name).unlink(missing_ok=True)

    def mark(self) -> bool:
        """Creates the marker; False if this attempt was started before."""
        return create_once(self.file(MARKER), to_json({"base": point_to_json(self.base)}))

    def save(self) -> None:
        """Makes the progress of the attempt durable, because it must outlive the files of acknowledged events."""
        progress = {
            "collected": self.collected, "newest": self.newest, "running": self.running, "engine_id": self.engine_id,
            "ended": self.phase is Phase.ENDED,
            "acknowledged": {str(number): kind.value for number, kind in self.acknowledged.items()},
        }  # fmt: skip
        write_durably(self.file("progress.json"), to_json(progress))

    @classmethod
    def load(cls, job_id: str, n: int, folder: Path) -> MarkedAttempt:
        """The attempt in this folder. The marker's existence proves the start; other files repeat the marker's content.

        Raises: OSError."""
        attempt = cls(job_id, n, folder)
        base = attempt._readable(MARKER, _base) or attempt._readable("attempt.json", _prepared_base)
        attempt.base = base[0] if base else None
        if attempt._readable("progress.json", attempt._take_progress) is None:
            attempt.doubtful = Path(attempt.file("progress.json")).exists()
        return attempt

    def _take_progress(self, progress: dict[str, Any]) -> bool:
        collected, newest, ended = int(progress["collected"]), int(progress["newest"]), bool(progress["ended"])
        acknowledged = {int(i): CheckpointKind(k) for i, k in progress["acknowledged"].items()}
        self.running, self.engine_id = bool(progress["running"]), str(progress["engine_id"])
        self.collected, self.newest, self.acknowledged = collected, newest, acknowledged
        self.phase = Phase.ENDED if ended else Phase.LIVE
        return True


def _base(marker: dict[str, Any]) -> tuple[RestorePoint | None]:
    return (point_from_json(marker["base"]),)


def _prepared_base(prepared: dict[str, Any]) -> tuple[RestorePoint | None]:
    """The restore point in `attempt.json`, which is written before the marker. Older agents wrote only its location."""
    if "base" in prepared:
        return _base(prepared)
    path = Path(prepared["environment"].get("LEDGER_RESTORE_FROM", ""))
    found, n = checkpoints.parse(path.name), path.parent.parent.name
    if found is None or path.parent.name != "checkpoints" or not (n.isascii() and n.isdigit()):
        return (None,)
    return (RestorePoint(int(n), found[0], str(path), kind=CheckpointKind(found[1])),)


def _identity(who: dict[str, Any]) -> dict[str, Any]:
    """Raises: KeyError, TypeError if the values identify no process."""
    if not (type(who["pid"]) is type(who["start_time"]) is int and isinstance(who["boot_id"], str)):
        raise TypeError("it identifies no process")
    return who


def log_paths(folder: Path, job_id: str, n: int) -> list[Path]:
    """The log files of an attempt in the agent's folder, each stream from oldest to newest; [] = none."""
    found = log_folder(folder, job_id, n).glob("*.log*")
    return sorted(found, key=lambda path: (path.name.partition(".")[0], -int("0" + path.name.partition(".log.")[2])))

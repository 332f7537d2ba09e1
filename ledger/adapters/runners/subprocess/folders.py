"""One attempt on disk, and what is known of it in memory.

The run folder `jobs/<job_id>/attempts/<n>/` is shared by two writers: the supervisor (see `supervisor.main`) and the
agent, whose files are `started` (the marker: created once, before anything runs; holds the restore point), `order.json`
and `progress.json` (which facts are events already, and which checkpoints stand in the log).
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

from ledger.adapters.runners.plain import point_from_json, point_to_json
from ledger.adapters.runners.subprocess.past_logs import log_folder
from ledger.adapters.runners.subprocess.supervisor.files import create_once, read_json, to_json, write_durably
from ledger.core.facts import CheckpointKind, RestorePoint

MARKER = "started"
ANSWERED = ".answered"
ANSWERED_MAX = 100  # asks that are remembered after they were answered


class Phase(Enum):
    LIVE = auto()  # some process of it runs, or may run
    ENDED = auto()  # its end is an event


@dataclass
class Attempt:
    """An attempt whose marker stands. All fields are guarded by the lock of its job.

    collected: facts up to this number are events. newest: the highest checkpoint id among the events, -1 = none.
    acknowledged: id -> kind of the checkpoints that stand in the log and whose files are still here.
    """

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
    waited: tuple[int, float] = (-1, 0.0)  # checkpoint whose record waits for its digest, and since when (monotonic)
    claim: dict[str, Any] | None = None  # what `supervisor` has read: it never changes

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
        """Who claimed the attempt; None if nobody has yet."""
        if self.claim is None:
            self.claim = read_json(self.file("supervisor.json"))
        return self.claim

    def child(self) -> dict[str, Any] | None:
        return read_json(self.file("child.json"))

    def order(self, outcome: str, savepoint: bool = False, reason: str = "") -> dict[str, Any]:
        """Stores how the attempt ends, once; the first call decides, and what it said is the answer."""
        wanted = {"outcome": outcome, "savepoint": savepoint, "reason": reason}
        if create_once(self.file("order.json"), to_json(wanted)):
            return wanted
        return read_json(self.file("order.json")) or wanted

    def ask(self, ask: str) -> None:
        """Asks the job for a savepoint, once per ask: asks/<number>-<ask>.ask, see `supervisor.main`."""
        folder = self.folder / "asks"
        names = sorted(path.name for path in folder.iterdir() if path.name[:9].isdigit())
        if any(name.partition("-")[2].removesuffix(ANSWERED) == f"{ask}.ask" for name in names):
            return
        number = 1 + int(names[-1].partition("-")[0]) if names else 0
        create_once(str(folder / f"{number:09d}-{ask}.ask"), b"")
        # A job that is asked for years leaves no more of it than a repeated call could still be about.
        for name in [name for name in names if name.endswith(ANSWERED)][:-ANSWERED_MAX]:
            (folder / name).unlink(missing_ok=True)

    def mark(self) -> bool:
        """Creates the marker; False if this attempt has been started before."""
        return create_once(self.file(MARKER), to_json({"base": point_to_json(self.base)}))

    def save(self) -> None:
        """Makes durable what must outlive the files of acknowledged events."""
        progress = {
            "collected": self.collected, "newest": self.newest, "running": self.running, "engine_id": self.engine_id,
            "ended": self.phase is Phase.ENDED,
            "acknowledged": {str(number): kind.value for number, kind in self.acknowledged.items()},
        }  # fmt: skip
        write_durably(self.file("progress.json"), to_json(progress))

    @classmethod
    def load(cls, job_id: str, n: int, folder: Path) -> Attempt:
        """Raises: OSError, ValueError, KeyError or TypeError if the folder is damaged."""
        marker = read_json(str(folder / MARKER)) or {}
        attempt = cls(job_id, n, folder, point_from_json(marker["base"]))
        progress = read_json(attempt.file("progress.json"))
        if progress is not None:
            attempt.collected, attempt.newest = int(progress["collected"]), int(progress["newest"])
            attempt.running, attempt.engine_id = bool(progress["running"]), str(progress["engine_id"])
            attempt.phase = Phase.ENDED if progress["ended"] else Phase.LIVE
            attempt.acknowledged = {int(i): CheckpointKind(k) for i, k in progress["acknowledged"].items()}
        return attempt


def log_paths(folder: Path, job_id: str, n: int) -> list[Path]:
    """The log files of an attempt in the agent's folder, of each stream oldest first; [] if there are none."""
    found = log_folder(folder, job_id, n).glob("*.log*")
    return sorted(found, key=lambda path: (path.name.partition(".")[0], -int("0" + path.name.partition(".log.")[2])))

"""Deletion of a job's files, and the record of its past attempts: a job that fails once a minute must not fill the
disk.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

from ledger.adapters.runners.subprocess.restore import remove
from ledger.adapters.runners.subprocess.supervisor.files import read_json, to_json, write_durably

DISPOSED = "disposed"


class PastAttempts:
    """The numbers of attempts that were started once and have left no other data. Durable, stored as few ranges."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.ranges: list[tuple[int, int]] = []  # first and last, ascending, never adjacent

    def load(self) -> None:
        """Loads the numbers from their file. Raises: OSError, ValueError, TypeError if the file is damaged."""
        saved = (read_json(str(self._path)) or {"started": []}).get("started")
        self.ranges = [(int(first), int(last)) for first, last in saved or []]

    def __contains__(self, n: int) -> bool:
        return any(first <= n <= last for first, last in self.ranges)

    def add(self, n: int) -> None:
        """Adds the number of an attempt. Raises: OSError if it can't be made durable; nothing is changed then."""
        ranges = sorted([*self.ranges, (n, n)])
        merged = ranges[:1]
        for (_, _), (first, last) in pairwise(ranges):
            if first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        write_durably(str(self._path), to_json({"started": merged}))
        self.ranges = merged


def delete_job(folder: Path) -> None:
    """Deletes all data of a job except its checkpoints. If the checkpoints were disposed of, only savepoints stay.

    The marker of an attempt is deleted after the attempt's other files, and the fence after all markers. So after a
    crash the job is still known and can be forgotten again. Raises: OSError."""
    if not folder.exists():
        return
    disposed = (folder / DISPOSED).exists()
    shutil.rmtree(folder / "events", ignore_errors=True)
    kept = False
    for attempt in sorted((folder / "attempts").glob("*")):
        points = attempt / "checkpoints"
        names = {path.name for path in points.iterdir()} if points.is_dir() else set()
        if disposed:
            for name in [name for name in names if not name.startswith("sav-")]:
                remove(points / name)
                names.discard(name)
        kept = kept or bool(names)
        for path in sorted(attempt.iterdir(), key=lambda p: p.name == "started"):
            if not (names and path == points):
                remove(path)
        if not names:
            attempt.rmdir()
    if not kept:
        shutil.rmtree(folder)
        return
    for path in folder.iterdir():
        if path.name != "attempts":
            remove(path)

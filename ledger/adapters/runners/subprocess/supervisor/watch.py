"""Watches a checkpoint folder by polling: inotify watches are scarce, and two thousand idle jobs should need almost no
processor time."""

from __future__ import annotations

import os

from .checkpoints import news
from .files import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LISTING_S = 5.0  # the folder is listed this often even if it seems unchanged
SETTLING_S = 2.0  # after a change it is listed at every poll for this long: file system clocks are coarse
LINES_MAX = 1000


class CheckpointWatch:
    """Finds the new checkpoints in a folder. newest: the highest id that was processed; the caller sets this field once
    the processing is durable."""

    def __init__(self, folder: str) -> None:
        self.folder, self.newest = folder, -1
        self._changed_at = self._listed_at = 0.0
        self._mtime = 0
        self._known: set[str] = set()  # names that need no further log line
        self._lines = 0

    def changed(self, now: float) -> bool:
        """Whether the folder should be listed now. Raises: OSError."""
        try:
            mtime = os.stat(self.folder).st_mtime_ns
        except FileNotFoundError:
            return False
        if mtime != self._mtime:
            self._mtime, self._changed_at = mtime, now
        return now - self._changed_at <= SETTLING_S or now - self._listed_at >= LISTING_S

    def news(self, now: float) -> Iterator[dict[str, Any]]:
        """New checkpoints as facts, ascending. A checkpoint that is not above the newest is ignored and logged once.

        Raises: OSError if the folder can't be read."""
        fresh, old = news(self.folder, self.newest)
        self._listed_at = now
        for fact in fresh:
            self._known.add(os.path.basename(fact["location"]))
            yield fact
        for name in set(old) - self._known:
            if self._lines < LINES_MAX:
                say(f"ignored: {name} is not above the newest checkpoint {self.newest}")
                self._lines += 1
        self._known = {*old, *(os.path.basename(fact["location"]) for fact in fresh)}

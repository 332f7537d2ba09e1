"""Remembers which jobs' logs must be kept because a pin holds the job. The source of this information may fail to
answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

EVERY_S = 10.0
log = logging.getLogger(__name__)


class Holds:
    """A function from a job id to whether the job is held, by the last answer of `ask`. The function returns at once.

    ask: returns the ids of all held jobs. Until its first answer, and after a failed call, every job counts as held.
    Then logs are deleted later. every_s: seconds between two calls of `ask`."""

    def __init__(self, ask: Callable[[], Collection[str]], every_s: float = EVERY_S) -> None:
        self._ask, self._every_s = ask, every_s
        self._held: Collection[str] | None = None
        self._last_complaint = ""

    def __call__(self, job_id: str) -> bool:
        held = self._held
        return held is None or job_id in held

    def refresh(self) -> None:
        """Calls `ask` and remembers the held jobs. Never raises."""
        try:
            self._held, complaint = frozenset(self._ask()), ""
        except Exception as error:  # after any error, it is unknown which jobs are held
            self._held, complaint = None, f"{type(error).__name__}: {error}"
        if complaint and complaint != self._last_complaint:
            log.warning("pins_unknown", extra={"reason": complaint, "then": "no logs are deleted"})
        self._last_complaint = complaint

    def run(self, stop: threading.Event) -> None:
        """Refreshes at a fixed interval until `stop` is set."""
        while not stop.is_set():
            self.refresh()
            stop.wait(self._every_s)

"""Which jobs' logs must stay, however many there are, by the word of somebody who may not answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

EVERY_S = 10.0
log = logging.getLogger(__name__)


class Holds:
    """Called with a job's id, it says at once whether the job is held, as of the last answer. As long as there was none, or
    the last question had none, every job is: nothing is deleted then, and what was not is deleted later."""

    def __init__(self, ask: Callable[[], Collection[str]], every_s: float = EVERY_S) -> None:
        self._ask, self._every_s = ask, every_s
        self._held: Collection[str] | None = None
        self._told = ""

    def __call__(self, job_id: str) -> bool:
        held = self._held
        return held is None or job_id in held

    def refresh(self) -> None:
        """Asks; never raises."""
        try:
            self._held, complaint = frozenset(self._ask()), ""
        except Exception as error:  # whatever it is, nobody knows what is held
            self._held, complaint = None, f"{type(error).__name__}: {error}"
        if complaint and complaint != self._told:
            log.warning("which jobs are pinned can't be known, so no logs are deleted: %s", complaint)
        self._told = complaint

    def run(self, stop: threading.Event) -> None:
        """Asks every so often, until `stop` is set."""
        while not stop.is_set():
            self.refresh()
            stop.wait(self._every_s)

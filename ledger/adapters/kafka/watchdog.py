"""Calls into librdkafka that do not come back.

Some transactional calls wait without end when a broker dies at the wrong moment, whatever time limit they are given
(librdkafka #3041, #3779, #4420; seen here with 2.16 in send_offsets_to_transaction). Nothing in the process can end such a
call, so the process leaves: it holds a lease, and another can lead once it is gone. What it had sent is judged by epoch.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledger.errors import Fenced

log = logging.getLogger("ledger.kafka")
GRACE_S = 15.0
LOOK_S = 0.5


def leave(what: str) -> None:
    """Ends the process at once, without waiting for anything that may hang as well."""
    log.critical("%s did not come back; this process leaves, so that another can lead", what)
    logging.shutdown()
    os._exit(Fenced.exit_code)


class Watchdog:
    """Watches one call at a time. stuck: told what did not come back, or that nobody watches any more. grace_s: how long
    after its own time limit a call counts as stuck."""

    def __init__(
        self, stuck: Callable[[str], None] = leave, grace_s: float = GRACE_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._stuck, self._grace_s, self._sleep = stuck, grace_s, sleep
        self._watched: tuple[str, float] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, what: str, limit_s: float) -> Iterator[None]:
        """limit_s: the time limit that the call itself was given."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
            self._thread.start()
        self._watched = (what, time.monotonic() + limit_s + self._grace_s)
        try:
            yield
        finally:
            self._watched = None

    def _look(self) -> None:
        """Without anybody who watches, a call that hangs would keep its process in office for ever: so it leaves too."""
        try:
            while True:
                self._sleep(LOOK_S)
                watched = self._watched
                if watched is not None and time.monotonic() > watched[1]:
                    self._stuck(watched[0])
                    return
        except Exception as error:
            self._stuck(f"the watchdog ({type(error).__name__}: {error})")

"""Ends the process when a call into librdkafka hangs.

Some transactional calls ignore their time limit and hang for ever if a broker dies at the wrong moment (librdkafka
#3041, #3779, #4420; seen here with 2.16 in send_offsets_to_transaction). Nothing in the process can end such a call, so
the process exits: it holds a lease, and another instance can lead only once the process is gone. Readers judge the
records that the process had sent by their epoch."""

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
    """Ends the process at once, without any cleanup that might hang too. what: the call that hangs, for the log."""
    log.critical("%s did not come back; this process exits, so that another instance can lead", what)
    logging.shutdown()
    os._exit(Fenced.exit_code)


class Watchdog:
    """Watches one call at a time. stuck: called with the name of a call that hangs, or if the watchdog itself failed.
    grace_s: seconds after the call's own time limit until the call counts as stuck."""

    def __init__(
        self, stuck: Callable[[str], None] = leave, grace_s: float = GRACE_S, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._stuck, self._grace_s, self._sleep = stuck, grace_s, sleep
        self._watched: tuple[str, float] | None = None
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, what: str, limit_s: float) -> Iterator[None]:
        """Watches the call inside the `with` block. what: the name of the call. limit_s: the time limit that the call
        itself has, in seconds."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
            self._thread.start()
        self._watched = (what, time.monotonic() + limit_s + self._grace_s)
        try:
            yield
        finally:
            self._watched = None

    def _look(self) -> None:
        """Calls `stuck` for a call that hangs, and also if this thread fails: a hanging call would then keep the
        process leader for ever."""
        try:
            while True:
                self._sleep(LOOK_S)
                watched = self._watched
                if watched is not None and time.monotonic() > watched[1]:
                    self._stuck(watched[0])
                    return
        except Exception as error:
            self._stuck(f"the watchdog ({type(error).__name__}: {error})")

"""Keeps a process running: restarts it when it ends, with exponential backoff."""

from __future__ import annotations

from collections.abc import Callable

from ledger.errors import LedgerError
from ledger.ports import Clock
from ledger.util.processes import Process, texts_of

FIRST_DELAY_S = 0.2
DELAY_MAX_S = 10.0
HEALTHY_S = 30.0  # a process that ran this long did not fail at once: the backoff is reset
REFUSED = 2  # the exit code of a role that can't work with settings, topics or data as they are
LINE_CHARS_MAX = 4096  # read of a log line, which may be a JSON object; of its text SAID_CHARS_MAX are shown
SAID_CHARS_MAX = 300
Say = Callable[[str], None]


class ProcessRestarter:
    """Restarts one process whenever it ends. Call `begin` once, then `step` repeatedly; `say` gets one line per event.

    refusals: how often in a row the process ended soon with exit code 2, which another start does not fix.
    """

    def __init__(self, process: Process, clock: Clock, say: Say) -> None:
        self.process, self._clock, self._say = process, clock, say
        self.started_here = False
        self._failures = 0
        self.refusals = 0
        self._since = self._again_at = 0.0
        self._down = True

    def begin(self) -> None:
        """Adopts the process if it runs, starts it otherwise. Raises: LedgerError if it can't be started."""
        if self.process.adopt() is not None:
            self._say(f"adopted {self.process.name} pid {self.process.pid}")
        else:
            self.process.start()
            self.started_here = True
            self._say(f"started {self.process.name} pid {self.process.pid}")
        self._since, self._down = self._clock.monotonic(), False

    def step(self) -> None:
        now = self._clock.monotonic()
        if not self._down:
            if self.process.alive():
                self.process.rotate_log()
                return
            self._fell(now)
        if self._down and now >= self._again_at:
            self._start(now)

    def _fell(self, now: float) -> None:
        if now - self._since >= HEALTHY_S:
            self._failures = self.refusals = 0
        self.refusals = self.refusals + 1 if self.process.exit_code == REFUSED else 0
        self._back_off(now)
        said = texts_of(self.process.last_line(LINE_CHARS_MAX))[0][:SAID_CHARS_MAX]
        self._say(
            f"{self.process.name} pid {self.process.pid} fell: {self.process.ended_how()}{f': {said}' if said else ''}"
        )

    def _start(self, now: float) -> None:
        try:
            self.process.start()
        except LedgerError as error:
            self._back_off(now)
            self._say(f"{self.process.name} can't be started: {error}")
            return
        self.started_here = True
        self._since, self._down = now, False
        self._say(f"started {self.process.name} pid {self.process.pid} again")

    def _back_off(self, now: float) -> None:
        self._down = True
        self._again_at = now + min(DELAY_MAX_S, FIRST_DELAY_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)

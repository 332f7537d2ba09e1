"""Notices, while leading, that the log can't be read on: somebody left a transaction open, and its end will never come.

A leader's own take-over ends what an earlier transaction of its transactional id left open (`events.noops`). So it asks
for the true ends now and then, and takes over from itself where one stays out of reach.
"""

from __future__ import annotations

from ledger.errors import Fenced, Unreachable
from ledger.ports import Clock, Reader
from ledger.roles.catching_up import CatchUp

ASK_S = 5.0
PATIENCE_S = 20.0  # twice the time after which a broker aborts a transaction that nobody ends


class Standstill:
    """Of one term's reader."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._catch_up: CatchUp | None = None
        self._at_end_at = self._asked_at = clock.monotonic()
        self._next = self._asked_at + ASK_S

    def check(self) -> float:
        """Call it again and again. When everything there was had been read last, in monotonic seconds.

        Raises: Fenced after PATIENCE_S of standing still."""
        now = self._clock.monotonic()
        if now < self._next:
            return self._at_end_at
        self._next = now + ASK_S
        behind = self._catch_up.behind(self._reader.position()) if self._catch_up else []
        if not behind:
            if self._catch_up:
                self._at_end_at = self._asked_at
            self._asked_at = now
            try:
                self._catch_up = CatchUp(self._reader.high_watermarks(), self._clock)
            except Unreachable:
                self._catch_up = None  # nobody reads on while the broker is away: that is no standstill
            else:
                self._catch_up.behind(self._reader.position())
        elif behind[0].still_s >= PATIENCE_S:
            raise Fenced(f"the log can't be read on: {behind[0]}")
        return self._at_end_at

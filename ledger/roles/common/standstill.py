"""Notices that a leader can no longer read the log: an open transaction blocks it, or the broker does not answer.

A take-over ends an open transaction of its transactional id (`events.noops`). A leader therefore asks for the high
watermarks now and then, and takes over from itself if it cannot reach one. A leader that is cut off from the broker, but
not from its election, would lead for ever if it has nothing to write. It steps down, so that another can lead.
"""

from __future__ import annotations

from ledger.errors import Fenced, Unreachable
from ledger.ports import Clock, Reader
from ledger.roles.common.catching_up import CatchUp

ASK_S = 5.0
PATIENCE_S = 20.0  # twice the time after which a broker aborts a transaction that nobody ends


class Standstill:
    """Detects that the reader of one term can no longer reach the end of the log."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._catch_up: CatchUp | None = None
        self._at_end_at = self._asked_at = self._answered_at = clock.monotonic()
        self._next = self._asked_at + ASK_S

    def check(self) -> float:
        """When the reader was last at the end of the log, in monotonic seconds. Call it repeatedly.

        Raises: Fenced after PATIENCE_S of standing still; Unreachable after PATIENCE_S without an answer."""
        now = self._clock.monotonic()
        if now < self._next:
            return self._at_end_at
        self._next = now + ASK_S
        behind = self._catch_up.behind(self._reader.position()) if self._catch_up else []
        if behind and behind[0].still_s >= PATIENCE_S:
            raise Fenced(f"the log can't be read on: {behind[0]}")
        if not behind:
            if self._catch_up:
                self._at_end_at = self._asked_at
            self._ask(now)
        return self._at_end_at

    def _ask(self, now: float) -> None:
        self._asked_at = now
        try:
            self._catch_up = CatchUp(self._reader.high_watermarks(), self._clock)
        except Unreachable:
            self._catch_up = None
            if self._clock.monotonic() - self._answered_at >= PATIENCE_S:
                raise
        else:
            self._answered_at = now
            self._catch_up.behind(self._reader.position())

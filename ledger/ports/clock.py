"""Time comes in as an argument: this is it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch, for stamps that people read and for due_at."""

    def monotonic(self) -> float:
        """Seconds that never go back: for leases and deadlines."""

    def sleep(self, seconds: float) -> None: ...

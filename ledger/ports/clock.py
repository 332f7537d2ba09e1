"""The port to the clock. Roles get their time from it only, so that tests can control it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch, for timestamps that people read and for due_at."""

    def monotonic(self) -> float:
        """Seconds that never decrease, for leases and deadlines."""

    def sleep(self, seconds: float) -> None: ...

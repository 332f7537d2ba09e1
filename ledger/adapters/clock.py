"""The real clock."""

from __future__ import annotations

import time

#: Linux's monotonic clock stands still while the machine is suspended: a leader that wakes up would believe in its lease.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `ports.Clock`. The time that a machine was suspended counts."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

"""The clock of the operating system."""

from __future__ import annotations

import time

#: Linux's CLOCK_MONOTONIC stops while the machine is suspended: after a resume a leader would still count its lease as
#: valid.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `ports.Clock`. `monotonic` includes the time for which the machine was suspended."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

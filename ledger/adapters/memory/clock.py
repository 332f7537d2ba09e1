"""A clock that moves only when its owner moves it, for tests."""

from __future__ import annotations


class ManualClock:
    """Implements `ports.Clock`. `sleep` advances the clock and returns at once."""

    def __init__(self, time_s: float = 1_750_000_000.0) -> None:
        self._time_s = time_s
        self._monotonic_s = 0.0

    def time(self) -> float:
        return self._time_s

    def monotonic(self) -> float:
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Advances the wall clock and the monotonic clock. Raises: ValueError if seconds is negative."""
        if seconds < 0:
            raise ValueError("monotonic time never goes back; to set the wall clock use jump()")
        self._time_s += seconds
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Sets the wall clock forwards or backwards, as an administrator may. The monotonic clock does not change."""
        self._time_s += seconds

"""Alarms of a leader: the times at which it must fold jobs again."""

from __future__ import annotations

import heapq
from collections.abc import Container


class Alarms:
    """A heap of times (monotonic seconds) and jobs. A job may have several alarms; an early one only costs a needless
    fold."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: float, job_id: str) -> None:
        heapq.heappush(self._heap, (at, job_id))

    def passed(self, now: float, waiting: Container[str]) -> list[str]:
        """Removes the alarms whose time has come; returns those of their jobs that still wait."""
        out = []
        while self._heap and self._heap[0][0] <= now:
            _, job_id = heapq.heappop(self._heap)
            if job_id in waiting:
                out.append(job_id)
        return out

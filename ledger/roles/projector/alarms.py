"""When jobs are to be looked at again: what the leader's clocks share."""

from __future__ import annotations

import heapq
from collections.abc import Container


class Alarms:
    """Times (monotonic seconds) and jobs, the earliest first. A job may have several: what one that is too early brings is
    a look too many."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, at: float, job_id: str) -> None:
        heapq.heappush(self._heap, (at, job_id))

    def passed(self, now: float, waiting: Container[str]) -> list[str]:
        """Takes out those whose time has come; the jobs among them that still wait."""
        out = []
        while self._heap and self._heap[0][0] <= now:
            _, job_id = heapq.heappop(self._heap)
            if job_id in waiting:
                out.append(job_id)
        return out

"""Whether a running job makes progress, by the leader's clock. Source: decision 17."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import NamedTuple

from ledger.core.model.recovery import RecoveryEntry


class _Watched(NamedTuple):
    progress_key: object
    first_seen: float  # monotonic


class StallTimes:
    """Stamps `stalls_at` and `stalled` on entries of jobs that are watched.

    `stalls_at` is stamped once for each progress_key (attempt, newest checkpoint, stalled_after_s), and the next leader
    takes it over. `stalled` is set when that time passes, or once this leader itself has seen no progress for as long; a
    new checkpoint unsets it. It is never set before this leader has watched for one checkpoint interval: neither a clock
    that is ahead nor facts delayed by an outage may mark a healthy job.
    """

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._armed: dict[str, float] = {}  # job -> when it is looked at again: one place in the heap for each
        self._heap: list[tuple[float, str]] = []

    def stamp(self, entry: RecoveryEntry, before: RecoveryEntry | None, time_s: float, now: float) -> RecoveryEntry:
        """The entry with `stalls_at` and `stalled`. time_s: seconds since the epoch. now: monotonic seconds. before:
        the last effective entry of the job, None = there is none."""
        policy = entry.stall_policy
        if policy is None:
            self._watched.pop(entry.job_id, None)
            return entry
        same = before is not None and before.stall_policy is not None and before.progress_key == entry.progress_key
        stalls_at = before.stalls_at if same and before is not None else None
        if stalls_at is None:
            stalls_at = round(time_s + policy.stalled_after_s, 3)
        watched = self._watched.get(entry.job_id)
        if watched is None or watched.progress_key != entry.progress_key:
            watched = _Watched(entry.progress_key, now)
        self._watched[entry.job_id] = watched
        patience_ends = watched.first_seen + policy.stalled_after_s
        may_judge = watched.first_seen + policy.checkpoint_interval_s
        stalled = (
            (same and before is not None and before.stalled)
            or now >= patience_ends
            or (time_s >= stalls_at and now >= may_judge)
        )
        if not stalled:
            self._arm(entry.job_id, min(patience_ends, max(may_judge, now + stalls_at - time_s)))
        return replace(entry, stalls_at=stalls_at, stalled=bool(stalled))

    def forget(self, job_id: str) -> None:
        self._watched.pop(job_id, None)

    def passed(self, now: float) -> list[str]:
        """Jobs to fold again, because their time may have come."""
        out = []
        while self._heap and self._heap[0][0] <= now:
            at, job_id = heapq.heappop(self._heap)
            if self._armed.get(job_id) == at:
                del self._armed[job_id]
                if job_id in self._watched:
                    out.append(job_id)
        return out

    def _arm(self, job_id: str, at: float) -> None:
        """Arms the earliest time. A job that makes progress moves its time on; it is folded again when the first comes."""
        if at < self._armed.get(job_id, at + 1):
            self._armed[job_id] = at
            heapq.heappush(self._heap, (at, job_id))

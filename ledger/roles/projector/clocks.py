"""The times that a leader stamps on the entries that it publishes, since the fold knows no time."""

from __future__ import annotations

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model.recovery import RecoveryEntry
from ledger.roles.projector.due import DueTimes
from ledger.roles.projector.savepoint_times import SavepointTimes
from ledger.roles.projector.stalls import StallTimes


class LeaderClocks:
    """Stamps times on entries: when restarts are due, when running jobs stall, when savepoints are due. Each leader
    begins with new clocks and takes the stamps over from the published entries."""

    def __init__(self) -> None:
        self._clocks = DueTimes(), StallTimes(), SavepointTimes()

    def fold(self, job: Job, keep: int, before: RecoveryEntry | None, time_s: float, now: float) -> RecoveryEntry | None:
        """The entry of a job with its stamps; None if the job is unknown or retired.

        before: the last published entry of the job. time_s: seconds since the epoch. now: monotonic seconds."""
        entry = fold_job(job, keep)
        if entry is None:
            for clock in self._clocks:
                clock.forget(job.job_id)
            return None
        for clock in self._clocks:
            entry = clock.stamp(entry, before, time_s, now)
        return entry

    def passed(self, now: float) -> list[str]:
        """Jobs to fold again, because one of their times may have come."""
        return [job_id for clock in self._clocks for job_id in clock.passed(now)]

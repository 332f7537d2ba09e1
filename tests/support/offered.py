"""All restore points that a job could be offered, also those beyond an entry's limit."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.core.fold import restore_points
from ledger.core.fold.job import Job
from ledger.core.model.facts import RestoreBy, RestorePoint


def offered(job: Job) -> Iterator[RestorePoint]:
    """Restore points for the next start, best first, without disposed savepoints and without a limit."""
    if job.spec is not None and job.spec.restore is RestoreBy.EXTERNAL:
        return iter(())
    return (point for point in restore_points.path(job) if job.disposal(*point.order) is None)

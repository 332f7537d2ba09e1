"""The last failures of a job, for people who decide what to do about the job."""

from __future__ import annotations

from typing import NamedTuple

from ledger.core.fold.job import Job, is_runner
from ledger.core.model.registers import FAILURES, Outcome


class Failure(NamedTuple):
    """A failed attempt. by_runner: True = the runner reported the failure, False = the reconciler decided it. cause:
    the reason, with the last lines that a process of the attempt printed on stderr. ran_for_s: how long the attempt
    ran, in seconds; 0 = unknown."""

    attempt: int
    outcome: Outcome
    by_runner: bool
    cause: str
    ran_for_s: float


def last_failures(job: Job) -> tuple[Failure, ...]:
    """The newest failure of a job; () if it has none. If the reconciler decided that failure, also the newest failure
    that the runner reported: the first explains why the job is not started any more, the second what made the job fail.
    Only the end that counts for an attempt is considered."""
    found: list[Failure] = []
    for n in sorted(job.ends, reverse=True):
        end = job.end(n)
        if end is None or end[0].outcome not in FAILURES:
            continue
        failure = Failure(n, end[0].outcome, is_runner(end[0].writer), end[1].cause, end[1].ran_for_s)
        if failure.by_runner:
            return (*found, failure)
        if not found:
            found.append(failure)
    return tuple(found)

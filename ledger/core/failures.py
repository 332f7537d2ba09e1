"""What last went wrong with a job, by the facts: for people who have to decide what is to be done about it."""

from __future__ import annotations

from typing import NamedTuple

from ledger.core.fold.job import Job, is_runner

FAILED = ("failed-permanent", "failed", "lost")


class Failure(NamedTuple):
    """An attempt's end that was not well. by_runner: the runner's own word, else a verdict of the reconciler. cause: what
    happened, and of a process the last lines that it printed on stderr. ran_for_s: 0 = nobody knows."""

    attempt: int
    outcome: str
    by_runner: bool
    cause: str
    ran_for_s: float


def last_failures(job: Job) -> tuple[Failure, ...]:
    """The newest failure; where that is a verdict, then also the newest that the runner told of: the one says why the job
    is not started any more, the other what made it fail. Ends that a later one of the same attempt overrules are none."""
    found: list[Failure] = []
    for n in sorted(job.ends, reverse=True):
        end = job.end(n)
        if end is None or end[0].outcome not in FAILED:
            continue
        failure = Failure(n, end[0].outcome, is_runner(end[0].writer), end[1].cause, end[1].ran_for_s)
        if failure.by_runner:
            return (*found, failure)
        if not found:
            found.append(failure)
    return tuple(found)

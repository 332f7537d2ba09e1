"""Histories written by hand about failures: how they are counted, and how long a restart waits."""

from __future__ import annotations

from ledger.core.model.facts import AttemptEnded, AttemptStarted, RestartKind
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Attempt, Ended
from tests.laws.directed import Hand, by_hand
from tests.laws.drawn import World
from tests.laws.histories import DIGEST


@by_hand
def a_crash_during_a_stop_is_the_stop() -> None:
    """The outcome of the stop order takes precedence over the exit code. It does not count against the budget."""
    job = Hand()
    job.attempt(1, failures=1)
    job.end(1, "failed")
    job.end(1, "stopped")
    assert job.entry().state is JobState.RESTARTING and job.entry().failures == 1


def _failed_at_a_rate(before_s: float, recorded_at: float, ran_for_s: float) -> JobState:
    """The state of a job that may fail once in 135 s and has failed twice."""
    job = Hand(World(RestartKind.FAILURE_RATE))
    job.log.send(Attempt(2, 1), AttemptStarted(DIGEST, failures=1, failure_times=(before_s,), recorded_at=recorded_at))
    job.log.send(Ended(2, "failed", "agent-1"), AttemptEnded(ran_for_s=ran_for_s))
    return job.entry().state


@by_hand
def a_rate_counts_the_newest_failure() -> None:
    assert _failed_at_a_rate(100.0, recorded_at=150.0, ran_for_s=10.0) is JobState.QUARANTINED


@by_hand
def a_rate_counts_from_failure_to_failure() -> None:
    """The interval is between two failures, not between a failure and the start that followed it."""
    assert _failed_at_a_rate(100.0, recorded_at=200.0, ran_for_s=60.0) is JobState.RESTARTING


@by_hand
def failures_are_what_the_record_says() -> None:
    job = Hand()
    job.attempt(7, failures=3)
    assert job.entry().failures == 3


@by_hand
def a_retry_forgives_failures_and_their_times() -> None:
    job = Hand(World(RestartKind.FAILURE_RATE))
    job.log.send(Attempt(2, 1), AttemptStarted(DIGEST, failures=1, failure_times=(100.0,), recorded_at=150.0))
    job.end(2, "failed-permanent")
    job.intend(1, "RETRY", 2)
    assert job.entry().failure_times == () and job.entry().failures == 0


@by_hand
def how_long_an_attempt_ran_is_what_its_end_says() -> None:
    """The append time of the end does not matter."""
    for time_s in (0.0, 1e6):
        job = Hand(World(RestartKind.EXPONENTIAL_DELAY))
        job.attempt(1, failures=1)
        job.log.send(Ended(1, "failed", "agent-1"), AttemptEnded(ran_for_s=1.0), time_s=time_s)
        assert job.entry().failures == 2


@by_hand
def jitter_leads_no_job_beyond_the_longest_delay() -> None:
    """Among six attempts, some jitter increases the delay."""
    for n in range(1, 7):
        job = Hand(World(RestartKind.EXPONENTIAL_DELAY))
        job.attempt(n, failures=1)
        job.log.send(Ended(n, "failed", "agent-1"), AttemptEnded(ran_for_s=1.0))
        assert job.entry().restart_delay_s <= 1.5

"""Restart policies as arithmetic on what the log holds: Flink's meanings and defaults, without a clock.

Failures in a row and the times of the recent ones travel in `attempt/<n>/<epoch>`, healthy time in `ended/…`
(`ran_for_s`), so a budget survives any failover, and two leaders always reckon the same. Source: Flink
restart-strategy.type; docs/decisions/0016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from ledger.core.model.facts import AttemptStarted, RestartKind, RestartPolicy

FAILURES_MAX = 2**31 - 1  # a counter that arrives full stays full, and still fits where it is stored


class RestartDecision(NamedTuple):
    """The decision on one more failure. failures: in a row, this one included. delay_s: until the restart. exhausted:
    no restart follows. failed_at: when the attempt failed, in seconds since the epoch; None = unknown."""

    failures: int
    exhausted: bool
    delay_s: float
    failed_at: float | None = None


class FailureHistory(NamedTuple):
    """Failures before an attempt, from its record. failures: in a row. times, recorded_at: of recent failures and of the
    record, in seconds since the epoch. All are finite: NaN never equals itself, so it would be published again for ever."""

    failures: int = 0
    times: tuple[float, ...] = ()
    recorded_at: float | None = None


def past(record: AttemptStarted | None) -> FailureHistory:
    """The failures before the attempt of this record; no failures if the record is None."""
    if record is None:
        return FailureHistory()
    return FailureHistory(record.failures, tuple(t for t in record.failure_times if math.isfinite(t)), record.recorded_at)


def after_failure(
    policy: RestartPolicy, past: FailureHistory, ran_for_s: float, job_id: str, next_attempt: int
) -> RestartDecision:
    """The decision on an attempt that failed or was lost.

    past: the failures that the attempt's record names. ran_for_s: seconds, as the attempt's end reports; 0 = unknown.

    FIXED_DELAY: always delay_s. EXPONENTIAL_DELAY: delay_s * multiplier^(failures-1), with jitter, at most delay_max_s; an
    attempt that ran for reset_after_s resets the count. NONE: the first failure exhausts the policy. FAILURE_RATE: always
    delay_s; more than failures_per_interval failures within failure_rate_interval_s exhaust the policy.
    Never raises for a valid policy (`core.model.policies`), whatever the counters.
    """
    failures = min(max(past.failures, 0), FAILURES_MAX - 1) + 1
    if policy.kind is RestartKind.NONE:
        return RestartDecision(failures, True, 0.0)
    if policy.kind is RestartKind.FIXED_DELAY:
        return RestartDecision(failures, 0 < policy.attempts_max < failures, policy.delay_s)
    if policy.kind is RestartKind.FAILURE_RATE:
        failed_at = _failed_at(ran_for_s, past.recorded_at)
        exceeded = _exceeded(policy, past.times, failed_at, past.recorded_at)
        return RestartDecision(failures, exceeded, policy.delay_s, failed_at)
    failures = 1 if ran_for_s >= policy.reset_after_s else failures
    delay_s = _backoff(policy, failures) * (1 + policy.jitter * (2 * _fraction(job_id, next_attempt) - 1))
    # The cap comes last, behind the jitter, as in Flink's ExponentialDelayRestartBackoffTimeStrategy.
    return RestartDecision(failures, 0 < policy.attempts_max < failures, min(round(delay_s, 3), policy.delay_max_s))


def used_up(policy: RestartPolicy, failures: int) -> str:
    """The reason, for people, that a restart policy is exhausted."""
    if policy.kind is RestartKind.FAILURE_RATE:
        allowed, interval_s = policy.failures_per_interval, policy.failure_rate_interval_s
        return f"restart policy used up: more than {allowed} failures within {interval_s:g} s"
    return f"restart policy used up after {failures} failures in a row"


def _failed_at(ran_for_s: float, recorded_at: float | None) -> float | None:
    """The reconciler's clock when it recorded the attempt, plus the seconds that the runner measured."""
    if recorded_at is None or not 0 < ran_for_s < math.inf or not math.isfinite(recorded_at + ran_for_s):
        return None
    return recorded_at + ran_for_s


def _exceeded(policy: RestartPolicy, times: Sequence[float], failed_at: float | None, recorded_at: float | None) -> bool:
    """Whether too many failures lie in the interval that ends with the newest failure of known time.

    A failure of unknown time (a lost attempt) counts from the next attempt on, with the time at which it was seen. A time
    from a clock that was far ahead is as distant as one in the past, so it does not count for ever."""
    known = [*times, failed_at] if failed_at is not None else list(times)
    end = failed_at if failed_at is not None else recorded_at
    if end is None:
        end = known[-1] if known else 0.0
    within = sum(1 for time_s in known if abs(end - time_s) < policy.failure_rate_interval_s)
    return within > policy.failures_per_interval


def _backoff(policy: RestartPolicy, failures: int) -> float:
    """Seconds before the cap and the jitter. Multiplication alone gives the same bits on every machine; pow() does not."""
    delay_s, factor, exponent = policy.delay_s, policy.multiplier, failures - 1
    while exponent and 0 < delay_s < policy.delay_max_s:
        if exponent & 1:
            delay_s *= factor
        factor *= factor  # may overflow to infinity, which the cap takes in
        exponent >>= 1
    return min(delay_s, policy.delay_max_s)


def _fraction(job_id: str, next_attempt: int) -> float:
    """A hash in [0, 1) instead of a random number, so that every leader computes the same jitter."""
    return int.from_bytes(sha256(f"{job_id}/{next_attempt}".encode()).digest()[:6], "big") / 2**48

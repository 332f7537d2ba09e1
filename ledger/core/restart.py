"""Restart policies as arithmetic on what the log holds: Flink's meanings and defaults, without a clock.

A failure counter travels in `attempt/<n>/<epoch>` and healthy time in `ended/…` (`ran_for_s`), so a budget survives
any failover, and two leaders always reckon the same. Source: Flink restart-strategy.type; docs/decisions.
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from ledger.core.facts import OnExhausted, RestartKind, RestartPolicy

NUMBER_MAX = 1e9  # of a policy: seconds enough for 30 years, and far from where floats overflow
FAILURES_MAX = 2**31 - 1  # a counter that arrives full stays full, and still fits where it is stored


class Verdict(NamedTuple):
    """What follows from one more failure. failures: in a row, this one included."""

    failures: int
    exhausted: bool
    delay_s: float


def problem(policy: RestartPolicy) -> str:
    """Why this policy can't be followed; "" if it can. A spec with such a policy is not started."""
    if policy.kind is RestartKind.UNKNOWN:
        return "the restart policy is of a kind that this version does not know"
    if policy.on_exhausted is OnExhausted.UNKNOWN:
        return "on_exhausted has a value that this version does not know"
    for name in ("delay_s", "delay_max_s", "reset_after_s", "jitter", "multiplier"):
        value = getattr(policy, name)
        if not 0 <= value <= NUMBER_MAX:  # false for NaN too
            return f"restart_policy.{name} is {value}; it must be a number from 0 to {NUMBER_MAX:.0e}"
    if policy.multiplier < 1 or policy.jitter > 1 or policy.attempts_max < 0:
        return "restart_policy needs multiplier >= 1, 0 <= jitter <= 1 and attempts_max >= 0"
    return ""


def after_failure(policy: RestartPolicy, failures: int, ran_for_s: float, job_id: str, next_attempt: int) -> Verdict:
    """The verdict on an attempt that failed or was lost after `failures` failures in a row before it.

    FIXED_DELAY: always delay_s. EXPONENTIAL_DELAY: delay_s * multiplier^(failures-1), at most delay_max_s, give or take
    jitter; an attempt that ran for reset_after_s begins the row anew. NONE: the first failure exhausts.
    Total for a policy that has no `problem`, whatever the counters.
    """
    failures = min(max(failures, 0), FAILURES_MAX - 1) + 1
    if policy.kind is RestartKind.NONE:
        return Verdict(failures, True, 0.0)
    if policy.kind is RestartKind.FIXED_DELAY:
        return Verdict(failures, 0 < policy.attempts_max < failures, policy.delay_s)
    failures = 1 if ran_for_s >= policy.reset_after_s else failures
    delay_s = _backoff(policy, failures) * (1 + policy.jitter * (2 * _fraction(job_id, next_attempt) - 1))
    return Verdict(failures, 0 < policy.attempts_max < failures, round(delay_s, 3))


def _backoff(policy: RestartPolicy, failures: int) -> float:
    """By multiplication alone: equal to the bit on every machine, as the powers of a mathematical library are not."""
    delay_s, factor, exponent = policy.delay_s, policy.multiplier, failures - 1
    while exponent and 0 < delay_s < policy.delay_max_s:
        if exponent & 1:
            delay_s *= factor
        factor *= factor  # may overflow to infinity, which the cap takes in
        exponent >>= 1
    return min(delay_s, policy.delay_max_s)


def _fraction(job_id: str, next_attempt: int) -> float:
    """Jitter that every leader reckons alike: a hash in [0, 1) instead of chance."""
    return int.from_bytes(sha256(f"{job_id}/{next_attempt}".encode()).digest()[:6], "big") / 2**48

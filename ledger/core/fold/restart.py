"""Restart policies as arithmetic on what the log holds: Flink's meanings and defaults, without a clock.

Failures in a row and the times of the recent ones travel in `attempt/<n>/<epoch>`, healthy time in `ended/…`
(`ran_for_s`), so a budget survives any failover, and two leaders always reckon the same. Source: Flink
restart-strategy.type; docs/decisions/0016.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from ledger.core.model.facts import (
    AttemptStarted,
    FailureRule,
    OnExhausted,
    OnStall,
    RestartKind,
    RestartPolicy,
    StallPolicy,
)

NUMBER_MAX = 1e9  # of a policy: seconds enough for 30 years, and far from where floats overflow
FAILURES_MAX = 2**31 - 1  # a counter that arrives full stays full, and still fits where it is stored
FAILURE_TIMES_MAX = 100  # that travel in `attempt`; hence the most that a failure rate can allow
RULES_MAX = 50
PATTERN_CHARS_MAX = 1_000
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


class RestartDecision(NamedTuple):
    """What follows from one more failure. failures: in a row, this one included. failed_at: when it failed, in seconds
    since the epoch; None = nobody knows."""

    failures: int
    exhausted: bool
    delay_s: float
    failed_at: float | None = None


def problem(policy: RestartPolicy) -> str:
    """Why this policy can't be followed; "" if it can. A spec with such a policy is not started."""
    if policy.kind is RestartKind.UNKNOWN:
        return "the restart policy is of a kind that this version does not know"
    if policy.on_exhausted is OnExhausted.UNKNOWN:
        return "on_exhausted has a value that this version does not know"
    for name in ("delay_s", "delay_max_s", "reset_after_s", "jitter", "multiplier", "failure_rate_interval_s"):
        value = getattr(policy, name)
        if not 0 <= value <= NUMBER_MAX:  # false for NaN too
            return f"restart_policy.{name} is {value}; it must be a number from 0 to {NUMBER_MAX:.0e}"
    if policy.multiplier < 1 or policy.jitter > 1 or policy.attempts_max < 0:
        return "restart_policy needs multiplier >= 1, 0 <= jitter <= 1 and attempts_max >= 0"
    if not 1 <= policy.failures_per_interval <= FAILURE_TIMES_MAX:
        return f"restart_policy.failures_per_interval is {policy.failures_per_interval}, not 1 to {FAILURE_TIMES_MAX}"
    if policy.kind is RestartKind.FAILURE_RATE and policy.failure_rate_interval_s == 0:
        return "restart_policy.failure_rate_interval_s is 0: within no time there are no failures to count"
    if len(policy.failure_rules) > RULES_MAX:
        return f"restart_policy has {len(policy.failure_rules)} failure_rules, more than {RULES_MAX}"
    return next((why for rule in policy.failure_rules if (why := _rule_problem(rule))), "")


def _rule_problem(rule: FailureRule) -> str:
    """Whether the pattern is one is for the runner to say: this must not depend on a version of Python."""
    if not _LABEL.match(rule.label):
        return f"a failure rule's label is {rule.label[:80]!r}; it takes letters, digits, '.', '_' and '-', 64 at most"
    if rule.exit_code is not None and not 1 <= rule.exit_code <= 255:
        return f"the failure rule {rule.label} has the exit code {rule.exit_code}; it must be 1 to 255"
    if len(rule.pattern) > PATTERN_CHARS_MAX:
        return f"the failure rule {rule.label} has a pattern of more than {PATTERN_CHARS_MAX} characters"
    if rule.exit_code is None and not rule.pattern:
        return f"the failure rule {rule.label} needs an exit code or a pattern"
    return ""


def stall_problem(policy: StallPolicy) -> str:
    """Why nobody can watch by this policy; "" if one can, or need not. A spec with such a policy is not started."""
    if policy.on_stall is OnStall.UNKNOWN:
        return "on_stall has a value that this version does not know"
    if not (0 <= policy.checkpoint_interval_s <= NUMBER_MAX and 1 <= policy.intervals_max <= NUMBER_MAX):
        return f"stall_policy needs checkpoint_interval_s from 0 to {NUMBER_MAX:.0e} and intervals_max from 1 on"
    return ""


class FailureHistory(NamedTuple):
    """What the record of an attempt says of failures before it: how many in a row, when the recent ones were, and when
    it was recorded itself. Times are finite: NaN is never equal to itself, and would be published again for ever."""

    failures: int = 0
    times: tuple[float, ...] = ()
    recorded_at: float | None = None


def past(record: AttemptStarted | None) -> FailureHistory:
    if record is None:
        return FailureHistory()
    return FailureHistory(record.failures, tuple(t for t in record.failure_times if math.isfinite(t)), record.recorded_at)


def judge(
    policy: RestartPolicy, past: FailureHistory, ran_for_s: float | None, job_id: str, next_attempt: int
) -> RestartDecision:
    """ran_for_s: of the attempt that failed; None = it did not, and nothing is to be judged."""
    if ran_for_s is None:
        return RestartDecision(past.failures, False, 0.0)
    return after_failure(policy, past.failures, ran_for_s, job_id, next_attempt, past.times, past.recorded_at)


def after_failure(
    policy: RestartPolicy, failures: int, ran_for_s: float, job_id: str, next_attempt: int,
    times: Sequence[float] = (), recorded_at: float | None = None,
) -> RestartDecision:  # fmt: skip
    """The verdict on an attempt that failed or was lost.

    failures, times, recorded_at: what its record says: failures in a row before it, when the recent ones were, and when
    it was recorded itself. ran_for_s: what its end says, 0 = nobody knows.

    FIXED_DELAY: always delay_s. EXPONENTIAL_DELAY: delay_s * multiplier^(failures-1), give or take jitter, at most
    delay_max_s; an attempt that ran for reset_after_s begins the row anew. NONE: the first failure exhausts. FAILURE_RATE:
    always delay_s; more than failures_per_interval failures within failure_rate_interval_s exhaust.
    Total for a policy that has no `problem`, whatever the counters.
    """
    failures = min(max(failures, 0), FAILURES_MAX - 1) + 1
    if policy.kind is RestartKind.NONE:
        return RestartDecision(failures, True, 0.0)
    if policy.kind is RestartKind.FIXED_DELAY:
        return RestartDecision(failures, 0 < policy.attempts_max < failures, policy.delay_s)
    if policy.kind is RestartKind.FAILURE_RATE:
        failed_at = _failed_at(ran_for_s, recorded_at)
        return RestartDecision(failures, _exceeded(policy, times, failed_at, recorded_at), policy.delay_s, failed_at)
    failures = 1 if ran_for_s >= policy.reset_after_s else failures
    delay_s = _backoff(policy, failures) * (1 + policy.jitter * (2 * _fraction(job_id, next_attempt) - 1))
    # The cap comes last, behind the jitter, as in Flink's ExponentialDelayRestartBackoffTimeStrategy.
    return RestartDecision(failures, 0 < policy.attempts_max < failures, min(round(delay_s, 3), policy.delay_max_s))


def used_up(policy: RestartPolicy, failures: int) -> str:
    """In words, once a verdict says `exhausted`."""
    if policy.kind is RestartKind.FAILURE_RATE:
        allowed, interval_s = policy.failures_per_interval, policy.failure_rate_interval_s
        return f"restart policy used up: more than {allowed} failures within {interval_s:g} s"
    return f"restart policy used up after {failures} failures in a row"


def _failed_at(ran_for_s: float, recorded_at: float | None) -> float | None:
    """By the reconciler's clock when the attempt was recorded, and the runner's stopwatch from then on."""
    if recorded_at is None or not 0 < ran_for_s < math.inf or not math.isfinite(recorded_at + ran_for_s):
        return None
    return recorded_at + ran_for_s


def _exceeded(policy: RestartPolicy, times: Sequence[float], failed_at: float | None, recorded_at: float | None) -> bool:
    """Whether there were too many failures in the interval that ends with the newest of which one knows when it was.

    A failure whose time nobody knows (a lost attempt's) counts from the next attempt on, with the time at which it was
    seen. A time from a clock that was far ahead is as far away as one that lies back: it does not count for ever."""
    known = [*times, failed_at] if failed_at is not None else list(times)
    end = failed_at if failed_at is not None else recorded_at
    if end is None:
        end = known[-1] if known else 0.0
    within = sum(1 for time_s in known if abs(end - time_s) < policy.failure_rate_interval_s)
    return within > policy.failures_per_interval


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

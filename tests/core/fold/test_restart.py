"""Restart policies: the decision after one more failure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.fold.restart import FAILURES_MAX, FailureHistory, RestartDecision, after_failure
from ledger.core.model.facts import FailureRule, OnExhausted, OnStall, RestartKind, RestartPolicy, StallPolicy
from ledger.core.model.policies import FAILURE_TIMES_MAX, restart_problem, stall_problem

NONE = RestartPolicy(RestartKind.NONE)
FIXED = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=3, delay_s=7.0)
EXPONENTIAL = RestartPolicy(
    RestartKind.EXPONENTIAL_DELAY, attempts_max=0, delay_s=1.0, delay_max_s=60.0, multiplier=2.0, jitter=0.0,
    reset_after_s=3600.0,
)  # fmt: skip
RATE = RestartPolicy(RestartKind.FAILURE_RATE, delay_s=5.0, failures_per_interval=2, failure_rate_interval_s=60.0)


def after(policy, failures, ran_for_s, job_id, next_attempt, times=(), recorded_at=None) -> RestartDecision:
    return after_failure(policy, FailureHistory(failures, tuple(times), recorded_at), ran_for_s, job_id, next_attempt)


def with_(policy: RestartPolicy, **fields):
    return RestartPolicy(**{**{name: getattr(policy, name) for name in policy.__slots__}, **fields})


@pytest.mark.parametrize(
    ("policy", "failures", "ran_for_s", "expect"),
    [
        (NONE, 0, 0.0, (1, True, 0.0)),
        (NONE, 5, 1e9, (6, True, 0.0)),
        (FIXED, 0, 0.0, (1, False, 7.0)),
        (FIXED, 2, 0.0, (3, False, 7.0)),  # three restarts are allowed …
        (FIXED, 3, 0.0, (4, True, 7.0)),  # … and the fourth failure exhausts the budget
        (FIXED, 3, 1e9, (4, True, 7.0)),  # time without a failure resets only the exponential delay
        (with_(FIXED, attempts_max=0), 10**6, 0.0, (10**6 + 1, False, 7.0)),
        (EXPONENTIAL, 0, 0.0, (1, False, 1.0)),
        (EXPONENTIAL, 1, 0.0, (2, False, 2.0)),
        (EXPONENTIAL, 4, 0.0, (5, False, 16.0)),
        (EXPONENTIAL, 5, 0.0, (6, False, 32.0)),
        (EXPONENTIAL, 6, 0.0, (7, False, 60.0)),  # the maximum delay
        (EXPONENTIAL, 10**9, 0.0, (10**9 + 1, False, 60.0)),
        (EXPONENTIAL, 4, 3599.9, (5, False, 16.0)),
        (EXPONENTIAL, 4, 3600.0, (1, False, 1.0)),  # the attempt ran long enough: the failure count starts again
        (EXPONENTIAL, 4, math.inf, (1, False, 1.0)),
        (EXPONENTIAL, 4, math.nan, (5, False, 16.0)),
        (with_(EXPONENTIAL, attempts_max=2), 1, 0.0, (2, False, 2.0)),
        (with_(EXPONENTIAL, attempts_max=2), 2, 0.0, (3, True, 4.0)),
        (with_(EXPONENTIAL, attempts_max=2), 2, 3600.0, (1, False, 1.0)),
        (with_(EXPONENTIAL, multiplier=1.0), 10**6, 0.0, (10**6 + 1, False, 1.0)),
        (with_(EXPONENTIAL, delay_s=0.0, multiplier=1e9), 10**6, 0.0, (10**6 + 1, False, 0.0)),
        (with_(EXPONENTIAL, delay_s=90.0), 0, 0.0, (1, False, 60.0)),
        (with_(EXPONENTIAL, delay_max_s=0.0), 3, 0.0, (4, False, 0.0)),
        (with_(EXPONENTIAL, reset_after_s=0.0), 9, 0.0, (1, False, 1.0)),
        # a small multiplier reaches the maximum too, however long it takes: 1.001^9999 = 21937
        (with_(EXPONENTIAL, multiplier=1.001), 1023, 0.0, (1024, False, 2.78)),
        (with_(EXPONENTIAL, multiplier=1.001), 9999, 0.0, (10000, False, 60.0)),
    ],
)
def test_after_failure(policy, failures, ran_for_s, expect):
    got = after(policy, failures, ran_for_s, "job-1", 2)
    assert (got.failures, got.exhausted) == expect[:2]
    assert got.delay_s == pytest.approx(expect[2], abs=0.001)


@pytest.mark.parametrize("kind", [RestartKind.NONE, RestartKind.FIXED_DELAY, RestartKind.EXPONENTIAL_DELAY])
@pytest.mark.parametrize("failures", [-(2**63), -1, 2**31 - 1, 2**63 - 1])
def test_counters_that_nobody_sane_wrote_stay_in_bounds(kind, failures):
    got = after(with_(EXPONENTIAL, kind=kind), failures, 0.0, "job-1", 2)
    assert 1 <= got.failures <= FAILURES_MAX
    assert 0 <= got.delay_s <= 60


def test_jitter_is_the_same_for_every_leader_and_different_for_every_start():
    policy = with_(EXPONENTIAL, jitter=0.1, delay_s=10.0)
    delays = {(job, n): after(policy, 0, 0.0, job, n).delay_s for job in ("job-1", "job-2") for n in range(2, 300)}
    assert all(9.0 <= delay <= 11.0 for delay in delays.values())
    assert len(set(delays.values())) > 500, "jitter spreads the delays"
    assert min(delays.values()) < 9.1 and max(delays.values()) > 10.9, "jitter uses its whole range"
    assert delays == {(job, n): after(policy, 0, 0.0, job, n).delay_s for job, n in delays}


@pytest.mark.parametrize("jitter", [0.1, 1.0])
def test_jitter_never_exceeds_the_longest_delay(jitter):
    policy = with_(EXPONENTIAL, jitter=jitter)
    delays = [after(policy, 50, 0.0, "job-1", n).delay_s for n in range(2, 200)]
    assert 0 <= min(delays) < 60 == max(delays)


def test_rounding_never_exceeds_the_longest_delay():
    policy = with_(EXPONENTIAL, delay_max_s=0.0016)
    assert after(policy, 50, 0.0, "job-1", 2).delay_s == 0.0016


@pytest.mark.parametrize("policy", [NONE, FIXED, EXPONENTIAL, RATE, RestartPolicy()])
def test_policies_without_a_problem(policy):
    assert restart_problem(policy) == ""


@pytest.mark.parametrize(
    "name", ["delay_s", "delay_max_s", "multiplier", "jitter", "reset_after_s", "failure_rate_interval_s"]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308])
@pytest.mark.parametrize("kind", [RestartKind.NONE, RestartKind.FIXED_DELAY, RestartKind.EXPONENTIAL_DELAY])
def test_numbers_that_are_none_are_a_problem_that_names_the_field(kind, name, value):
    assert name in restart_problem(with_(EXPONENTIAL, kind=kind, **{name: value}))


@pytest.mark.parametrize(
    "fields",
    [{"multiplier": 0.5}, {"jitter": 1.5}, {"attempts_max": -1}, {"kind": RestartKind.UNKNOWN},
     {"on_exhausted": OnExhausted.UNKNOWN}, {"failures_per_interval": 0}, {"failures_per_interval": 101},
     {"failure_rules": (FailureRule("", 1),)}, {"failure_rules": (FailureRule("two words", 1),)},
     {"failure_rules": (FailureRule("a", 0),)}, {"failure_rules": (FailureRule("a", 256),)},
     {"failure_rules": (FailureRule("a"),)}, {"failure_rules": (FailureRule("a", None, "x" * 1001),)},
     {"failure_rules": (FailureRule("a", 1),) * 51}],
)  # fmt: skip
def test_other_problems(fields):
    assert restart_problem(with_(EXPONENTIAL, **fields)) != ""


@pytest.mark.parametrize(
    "policy",
    [StallPolicy(on_stall=OnStall.UNKNOWN), StallPolicy(-1.0), StallPolicy(math.nan), StallPolicy(1.0, 0),
     StallPolicy(1e10)],
)  # fmt: skip
def test_stall_policies_by_which_nobody_can_watch(policy):
    assert stall_problem(policy) != ""
    assert stall_problem(StallPolicy()) == stall_problem(StallPolicy(30.0, 1, OnStall.RESTART)) == ""


# -- failure rate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "recorded_at", "ran_for_s", "failed_at", "exhausted"),
    [
        ((), 100.0, 1.0, 101.0, False),
        ((90.0,), 100.0, 1.0, 101.0, False),  # after two failures within a minute the job restarts …
        ((80.0, 90.0), 100.0, 1.0, 101.0, True),  # … and the third is one too many
        ((80.0, 90.0), 100.0, 39.0, 139.0, True),
        ((80.0, 90.0), 100.0, 40.0, 140.0, False),  # the first failure is a whole minute ago
        ((1.0, 2.0, 3.0), 100.0, 1.0, 101.0, False),
        ((1.0, 2.0, 3.0), 3.5, 100.0, 103.5, False),
        # The job was stopped and resumed: the time in between counts, though no attempt ran.
        ((80.0, 90.0), 5000.0, 1.0, 5001.0, False),
        # The time of the failure is unknown. It counts from the next attempt on, whose record says when it was noticed.
        ((80.0, 90.0), 100.0, 0.0, None, False),
        ((80.0, 90.0, 100.0), 100.0, 0.0, None, True),
        ((80.0, 90.0), None, 1.0, None, False),  # a record of an older release
        ((80.0, 90.0, 100.0), None, 1.0, None, True),
        ((), None, 0.0, None, False),
        # clocks of leaders that were far off
        ((9e9, 9e9, 9e9), 100.0, 1.0, 101.0, False),
        ((100.5, 102.0), 100.0, 1.0, 101.0, True),
    ],
)
def test_a_failure_rate(times, recorded_at, ran_for_s, failed_at, exhausted):
    got = after(RATE, 7, ran_for_s, "job-1", 2, times, recorded_at)
    assert got == (8, exhausted, 5.0, failed_at)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1.0, 1e308])
def test_a_failure_rate_is_total(number):
    for times, recorded_at, ran_for_s in (((number,), 1.0, 1.0), ((1.0,), number, 1.0), ((1.0,), 1.0, number)):
        got = after(RATE, 0, ran_for_s, "job-1", 2, times, recorded_at)
        assert not got.exhausted
        assert got.failed_at is None or math.isfinite(got.failed_at)


TIMES = st.lists(st.integers(0, 500), max_size=20).map(sorted)
RATES = st.builds(
    RestartPolicy, st.just(RestartKind.FAILURE_RATE), delay_s=st.integers(0, 9).map(float),
    failures_per_interval=st.integers(1, 6), failure_rate_interval_s=st.integers(1, 200).map(float),
)  # fmt: skip


class Job:
    """A job that fails at given moments, with the log that the roles would write about it. Each attempt starts when the
    one before failed, or later; its record is written at that time."""

    def __init__(self, policy):
        self.policy, self.times, self.recorded_at = policy, (), 0.0

    def fails(self, at, known=True, seen=None):
        """at: when the job fails. seen: when a reconciler records the next attempt."""
        ran_for_s = at - self.recorded_at if known else 0.0
        got = after(self.policy, 0, ran_for_s, "job-1", 2, self.times, self.recorded_at)
        seen = at if seen is None else seen
        self.times = (*self.times, seen if got.failed_at is None else got.failed_at)[-FAILURE_TIMES_MAX:]
        self.recorded_at = seen
        return got.exhausted


@given(RATES, TIMES)
def test_law_exhausted_is_more_failures_than_allowed_in_the_interval_before(policy, moments):
    """The true times of all failures count, however late each was noticed."""
    job, moments = Job(policy), sorted({float(m + 1) for m in moments})
    for i, at in enumerate(moments):
        later = moments[i + 1] if i + 1 < len(moments) else at
        recent = [m for m in moments[: i + 1] if at - m < policy.failure_rate_interval_s]
        assert job.fails(at, seen=(at + later) / 2) is (len(recent) > policy.failures_per_interval)


@given(RATES, TIMES, st.integers(-(10**6), 10**6))
def test_law_only_differences_of_times_count(policy, moments, shift):
    before, recorded_at = [float(m) for m in moments], 501.0
    here = after(policy, 0, 3.0, "job-1", 2, before, recorded_at)
    there = after(policy, 0, 3.0, "job-1", 2, [t + shift for t in before], recorded_at + shift)
    assert here.exhausted is there.exhausted


@given(RATES, TIMES, st.integers(0, 500))
def test_law_one_more_failure_never_helps_and_time_always_does(policy, moments, extra):
    before = [float(m) for m in moments]

    def exhausted(times, ran_for_s=3.0):
        return after(policy, 0, ran_for_s, "job-1", 2, times, 501.0).exhausted

    assert exhausted([*before, float(extra)]) >= exhausted(before)
    assert exhausted(before, 3.0 + extra) <= exhausted(before)
    assert not exhausted(before, policy.failure_rate_interval_s + 3.0), "one interval without a failure forgives all"
    assert exhausted(before[::-1]) is exhausted(before), "the order of the times does not matter"


@given(RATES, st.integers(0, 10))
def test_law_attempts_that_are_always_lost_are_given_up_one_later(policy, step):
    """A loss counts once it was noticed; that time is in the record of the next attempt."""
    job, allowed = Job(policy), policy.failures_per_interval
    verdicts = [job.fails(job.recorded_at, known=False, seen=job.recorded_at + step) for _ in range(allowed + 2)]
    too_often = allowed * step < policy.failure_rate_interval_s
    assert verdicts == [False] * (allowed + 1) + [too_often]

"""Restart policies: what follows from one more failure."""

from __future__ import annotations

import math

import pytest

from ledger.core.facts import OnExhausted, RestartKind, RestartPolicy
from ledger.core.restart import FAILURES_MAX, after_failure, problem

NONE = RestartPolicy(RestartKind.NONE)
FIXED = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=3, delay_s=7.0)
EXPONENTIAL = RestartPolicy(
    RestartKind.EXPONENTIAL_DELAY, attempts_max=0, delay_s=1.0, delay_max_s=60.0, multiplier=2.0, jitter=0.0,
    reset_after_s=3600.0,
)  # fmt: skip


def with_(policy: RestartPolicy, **fields):
    return RestartPolicy(**{**{name: getattr(policy, name) for name in policy.__slots__}, **fields})


@pytest.mark.parametrize(
    ("policy", "failures", "ran_for_s", "expect"),
    [
        (NONE, 0, 0.0, (1, True, 0.0)),
        (NONE, 5, 1e9, (6, True, 0.0)),
        (FIXED, 0, 0.0, (1, False, 7.0)),
        (FIXED, 2, 0.0, (3, False, 7.0)),  # three restarts are allowed …
        (FIXED, 3, 0.0, (4, True, 7.0)),  # … and the fourth failure uses them up
        (FIXED, 3, 1e9, (4, True, 7.0)),  # healthy time resets only the exponential delay
        (with_(FIXED, attempts_max=0), 10**6, 0.0, (10**6 + 1, False, 7.0)),
        (EXPONENTIAL, 0, 0.0, (1, False, 1.0)),
        (EXPONENTIAL, 1, 0.0, (2, False, 2.0)),
        (EXPONENTIAL, 4, 0.0, (5, False, 16.0)),
        (EXPONENTIAL, 5, 0.0, (6, False, 32.0)),
        (EXPONENTIAL, 6, 0.0, (7, False, 60.0)),  # the cap
        (EXPONENTIAL, 10**9, 0.0, (10**9 + 1, False, 60.0)),
        (EXPONENTIAL, 4, 3599.9, (5, False, 16.0)),
        (EXPONENTIAL, 4, 3600.0, (1, False, 1.0)),  # it ran long enough: a new row begins
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
        # a small multiplier reaches the cap too, however long it takes: 1.001^9999 = 21937
        (with_(EXPONENTIAL, multiplier=1.001), 1023, 0.0, (1024, False, 2.78)),
        (with_(EXPONENTIAL, multiplier=1.001), 9999, 0.0, (10000, False, 60.0)),
    ],
)
def test_after_failure(policy, failures, ran_for_s, expect):
    got = after_failure(policy, failures, ran_for_s, "job-1", 2)
    assert (got.failures, got.exhausted) == expect[:2]
    assert got.delay_s == pytest.approx(expect[2], abs=0.001)


@pytest.mark.parametrize("kind", [RestartKind.NONE, RestartKind.FIXED_DELAY, RestartKind.EXPONENTIAL_DELAY])
@pytest.mark.parametrize("failures", [-(2**63), -1, 2**31 - 1, 2**63 - 1])
def test_counters_that_nobody_sane_wrote_stay_in_bounds(kind, failures):
    got = after_failure(with_(EXPONENTIAL, kind=kind), failures, 0.0, "job-1", 2)
    assert 1 <= got.failures <= FAILURES_MAX
    assert 0 <= got.delay_s <= 60


def test_jitter_is_the_same_for_every_leader_and_different_for_every_start():
    policy = with_(EXPONENTIAL, jitter=0.1, delay_s=10.0)
    delays = {
        (job, n): after_failure(policy, 0, 0.0, job, n).delay_s for job in ("job-1", "job-2") for n in range(2, 300)
    }
    assert all(9.0 <= delay <= 11.0 for delay in delays.values())
    assert len(set(delays.values())) > 500, "it spreads"
    assert min(delays.values()) < 9.1 and max(delays.values()) > 10.9, "over the whole width"
    assert delays == {(job, n): after_failure(policy, 0, 0.0, job, n).delay_s for job, n in delays}


def test_jitter_leads_beyond_the_cap_by_its_share_at_most():
    policy = with_(EXPONENTIAL, jitter=1.0)
    delays = [after_failure(policy, 50, 0.0, "job-1", n).delay_s for n in range(2, 200)]
    assert 0 <= min(delays) < 60 < max(delays) <= 120


@pytest.mark.parametrize("policy", [NONE, FIXED, EXPONENTIAL, RestartPolicy()])
def test_policies_without_a_problem(policy):
    assert problem(policy) == ""


@pytest.mark.parametrize("name", ["delay_s", "delay_max_s", "multiplier", "jitter", "reset_after_s"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308])
@pytest.mark.parametrize("kind", [RestartKind.NONE, RestartKind.FIXED_DELAY, RestartKind.EXPONENTIAL_DELAY])
def test_numbers_that_are_none_are_a_problem_that_names_the_field(kind, name, value):
    assert name in problem(with_(EXPONENTIAL, kind=kind, **{name: value}))


@pytest.mark.parametrize(
    "fields",
    [{"multiplier": 0.5}, {"jitter": 1.5}, {"attempts_max": -1}, {"kind": RestartKind.UNKNOWN},
     {"on_exhausted": OnExhausted.UNKNOWN}],
)  # fmt: skip
def test_other_problems(fields):
    assert problem(with_(EXPONENTIAL, **fields)) != ""

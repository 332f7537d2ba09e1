"""The difference of two recovery sets, and which fields count as a difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.core.model.recovery import (
    RECOVERY_SET,
    TERMINAL,
    Difference,
    Entries,
    JobState,
    RecoveryEntry,
    diff,
    same_meaning,
)

ENTRY = RecoveryEntry("job-1", "etl", "prod", "subprocess", JobState.RUNNING, "a" * 64, attempt=2, as_of=10, epoch=3)


def test_equal_sets_do_not_differ():
    assert diff({"job-1": ENTRY}, {"job-1": replace(ENTRY)}) == []
    assert diff({}, {}) == []


@pytest.mark.parametrize("change", [{"as_of": 99}, {"epoch": 4}, {"due": True}, {"due_at": 5.0}])
def test_what_the_leader_stamps_is_no_difference(change):
    assert diff({"job-1": ENTRY}, {"job-1": replace(ENTRY, **change)}) == []


@pytest.mark.parametrize(
    "change",
    [{"state": JobState.RESTARTING}, {"attempt": 3}, {"reason": "x"}, {"known": True}, {"retiring": True},
     {"restart_delay_s": 1.0}, {"labels": {"a": "b"}}, {"partition": 1}],
)  # fmt: skip
def test_everything_else_is(change):
    other = replace(ENTRY, **change)
    assert diff({"job-1": ENTRY}, {"job-1": other}) == [Difference("job-1", ENTRY, other)]
    assert not same_meaning(ENTRY, other)


def test_a_job_that_only_one_side_has_differs_and_jobs_come_in_order():
    other = replace(ENTRY, job_id="job-0")
    assert diff({"job-1": ENTRY}, {"job-0": other}) == [
        Difference("job-0", None, other),
        Difference("job-1", ENTRY, None),
    ]


def test_what_a_leader_republishes_depends_on_due_but_not_on_as_of_and_epoch():
    assert same_meaning(ENTRY, replace(ENTRY, as_of=11, epoch=4))
    assert not same_meaning(ENTRY, replace(ENTRY, due=True))
    assert same_meaning(None, None) and not same_meaning(ENTRY, None) and not same_meaning(None, ENTRY)


def test_every_state_is_in_the_recovery_set_or_terminal_or_waits_for_an_operator():
    assert RECOVERY_SET | TERMINAL | {JobState.SUSPENDED, JobState.QUARANTINED, JobState.UNKNOWN} == set(JobState)
    assert not RECOVERY_SET & TERMINAL


def test_a_job_that_is_being_retired_is_not_brought_back():
    jobs = Entries(
        {
            "runs": ENTRY,
            "retires": replace(ENTRY, retiring=True),
            "waits": replace(ENTRY, state=JobState.QUARANTINED),
            "over": replace(ENTRY, state=JobState.FINISHED),
        }
    )
    assert set(jobs.recovery_set()) == {"runs"}

"""A value that does not decode counts as absent wherever it could decide, and `Job.unreadable` names its register."""

from __future__ import annotations

import pytest

from ledger.core.fold.fold import fold, fold_job
from ledger.core.model.facts import JobAdmitted
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import parse_register
from tests.support.offered import offered
from tests.support.registers import DIGEST, UNREADABLE, entry, given, intent, point, registers, started

A = "agent-a"
RUNNING = ("attempt/1/1", "running/1", "checkpoint/1/1")
UNREADABLE_NAMES = [
    "attempt/1/2", "attempt/2/1", "running/2", "checkpoint/1/2", "checkpoint/2/1", f"ended/1/failed/{A}",
    f"ended/1/finished/{A}", f"ended/1/failed-permanent/{A}", "ended/3/canceled/reconciler-1", "result/FINISHED",
    "result/FAILED", "intent/5/u", f"spec/{'b' * 64}", "ask/u",
]  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE_NAMES)
@pytest.mark.parametrize("value", [UNREADABLE, b"", b"\x00\xff", None, 7, [], JobAdmitted(DIGEST)], ids=repr)
def test_it_counts_as_absent(name, value):
    assert entry(*RUNNING, facts={name: value}) == entry(*RUNNING)


@pytest.mark.parametrize("name", [n for n in UNREADABLE_NAMES if not n.startswith(("spec", "ask"))])
def test_it_is_named_where_something_depended_on_it(name):
    job = given(*RUNNING, facts={name: UNREADABLE})
    fold_job(job)
    list(offered(job))
    assert job.unreadable == {parse_register(name)}


@pytest.mark.parametrize("name", [f"spec/{DIGEST}", "admitted"])
def test_without_a_readable_spec_and_admission_there_is_no_job(name):
    job = given(*RUNNING, facts={name: UNREADABLE})
    assert fold_job(job) is None
    assert job.unreadable == {parse_register(name)}


def test_behind_an_unreadable_one_the_next_best_counts():
    facts = {
        "attempt/2/9": UNREADABLE,
        "attempt/2/8": started("1/1", failures=3),
        f"ended/2/failed-permanent/{A}": UNREADABLE,
        "checkpoint/1/2": UNREADABLE,
        "intent/9/u": UNREADABLE,
        "intent/8/u": intent("SUSPEND"),
    }
    got = entry("checkpoint/1/1", "ended/2/lost/reconciler-1", facts=facts)
    assert (got.state, got.outcome, got.failures) == (JobState.SUSPENDED, "lost", 4)
    assert (got.base, got.restore_points) == (point("1/1"), (point("1/1"),))


def test_what_runs_is_not_known_by_a_sign_that_cannot_be_read():
    facts = {"running/1": UNREADABLE, "checkpoint/1/1": UNREADABLE, f"ended/1/lost/{A}": UNREADABLE}
    assert entry("attempt/1/1", facts=facts).known is False


def test_a_result_that_cannot_be_read_gives_way_to_one_that_can():
    got = entry("result/FAILED", facts={"result/FINISHED": UNREADABLE})
    assert (got.state, got.retiring) == (JobState.FAILED, True)


def test_with_only_unreadable_values_there_is_no_job_and_nothing_raises():
    names = ["admitted", "attempt/1/1", f"ended/1/finished/{A}", "result/FINISHED", f"spec/{DIGEST}", "intent/1/u"]
    assert fold_job(given(facts=dict.fromkeys(names, UNREADABLE))) is None


def test_what_is_superseded_is_not_even_decoded():
    seen = []

    def counting(register, raw):
        seen.append(register)
        return raw

    names = [f"attempt/{n}/1" for n in range(1, 50)] + [f"ended/{n}/failed/{A}" for n in range(1, 49)]
    names += [f"checkpoint/49/{i}" for i in range(1, 500)]
    fold("job-1", registers(*names), counting)
    assert len(seen) <= 10, seen

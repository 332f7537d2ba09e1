"""Registers that no later fact can give effect again, and registers that must stay. For checkpoints:
test_restore_points."""

from __future__ import annotations

from ledger.core.fold.fold import HISTORY, prunable
from ledger.core.model.registers import register_name
from tests.support.registers import DIGEST, OTHER_DIGEST, UNREADABLE, given, intent

A = "agent-a"


def gone(*names, facts=None, admitted=True, **limits) -> set[str]:
    return {register_name(r) for r in prunable(given(*names, facts=facts, admitted=admitted), **limits)}


def test_a_young_job_has_nothing_to_prune():
    assert gone() == set()
    assert gone("attempt/1/1", "running/1", "checkpoint/1/1", f"ended/1/failed/{A}", "ask/u") == set()


def test_a_job_that_is_not_admitted_is_not_judged():
    facts = {"intent/1/a": intent("RUN"), "intent/2/a": intent("RUN")}
    assert gone("attempt/1/1", facts=facts, admitted=False) == set()
    assert gone(f"spec/{OTHER_DIGEST}", facts={f"spec/{DIGEST}": UNREADABLE}) == set()


def test_specs_that_were_not_admitted():
    assert gone(f"spec/{OTHER_DIGEST}") == {f"spec/{OTHER_DIGEST}"}


def test_intents_that_lost():
    facts = {"intent/1/a": intent("SUSPEND"), "intent/2/a": intent("RUN"), "intent/2/b": intent("RETRY", 1)}
    assert gone(facts=facts) == {"intent/1/a", "intent/2/a"}
    assert gone(facts={**facts, "intent/1/c": intent("CANCEL")}) == {"intent/1/a", "intent/2/a", "intent/2/b"}


def test_an_intent_that_cannot_be_read_did_not_lose():
    assert gone(facts={"intent/1/a": UNREADABLE, "intent/2/a": intent("RUN")}) == set()


def test_attempts_beyond_the_history_with_all_that_belongs_to_them():
    names = []
    for n in range(1, 7):
        names += [f"attempt/{n}/1", f"attempt/{n}/2", f"running/{n}", f"ended/{n}/failed/{A}", f"ended/{n}/lost/r"]
    expect = set()
    for n in (1, 2):
        expect |= {f"attempt/{n}/1", f"attempt/{n}/2", f"running/{n}", f"ended/{n}/failed/{A}", f"ended/{n}/lost/r"}
    assert gone(*names, history=4) == expect
    assert gone(*names) == set(), f"by default, {HISTORY} attempts are kept"


def test_a_terminal_end_stays_however_old():
    names = [f"ended/1/{outcome}/{A}" for outcome in ("finished", "canceled", "abandoned", "stopped")]
    names += [f"attempt/{n}/1" for n in range(2, 9)]
    assert gone(*names, history=2) == {
        f"ended/1/stopped/{A}", *[f"attempt/{n}/1" for n in range(2, 7)]
    }  # fmt: skip


def test_top_and_the_newest_record_stay_whatever_unreadable_numbers_lie_above():
    facts = {f"running/{n}": UNREADABLE for n in range(100, 120)}
    assert gone("attempt/1/1", "attempt/2/1", f"ended/3/failed/{A}", facts=facts, history=2) == {
        "attempt/1/1", *[f"running/{n}" for n in range(100, 118)]
    }  # fmt: skip


def test_beside_a_result_everything_else_goes_and_the_results_stay():
    names = ["attempt/1/1", "checkpoint/1/1", f"ended/1/finished/{A}", "ask/u"]
    everything = {f"spec/{DIGEST}", "admitted", "intent/1/u", *names}
    facts = {"intent/1/u": intent("RUN")}
    assert gone(*names, "result/FINISHED", "result/FAILED", facts=facts) == everything
    assert gone("result/FINISHED", admitted=False) == set()


def test_beside_an_unreadable_result_the_job_lives_on():
    assert gone("attempt/1/1", facts={"result/FINISHED": UNREADABLE}) == set()

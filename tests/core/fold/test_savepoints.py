"""Savepoints on request: a request is open until a savepoint names it, and open requests are passed to the running
attempt."""

from __future__ import annotations

from dataclasses import replace

from ledger.core.fold.fold import ASKS_MAX, fold_job, prunable
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.model.registers import register_name
from ledger.core.plan.plan import AskSavepoint, Knowledge, Stop, decide
from ledger.core.plan.runner_report import RunnerReport
from tests.support.registers import UNREADABLE, given, intent

A = "agent-a"
SAVEPOINT = CheckpointCompleted("sav-3", kind=CheckpointKind.SAVEPOINT, ask="u")


def asks(*names, facts=None) -> tuple[str, ...]:
    entry = fold_job(given("attempt/1/1", "running/1", *names, facts=facts))
    assert entry is not None
    return entry.asks


def test_an_ask_is_open_until_a_savepoint_names_it():
    assert asks("ask/u", "ask/a") == ("a", "u")
    assert asks("ask/u", "ask/a", facts={"checkpoint/1/3": SAVEPOINT}) == ("a",)
    assert asks("ask/u", facts={"checkpoint/1/3": replace(SAVEPOINT, ask="another")}) == ("u",)
    assert asks("ask/u", facts={"checkpoint/1/3": replace(SAVEPOINT, ask=None)}) == ("u",)


def test_a_checkpoint_answers_no_ask():
    """A checkpoint may be pruned, and then the request would be open again."""
    assert asks("ask/u", facts={"checkpoint/1/3": replace(SAVEPOINT, kind=CheckpointKind.CHECKPOINT)}) == ("u",)


def test_what_cannot_be_read_is_no_ask_and_no_answer():
    assert asks(facts={"ask/u": UNREADABLE}) == ()
    assert asks("ask/u", facts={"checkpoint/1/3": UNREADABLE}) == ("u",)


def test_an_entry_names_a_bounded_number_of_asks():
    assert len(asks(*[f"ask/{i}" for i in range(ASKS_MAX + 5)])) == ASKS_MAX


def test_only_what_is_answered_is_pruned():
    facts = {"checkpoint/1/3": SAVEPOINT, "ask/broken": UNREADABLE}
    assert [register_name(r) for r in prunable(given("attempt/1/1", "ask/u", "ask/a", facts=facts))] == ["ask/u"]


def test_an_intent_says_whether_a_savepoint_comes_first():
    wish = replace(intent("SUSPEND"), savepoint=True)
    entry = fold_job(given("attempt/1/1", "running/1", facts={"intent/1/u": wish}))
    assert entry is not None and entry.intent is not None
    assert entry.state is JobState.SUSPENDED and entry.intent.savepoint


# -- actions -----------------------------------------------------------------------------------------------------------


RUNNING = RecoveryEntry("job", "n", "d", "memory", JobState.RUNNING, "0" * 64, attempt=2, known=True, asks=("a", "b"))
SUSPENDED = replace(
    RUNNING, state=JobState.SUSPENDED, intent=WinningIntent("SUSPEND", 1, "u", 2, "latest", False, "", "", True)
)


def test_what_runs_is_asked_once_for_each():
    assert decide(RUNNING, RunnerReport(frozenset({2}))) == (AskSavepoint("job", 2, ("a", "b")),)
    told_a = Knowledge(asked=frozenset({(2, "a")}))
    assert decide(RUNNING, RunnerReport(frozenset({2})), told_a) == (AskSavepoint("job", 2, ("b",)),)
    assert decide(RUNNING, RunnerReport(frozenset({2})), Knowledge(asked=frozenset({(2, "a"), (2, "b")}))) == ()


def test_the_next_attempt_is_asked_anew():
    asked = Knowledge(asked=frozenset({(1, "a"), (1, "b")}))
    assert decide(RUNNING, RunnerReport(frozenset({2})), asked) == (AskSavepoint("job", 2, ("a", "b")),)


def test_what_does_not_run_is_not_asked():
    assert not any(isinstance(a, AskSavepoint) for a in decide(RUNNING, RunnerReport(frozenset())))
    suspended = replace(RUNNING, state=JobState.SUSPENDED)
    assert not any(isinstance(a, AskSavepoint) for a in decide(suspended, RunnerReport(frozenset({2}))))


def test_a_suspension_with_a_savepoint_orders_one():
    assert decide(SUSPENDED, RunnerReport(frozenset({2}))) == (
        Stop("job", 2, "stopped", "the job is SUSPENDED", savepoint=True),
    )
    plain = replace(SUSPENDED, intent=replace(SUSPENDED.intent, savepoint=False))
    assert decide(plain, RunnerReport(frozenset({2}))) == (Stop("job", 2, "stopped", "the job is SUSPENDED"),)

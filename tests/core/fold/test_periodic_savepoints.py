"""Periodic savepoints: which request comes next, which one is open, and which of the savepoints are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from ledger.core.fold.fold import fold_job, prunable
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, SavepointDisposed, SavepointPolicy
from ledger.core.model.periodic_savepoints import TRIES_MAX, Periodic, parse
from ledger.core.model.policies import savepoint_problem
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import register_name
from ledger.core.plan.plan import AskSavepoint, Knowledge, WantSavepoint, decide
from ledger.core.plan.runner_report import RunnerReport
from tests.support.registers import DIGEST, UNREADABLE, checkpoint, given, spec, started

SAV = CheckpointKind.SAVEPOINT
SPEC = f"spec/{DIGEST}"
POLICY = SavepointPolicy(600.0)
RUNS = ("attempt/1/1", "running/1")


def sav(ask: str | None = None, place: str = "1/3") -> CheckpointCompleted:
    return CheckpointCompleted(f"sav-{place}", kind=SAV, ask=ask)


def entry(*names: str, policy: SavepointPolicy = POLICY, facts: dict | None = None) -> RecoveryEntry:
    found = fold_job(given(*names, facts={SPEC: spec(savepoint_policy=policy), **(facts or {})}))
    assert found is not None
    return found


# -- the next request --------------------------------------------------------------------------------------------------


def test_a_job_without_an_interval_is_asked_nothing():
    got = entry(*RUNS, policy=SavepointPolicy(keep_max=3))
    assert (got.savepoint_policy, got.next_ask) == (None, "")


def test_nothing_is_asked_of_a_job_that_never_ran():
    assert entry().next_ask == "" and entry().savepoint_policy is None


def test_the_next_ask_names_the_savepoint_that_it_follows():
    assert entry(*RUNS).next_ask == "periodic-0-0-0"
    assert entry(*RUNS, facts={"checkpoint/1/3": sav(), "checkpoint/1/5": checkpoint("1/5")}).next_ask == "periodic-1-3-0"
    two = {"checkpoint/1/9": sav(), "checkpoint/2/1": sav()}
    assert entry(*RUNS, "attempt/2/1", facts=two).next_ask == "periodic-2-1-0", "sorted by attempt before id"


def test_it_stays_what_it_is_while_the_job_restarts():
    facts = {"checkpoint/1/3": sav()}
    before = entry(*RUNS, facts=facts)
    failed = entry(*RUNS, "ended/1/failed/agent-a", facts=facts)
    again = entry(*RUNS, "ended/1/failed/agent-a", "attempt/2/1", facts=facts)
    assert before.savepoint_key == failed.savepoint_key == again.savepoint_key, "the interval goes on"
    assert (failed.state, again.state) == (JobState.RESTARTING, JobState.RUNNING)


def test_without_a_savepoint_the_time_counts_from_the_attempts_start():
    one, two = entry(*RUNS), entry(*RUNS, "ended/1/failed/agent-a", "attempt/2/1")
    assert one.next_ask == two.next_ask and one.savepoint_key != two.savepoint_key


def test_an_ask_without_an_answer_is_followed_by_one_that_waits_twice_as_long():
    got = entry(*RUNS, "ask/periodic-0-0-0")
    assert (got.asks, got.next_ask) == (("periodic-0-0-0",), "periodic-0-0-1")
    third = entry(*RUNS, "ask/periodic-0-0-0", "ask/periodic-0-0-1", "ask/periodic-0-0-2")
    assert (third.asks, third.next_ask) == (("periodic-0-0-2",), "periodic-0-0-3"), "only one is open at a time"
    waits = [ask.wait_s(POLICY) for text in ("0", "1", "2") if (ask := parse(f"periodic-0-0-{text}"))]
    assert waits == [600.0, 1200.0, 2400.0]


def test_in_the_end_nobody_asks_any_more():
    got = entry(*RUNS, f"ask/periodic-0-0-{TRIES_MAX}")
    assert got.next_ask == "" and got.asks == (f"periodic-0-0-{TRIES_MAX}",)


def test_any_later_savepoint_answers_it():
    """A savepoint that names another request counts too: a job may answer two simultaneous requests with one savepoint."""
    for ask in ("periodic-0-0-0", "of-a-person", None):
        got = entry(*RUNS, "ask/periodic-0-0-0", facts={"checkpoint/1/3": sav(ask)})
        assert (got.asks, got.next_ask) == ((), "periodic-1-3-0")


def test_asks_of_people_stay_open_until_a_savepoint_names_them():
    facts = {"checkpoint/1/3": sav("periodic-0-0-0")}
    assert entry(*RUNS, "ask/u", "ask/periodic-0-0-0", facts=facts).asks == ("u",)


def test_it_is_listed_however_many_asks_of_people_there_are():
    assert entry(*RUNS, *[f"ask/a{i}" for i in range(30)], "ask/periodic-0-0-0").asks[0] == "periodic-0-0-0"


def test_what_cannot_be_read_is_asked_again_by_the_same_name():
    assert entry(*RUNS, facts={"ask/periodic-0-0-0": UNREADABLE}).next_ask == "periodic-0-0-0"


def test_asks_that_are_spent_are_pruned_and_nothing_changes():
    names = ("ask/periodic-0-0-0", "ask/periodic-0-0-1", "ask/periodic-1-3-0")
    facts = {"checkpoint/1/3": sav(), SPEC: spec(savepoint_policy=POLICY)}
    gone = sorted(register_name(r) for r in prunable(given(*RUNS, *names, facts=facts)))
    assert gone == ["ask/periodic-0-0-0", "ask/periodic-0-0-1"]
    left = [name for name in names if name not in gone]
    assert fold_job(given(*RUNS, *names, facts=facts)) == fold_job(given(*RUNS, *left, facts=facts))


@pytest.mark.parametrize(
    "text",
    ["", None, "u", "periodic-", "periodic-1-2", "periodic-01-2-3", "periodic-1-2-99", "x-1-2-3",
     f"periodic-{2**53 + 1}-1-0", f"periodic-1-{2**63}-0"],
)  # fmt: skip
def test_what_is_no_name_of_a_periodic_ask(text):
    assert parse(text) is None


@for_any(st.integers(0, 2**53), st.integers(0, 2**63 - 1), st.integers(0, TRIES_MAX))
def test_names_are_read_as_they_are_written(attempt, id_, tries):
    ask = Periodic((attempt, id_), tries)
    assert parse(ask.uuid) == ask and len(ask.uuid) <= 64


@pytest.mark.parametrize(
    "policy",
    [SavepointPolicy(0.5), SavepointPolicy(-1.0), SavepointPolicy(float("nan")), SavepointPolicy(float("inf")),
     SavepointPolicy(60.0, -1), SavepointPolicy(0.0, 10**9)],
)  # fmt: skip
def test_a_policy_that_nobody_can_follow_quarantines(policy):
    assert savepoint_problem(policy)
    got = entry(policy=policy)
    assert got.state is JobState.QUARANTINED and "savepoint_policy" in got.reason
    assert entry(*RUNS, policy=policy).state is JobState.RUNNING, "a running attempt is left alone"
    assert entry(*RUNS, policy=policy).next_ask == ""


# -- actions -----------------------------------------------------------------------------------------------------------


RUNNING = RecoveryEntry(
    "job", "n", "d", "memory", JobState.RUNNING, "0" * 64, attempt=2, known=True, savepoint_policy=POLICY,
    next_ask="periodic-1-3-0", savepoint_at=1.0, savepoint_due=True,
)  # fmt: skip
ALIVE = frozenset({2})


def test_once_it_is_due_an_ask_is_put_on_the_log():
    assert decide(RUNNING, RunnerReport(ALIVE)) == (WantSavepoint("job", 2, "periodic-1-3-0", "every 600 s"),)
    assert decide(replace(RUNNING, savepoint_due=False), RunnerReport(ALIVE)) == ()
    assert decide(replace(RUNNING, next_ask=""), RunnerReport(ALIVE)) == ()


def test_what_stands_is_asked_of_what_runs_before_another_is_wanted():
    open_ = replace(RUNNING, asks=("periodic-1-3-0",), next_ask="periodic-1-3-1", savepoint_due=False)
    assert decide(open_, RunnerReport(ALIVE)) == (AskSavepoint("job", 2, ("periodic-1-3-0",)),)
    assert decide(open_, RunnerReport(ALIVE), Knowledge(asked=frozenset({(2, "periodic-1-3-0")}))) == ()


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.RUNNING])
def test_nothing_is_wanted_of_what_does_not_run(state):
    stands = replace(RUNNING, state=state, outcome="failed", outcome_writer="agent-a", next_attempt=3)
    for alive in (ALIVE, frozenset(), None):
        assert not any(isinstance(action, WantSavepoint) for action in decide(stands, RunnerReport(alive)))


@pytest.mark.parametrize("alive", [frozenset(), frozenset({1, 2}), None])
def test_what_is_amiss_comes_first(alive):
    assert not any(isinstance(action, WantSavepoint) for action in decide(RUNNING, RunnerReport(alive)))


# -- retention ---------------------------------------------------------------------------------------------------------


def saved(*ids: int, last: int = 0) -> dict:
    """Periodic savepoints of attempt 1, then checkpoints, from which the next attempt starts."""
    facts = {f"checkpoint/1/{i}": sav(f"periodic-1-{i - 1}-0", f"1/{i}") for i in ids}
    return facts | {f"checkpoint/1/{i}": checkpoint(f"1/{i}") for i in range(last, last + 3 if last else 0)}


def going(*names: str, keep_max: int, facts: dict) -> list[str]:
    return [str(point) for point in entry(*RUNS, *names, policy=SavepointPolicy(600.0, keep_max), facts=facts).disposals]


def test_all_are_kept_unless_people_say_otherwise():
    assert going(keep_max=0, facts=saved(1, 2, 3, 4, last=10)) == []


def test_the_newest_are_kept():
    assert going(keep_max=2, facts=saved(1, 2, 3, 4, last=10)) == ["1/1", "1/2"]


def test_what_a_start_may_begin_from_is_kept_as_well():
    assert going(keep_max=1, facts=saved(1, 2, 3, 4, 5)) == ["1/1", "1/2"], "three restore points are offered"


def test_what_people_asked_for_is_theirs():
    facts = saved(2, 3, 4, last=10) | {"checkpoint/1/1": sav("of-a-person"), "checkpoint/1/5": sav()}
    assert going(keep_max=1, facts=facts) == ["1/2", "1/3"]


def test_the_base_of_an_attempt_stays_until_that_is_over():
    facts = saved(1, 2, 3) | {"attempt/2/1": started("1/1")}
    facts |= {f"checkpoint/2/{i}": checkpoint(f"2/{i}", base="1/1") for i in (1, 2, 3)}
    assert going(keep_max=1, facts=facts) == ["1/2"]
    assert going("ended/2/failed/agent-a", keep_max=1, facts=facts) == ["1/1", "1/2"]


def test_those_that_are_given_up_count_so_that_none_comes_back():
    facts = saved(1, 2, 3, last=10)
    assert going(keep_max=2, facts=facts) == ["1/1"]
    gone = SavepointDisposed("sav-1/3", ask="periodic-1-2-0")
    assert going(keep_max=2, facts=facts | {"disposed/1/3/u": gone}) == ["1/1", "1/3"]
    del facts["checkpoint/1/3"]
    assert going(keep_max=2, facts=facts | {"disposed/1/3/u": gone}) == ["1/1"], "the savepoint's own register is gone"

"""Disposed savepoints: no attempt starts from one, the reconciler deletes its files, and its register stays while
needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from ledger.core.fold.fold import fold_job, prunable
from ledger.core.fold.job import Job
from ledger.core.model.facts import (
    CheckpointCompleted,
    CheckpointKind,
    RestorePoint,
    SavepointDisposed,
    SavepointPolicy,
)
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.model.registers import Disposed, parse_register, register_name
from ledger.core.plan.plan import AskSavepoint, Dispose, Retire, Stop, Wait, decide
from ledger.core.plan.pools import NO_POOLS
from ledger.core.plan.reconcile import JobView, Observed, plan_actions
from ledger.core.plan.runner_report import RunnerReport
from tests.support.registers import (
    DIGEST,
    UNREADABLE,
    checkpoint,
    entry,
    given,
    intent,
    point,
    read,
    registers,
    spec,
    started,
)

SAV = CheckpointKind.SAVEPOINT
SPEC = f"spec/{DIGEST}"


def sav(place: str, base: str | None = None, ask: str | None = None) -> CheckpointCompleted:
    return replace(checkpoint(place, base, SAV), ask=ask)


def disposed(place: str, base: str | None = None) -> SavepointDisposed:
    return SavepointDisposed(f"chk-{place}", point(base) if base else None)


def offers(*names: str, facts: dict | None = None) -> list[str]:
    return [str(p) for p in entry(*names, facts=facts).restore_points]


# -- the fold ----------------------------------------------------------------------------------------------------------


FACTS = {"checkpoint/1/7": checkpoint("1/7"), "checkpoint/1/8": sav("1/8"), "checkpoint/1/9": checkpoint("1/9")}


def test_it_is_offered_no_more_and_is_to_be_deleted():
    assert offers("attempt/1/1", facts=FACTS) == ["1/9", "1/8", "1/7"]
    got = entry("attempt/1/1", "disposed/1/8/u", facts=FACTS)
    assert [str(p) for p in got.restore_points] == ["1/9", "1/7"]
    assert got.disposals == (point("1/8", SAV),)


def test_once_its_register_is_gone_nothing_is_left_to_do_and_nothing_else_has_changed():
    before = entry("attempt/1/1", "disposed/1/8/u", facts=FACTS)
    after = entry("attempt/1/1", "disposed/1/8/u", facts={k: v for k, v in FACTS.items() if k != "checkpoint/1/8"})
    assert after == replace(before, disposals=())


def test_nothing_from_further_down_takes_its_place():
    """An older restore point may be pruned already, and a late duplicate would bring it back."""
    facts = FACTS | {"checkpoint/1/6": checkpoint("1/6")}
    assert offers("attempt/1/1", "disposed/1/8/u", facts=facts) == offers("attempt/1/1", "disposed/1/8/u", facts=FACTS)


def test_the_way_down_leads_past_it():
    facts = {"checkpoint/1/4": checkpoint("1/4"), "checkpoint/2/5": sav("2/5", base="1/4"), "attempt/3/1": started("2/5")}
    facts["disposed/2/5/u"] = disposed("2/5", base="1/4")
    assert offers(facts=facts) == ["1/4"]
    del facts["checkpoint/2/5"]
    assert offers(facts=facts) == ["1/4"], "the disposal record keeps the base of that savepoint"


def test_a_job_all_of_whose_restore_points_are_given_up_never_begins_from_scratch_by_itself():
    facts = {"checkpoint/1/5": sav("1/5"), "disposed/1/5/u": disposed("1/5")}
    for known in (facts, {"disposed/1/5/u": disposed("1/5")}):
        got = entry("attempt/1/1", "ended/1/failed/agent-a", facts=known)
        assert got.restore_points == () and got.restore_from_named


def test_a_retry_that_names_it_is_offered_nothing():
    facts = FACTS | {"intent/1/u": intent("RETRY", 1, from_="1/8")}
    assert offers("attempt/1/1", "ended/1/failed/agent-a", facts=facts) == ["1/8", "1/7"]
    got = entry("attempt/1/1", "ended/1/failed/agent-a", "disposed/1/8/u", facts=facts)
    assert got.restore_points == () and got.restore_from_named


def test_what_an_attempt_that_is_not_over_began_from_waits():
    facts = {"checkpoint/1/8": sav("1/8"), "attempt/2/1": started("1/8"), "disposed/1/8/u": disposed("1/8")}
    assert entry(facts=facts).disposals == ()
    assert [str(p) for p in entry("ended/2/failed/agent-a", facts=facts).disposals] == ["1/8"]


def test_what_cannot_be_read_gives_up_nothing():
    assert offers("attempt/1/1", facts=FACTS | {"disposed/1/8/u": UNREADABLE}) == ["1/9", "1/8", "1/7"]


def test_two_who_give_it_up_do_so_once():
    got = entry("attempt/1/1", "disposed/1/8/u", "disposed/1/8/v", facts=FACTS)
    assert [str(p) for p in got.disposals] == ["1/8"]


def test_that_it_is_given_up_is_not_pruned_nor_is_its_register():
    job = given("attempt/1/1", "disposed/1/8/u", facts=FACTS)
    assert prunable(job) == []


def test_it_outlives_the_job():
    job = given("attempt/1/1", "result/FINISHED", "disposed/1/8/u", facts=FACTS)
    assert "disposed/1/8/u" not in {register_name(r) for r in prunable(job)}
    left = fold_job(job)
    assert left is not None and left.retiring and not any(name.startswith("disposed") for name in left.registers)
    assert fold_job(given("result/FINISHED", "disposed/1/8/u", facts={}, admitted=False)) is None, "it keeps no entry"


def test_names():
    assert parse_register("disposed/1/0/u") == Disposed(1, 0, "u")
    for wrong in ("disposed/0/1/u", "disposed/1/1", "disposed/1/01/u", "disposed/1/1/ü", f"disposed/1/{2**63}/u"):
        assert parse_register(wrong) is None
    assert parse_register(register_name(Disposed(3, 7, "u"))) == Disposed(3, 7, "u")


PLACES = [(n, i) for n in (1, 2, 3) for i in (1, 2, 3, 4)]


@st.composite
def histories(draw: st.DrawFn) -> dict:
    """Attempts that each started from an earlier restore point, with checkpoints and savepoints, some of them disposed."""
    bases = {1: None, 2: draw(st.sampled_from(["1/1", "1/3", None])), 3: draw(st.sampled_from(["2/2", "1/3", "1/4", None]))}
    facts: dict = {SPEC: spec(savepoint_policy=SavepointPolicy(60.0, draw(st.integers(0, 2))))}
    for n, id_ in draw(st.sets(st.sampled_from(PLACES))):
        place = f"{n}/{id_}"
        kind = draw(st.sampled_from(["chk", "sav", "periodic", "given up"]))
        ask = f"periodic-{n}-{id_ - 1}-0" if kind == "periodic" else None
        made = sav(place, bases[n], ask) if kind != "chk" else checkpoint(place, bases[n])
        facts[f"checkpoint/{place}"] = made
        if kind == "given up":
            facts[f"disposed/{place}/u"] = SavepointDisposed(made.location, made.base, made.ask)
    for n in draw(st.sets(st.sampled_from([1, 2, 3]))):
        facts[f"attempt/{n}/1"] = started(bases[n])
        if draw(st.booleans()):
            facts[f"ended/{n}/failed/agent-a"] = None
    ends = [name for name, fact in facts.items() if fact is None]
    facts = {name: fact for name, fact in facts.items() if fact is not None}
    return registers(*ends, facts=facts)


def folded(found: dict) -> RecoveryEntry:
    got = fold_job(Job("job-1", found, read))
    assert got is not None
    return got


def told(found: dict) -> RecoveryEntry:
    """The entry without its open deletions, and without `known`: a checkpoint alone may prove that an attempt ran."""
    return replace(folded(found), disposals=(), known=False)


@settings(max_examples=300)
@for_any(histories(), st.randoms())
def test_law_the_order_of_deletions_makes_no_difference(found: dict, rng: Random) -> None:
    """Savepoints are deleted a few at a time, and the rest of the job's entry never changes. Records that are sent
    again do not change it either."""
    left = dict(found)
    while going := folded(left).disposals:
        assert not set(going) & set(folded(left).restore_points), "no offered restore point is deleted"
        for one in rng.sample(going, rng.randint(1, len(going))):
            left.pop(f"checkpoint/{one}".encode())
        if rng.random() < 0.5:
            for register in prunable(Job("job-1", left, read)):
                left.pop(register_name(register).encode())
        assert told(left) == told(found)
    again = left | {name: fact for name, fact in found.items() if rng.random() < 0.5}
    assert told(again) == told(found)


# -- actions -----------------------------------------------------------------------------------------------------------


P, Q = RestorePoint(1, 3, "p", kind=SAV), RestorePoint(1, 4, "q", kind=SAV)
BASIC = RecoveryEntry("job", "n", "d", "memory", JobState.RUNNING, "0" * 64, attempt=1, known=True, disposals=(P, Q))


@pytest.mark.parametrize(
    ("entry", "alive", "actions"),
    [
        (replace(BASIC, state=JobState.FINISHED, outcome="finished"), set(), (Dispose("job", (P, Q)),)),
        (replace(BASIC, state=JobState.FINISHED, outcome="finished", disposals=()), set(), (Retire("job"),)),
        (replace(BASIC, state=JobState.FINISHED), {1}, (Stop("job", 1, "stopped", "the job is FINISHED"),)),
    ],
)  # fmt: skip
def test_a_job_that_is_over_is_retired_after_that(entry, alive, actions):
    assert decide(entry, RunnerReport(frozenset(alive))) == actions


def test_a_runner_that_is_silent_is_not_asked():
    assert all(not isinstance(action, Dispose) for action in decide(BASIC, RunnerReport(None)))


def test_a_forced_cancel_is_retired_without_a_runner_that_could_delete_anything():
    """The files of its savepoints are left to `jobledger gc`."""
    forced = WinningIntent("CANCEL", 1, "u", 1, "latest", True, "host burnt down", "op")
    over = replace(BASIC, state=JobState.CANCELED, outcome="lost", intent=forced)
    assert decide(over, RunnerReport(None, "gone")) == (Retire("job", forced=True),)


def actions(*entries: RecoveryEntry, unread: str = "", answers: bool = True) -> list:
    views = {e.job_id: JobView(e) for e in entries}
    alive = [(e.job_id, e.attempt, e.state is JobState.RUNNING, "") for e in entries]
    return plan_actions(views, Observed({"memory": alive if answers else None}), NO_POOLS, 50, unread)


def kinds(found: Iterable, job_id: str = "job") -> list:
    return [action for action in found if action.job_id == job_id]


@pytest.mark.parametrize(
    "entry",
    [BASIC, replace(BASIC, state=JobState.SUSPENDED, outcome="stopped"),
     replace(BASIC, state=JobState.QUARANTINED, outcome="failed"),
     replace(BASIC, state=JobState.RESTARTING, outcome="failed", outcome_writer="agent-a", next_attempt=2)],
)  # fmt: skip
def test_it_goes_when_nothing_else_is_done_whatever_the_job_waits_for(entry):
    found = [action for action in kinds(actions(entry)) if not isinstance(action, Wait)]
    assert found == [Dispose("job", (P, Q))]


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUSPENDED, JobState.QUARANTINED])
def test_it_stays_while_its_runner_is_silent(state):
    found = kinds(actions(replace(BASIC, state=state), answers=False))
    assert not [action for action in found if isinstance(action, Dispose)]


def test_a_pass_that_does_something_else_leaves_it_to_a_later_one():
    entry = replace(BASIC, asks=("u",))
    assert [type(action) for action in kinds(actions(entry))] == [AskSavepoint]


def test_what_another_job_needs_stays():
    other = replace(BASIC, job_id="other", disposals=(), base=replace(P, attempt=0, id=0))
    assert kinds(actions(BASIC, other)) == [Dispose("job", (Q,))]
    offered = replace(other, base=None, restore_points=(replace(P, attempt=0, id=0),))
    assert kinds(actions(BASIC, offered)) == [Dispose("job", (Q,))]
    over = replace(other, state=JobState.FINISHED, outcome="finished")
    assert kinds(actions(BASIC, over)) == [Dispose("job", (P, Q))]


def test_a_job_that_is_over_waits_for_that_visibly():
    over = replace(BASIC, state=JobState.FINISHED, outcome="finished", disposals=(P,))
    other = replace(BASIC, job_id="other", disposals=(), base=replace(P, attempt=0, id=0))
    (wait,) = kinds(actions(over, other))
    assert isinstance(wait, Wait) and "other needs its savepoint 1/3" in wait.reason


def test_nothing_goes_until_all_jobs_are_known():
    assert kinds(actions(BASIC, unread="not read")) == []

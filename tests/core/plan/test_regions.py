"""`together`: the actions for the members of a region, as tables; and the choice of the cut, against a simple oracle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.model.facts import RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.plan import NOTHING, Action, Confirm, Knowledge, Settle, Start, Stop, Verify, Wait
from ledger.core.plan.pools import NO_POOLS
from ledger.core.plan.reconcile import JobView, Observed, plan_actions
from ledger.core.plan.regions import RegionMember, points_from, region_of, together

REGION = ("d", "r")


def entry(job_id: str, state: str, **rest: Any) -> RecoveryEntry:
    return RecoveryEntry(job_id, job_id, "d", "memory", JobState(state), "0" * 64, region="r", **rest)


def running(job_id: str, n: int = 1, **beside: int) -> RegionMember:
    e = entry(job_id, "RUNNING", attempt=n, known=True, together=Together(beside))
    return RegionMember(e, NOTHING, frozenset({n}), ())


def coming(job_id: str, n: int = 1, outcome: str = "failed", labels: Iterable[str] = (), **rest: Any) -> RegionMember:
    """A member whose attempt n ended. labels: of its restore points, newest first."""
    points = tuple(RestorePoint(n, 9 - i, f"/{job_id}/{i}") for i, _ in enumerate(labels))
    e = entry(job_id, "RESTARTING", attempt=n, next_attempt=n + 1, outcome=outcome, due=True, restore_points=points,
              consistency=tuple(labels), reason=f"attempt {n} {outcome}: boom", **rest)  # fmt: skip
    return RegionMember(e, NOTHING, frozenset(), (Start(job_id, n + 1),))


def knowing(member: RegionMember, **said: str) -> RegionMember:
    """The member with answers of its runner. said: label -> the answer about the restore point with that label."""
    own = dict(zip(member.entry.consistency, member.entry.restore_points, strict=True))
    verified = tuple((own[label], answer) for label, answer in said.items())
    return member._replace(known=Knowledge(verified=verified))


def told(*members: RegionMember) -> dict[str, Action]:
    return {action.job_id: action for action in together(REGION, members)}


# -- members that restart ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beside", "stopped"),
    [({"b": 1}, True), ({"b": 2}, False), ({}, True), ({"b": 3}, False), ({"x": 9, "b": 1}, True)],
)
def test_only_what_ran_beside_the_failed_attempt_or_an_earlier_one_goes_back(beside: dict[str, int], stopped: bool) -> None:
    actions = told(running("a", 5, **beside), coming("b", 1))
    assert (actions.get("a") is not None) == stopped
    if stopped:
        assert actions["a"] == Stop("a", 5, "stopped", "region r restarts together: b: attempt 1 failed: boom")
        assert isinstance(actions["b"], Wait) and "a is to stop" in actions["b"].reason
    else:
        assert isinstance(actions["b"], Start)


@pytest.mark.parametrize("outcome", ["failed", "lost", "failed-permanent"])  # the last one comes back through a retry
def test_failures_take_others_back(outcome: str) -> None:
    assert isinstance(told(running("a", b=1), coming("b", outcome=outcome))["a"], Stop)


@pytest.mark.parametrize("outcome", ["stopped", "something newer"])
def test_what_is_no_failure_takes_nobody_back(outcome: str) -> None:
    actions = told(running("a", b=1), coming("b", outcome=outcome))
    assert actions == {"b": Start("b", 2, together=Together({"a": 1}))}


@pytest.mark.parametrize("state", ["QUARANTINED", "SUSPENDED", "CANCELLING", "FAILING"])
def test_what_does_not_come_back_takes_nobody_back(state: str) -> None:
    other = RegionMember(entry("b", state, attempt=1, outcome="failed"), NOTHING, frozenset(), ())
    assert told(running("a", b=1), other) == {}


def test_what_should_run_and_does_not_is_judged_for_itself_first() -> None:
    gone = running("a", b=1)._replace(alive=frozenset(), wanted=(Confirm("a", "it should run and does not"),))
    assert told(gone, coming("b"))["a"] == Confirm("a", "it should run and does not")
    silent = gone._replace(alive=None, wanted=(Wait("a", "the memory runner does not answer"),))
    assert told(silent, coming("b"))["a"] == Wait("a", "the memory runner does not answer")


def test_what_is_under_way_is_left_alone_and_waited_for() -> None:
    actions = told(coming("a", outcome="stopped")._replace(wanted=None), coming("b"))
    assert actions == {
        "b": Wait("b", "region r restarts together: a: what was begun for it is not done yet"),
    }  # fmt: skip


def test_all_wait_for_one_that_is_not_ready() -> None:
    actions = told(coming("a", outcome="stopped")._replace(wanted=(Settle("a", 1),)), coming("b"))
    assert actions["a"] == Settle("a", 1)
    assert actions["b"] == Wait("b", "region r restarts together: a: its last attempt is not settled yet")


def test_who_is_a_member() -> None:
    job = entry("a", "RUNNING")
    assert region_of(job) == REGION
    for other in (
        replace(job, region=None), replace(job, region=""), replace(job, runner=OUTSIDE), replace(job, retiring=True),
        replace(job, state=JobState.FINISHED), replace(job, state=JobState.CANCELED),
    ):  # fmt: skip
        assert region_of(other) is None


def test_a_first_start_is_made_at_once_and_recorded_beside_the_others() -> None:
    new = RegionMember(entry("c", "CREATED", next_attempt=1), NOTHING, frozenset(), (Start("c", 1),))
    quarantined = RegionMember(entry("q", "QUARANTINED", attempt=4, outcome="failed"), NOTHING, frozenset(), ())
    actions = told(running("a", 3, b=1), coming("b", 1), new, quarantined)
    assert actions["c"] == Start("c", 1, together=Together({"a": 3, "b": 2, "q": 4}))


# -- the cut -----------------------------------------------------------------------------------------------------------


def label_and_why(*members: RegionMember) -> tuple[str, str]:
    (start, *others) = told(*members).values()
    assert isinstance(start, Start) and start.together is not None
    assert all(isinstance(o, Start) and o.together and o.together.consistency == start.together.consistency for o in others)
    return start.together.consistency, start.together.reason


def test_what_is_verified_is_only_what_could_be_chosen_newest_first() -> None:
    a, b = coming("a", labels=["", "two", "one"]), coming("b", labels=["three", "two", "one"])
    assert told(a, b) == {
        "a": Verify("a", 2, (a.entry.restore_points[1],)), "b": Verify("b", 2, (b.entry.restore_points[1],)),
    }  # fmt: skip
    actions = told(knowing(a, two="invalid"), knowing(b, two="valid"))
    assert actions["b"] == Verify("b", 2, (b.entry.restore_points[2],))
    assert label_and_why(knowing(a, two="invalid", one="valid"), knowing(b, two="valid", one="valid"))[0] == "one"


def test_one_that_waits_for_others_to_be_verified_says_so() -> None:
    a, b = knowing(coming("a", labels=["one"]), one="valid"), coming("b", labels=["one"])
    assert told(a, b)["a"] == Wait("a", "region r restarts together: restore points of others are being verified")
    actions = told(a, knowing(b, one="unknown"))
    assert "can't be verified at the moment" in actions["a"].reason  # type: ignore[union-attr]
    assert isinstance(actions["b"], Verify)  # once more


def test_without_one_for_all_each_begins_from_its_newest_and_says_why() -> None:
    why = "region r restarts together: a (and 1 more): attempt 1 failed: boom"
    none = "no consistency label in common: each from its newest"
    assert label_and_why(coming("a", labels=["one"]), coming("b", labels=["two"])) == ("", f"{why}; {none}")
    a, b = coming("a", labels=["one"]), coming("b", labels=["one"])
    label, why = label_and_why(knowing(a, one="valid"), knowing(b, one="invalid"))
    assert label == "" and why.endswith("no consistency label is sound in all of them (one): each from its newest")


def test_one_alone_begins_from_its_newest_without_a_question() -> None:
    assert label_and_why(coming("a", labels=["one"])) == ("", "region r restarts together: a: attempt 1 failed: boom")


def test_a_retry_that_names_a_restore_point_leaves_no_other_choice() -> None:
    intent = WinningIntent("RETRY", 1, "u", 1, "1/9", False, "why", "op")
    a, b = coming("a", labels=["two", "one"], intent=intent), coming("b", labels=["one"])
    assert "no consistency label in common" in label_and_why(a, b)[1]
    spent = replace(intent, attempt=0)
    assert told(coming("a", labels=["two", "one"], intent=spent), b)["a"] == Verify("a", 2, (a.entry.restore_points[1],))


def test_from_the_label_on_downwards_then_what_is_newer() -> None:
    e = coming("a", labels=["", "two", "one"]).entry
    newest, two, one = e.restore_points
    assert points_from(e, "two") == ((two, one), (newest,))
    assert points_from(e, "") == points_from(e, "nowhere") == ((newest, two, one), ())


LABELS = st.lists(st.sampled_from(["", "1", "2", "3", "4"]), max_size=4)
ANSWER = st.sampled_from(["valid", "invalid"])


@given(st.lists(st.tuples(LABELS, st.lists(ANSWER, min_size=4, max_size=4)), min_size=2, max_size=4))
def test_the_cut_is_one_that_is_sound_everywhere_if_there_is_any_and_none_is_newer_everywhere(
    jobs: list[tuple[list[str], list[str]]],
) -> None:
    members, sound = [], []
    for i, (labels, answers) in enumerate(jobs):
        member = coming(f"j{i}", labels=labels)
        first: dict[str, int] = {}
        for at, label in enumerate(labels):
            first.setdefault(label, at)
        known = tuple((member.entry.restore_points[at], answers[at]) for label, at in first.items() if label)
        members.append(member._replace(known=Knowledge(verified=known)))
        sound.append({label: at for label, at in first.items() if label and answers[at] == "valid"})
    common = set.intersection(*(set(own) for own in sound))
    chosen, _ = label_and_why(*members)
    assert (chosen in common) if common else chosen == ""
    for other in common:
        assert not all(own[other] < own[chosen] for own in sound)


# -- together with other plans -----------------------------------------------------------------------------------------


def actions_beside(**states: RecoveryEntry) -> dict[str, list[Action]]:
    """The actions of a whole pass, in which each attempt that runs according to its entry is alive."""
    alive = [(j, e.attempt, True, "") for j, e in states.items() if e.state is JobState.RUNNING]
    views = {job_id: JobView(e, Knowledge(confirmed=True, settled=frozenset({e.attempt}))) for job_id, e in states.items()}
    found: dict[str, list[Action]] = {job_id: [] for job_id in states}
    for action in plan_actions(views, Observed({"memory": alive}), NO_POOLS, 99):
        found[action.job_id].append(action)
    return found


def test_while_one_job_replaces_another_the_two_are_of_no_region() -> None:
    """A job and its replacement ignore their region: a failure there stops neither, and the failed job starts without
    them."""
    failed = coming("failed").entry
    old = running("old", 1, failed=1).entry
    new = entry("new", "CREATED", next_attempt=1, replaces="old", inherits=True)
    alone = actions_beside(failed=failed, old=old)
    assert [type(action) for action in alone["old"]] == [Stop]
    paired = actions_beside(failed=failed, old=old, new=new)
    assert Stop not in [type(action) for action in paired["old"]]
    assert [type(action) for action in paired["failed"]] == [Start]
    # Once the old job is being retired, the new one is a member like any other.
    running_new = replace(new, state=JobState.RUNNING, attempt=1, known=True, together=Together({"failed": 1}))
    gone = replace(old, state=JobState.CANCELED, retiring=True)
    assert Stop in [type(action) for action in actions_beside(failed=failed, old=gone, new=running_new)["new"]]

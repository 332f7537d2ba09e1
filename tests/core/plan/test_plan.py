"""`decide`: the actions for one job, as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.core.model.facts import OnStall, RestorePoint, StallPolicy
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.plan.plan import (
    NOTHING,
    Close,
    Confirm,
    GiveUp,
    Knowledge,
    Lose,
    Retire,
    Settle,
    Start,
    StartAgain,
    Stop,
    StopStalled,
    Wait,
    decide,
)  # fmt: skip
from ledger.core.plan.pools import Pool, Pools
from ledger.core.plan.reconcile import JobView, Observed, slots_held
from ledger.core.plan.runner_report import ANY_INSTANCE, RunnerReport, stored_elsewhere

J = "job"
SETTLED_1 = Knowledge(settled=frozenset({1}))
CONFIRMED = Knowledge(confirmed=True)
AGENT, RECONCILER = "agent-1", "reconciler-1"


def entry(state: str, **rest: Any) -> RecoveryEntry:
    return RecoveryEntry(J, "n", "d", "memory", JobState(state), "0" * 64, **rest)


def forced(kind: str, attempt: int) -> WinningIntent:
    return WinningIntent(kind, 1, "u", attempt, "latest", True, "host burnt down", "op")


def alive(*attempts: int) -> frozenset[int]:
    return frozenset(attempts)


RESTARTING = entry("RESTARTING", attempt=1, next_attempt=2, outcome="failed", outcome_writer=AGENT, due=True)
LOST = replace(RESTARTING, outcome="lost", outcome_writer=RECONCILER)
RUNNING = entry("RUNNING", attempt=2, known=True)
STALLED = replace(RUNNING, stalled=True, stall_policy=StallPolicy(1.0, 3, OnStall.RESTART))
CANCELLING = entry("CANCELLING", attempt=1, next_attempt=2)

CASES: list[tuple[str, RecoveryEntry, frozenset[int] | None, Knowledge, list[Any]]] = [
    ("created: start 1", entry("CREATED", next_attempt=1), alive(), NOTHING, [Start(J, 1)]),
    ("created, runner away: wait", entry("CREATED", next_attempt=1), None, NOTHING, [Wait]),
    ("due, end told by the runner: start", RESTARTING, alive(), NOTHING, [Start(J, 2)]),
    ("not due: wait", replace(RESTARTING, due=False), alive(), NOTHING, [Wait]),
    ("runner away: wait", RESTARTING, None, NOTHING, [Wait]),
    ("end not told by the runner: settle first", LOST, alive(), NOTHING, [Settle(J, 1)]),
    ("no need to wait for due to settle", replace(LOST, due=False), alive(), NOTHING, [Settle(J, 1)]),
    ("settled: start", LOST, alive(), SETTLED_1, [Start(J, 2)]),
    ("another attempt settled is not this one", LOST, alive(), Knowledge(settled=frozenset({7})), [Settle(J, 1)]),
    ("something still runs: confirm first", LOST, alive(1), SETTLED_1, [Confirm]),
    ("confirmed: stop it", LOST, alive(1), Knowledge(frozenset({1}), True), [Stop]),
    ("runs as it should", RUNNING, alive(2), NOTHING, []),
    ("an older one runs beside: confirm", RUNNING, alive(1, 2), NOTHING, [Confirm]),
    ("confirmed: the older one is stopped", RUNNING, alive(1, 2), CONFIRMED, [Stop]),
    ("gone: confirm", RUNNING, alive(), NOTHING, [Confirm]),
    ("confirmed gone: settle, its end may be on its way", RUNNING, alive(), CONFIRMED, [Settle(J, 2)]),
    ("settled and gone: lost", RUNNING, alive(), Knowledge(frozenset({2}), True),
     [Lose(J, 2, "lost", "the runner does not know it any more")]),
    ("never seen: start the same again", replace(RUNNING, known=False), alive(), CONFIRMED, [StartAgain(J, 2)]),
    ("its start crashed: settle", replace(RUNNING, known=False), alive(),
     Knowledge(confirmed=True, crashed=((2, "boom"),)), [Settle(J, 2)]),
    ("its start crashed, settled: failed", replace(RUNNING, known=False), alive(),
     Knowledge(frozenset({2}), True, ((2, "boom"),)), [Lose(J, 2, "failed", "boom")]),
    ("stalled and only marked: left alone", replace(STALLED, stall_policy=StallPolicy(1.0)), alive(2), CONFIRMED, []),
    ("stalled: confirm first", STALLED, alive(2), NOTHING, [Confirm]),
    ("confirmed: stop it, unless its runner knows better", STALLED, alive(2), CONFIRMED, [StopStalled(J, 2)]),
    ("stalled and gone: that comes first", STALLED, alive(), CONFIRMED, [Settle(J, 2)]),
    ("stalled, runner away: wait", STALLED, None, CONFIRMED, [Wait]),
    ("a partial answer is no answer", RUNNING, None, CONFIRMED, [Wait]),
    ("suspended: stop", entry("SUSPENDED", attempt=1), alive(1), NOTHING, [Stop]),
    ("suspended and still: nothing", entry("SUSPENDED", attempt=1), alive(), NOTHING, []),
    ("quarantined: stop", entry("QUARANTINED", attempt=1, outcome="failed"), alive(1), NOTHING, [Stop]),
    ("cancelling: stop with its outcome", CANCELLING, alive(1), NOTHING, [Stop]),
    ("cancelling, nothing ran: close 1", entry("CANCELLING", next_attempt=1), alive(), NOTHING,
     [Close(J, 1, "canceled")]),
    ("cancelling, not settled", CANCELLING, alive(), NOTHING, [Settle(J, 1)]),
    ("cancelling, settled: close", CANCELLING, alive(), SETTLED_1, [Close(J, 2, "canceled")]),
    ("failing: closed as abandoned", replace(RESTARTING, state=JobState.FAILING), alive(),
     NOTHING, [Close(J, 2, "abandoned")]),
    ("finished, still alive: stop first", entry("FINISHED", attempt=1), alive(1), NOTHING, [Stop]),
    ("finished: retire", entry("FINISHED", attempt=1), alive(), NOTHING, [Retire(J)]),
    ("finished, runner away: wait", entry("FINISHED", attempt=1), None, NOTHING, [Wait]),
    ("retiring: the projector's work", entry("FINISHED", retiring=True), alive(), NOTHING, []),
    ("forced retry, no end known: give up", replace(RUNNING, intent=forced("RETRY", 2)), None, NOTHING,
     [GiveUp(J, 2)]),
    ("forced: settled without the runner", replace(LOST, intent=forced("RETRY", 1)), alive(), NOTHING, [Start(J, 2)]),
    ("force covers what it names, not what came after", replace(LOST, attempt=2, intent=forced("RETRY", 1)), alive(),
     NOTHING, [Settle(J, 2)]),
    ("forced cancel needs no answer", replace(CANCELLING, outcome="lost", intent=forced("CANCEL", 1)), None,
     NOTHING, [Close(J, 2, "canceled", forced=True)]),
    ("forced retirement needs no answer", entry("CANCELED", attempt=1, intent=forced("CANCEL", 1)), None, NOTHING,
     [Retire(J, forced=True)]),
    ("what was given up by force goes if it is there", entry("RUNNING", attempt=2, known=True,
     intent=forced("RETRY", 1)), alive(1, 2), CONFIRMED, [Stop]),
    ("force is no word about later attempts", entry("CANCELED", attempt=2, intent=forced("CANCEL", 1)), None, NOTHING,
     [Wait]),
    ("unknown state: nobody guesses", entry("UNKNOWN", attempt=1), alive(1), CONFIRMED, [Wait]),
]  # fmt: skip


@pytest.mark.parametrize(("entry_", "alive_", "known", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_decide(entry_: RecoveryEntry, alive_: frozenset[int] | None, known: Knowledge, wanted: list[Any]) -> None:
    actions = decide(entry_, RunnerReport(alive_, "silent"), known)
    assert len(actions) == len(wanted)
    for action, want in zip(actions, wanted, strict=True):
        assert isinstance(action, want) if isinstance(want, type) else (action == want and type(action) is type(want))


def test_the_order_of_a_stop_is_its_outcome() -> None:
    assert [a.outcome for a in decide(CANCELLING, RunnerReport(alive(1))) if isinstance(a, Stop)] == ["canceled"]
    assert [a.outcome for a in decide(entry("FAILING", attempt=1), RunnerReport(alive(1))) if isinstance(a, Stop)] == [
        "stopped"
    ]
    assert [a.outcome for a in decide(entry("SUSPENDED", attempt=1), RunnerReport(alive(1))) if isinstance(a, Stop)] == [
        "stopped"
    ]


# -- several instances of a runner ---------------------------------------------------------------------------------------

HERE, THERE = "agent-here", "agent-there"
THEIRS = replace(RUNNING, instance=THERE)
HELD_THERE = f"attempt 2 is held by {THERE}, which this reconciler can't reach ({HERE} answers)"


def answers(*attempts: tuple[int, bool], instance: str = HERE) -> Observed:
    return Observed({"memory": [(J, n, runs, "") for n, runs in attempts]}, instances={"memory": instance})


def planned(entry_: RecoveryEntry, observed: Observed, known: Knowledge = CONFIRMED) -> tuple[Any, ...]:
    return decide(entry_, observed.of(entry_), known)


HELD_CASES: list[tuple[str, RecoveryEntry, Observed, list[Any]]] = [
    ("held there: wait", THEIRS, answers(), [Wait(J, HELD_THERE)]),
    ("never seen, held there: nobody else starts it", replace(THEIRS, known=False), answers(), [Wait(J, HELD_THERE)]),
    ("the one that holds it answers", THEIRS, answers((2, True), instance=THERE), []),
    ("and misses it: settle", THEIRS, answers(instance=THERE), [Settle(J, 2)]),
    ("a runner without instances answers: it is not the one", THEIRS, answers(instance=""), [Wait]),
    ("a runner without instances all along", RUNNING, answers(instance=""), [Settle(J, 2)]),
    ("what was given up by force and runs here is stopped", THEIRS, answers((1, True)), [Stop]),
    ("given up by a reconciler, held there: no settling here", replace(LOST, instance=THERE), answers(), [Wait]),
    ("over by its own word: the next may begin here", replace(RESTARTING, instance=THERE), answers(), [Start(J, 2)]),
    ("cancelling, held there: wait", replace(CANCELLING, instance=THERE), answers(), [Wait]),
    ("cancelling, over by its own word: close", replace(RESTARTING, state=JobState.CANCELLING, instance=THERE), answers(),
     [Close(J, 2, "canceled")]),
    ("suspended, held there: wait", entry("SUSPENDED", attempt=1, instance=THERE), answers(), [Wait]),
    ("over: retired by the one that keeps its files", entry("FINISHED", attempt=1, outcome="finished",
     outcome_writer=AGENT, instance=THERE), answers(), [Wait]),
    ("closed before it began: the one before it counts", entry("CANCELED", attempt=2, outcome="canceled",
     outcome_writer=RECONCILER, instance=THERE), answers(), [Wait(J, HELD_THERE.replace("2", "1", 1))]),
    ("forced: no word of it is needed", replace(CANCELLING, outcome="lost", instance=THERE, intent=forced("CANCEL", 1)),
     answers(), [Close(J, 2, "canceled", forced=True)]),
    ("no record of it names one, and it is not known here: wait", RUNNING, answers(), [Wait]),
    ("no record of it names one, and it is known here", RUNNING, answers((2, False)), [Settle(J, 2)]),
    ("no record of it names one, and nobody gave a sign of it: start again", replace(RUNNING, known=False), answers(),
     [StartAgain(J, 2)]),
    ("the log alone answers for all", THEIRS, answers((2, True), instance=ANY_INSTANCE), []),
]  # fmt: skip


@pytest.mark.parametrize(("entry_", "observed", "wanted"), [c[1:] for c in HELD_CASES], ids=[c[0] for c in HELD_CASES])
def test_an_instance_answers_for_its_own_attempts_alone(
    entry_: RecoveryEntry, observed: Observed, wanted: list[Any]
) -> None:
    actions = planned(entry_, observed)
    assert len(actions) == len(wanted)
    for action, want in zip(actions, wanted, strict=True):
        assert isinstance(action, want) if isinstance(want, type) else (action == want and type(action) is type(want))


def test_what_holds_an_attempt_holds_its_slots_whoever_answers() -> None:
    pools = Pools([Pool("p", 3)])
    assert slots_held({J: JobView(THEIRS)}, answers(), pools)["p"] == 1


def test_only_the_instance_that_made_a_restore_point_can_call_it_invalid() -> None:
    mine, theirs, outside = RestorePoint(2, 1, "/m"), RestorePoint(1, 7, "/t"), RestorePoint(0, 0, "/o")
    points = (mine, theirs, outside)
    report = answers((2, False)).of(RESTARTING)
    assert stored_elsewhere(points, RESTARTING, report) == (theirs,)
    assert stored_elsewhere(points, replace(RESTARTING, intent=forced("RETRY", 1)), report) == ()
    assert stored_elsewhere(points, RESTARTING, answers(instance="").of(RESTARTING)) == ()


def test_what_an_instance_made_of_the_newest_attempt_lies_with_it_though_it_has_forgotten_that() -> None:
    points = (RestorePoint(1, 1, "a"), RestorePoint(2, 7, "b"))
    entry = replace(RESTARTING, attempt=2, instance="here")
    forgetful = RunnerReport(frozenset(), instance="here")
    assert stored_elsewhere(points, entry, forgetful) == points[:1]
    assert stored_elsewhere(points, entry, forgetful._replace(instance="there")) == points


def test_one_fence_settles_however_often_the_log_moves_on() -> None:
    """The entry reaches the end that the log had at the time of the fence."""
    fenced = Knowledge(confirmed=True, fenced=frozenset({2}))
    (action,) = decide(RUNNING, RunnerReport(alive()), fenced)
    assert isinstance(action, Wait) and action.reason.startswith("attempt 2 is fenced; its entry")

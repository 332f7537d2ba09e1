"""The next step between a job and the job that it replaces: single cases, and laws over all of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ledger.core.model.facts import CheckpointKind, GraphRef, IntentKind, Replacement, RestorePoint
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.plan.plan import Declare, Inherited, Knowledge, Refuse, Retire, Settle, Start, StartAgain, Stop, Wait
from ledger.core.plan.pools import NO_POOLS, Pool, Pools
from ledger.core.plan.reconcile import JobView, Observed, plan_actions
from ledger.core.plan.replacing import CANCEL, RESUME, STOP, ReplacementStep, Side, intent_id, is_stop, step
from tests.support.registers import entry as folded
from tests.support.registers import point, spec, started

S = JobState
GRAPH = GraphRef("graphs/x", "0" * 64, 1)
SAVEPOINT = RestorePoint(1, 9, "/sav-9", kind=CheckpointKind.SAVEPOINT)
A = "agent-a"


def intent(kind: str, rev: int, id_: str = "human", **rest: Any) -> WinningIntent:
    return WinningIntent(kind, rev, id_, 0, "latest", False, "why", "ann", **rest)


STOPPED = intent("SUSPEND", 1, intent_id("new", STOP), savepoint=True)


def job(job_id: str, state: JobState, attempt: int = 0, outcome: str = "", **rest: Any) -> RecoveryEntry:
    fields = {"next_attempt": attempt + 1 if outcome or not attempt else 0, "graph": GRAPH, "known": attempt > 0, **rest}
    return RecoveryEntry(
        job_id, "etl", "prod", "memory", state, "d" * 64, attempt, outcome=outcome,
        outcome_writer=A if outcome else "", **fields,
    )  # fmt: skip


def new(state: JobState = S.CREATED, attempt: int = 0, outcome: str = "", alive: int = 0, **rest: Any) -> Side:
    fields = {"replaces": "old", "inherits": not rest.get("restore_points"), "begun": attempt > 0, **rest}
    steady = fields.pop("steady", False)
    return Side(job("new", state, attempt, outcome, **fields), frozenset({alive} if alive else ()), steady=steady)


def old(state: JobState = S.RUNNING, attempt: int = 1, outcome: str = "", alive: int = 0, **rest: Any) -> Side:
    return Side(job("old", state, attempt, outcome, **rest), frozenset({alive} if alive else ()))


HELD = old(S.SUSPENDED, 1, "stopped", intent=STOPPED, restore_points=(SAVEPOINT,), restore_from_named=True)


def declared(found: ReplacementStep) -> tuple[str, int, str] | None:
    d = found.declare
    return (d.fact.kind, d.rev, d.id) if d is not None else None


# -- single cases ------------------------------------------------------------------------------------------------------


def test_the_old_one_is_told_to_stop_with_a_savepoint():
    found = step(new(), old(alive=1))
    assert declared(found) == ("SUSPEND", 1, intent_id("new", STOP))
    assert found.declare.fact.savepoint and found.wait == "waits for old to stop with a savepoint"


def test_where_no_savepoint_is_wanted_none_is_made():
    found = step(new(inherits=False, replacement=Replacement("scratch")), old(alive=1))
    assert not found.declare.fact.savepoint and found.wait == "waits for old to stop"


def test_once_it_is_held_nothing_is_said_again():
    held = old(S.SUSPENDED, alive=1, intent=STOPPED)
    assert step(new(), held) == ReplacementStep(wait="waits for old to stop with a savepoint")


def test_the_new_one_begins_once_the_old_one_is_at_rest():
    point = replace(SAVEPOINT, attempt=0, id=0)
    assert step(new(), HELD) == ReplacementStep(inherited=Inherited((point,), True))


@pytest.mark.parametrize(
    ("side", "expect"),
    [
        (HELD._replace(alive=frozenset({1})), ReplacementStep(wait="waits for old to stop with a savepoint")),
        (HELD._replace(alive=None, entry=replace(HELD.entry, outcome_writer="reconciler-1")),
         ReplacementStep(wait="waits for old: the memory runner does not answer")),
        (HELD._replace(entry=replace(HELD.entry, outcome_writer="reconciler-1")),
         ReplacementStep(wait="waits for old to stop with a savepoint", settle="old")),
        (HELD._replace(idle=False), ReplacementStep(wait="waits for old to come to rest")),
        (HELD._replace(starting=2), ReplacementStep(wait="waits for old to stop with a savepoint")),
    ],
)  # fmt: skip
def test_it_waits_as_long_as_anything_may_come_of_the_old_one(side, expect):
    assert step(new(), side) == expect


def test_what_its_runner_said_is_enough_where_it_is_silent_now():
    assert step(new(), HELD._replace(alive=None)).inherited is not None


@pytest.mark.parametrize("kind", ["RUN", "RETRY", "UNKNOWN"])
def test_people_who_want_the_old_one_again_go_before_it(kind):
    wanted = old(S.RUNNING, alive=1, intent=intent(kind, 2))
    assert step(new(), wanted).declare is None and "ann" in step(new(), wanted).wait
    later = new(replacement=Replacement(after_rev=2))
    assert declared(step(later, wanted)) == ("SUSPEND", 3, intent_id("new", STOP))


@pytest.mark.parametrize(
    ("side", "words"),
    [
        (None, "old, which it replaces, is retired or was never there"),
        (old(S.FINISHED, 1, "finished"), "finished before it could be stopped"),
        (Side(replace(HELD.entry, job_id="new"), frozenset()), "can't replace itself"),
        (old(S.CANCELED, 1, "canceled", replaces="first", begun=False), "was over before it began"),
    ],
)
def test_what_can_never_begin_is_refused(side, words):
    assert words in step(new(), side).refuse


def test_what_has_begun_needs_the_old_one_no_more():
    assert step(new(S.RESTARTING, 1, "failed"), None) == ReplacementStep()
    assert step(new(S.RESTARTING, 1, "failed", begun=False), None).refuse


def test_of_two_that_replace_a_job_one_is_refused():
    assert "is being replaced by other" in step(new(), old(), rival="other").refuse


def test_links_of_a_chain_go_one_by_one():
    assert step(new(), old(), before="first").wait == "waits for old to take over from first first"
    assert "first" in step(new(), old(S.CREATED, 0, replaces="first")).wait


@pytest.mark.parametrize(
    ("side", "cancels"),
    [
        (new(S.RUNNING, 1, alive=1), False),
        (new(S.RUNNING, 1, alive=1, steady=True), True),
        (new(S.RUNNING, 1, alive=1, steady=True, known=False), False),
        (new(S.RUNNING, 1, alive=1, restore_points=(RestorePoint(1, 1, "/chk-1"),)), True),
        (new(S.RUNNING, 1, alive=1, restore_points=(RestorePoint(0, 0, "/sav-9"),)), False),
        (new(S.FINISHED, 1, "finished"), True),
        (new(S.RESTARTING, 1, "failed"), False),
        (new(S.SUSPENDED, 1, "stopped"), False),
    ],
)
def test_the_old_one_is_canceled_once_the_new_one_has_proved_itself(side, cancels):
    found = step(side, HELD)
    assert declared(found) == (("CANCEL", 2, intent_id("new", CANCEL)) if cancels else None)
    assert found.unfinished is cancels


def test_and_not_canceled_where_people_brought_it_back():
    side = new(S.RUNNING, 1, alive=1, steady=True)
    assert step(side, old(S.RESTARTING, 1, "stopped", intent=intent("RUN", 2))) == ReplacementStep()
    assert step(side, old(S.CANCELLING, 1, "stopped", intent=intent("CANCEL", 2))) == ReplacementStep()


@pytest.mark.parametrize("state", [S.QUARANTINED, S.CANCELED, S.FAILED])
def test_the_old_one_is_resumed_if_the_new_one_is_given_up(state):
    found = step(new(state, 1, "failed"), HELD)
    assert declared(found) == ("RUN", 2, intent_id("new", RESUME)) and found.unfinished


def test_but_not_as_long_as_anything_may_come_of_the_new_one():
    given_up = new(S.QUARANTINED, 1, "failed-permanent")
    unsettled = given_up._replace(entry=replace(given_up.entry, outcome_writer="reconciler-1"))
    assert step(unsettled, HELD) == ReplacementStep(settle="new", unfinished=True)
    assert declared(step(unsettled._replace(known=Knowledge(settled=frozenset({1}))), HELD))
    assert step(given_up._replace(alive=frozenset({1})), HELD) == ReplacementStep(unfinished=True)
    assert step(given_up._replace(starting=2), HELD) == ReplacementStep(unfinished=True)


def test_and_not_if_somebody_else_holds_it():
    for held in (intent("SUSPEND", 1), intent("SUSPEND", 2, intent_id("another", STOP))):
        assert step(new(S.QUARANTINED, 1, "failed"), old(S.SUSPENDED, 1, "stopped", intent=held)) == ReplacementStep()


def test_an_intents_id_names_its_step_and_nothing_else_is_taken_for_it():
    assert is_stop(intent_id("x" * 128, STOP)) and not is_stop(intent_id("x", CANCEL)) and not is_stop("u-1")
    assert len(intent_id("x" * 128, RESUME)) <= 64


# -- the fold ----------------------------------------------------------------------------------------------------------


SPEC = f"spec/{'d' * 64}"


def fold_of(*names: str, facts: dict[str, Any] | None = None) -> RecoveryEntry:
    from tests.support.registers import DIGEST

    return folded(*names, facts={f"spec/{DIGEST}": spec(replaces="old"), **(facts or {})})


def test_it_inherits_until_it_has_a_checkpoint_of_its_own_or_is_told_otherwise():
    left = replace(started(), base=RestorePoint(0, 0, "/sav-9"))
    assert fold_of().inherits and not fold_of().begun
    begun = fold_of(f"ended/1/failed/{A}", facts={"attempt/1/1": left})
    assert begun.inherits and begun.begun and [p.location for p in begun.restore_points] == ["/sav-9"]
    own = fold_of("checkpoint/1/4", f"ended/1/failed/{A}", facts={"attempt/1/1": left})
    assert not own.inherits and own.restore_points[0] == point("1/4")
    assert not folded().inherits


# -- a pass ------------------------------------------------------------------------------------------------------------


def passed(*views: JobView, alive: dict[str, int], unread: str = "", unreadable: tuple[str, ...] = ()) -> list[Any]:
    observed = Observed({"memory": [(job_id, n, True, "x") for job_id, n in alive.items()]})
    return plan_actions({v.entry.job_id: v for v in views}, observed, NO_POOLS, 99, unread, unreadable)


def test_a_stop_comes_before_all_else_that_is_wanted_of_the_old_one():
    asked = JobView(replace(old().entry, asks=("a",)))
    found = passed(JobView(new().entry), asked, alive={"old": 1})
    assert [type(a).__name__ for a in found] == ["Declare", "Wait", "AskSavepoint"]


def test_nothing_of_it_is_judged_before_all_is_read():
    found = passed(JobView(new().entry), JobView(old().entry), alive={"old": 1}, unread="not yet")
    assert found == [Wait("new", "not yet")]
    back = old(S.RESTARTING, 1, "stopped", intent=intent("RUN", 2), due=True)
    assert passed(JobView(back.entry), alive={}, unread="not yet") == [Wait("old", "not yet")]
    over = JobView(old(S.FINISHED, 1, "finished").entry)
    assert passed(over, alive={}, unread="not yet") == [Wait("old", "not yet")]


def test_an_old_one_that_can_not_be_read_is_waited_for():
    (found,) = passed(JobView(new().entry), alive={}, unreadable=("old",))
    assert isinstance(found, Wait) and "can't be read" in found.reason


@pytest.mark.parametrize("state", [S.FINISHED, S.CANCELED])
def test_the_new_one_is_not_retired_before_the_old_one_was_told(state):
    over = JobView(new(state, 1, "finished").entry)
    busy = JobView(HELD.entry, idle=False)
    assert passed(over, busy, alive={})[0] == Wait("new", "old must be told first what became of it")
    told = [type(a).__name__ for a in passed(over, JobView(HELD.entry), alive={})]
    assert told == ["Declare", "Wait"]
    done = JobView(replace(HELD.entry, intent=intent("RUN", 2, intent_id("new", RESUME))))
    assert Retire("new") in passed(JobView(replace(over.entry, state=S.CANCELED)), done, alive={})


def test_the_old_one_says_what_it_is_held_for():
    begins = JobView(new(S.RUNNING, 1, alive=1).entry)
    (held,) = passed(begins, JobView(HELD.entry), alive={"new": 1})
    assert held == Wait("old", "new replaces it: canceled once that runs, resumed if that is given up")


def test_what_its_own_producer_runs_is_not_told_to_stop():
    theirs = JobView(replace(old().entry, runner="outside"))
    (found,) = [a for a in passed(JobView(new().entry), theirs, alive={}) if a.job_id == "new"]
    assert isinstance(found, Wait) and "run by its own producer" in found.reason


def test_in_a_pool_it_goes_before_what_never_ran():
    """The old job would go first as well, and the new one starts from its restore points."""
    other = JobView(job("a-job", S.CREATED))
    views = {"a-job": other, "new": JobView(new().entry), "old": JobView(HELD.entry)}
    found = plan_actions(views, Observed({"memory": []}), Pools([Pool("p", 1)]), 99)
    assert [a.job_id for a in found if isinstance(a, Start)] == ["new"]


def test_what_another_took_over_is_kept():
    over = JobView(old(S.CANCELED, 1, "canceled", restore_points=(SAVEPOINT,)).entry)
    taken = new(S.RUNNING, 1, alive=1, restore_points=(RestorePoint(0, 0, "/sav-9"),)).entry
    assert passed(JobView(taken), over, alive={"new": 1}) == [Wait("old", "the job that replaced it may begin from 1/9")]
    own = replace(taken, restore_points=(RestorePoint(1, 1, "/chk-1"),))
    assert passed(JobView(own), over, alive={"new": 1}) == [Retire("old")]
    # the new job takes over a restore point of a job two replacements back
    last = replace(taken, job_id="third", replaces="new")
    assert passed(JobView(last), over, alive={"third": 1}) == [Wait("old", "the job that replaced it may begin from 1/9")]


# -- laws --------------------------------------------------------------------------------------------------------------

INTENTS = [
    None, STOPPED, intent("SUSPEND", 1), intent("RUN", 1), intent("RUN", 2), intent("RETRY", 3),
    intent("RUN", 2, intent_id("new", RESUME)), intent("CANCEL", 2), intent("CANCEL", 2, intent_id("new", CANCEL)),
]  # fmt: skip
STATE_OF = {"SUSPEND": S.SUSPENDED, "CANCEL": S.CANCELLING}


def drawn(rng: random.Random, job_id: str) -> tuple[JobView, frozenset[int]]:
    """A job in a random state, and its attempts that are alive."""
    wins = rng.choice(INTENTS) if job_id == "old" else None
    states = [S.CREATED, S.RUNNING, S.RESTARTING, S.QUARANTINED, S.FINISHED, S.CANCELED, S.FAILED, S.SUSPENDED]
    state = STATE_OF.get(wins.kind if wins else "", rng.choice(states))
    n = 0 if state is S.CREATED else rng.randint(1, 2)
    ended = state not in (S.CREATED, S.RUNNING) and (state not in (S.SUSPENDED, S.CANCELLING) or rng.random() < 0.5)
    alive = frozenset(k for k in range(1, n + 1) if rng.random() < 0.3)
    found = job(job_id, state, n, "stopped" if ended else "", intent=wins, due=rng.random() < 0.5)
    found = replace(found, outcome_writer=rng.choice([A, "reconciler-1"]) if ended else "")
    if job_id == "new":
        own = rng.choice([(), (RestorePoint(0, 0, "/sav-9"),), (RestorePoint(1, 1, "/chk-1"),)])
        found = replace(
            found, replaces="old", inherits=rng.random() < 0.5, begun=n > 0, restore_points=own,
            replacement=Replacement(after_rev=rng.randint(0, 1)),
        )  # fmt: skip
    else:
        found = replace(found, restore_points=rng.choice([(), (SAVEPOINT,)]))
    known = Knowledge(frozenset(k for k in (1, 2) if rng.random() < 0.5), rng.random() < 0.5)
    starting = rng.choice([0, 0, n + 1])
    return JobView(found, known, rng.random() < 0.7, "", starting, False, rng.random() < 0.5), alive


@pytest.mark.parametrize("seed", range(20))
def test_laws_of_a_pass(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        check_laws(drawn(rng, "new"), drawn(rng, "old"), rng.random() < 0.8)


def check_laws(one: tuple[JobView, frozenset[int]], two: tuple[JobView, frozenset[int]], answers: bool) -> None:
    (n, n_alive), (o, o_alive) = one, two
    if not answers:  # a runner that reported the end of the last attempt has no attempt alive
        n_alive = frozenset() if n.entry.outcome_writer == A else n_alive
        o_alive = frozenset() if o.entry.outcome_writer == A else o_alive
    listed = [("new", k, True, "x") for k in n_alive] + [("old", k, True, "x") for k in o_alive]
    observed = Observed({"memory": listed if answers else None})
    found = plan_actions({"new": n, "old": o}, observed, NO_POOLS, 99)
    starts = {a.job_id for a in found if isinstance(a, Start | StartAgain)}
    declares = [a for a in found if isinstance(a, Declare)]
    # Never both: neither job starts while the other runs, may start, or starts too.
    assert len(starts) <= 1 or not n.entry.next_attempt
    if "new" in starts and n.entry.state in (S.CREATED, S.RESTARTING):
        assert not o_alive and not o.starting and o.idle and o.entry.state not in (S.CREATED, S.RUNNING, S.RESTARTING)
    if "old" in starts:
        assert not n_alive and not n.starting and n.entry.state is not S.RUNNING
    assert not (declares and "old" in starts)
    # At most one intent at a time, for the old job only, never for a job that is over, and never one that is recorded
    # already.
    assert len(declares) <= 1
    for d in declares:
        assert d.job_id == "old" and not o.entry.terminal and o.idle
        assert o.entry.intent is None or o.entry.intent.id != d.id
        assert d.fact.kind is not IntentKind.CANCEL or n.entry.state in (S.RUNNING, S.FINISHED)
        assert d.fact.kind is not IntentKind.RUN or (not n_alive and n.entry.state in (S.QUARANTINED, S.CANCELED, S.FAILED))
        # An operator's intent after the replacement stays in effect.
        wins = o.entry.intent
        if wins is not None and wins.rev > n.entry.replacement.after_rev and wins.kind in ("RUN", "RETRY"):
            raise AssertionError(f"{d} overrules {wins}")
    # No job is retired while the other one may start from its restore points.
    if any(isinstance(a, Retire) and a.job_id == "old" for a in found):
        assert n.entry.terminal or n.entry.begun
    for a in found:
        assert isinstance(a, Start | Stop | Settle | Refuse | Declare | Retire | Wait) or a.job_id in ("new", "old")

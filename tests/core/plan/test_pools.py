"""`admit`: which jobs start now, in what order, and which wait for slots; which attempts hold slots. Tables, then
properties."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.model.facts import RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.plan.plan import Action, Start, StartAgain, Stop, Wait
from ledger.core.plan.pools import NO_POOLS, Pool, Pools, admit, holding, urgency
from ledger.core.plan.reconcile import JobView, Observed, plan_actions, slots_held

POOL = Pools([Pool("p", 4)])


def entry(job_id: str = "job", state: str = "CREATED", **rest: Any) -> RecoveryEntry:
    return RecoveryEntry(job_id, "n", rest.pop("namespace", "d"), "memory", JobState(state), "0" * 64, **rest)


def created(job_id: str, slots: int = 1, priority: int = 0, point: tuple[int, int] | None = None) -> RecoveryEntry:
    points = (RestorePoint(*point, "/c"),) if point else ()
    return entry(job_id, next_attempt=1, slots=slots, priority=priority, restore_points=points)


def starts(jobs: list[RecoveryEntry], pools: Pools = POOL, held: int = 0, **rest: Any) -> list[Action]:
    entries = {job.job_id: job for job in jobs}
    return admit([Start(j.job_id, 1) for j in jobs], entries, Counter(p=held), pools, 99, **rest)


def started(actions: list[Action]) -> list[str]:
    return [action.job_id for action in actions if isinstance(action, Start | StartAgain)]


def waits(actions: list[Action]) -> dict[str, str]:
    return {action.job_id: action.reason for action in actions if isinstance(action, Wait)}


# -- order and rate ----------------------------------------------------------------------------------------------------


def test_starts_go_by_priority_then_newest_restore_point_then_id_and_wait_beyond_the_rate() -> None:
    jobs = [
        created("b"), created("a"), created("old", point=(1, 3)), created("new", point=(2, 1)),
        created("first", priority=9),
    ]  # fmt: skip
    stop = Stop("x", 1, "stopped", "")
    entries = {j.job_id: j for j in jobs}
    admitted = admit([*(Start(j.job_id, 1) for j in jobs), stop], entries, {}, NO_POOLS, 4)
    assert [a.job_id for a in admitted] == ["x", "first", "new", "old", "a", "b"]
    assert admitted[-1] == Wait("b", "start rate")


# -- slots -------------------------------------------------------------------------------------------------------------


def test_what_fits_starts_and_the_rest_says_what_it_waits_for() -> None:
    told = starts([created("a", 2), created("b", 3), created("c", 1)], held=1)
    assert started(told) == ["a"]
    assert waits(told) == {
        "b": "waiting for slots: needs 3, 1 of 4 free in pool p",
        "c": "waiting for slots: needs 1, 1 of 4 free in pool p, behind 1 other",
    }


def test_a_big_job_at_the_head_is_not_overtaken_however_long_it_waits() -> None:
    told = starts([created("big", 4, priority=1), created("small", 1), created("tiny", 1)], held=1)
    assert started(told) == []
    assert waits(told)["tiny"] == "waiting for slots: needs 1, 3 of 4 free in pool p, behind 2 others"
    assert started(starts([created("big", 4, priority=1), created("small", 1)], held=0)) == ["big"]


def test_a_job_that_wants_more_than_there_is_holds_up_nobody() -> None:
    told = starts([created("huge", 5, priority=1), created("small", 4)])
    assert started(told) == ["small"]
    assert waits(told) == {
        "huge": "waiting for slots: needs 5, and pool p has 4 in all; "
        "raise pools.p.slots, or cancel it and submit it anew with fewer"
    }


def test_a_pool_that_is_full_does_not_hold_up_others() -> None:
    pools = Pools([Pool("p", 1, frozenset({"d"})), Pool("q", 1, frozenset({"e"}))])
    jobs = [created("a"), created("b"), replace(created("c"), namespace="e"), replace(created("d"), namespace="f")]
    assert started(starts(jobs, pools)) == ["a", "c", "d"]


def test_a_start_that_was_just_put_off_goes_last_and_holds_up_nobody() -> None:
    jobs = [created("first", 3, priority=9), created("second", 2)]
    assert started(starts(jobs)) == ["first"]
    assert started(starts(jobs, backoff={"first"})) == ["second"]
    assert started(starts(jobs[:1], backoff={"first"})) == ["first"]  # there is room, so the start is tried
    full = [created("first", 4, priority=9), created("second", 1), created("third", 1)]
    assert started(starts(full, held=2, backoff={"first"})) == ["second", "third"]


def test_nothing_starts_in_a_pool_before_it_is_known_what_holds_its_slots() -> None:
    jobs = [created("a"), replace(created("b"), namespace="free")]
    told = starts(jobs, Pools([Pool("p", 4, frozenset({"d"}))]), unread="not read yet")
    assert started(told) == ["b"] and waits(told) == {"a": "not read yet"}


def test_what_is_started_again_has_its_slots_already() -> None:
    again = entry("again", "RUNNING", attempt=1, slots=4)
    told = admit([StartAgain("again", 1)], {"again": again}, {"p": 4}, POOL, 9)
    assert started(told) == ["again"]


def test_the_pool_that_names_a_job_more_precisely_counts() -> None:
    named, ours = frozenset({"d"}), frozenset({"memory"})
    pools = Pools([Pool("rest", 1), Pool("r", 2, runners=ours), Pool("space", 3, named), Pool("exact", 4, named, ours)])
    found = [pools.of(e) for e in (entry(), entry(namespace="x"))]
    assert [pool and pool.name for pool in found] == ["exact", "r"]
    assert pools.of(entry(slots=0)) is None and pools.of(replace(entry(), runner="outside")) is None
    with pytest.raises(ValueError, match="take the same jobs"):
        Pools([Pool("a", 1, frozenset({"x", "y"})), Pool("b", 1, frozenset({"y", "z"}))])


# -- attempts that hold slots ------------------------------------------------------------------------------------------

FORCED = WinningIntent("RETRY", 1, "u", 1, "latest", True, "host burnt down", "op")
NOBODY = frozenset[int]()


@pytest.mark.parametrize(
    ("entry_", "alive", "before", "starting", "held"),
    [
        (entry(), NOBODY, NOBODY, 0, set()),
        (entry(), NOBODY, NOBODY, 1, {1}),
        (entry(state="RUNNING", attempt=1), NOBODY, NOBODY, 0, {1}),  # recorded, and the runner does not have it yet
        # the attempt is gone, whatever end will be recorded
        (entry(state="RUNNING", attempt=1, known=True), NOBODY, NOBODY, 0, set()),
        (entry(state="RUNNING", attempt=1, known=True), {1}, NOBODY, 0, {1}),
        (entry(state="RUNNING", attempt=2, known=True), {1, 2}, NOBODY, 0, {1, 2}),  # superseded, but still alive
        (entry(state="FINISHED", attempt=1, outcome="finished"), {1}, NOBODY, 0, {1}),  # over, but still alive
        (entry(state="SUSPENDED", attempt=1), {1}, NOBODY, 0, {1}),
        (entry(state="SUSPENDED", attempt=1), NOBODY, NOBODY, 0, set()),
        (entry(state="RESTARTING", attempt=1, outcome="failed"), NOBODY, NOBODY, 0, set()),
        # the runner is silent: the attempt was started and has no end
        (entry(state="RUNNING", attempt=1, known=True), None, NOBODY, 0, {1}),
        (entry(state="RUNNING", attempt=2, known=True), None, {1, 2}, 0, {1, 2}),
        # the runner is silent, but the end is known
        (entry(state="RESTARTING", attempt=1, outcome="failed"), None, {1}, 0, set()),
        (entry(state="RUNNING", attempt=1, known=True, intent=FORCED), None, {1}, 0, set()),  # a forced retry
        (entry(state="RUNNING", attempt=2, intent=FORCED), {1}, NOBODY, 0, {2}),
    ],
)  # fmt: skip
def test_what_holds_slots(entry_: RecoveryEntry, alive: Any, before: Any, starting: int, held: set[int]) -> None:
    assert holding(entry_, None if alive is None else frozenset(alive), frozenset(before), starting) == held


def test_a_silent_runner_holds_what_it_had_until_it_answers() -> None:
    views = {"job": JobView(entry(state="RESTARTING", attempt=2, slots=3))}
    first = Observed({"memory": [("job", 1, True, "")]})
    silent = Observed({"memory": None}, first)
    still = Observed({"memory": None}, silent)
    assert slots_held(views, still, POOL) == {"p": 6}
    assert slots_held(views, Observed({"memory": []}, still), POOL)["p"] == 0


def test_what_runs_without_an_entry_holds_a_slot_wherever_it_may_belong() -> None:
    mine, other = Pool("mine", 4, runners=frozenset({"memory"})), Pool("other", 4, runners=frozenset({"x"}))
    pools = Pools([Pool("p", 4), mine, other])
    observed = Observed({"memory": [("ghost", 1, True, ""), ("ghost", 2, True, ""), ("gone", 1, False, "")]})
    assert slots_held({}, observed, pools) == {"p": 2, "mine": 2}


def test_what_runs_with_another_runner_under_a_jobs_id_holds_a_slot_beside_the_job() -> None:
    pools = Pools([Pool("mine", 4, runners=frozenset({"memory"})), Pool("other", 4, runners=frozenset({"x"}))])
    views = {"job": JobView(entry(state="RUNNING", attempt=1, known=True, slots=3))}
    observed = Observed({"memory": [("job", 1, True, "")], "x": [("job", 7, True, ""), ("job", 8, True, "")]})
    assert slots_held(views, observed, pools) == {"mine": 3, "other": 2}


# -- properties --------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e", "f", "g")
POOLS = st.lists(st.integers(1, 6), max_size=3).map(
    lambda sizes: Pools(Pool(name, n, frozenset({name})) for name, n in zip("xyz", sizes, strict=False))
)


@st.composite
def worlds(draw: Any) -> dict[str, Any]:
    """Jobs of a few namespaces, some with a pool and some without; their attempts that are alive; and limits."""
    views, listed = {}, []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        state = draw(st.sampled_from(["CREATED", "RESTARTING", "RUNNING", "FINISHED", "SUSPENDED", "CANCELLING"]))
        top = 0 if state == "CREATED" else draw(st.integers(1, 3))
        points = draw(st.sampled_from([(), (RestorePoint(1, 1, "/c"),), (RestorePoint(1, 2, "/c"),)]))
        made = entry(
            name, state, namespace=draw(st.sampled_from("xyzw")), slots=draw(st.integers(0, 7)), attempt=top,
            next_attempt=top + 1, priority=draw(st.integers(0, 2)), restore_points=points, due=True,
            known=draw(st.booleans()), outcome="failed" if state == "RESTARTING" else "",
            outcome_writer="agent-1" if state == "RESTARTING" else "",
        )  # fmt: skip
        listed += [(name, n, True, "") for n in range(1, top + 1) if draw(st.integers(0, 3)) == 0]
        idle = draw(st.integers(0, 4)) > 0
        views[name] = JobView(made, idle=idle, starting=0 if idle else top + 1, backoff=draw(st.integers(0, 4)) == 0)
    listed += [("ghost", 1, True, "")] * draw(st.integers(0, 1))
    answer = draw(st.sampled_from([listed, listed, listed, None]))
    before = Observed({"memory": listed})
    return {
        "views": views, "observed": Observed({"memory": answer}, before), "pools": draw(POOLS),
        "starts_max": draw(st.sampled_from([0, 1, 2, 99])),
    }  # fmt: skip


@given(worlds())
def test_a_start_never_takes_more_than_is_free(world: dict[str, Any]) -> None:
    held = slots_held(world["views"], world["observed"], world["pools"])
    begun: Counter[str] = Counter()
    for action in plan_actions(**world):
        pool = world["pools"].of(world["views"][action.job_id].entry)
        if isinstance(action, Start) and pool is not None:
            begun[pool.name] += world["views"][action.job_id].entry.slots
    for pool in world["pools"]:
        assert not begun[pool.name] or held[pool.name] + begun[pool.name] <= pool.slots


@given(worlds())
def test_the_passes_that_follow_each_other_never_take_more_than_there_is(world: dict[str, Any]) -> None:
    """A start of one pass counts in the next, whether the entry, the runner, both or neither show it."""
    views, pools = world["views"], world["pools"]
    before = slots_held(views, world["observed"], pools)
    for _ in range(3):
        for action in plan_actions(**world):
            if isinstance(action, Start):
                view = views[action.job_id]
                views[action.job_id] = view._replace(idle=False, starting=action.n)
        held = slots_held(views, world["observed"], pools)
        assert all(held[pool.name] <= max(pool.slots, before[pool.name]) for pool in pools)


@given(worlds())
def test_nobody_overtakes_within_a_pool_but_those_that_can_not_start(world: dict[str, Any]) -> None:
    views, actions = world["views"], plan_actions(**world)
    begun = {action.job_id for action in actions if isinstance(action, Start)}
    for job_id in waits(actions):
        one = views[job_id].entry
        pool = world["pools"].of(one)
        wants = isinstance(next(iter(plan_actions({job_id: views[job_id]._replace(backoff=False)}, world["observed"],
                                                NO_POOLS, 99)), None), Start)  # fmt: skip
        if pool is None or not wants or views[job_id].backoff or one.slots > pool.slots:
            continue
        overtaken_by = [other for other in begun if world["pools"].of(views[other].entry) == pool
                        and urgency(views[other].entry) > urgency(one)]  # fmt: skip
        assert overtaken_by == []


@given(worlds())
def test_the_first_of_a_pool_starts_if_it_fits_and_what_has_no_pool_never_waits_for_slots(world: dict[str, Any]) -> None:
    """No slot stays free while a job fits, except behind a job that does not fit: see ledger/core/plan/pools.py."""
    views, pools = world["views"], world["pools"]
    world["starts_max"] = 99
    actions = plan_actions(**world)
    held, waiting = slots_held(views, world["observed"], pools), waits(actions)
    queues: dict[str, list[RecoveryEntry]] = {}
    for job_id, reason in waiting.items():
        if reason.startswith("waiting for slots"):
            pool = pools.of(views[job_id].entry)
            assert pool is not None
            if views[job_id].entry.slots <= pool.slots and not views[job_id].backoff:
                queues.setdefault(pool.name, []).append(views[job_id].entry)
    for pool in pools:
        begun = sum(views[a.job_id].entry.slots for a in actions
                    if isinstance(a, Start) and pools.of(views[a.job_id].entry) == pool)  # fmt: skip
        if queue := sorted(queues.get(pool.name, []), key=urgency):
            assert queue[0].slots > pool.slots - held[pool.name] - begun


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_are_looked_at_decides_nothing(world: dict[str, Any], rng: Any) -> None:
    names = list(world["views"])
    rng.shuffle(names)
    again = world | {"views": {name: world["views"][name] for name in names}}
    told, told_again = plan_actions(**world), plan_actions(**again)
    assert started(told) == started(told_again) and sorted(map(repr, told)) == sorted(map(repr, told_again))


# -- regions -----------------------------------------------------------------------------------------------------------

TWO_POOLS = Pools([Pool("p", 4, frozenset({"d"}), frozenset({"memory"})), Pool("q", 2, frozenset({"d"}), frozenset({"x"}))])


def member(job_id: str, slots: int = 1, region: str = "r", **rest: Any) -> RecoveryEntry:
    fields = {"attempt": 1, "next_attempt": 2, "outcome": "stopped", "region": region, "slots": slots, **rest}
    return entry(job_id, "RESTARTING", **fields)


def region_starts(jobs: list[RecoveryEntry], pools: Pools = POOL, held: int = 0, **rest: Any) -> list[Action]:
    wanted = [Start(j.job_id, j.next_attempt, together=Together() if j.region else None) for j in jobs]
    starts_max = rest.pop("starts_max", 99)
    return admit(wanted, {job.job_id: job for job in jobs}, Counter(p=held), pools, starts_max, **rest)


def test_a_region_starts_together_or_not_at_all() -> None:
    jobs = [member("a", 2), member("b", 2)]
    assert started(region_starts(jobs)) == ["a", "b"]
    told = region_starts(jobs, held=1)
    assert started(told) == []
    why = "region r starts together: waiting for slots: needs 4, 3 of 4 free in pool p"
    assert waits(told) == {"a": why, "b": why}


def test_nobody_overtakes_a_region_in_any_of_its_pools() -> None:
    jobs = [
        member("a", 2, priority=1), replace(member("b", 2), runner="x"),
        member("c", 1, region=""), replace(member("d", 1, region=""), runner="x"),
    ]  # fmt: skip
    told = region_starts(jobs, TWO_POOLS, held=3)
    assert started(told) == []
    assert waits(told)["d"] == "waiting for slots: needs 1, 2 of 2 free in pool q, behind 2 others"
    assert started(region_starts(jobs, TWO_POOLS, held=2)) == ["a", "b"]


def test_a_region_that_can_never_fit_or_was_put_off_holds_up_nobody() -> None:
    told = region_starts([member("a", 3, priority=1), member("b", 2), member("c", 4, region="")])
    assert started(told) == ["c"]
    assert "needs 5, and pool p has 4 in all" in waits(told)["a"]
    told = region_starts([member("a", 3, priority=1), member("b", 1), member("c", 4, region="")], held=1, backoff={"b"})
    assert waits(told)["c"] == "waiting for slots: needs 4, 3 of 4 free in pool p"
    both_in_backoff = [member("a", 3, priority=1), member("b", 1), member("c", 3, region="")]
    assert started(region_starts(both_in_backoff, held=1, backoff={"b", "c"})) == ["c"]


def test_a_region_may_go_beyond_the_start_rate_but_begins_within_it() -> None:
    jobs = [member("a"), member("b"), member("c", region=""), member("d", region="s")]
    told = region_starts(jobs, NO_POOLS, starts_max=1)
    assert started(told) == ["a", "b"]
    assert waits(told) == {"c": "start rate", "d": "start rate"}


def test_a_first_start_waits_for_no_other_member() -> None:
    assert started(region_starts([member("a", 4), replace(created("b"), region="r")], held=3)) == []
    assert started(region_starts([member("a", 5), replace(created("b"), region="r")], held=3)) == ["b"]

"""The contract of ports.Runner, on the in-memory runner, on real processes, and on the latter as a plug-in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.model.facts import CheckpointKind, FailureRule, RestorePoint
from ledger.core.model.registers import NUMBER_MAX, Checkpoint, Ended, Running
from ledger.errors import PermanentError, TemporaryError, Unreachable
from ledger.ports import ObservedAttempt, StartAnswer, Verification
from tests.contract.runners import ContainedWorld, MemoryWorld, SubprocessWorld, World, events
from tests.support.waiting import until

pytestmark = pytest.mark.slow

J = "job-1"


@pytest.fixture(params=["memory", "subprocess", "contained"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "memory":
        yield MemoryWorld()
        return
    made = SubprocessWorld if request.param == "subprocess" else ContainedWorld
    world = made(Path(tempfile.mkdtemp(prefix="jobledger-runner-")))
    try:
        yield world
    finally:
        world.close()


def start(world: World, n: int = 1, base: RestorePoint | None = None, job_id: str = J) -> None:
    assert world.runner.start(job_id, n, world.graph(job_id), base, {}) is StartAnswer.STARTED
    world.ready(job_id)


def ended(world: World, n: int = 1, job_id: str = J) -> Ended:
    """The end of the attempt, once the runner has its event. Checks that the attempt is not alive any more."""

    def found() -> list[Ended]:
        return [register for register, _ in events(world, job_id) if isinstance(register, Ended) and register.n == n]

    ends = until(found, f"attempt {n} has ended")
    assert len(ends) == 1
    assert not next(a.alive for a in world.runner.observe() if (a.job_id, a.n) == (job_id, n))
    return ends[0]


# -- start -----------------------------------------------------------------------------------------------------------


def test_a_started_attempt_is_observed_alive_with_the_engines_id(world: World) -> None:
    start(world)
    fact = dict(events(world, J))[Running(1)]
    observed = world.runner.observe()
    assert observed == [ObservedAttempt(J, 1, True, fact.engine_id)]
    assert fact.engine_id


def test_starting_twice_starts_once(world: World) -> None:
    start(world)
    assert world.runner.start(J, 1, world.graph(J), None, {}) is StartAnswer.ALREADY
    assert [register for register, _ in events(world, J)] == [Running(1)]


def test_an_attempt_that_is_over_is_not_started_again_even_by_another_process(world: World) -> None:
    start(world)
    world.exit(J, 1, 0)
    ended(world)
    world.restart()
    assert world.runner.start(J, 1, world.graph(J), None, {}) is StartAnswer.ALREADY
    assert world.runner.observe() == [ObservedAttempt(J, 1, False, dict(events(world, J))[Running(1)].engine_id)]


def test_a_fence_refuses_whatever_is_not_above_it_for_ever(world: World) -> None:
    world.runner.fence(J, 3)
    world.restart()
    for n in (1, 3):
        assert world.runner.start(J, n, world.graph(J), None, {}) is StartAnswer.FENCED
    assert world.runner.observe() == []
    start(world, 4)


def test_a_fence_is_never_lowered(world: World) -> None:
    world.runner.fence(J, NUMBER_MAX)
    world.runner.fence(J, 1)
    assert world.runner.start(J, 2, world.graph(J), None, {}) is StartAnswer.FENCED


def test_already_is_said_before_fenced(world: World) -> None:
    start(world)
    world.runner.fence(J, 1)
    assert world.runner.start(J, 1, world.graph(J), None, {}) is StartAnswer.ALREADY


def test_fences_of_one_job_do_not_concern_another(world: World) -> None:
    world.runner.fence("job-2", NUMBER_MAX)
    start(world)


def test_a_graph_that_cant_be_read_starts_nothing(world: World) -> None:
    with pytest.raises(PermanentError):
        world.runner.start(J, 1, world.bad_graph(J), None, {})
    assert world.runner.observe() == []
    assert events(world, J) == []


def test_an_attempt_that_outlives_the_runners_process_is_still_observed(world: World) -> None:
    start(world)
    before = world.runner.observe()
    world.restart()
    assert world.runner.observe() == before
    world.exit(J, 1, 0)
    assert ended(world).outcome == "finished"


# -- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "outcome"), [(0, "finished"), (3, "failed")])
def test_the_exit_code_is_the_outcome(world: World, code: int, outcome: str) -> None:
    start(world)
    world.exit(J, 1, code)
    assert ended(world).outcome == outcome


RULES = (
    FailureRule("config", 64, "", True),
    FailureRule("both", 3, "no such words", True),
    FailureRule("flaky", 3, "last w.rds"),
    FailureRule("never", 3, "", True),
    FailureRule("said", None, "code 7: last", True),
)


@pytest.mark.parametrize(
    ("code", "outcome", "begins"),
    [(64, "failed-permanent", "config: exit code 64"), (3, "failed", "flaky: exit code 3"), (5, "failed", "exit code 5"),
     (7, "failed-permanent", "said: exit code 7"), (0, "finished", "")],
)  # fmt: skip
def test_the_first_failure_rule_that_fits_gives_its_label_and_says_what_is_permanent(
    world: World, code: int, outcome: str, begins: str
) -> None:
    assert world.runner.start(J, 1, world.graph(J), None, {}, RULES) is StartAnswer.STARTED
    world.ready(J)
    world.exit(J, 1, code)
    register = ended(world)
    assert register.outcome == outcome
    assert dict(events(world, J))[register].cause.startswith(begins)  # type: ignore[union-attr]


def test_an_ordered_end_is_judged_by_no_rule(world: World) -> None:
    rules = [FailureRule("any", None, ".", True)]
    assert world.runner.start(J, 1, world.graph(J), None, {}, rules) is StartAnswer.STARTED
    world.ready(J)
    world.runner.stop(J, 1, "stopped")
    register = ended(world)
    assert register.outcome == "stopped"
    assert "any: " not in dict(events(world, J))[register].cause  # type: ignore[union-attr]


def test_the_end_comes_after_all_checkpoints_and_names_the_newest(world: World) -> None:
    start(world)
    for number in (2, 7, 11):
        world.checkpoint(J, 1, number)
    world.exit(J, 1, 1)
    end = ended(world)
    found = events(world, J)
    assert [register for register, _ in found] == [Running(1), *(Checkpoint(1, i) for i in (2, 7, 11)), end]
    assert found[-1][1].checkpoint == 11


def test_an_attempt_without_checkpoints_names_none(world: World) -> None:
    start(world)
    world.exit(J, 1, 1)
    ended(world)
    assert events(world, J)[-1][1].checkpoint is None


@pytest.mark.parametrize("outcome", ["stopped", "canceled", "failed"])
def test_after_a_stop_order_the_end_has_its_outcome_whatever_the_exit_code(world: World, outcome: str) -> None:
    start(world)
    world.stubborn(J, 1)
    world.runner.stop(J, 1, outcome)
    world.exit(J, 1, 0)
    assert ended(world).outcome == outcome


def test_an_order_to_end_as_failed_says_why_and_is_judged_by_no_rule(world: World) -> None:
    """The order for an attempt that makes no progress, which counts as a failure."""
    rules = [FailureRule("any", None, ".", True)]
    assert world.runner.start(J, 1, world.graph(J), None, {}, rules) is StartAnswer.STARTED
    world.ready(J)
    world.runner.stop(J, 1, "failed")
    register = ended(world)
    assert register.outcome == "failed"
    cause = dict(events(world, J))[register].cause  # type: ignore[union-attr]
    assert cause.startswith("stopped because it made no progress: ") and "any: " not in cause


def test_the_first_order_decides(world: World) -> None:
    start(world)
    world.stubborn(J, 1)
    world.runner.stop(J, 1, "canceled")
    world.runner.stop(J, 1, "stopped")
    world.restart()
    world.exit(J, 1, 0)
    assert ended(world).outcome == "canceled"


def test_an_order_after_the_end_changes_nothing(world: World) -> None:
    start(world)
    world.exit(J, 1, 0)
    ended(world)
    world.runner.stop(J, 1, "canceled")
    assert ended(world).outcome == "finished"


def test_an_order_that_came_before_the_start_counts(world: World) -> None:
    world.runner.stop(J, 1, "stopped")
    assert world.runner.observe() == []
    world.restart()
    assert world.runner.start(J, 1, world.graph(J), None, {}) is StartAnswer.STARTED
    assert ended(world).outcome == "stopped"
    assert Running(1) not in dict(events(world, J))


def test_an_order_of_another_outcome_is_refused(world: World) -> None:
    start(world)
    with pytest.raises(PermanentError):
        world.runner.stop(J, 1, "finished")
    assert world.runner.observe()[0].alive


def test_a_killed_attempt_ends_as_failed(world: World) -> None:
    start(world)
    world.checkpoint(J, 1, 5)
    world.kill(J, 1)
    assert ended(world).outcome == "failed"
    assert events(world, J)[-1][1].checkpoint == 5


def test_a_killed_attempt_ends_as_it_was_ordered_to(world: World) -> None:
    start(world)
    world.stubborn(J, 1)
    world.runner.stop(J, 1, "canceled")
    world.kill(J, 1)
    assert ended(world).outcome == "canceled"


# -- events ----------------------------------------------------------------------------------------------------------


def test_an_event_never_changes(world: World) -> None:
    start(world)
    world.checkpoint(J, 1, 1)
    before = world.runner.fence(J, 1)
    world.restart()
    assert world.runner.fence(J, 1) == before
    assert len(before) == 2


def test_what_is_acknowledged_is_not_answered_again(world: World) -> None:
    start(world)
    world.checkpoint(J, 1, 1)
    running, first = world.runner.fence(J, 1)
    world.runner.acknowledge(J, [first.key])
    assert world.runner.fence(J, 1) == [running]
    world.runner.acknowledge(J, [running.key, first.key, b"job-1/checkpoint/1/99"])
    assert world.runner.fence(J, 1) == []
    world.checkpoint(J, 1, 2)
    assert [register for register, _ in events(world, J)] == [Checkpoint(1, 2)]


def test_a_checkpoint_says_what_its_attempt_began_from(world: World) -> None:
    start(world)
    base = world.checkpoint(J, 1, 4)
    world.exit(J, 1, 1)
    ended(world)
    assert world.runner.start(J, 2, world.graph(J), base, {}) is StartAnswer.STARTED
    world.checkpoint(J, 2, 5)
    facts = dict(events(world, J))
    assert facts[Checkpoint(1, 4)].base is None
    assert facts[Checkpoint(2, 5)].base == base


def test_a_checkpoint_says_to_which_cut_it_belongs(world: World) -> None:
    start(world)
    point = world.checkpoint(J, 1, 4, label="2025-01-31T12:00")
    world.checkpoint(J, 1, 5)
    facts = dict(events(world, J))
    assert facts[Checkpoint(1, 4)].consistency == "2025-01-31T12:00"
    assert facts[Checkpoint(1, 5)].consistency == ""
    assert world.runner.verify(point) is Verification.VALID


def test_the_reason_of_a_stop_order_stands_before_the_cause_of_the_end(world: World) -> None:
    start(world)
    world.runner.stop(J, 1, "stopped", reason="its region restarts")
    ended(world)
    assert events(world, J)[-1][1].cause.startswith("its region restarts: ")


def test_an_id_that_is_not_above_the_newest_is_nothing_new(world: World) -> None:
    start(world)
    world.checkpoint(J, 1, 4)
    world.checkpoint(J, 1, 6)
    world.exit(J, 1, 0)
    assert [r.id for r, _ in events(world, J) if isinstance(r, Checkpoint)] == [4, 6]
    assert ended(world).outcome == "finished"


def test_a_savepoint_names_the_ask_that_it_answers(world: World) -> None:
    start(world)
    for _ in range(2):  # a repeated request is the same request
        world.runner.savepoint(J, 1, "ask-1")
    if isinstance(world, MemoryWorld):
        world.checkpoint(J, 1, 1, "sav")
    fact = until(lambda: dict(events(world, J)).get(Checkpoint(1, 1)), "the savepoint")
    assert (fact.kind, fact.ask) == (CheckpointKind.SAVEPOINT, "ask-1")
    world.runner.savepoint(J, 1, "ask-1")
    world.checkpoint(J, 1, 9, "sav")
    assert [(r.id, f.ask) for r, f in events(world, J) if isinstance(r, Checkpoint)] == [(1, "ask-1"), (9, None)]


# -- restore points --------------------------------------------------------------------------------------------------


def test_a_reported_checkpoint_is_valid_until_it_is_damaged(world: World) -> None:
    start(world)
    point = world.checkpoint(J, 1, 1)
    assert world.runner.verify(point) is Verification.VALID
    world.damage(point)
    assert world.runner.verify(point) is Verification.INVALID


def test_what_is_disposed_is_gone_and_disposing_again_is_no_error(world: World) -> None:
    start(world)
    first, second = world.checkpoint(J, 1, 1), world.checkpoint(J, 1, 2)
    for _ in range(2):
        world.runner.dispose(J, [first])
    assert world.runner.verify(first) is Verification.INVALID
    assert world.runner.verify(second) is Verification.VALID


def test_a_job_disposes_of_nothing_that_is_not_its_own(world: World) -> None:
    start(world)
    point = world.checkpoint(J, 1, 1)
    world.runner.dispose("job-2", [point])
    assert world.runner.verify(point) is Verification.VALID


# -- forget ----------------------------------------------------------------------------------------------------------


def test_a_forgotten_job_leaves_neither_attempts_nor_events_nor_its_fence(world: World) -> None:
    start(world)
    world.exit(J, 1, 0)
    ended(world)
    world.runner.fence(J, NUMBER_MAX)
    for _ in range(2):
        world.runner.forget(J)
    world.restart()
    assert world.runner.observe() == []
    assert events(world, J) == []
    assert world.runner.start(J, 1, world.graph(J), None, {}) is StartAnswer.STARTED


def test_a_job_that_is_alive_is_not_forgotten(world: World) -> None:
    start(world)
    with pytest.raises(TemporaryError):
        world.runner.forget(J)
    assert world.runner.observe()[0].alive


# -- no answer -------------------------------------------------------------------------------------------------------


def test_no_answer_is_never_taken_for_one(world: World) -> None:
    start(world)
    graph, point = world.graph(J), RestorePoint(1, 1, "/nowhere")
    world.cut()
    runner = world.runner
    for call in (
        lambda: runner.start(J, 2, graph, None, {}),
        runner.observe,
        lambda: runner.stop(J, 1, "stopped"),
        lambda: runner.fence(J, 1),
        lambda: runner.acknowledge(J, []),
        lambda: runner.verify(point),
        lambda: runner.dispose(J, [point]),
        lambda: runner.forget(J),
    ):
        with pytest.raises(Unreachable):
            call()


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "../other", "x" * 129])
def test_a_job_id_that_is_none_is_refused(world: World, job_id: str) -> None:
    with pytest.raises(PermanentError):
        world.runner.fence(job_id, 1)
    assert world.runner.observe() == []


def test_all_attempts_are_in_one_answer(world: World) -> None:
    start(world)
    start(world, job_id="job-2")
    world.exit(J, 1, 1)
    ended(world)
    assert world.runner.start(J, 2, world.graph(J), None, {}) is StartAnswer.STARTED
    assert sorted((a.job_id, a.n, a.alive) for a in world.runner.observe()) == [
        ("job-1", 1, False), ("job-1", 2, True), ("job-2", 1, True),
    ]  # fmt: skip


# -- kept files ------------------------------------------------------------------------------------------------------


def test_what_is_kept_of_a_job_is_listed_until_it_is_disposed_of_and_forgotten(world: World) -> None:
    assert world.runner.kept() == []
    start(world)
    chk = world.checkpoint(J, 1, 1)
    world.checkpoint(J, 1, 2, "sav")
    (kept,) = world.runner.kept()
    assert (kept.job_id, kept.alive, kept.rest) == (J, (1,), True) and kept.age_s >= 0
    assert [point.location for point in kept.checkpoints] == [chk.location] and kept.checkpoint_size > 0
    world.exit(J, 1, 0)
    ended(world)
    world.runner.acknowledge(J, [event.key for event in world.runner.fence(J, NUMBER_MAX)])
    assert world.runner.kept()[0].alive == ()
    world.runner.forget(J)
    (kept,) = world.runner.kept()
    assert not kept.rest and [point.location for point in kept.checkpoints] == [chk.location], (
        "the checkpoint was not disposed of"
    )
    world.runner.fence(J, NUMBER_MAX)
    world.runner.dispose(J, kept.checkpoints)
    world.runner.forget(J)
    assert [(kept.rest, kept.checkpoints) for kept in world.runner.kept()] == [(False, ())], "savepoints stay"


def test_savepoints_are_listed_and_disposed_of_one_by_one_and_nothing_goes_with_them(world: World) -> None:
    """Savepoints can be disposed of while the job runs, and after it is over and forgotten. Its checkpoints are kept."""
    start(world)
    first, chk = world.checkpoint(J, 1, 1, "sav"), world.checkpoint(J, 1, 2)
    second = world.checkpoint(J, 1, 3, "sav")
    assert [(point.location, point.order, point.kind) for point in world.runner.kept()[0].savepoints] == [
        (point.location, point.order, CheckpointKind.SAVEPOINT) for point in (first, second)
    ]
    world.runner.dispose(J, [first])
    assert world.runner.verify(first) is Verification.INVALID and world.runner.verify(second) is Verification.VALID
    world.exit(J, 1, 0)
    ended(world)
    world.runner.acknowledge(J, [event.key for event in world.runner.fence(J, NUMBER_MAX)])
    world.runner.dispose(J, [first])
    world.runner.forget(J)
    (kept,) = world.runner.kept()
    assert [point.location for point in kept.savepoints] == [second.location]
    assert [point.location for point in kept.checkpoints] == [chk.location]
    world.runner.dispose(J, kept.savepoints)
    world.runner.forget(J)
    (kept,) = world.runner.kept()
    assert kept.savepoints == () and [point.location for point in kept.checkpoints] == [chk.location]
    assert world.runner.observe() == []


def test_a_fence_of_a_job_that_never_ran_is_kept_and_can_be_forgotten(world: World) -> None:
    world.runner.fence(J, 3)
    (kept,) = world.runner.kept()
    assert (kept.job_id, kept.rest, kept.checkpoints) == (J, True, ()) and world.runner.observe() == []
    world.runner.forget(J)
    assert world.runner.kept() == []


def test_what_is_kept_is_not_known_while_nobody_answers(world: World) -> None:
    world.cut()
    with pytest.raises(Unreachable):
        world.runner.kept()


# -- instances -----------------------------------------------------------------------------------------------------------


def test_an_instance_keeps_its_name(world: World) -> None:
    """The instance is the writer of its events, so the log shows on which instance an attempt ended."""
    name = world.runner.instance()
    start(world)
    world.kill(J, 1)
    assert ended(world).writer == name != ""
    world.restart()
    assert until(lambda: _name(world), "the runner answers") == name


def _name(world: World) -> str | None:
    try:
        return world.runner.instance()
    except Unreachable:
        return None


def test_a_call_for_this_instance_is_answered(world: World) -> None:
    mine = world.runner.only(world.runner.instance())
    assert mine.start(J, 1, world.graph(J), None, {}) is StartAnswer.STARTED
    world.ready(J)
    assert mine.observe() == world.runner.observe()
    assert world.runner.only("").observe() == world.runner.observe()


def test_a_call_for_another_instance_does_nothing(world: World) -> None:
    """A call for another instance raises Unreachable: `fenced`, `already` or `invalid` would concern that instance's
    attempt."""
    start(world)
    point = world.checkpoint(J, 1, 5)
    other = world.runner.only("agent-other")
    for call in (
        lambda: other.start(J, 2, world.graph(J), None, {}), lambda: other.start(J, 1, world.graph(J), None, {}),
        lambda: other.observe(), lambda: other.fence(J, 9), lambda: other.stop(J, 1, "stopped"),
        lambda: other.savepoint(J, 1, "u"), lambda: other.verify(point), lambda: other.dispose(J, [point]),
        lambda: other.acknowledge(J, [b"job-1/running/1"]), lambda: other.forget(J), lambda: other.kept(),
    ):  # fmt: skip
        with pytest.raises(Unreachable, match="the call was for agent-other, but agent-"):
            call()
    assert [(a.n, a.alive) for a in world.runner.observe()] == [(1, True)]
    assert world.runner.verify(point) is Verification.VALID and Running(1) in dict(events(world, J))
    assert world.runner.start(J, 2, world.graph(J), None, {}) is StartAnswer.STARTED, "it was not fenced"


def test_who_does_not_answer_does_not_say_who_it_is(world: World) -> None:
    world.cut()
    with pytest.raises(Unreachable):
        world.runner.instance()

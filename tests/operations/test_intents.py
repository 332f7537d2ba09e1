"""Suspend, resume, cancel and retry return once the ledger shows the effect. If another intent won, they name it."""

from __future__ import annotations

import pytest

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    IntentDeclared,
    IntentKind,
    JobResult,
)  # fmt: skip
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Intent, Result, Running
from ledger.errors import NotFound, OutcomeUnknown, Refused, UsageError

RUN, SUSPEND, CANCEL, RETRY = IntentKind.RUN, IntentKind.SUSPEND, IntentKind.CANCEL, IntentKind.RETRY


def intents(world, job_id: str) -> list[bytes]:
    return [key for key in world.values() if key.startswith(f"{job_id}/intent/".encode())]


def running(world, n: int = 1) -> str:
    job_id = world.started()
    world.record(job_id, Attempt(n, 1), AttemptStarted("d" * 64))
    world.record(job_id, Running(n), AttemptRunning("17"))
    return job_id


def failed(world) -> str:
    """A job that has failed. Its restart policy is NONE, so it is quarantined."""
    job_id = running(world)
    world.record(job_id, Checkpoint(1, 5), CheckpointCompleted("/chk-5"))
    world.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit 1"))
    return job_id


def test_suspend_then_resume(world):
    job_id = running(world)
    entry = world.client().declare(job_id, SUSPEND, reason="maintenance")
    assert (entry.state, entry.reason, entry.intent.actor) == (JobState.SUSPENDED, "maintenance", "ann@here")
    assert (entry.intent.rev, entry.intent.attempt) == (1, 1)
    entry = world.client().declare(job_id, RUN, reason="done")
    assert (entry.state, entry.intent.rev) == (JobState.RUNNING, 2)


def test_what_is_wanted_already_is_not_declared_again(world):
    job_id = running(world)
    world.client().declare(job_id, SUSPEND, reason="maintenance")
    before = intents(world, job_id)
    assert world.client().declare(job_id, SUSPEND, reason="again").reason == "maintenance"
    assert intents(world, job_id) == before


def test_a_cancel_is_forced_by_another_cancel(world):
    job_id = running(world)
    assert world.client().declare(job_id, CANCEL, reason="wrong data").state == JobState.CANCELLING
    entry = world.client().declare(job_id, CANCEL, reason="agent is gone", force=True)
    assert (entry.state, entry.intent.force, entry.intent.attempt) == (JobState.CANCELLING, True, 1)
    before = intents(world, job_id)
    world.client().declare(job_id, CANCEL, reason="agent is gone", force=True)
    assert intents(world, job_id) == before


@pytest.mark.parametrize("kind", [RUN, SUSPEND, RETRY])
def test_a_cancel_is_never_undone(world, kind):
    job_id = running(world)
    world.client().declare(job_id, CANCEL, reason="wrong data")
    with pytest.raises(Refused, match="can't be undone"):
        world.client().declare(job_id, kind, reason="no, wait")


@pytest.mark.parametrize("kind", [RUN, SUSPEND, CANCEL, RETRY])
@pytest.mark.parametrize("retired", [False, True])
def test_nothing_is_wanted_of_a_job_that_is_over(world, kind, retired):
    job_id = running(world)
    world.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded())
    if retired:
        world.record(job_id, Result("FINISHED"), JobResult("etl", "prod", "memory", "d" * 64, "", 1.0, 1))
        for _ in range(5):
            world.step()
    with pytest.raises(Refused) as raised:
        world.client().declare(job_id, kind, reason="too late")
    assert raised.value.exit_code == 5
    assert not intents(world, job_id)


def test_retry_of_a_quarantined_job(world):
    job_id = failed(world)
    assert world.now(job_id).state == JobState.QUARANTINED
    entry = world.client().declare(job_id, RETRY, reason="disk was full")
    assert (entry.state, entry.next_attempt, entry.intent.attempt) == (JobState.RESTARTING, 2, 1)
    assert [p.id for p in entry.restore_points] == [5]


@pytest.mark.parametrize("from_, ids, named", [("scratch", [], False), ("1/5", [5], True), ("latest", [6, 5], True)])
def test_retry_from_a_place(world, from_, ids, named):
    job_id = failed(world)
    world.record(job_id, Checkpoint(1, 6), CheckpointCompleted("/chk-6"))
    entry = world.client().declare(job_id, RETRY, reason="bad checkpoint", from_=from_)
    assert ([p.id for p in entry.restore_points], entry.restore_from_named) == (ids, named)


def test_retry_from_a_place_that_is_not_there_is_a_usage_error_that_lists_those_that_are(world):
    job_id = failed(world)
    with pytest.raises(UsageError) as raised:
        world.client().declare(job_id, RETRY, reason="x", from_="1/7")
    assert "1/5" in raised.value.hint
    assert not intents(world, job_id)


def test_retry_while_it_runs_and_resume_of_what_is_not_suspended_are_refused(world):
    job_id = running(world)
    with pytest.raises(Refused, match="nothing to retry"):
        world.client().declare(job_id, RETRY, reason="x")
    with pytest.raises(Refused, match="nothing to resume"):
        world.client().declare(job_id, RUN, reason="x")
    world.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit 1"))
    with pytest.raises(Refused) as raised:
        world.client().declare(job_id, RUN, reason="x")
    assert "retry" in raised.value.hint
    assert not intents(world, job_id)


def test_a_retry_of_a_suspended_job_is_refused_and_leaves_it_suspended(world):
    job_id = failed(world)
    world.client().declare(job_id, SUSPEND, reason="night")
    for force in (False, True):
        with pytest.raises(Refused, match="SUSPENDED") as raised:
            world.client().declare(job_id, RETRY, reason="x", force=force)
        assert "resume" in raised.value.hint
    assert world.now(job_id).state == JobState.SUSPENDED
    assert world.client().declare(job_id, RUN, reason="morning").state == JobState.QUARANTINED
    assert world.client().declare(job_id, RETRY, reason="mended").state == JobState.RESTARTING


@pytest.mark.parametrize("retired", [False, True])
def test_a_cancel_of_what_is_canceled_is_done_already(world, retired):
    job_id = running(world)
    world.record(job_id, Ended(1, "canceled", "agent-a"), AttemptEnded())
    if retired:
        world.record(job_id, Result("CANCELED"), JobResult("etl", "prod", "memory", "d" * 64, "", 1.0, 1))
        for _ in range(5):
            world.step()
    assert world.client().declare(job_id, CANCEL, reason="again").state == "CANCELED"
    assert not intents(world, job_id)
    for kind in (RUN, SUSPEND, RETRY):
        with pytest.raises(Refused):
            world.client().declare(job_id, kind, reason="x")


def test_a_job_that_is_canceled_and_retired_before_its_entry_shows_it_is_canceled(world):
    job_id = running(world)
    record = world.recorder.record

    def at_once(*args):
        recorded = record(*args)
        world.record(job_id, Ended(1, "canceled", "agent-a"), AttemptEnded())
        world.record(job_id, Result("CANCELED"), JobResult("etl", "prod", "memory", "d" * 64, "", 1.0, 1))
        return recorded

    world.recorder.record = at_once
    assert world.client().declare(job_id, CANCEL, reason="x").state == "CANCELED"


def test_a_retry_by_force_needs_no_end_but_an_attempt(world):
    job_id = running(world)
    with pytest.raises(Refused, match="nothing to retry") as raised:
        world.client().declare(job_id, RETRY, reason="the host is gone")
    assert "--force" in raised.value.hint
    entry = world.client().declare(job_id, RETRY, reason="the host is gone", force=True)
    assert (entry.intent.kind, entry.intent.force, entry.intent.attempt) == ("RETRY", True, 1)
    with pytest.raises(Refused, match="nothing to retry") as raised:
        world.client().declare(world.started("never-started"), RETRY, reason="x", force=True)
    assert not raised.value.hint


def test_a_second_retry_is_declared_anew(world):
    job_id = failed(world)
    world.client().declare(job_id, RETRY, reason="first")
    assert world.client().declare(job_id, RETRY, reason="second", from_="scratch").intent.rev == 2


def test_an_intent_that_another_one_overtakes_is_refused_and_says_by_whom(world):
    job_id = running(world)
    record = world.recorder.record

    def overtaken(*args):
        world.record(job_id, Intent(1, "zz"), IntentDeclared(CANCEL, actor="bob@there"))
        return record(*args)

    world.recorder.record = overtaken
    with pytest.raises(Refused, match=r"superseded: intent/1/zz .CANCEL by bob@there"):
        world.client().declare(job_id, SUSPEND, reason="maintenance")


def test_the_revision_is_higher_than_any_that_is_there(world):
    job_id = running(world)
    world.record(job_id, Intent(41, "zz"), IntentDeclared(SUSPEND))
    assert world.client().declare(job_id, RUN, reason="x").intent.rev == 42


@pytest.mark.parametrize("kind, outcome", [(SUSPEND, "finished"), (CANCEL, "finished"), (CANCEL, "abandoned")])
def test_an_intent_that_comes_too_late_is_refused(world, kind, outcome):
    job_id = running(world)
    record = world.recorder.record

    def too_late(*args):
        world.record(job_id, Ended(1, outcome, "agent-a"), AttemptEnded())
        return record(*args)

    world.recorder.record = too_late
    with pytest.raises(Refused, match="was over before"):
        world.client().declare(job_id, kind, reason="x")


def test_a_cancel_that_is_carried_out_at_once_is_no_refusal(world):
    job_id = running(world)
    record = world.recorder.record

    def at_once(*args):
        recorded = record(*args)
        world.record(job_id, Ended(1, "canceled", "agent-a"), AttemptEnded())
        return recorded

    world.recorder.record = at_once
    assert world.client().declare(job_id, CANCEL, reason="x").state == JobState.CANCELED


def test_without_a_projector_the_outcome_is_unknown(world):
    job_id = running(world)
    world.working = False
    with pytest.raises(OutcomeUnknown) as raised:
        world.client().declare(job_id, SUSPEND, reason="x", timeout_s=3)
    assert raised.value.exit_code == 4
    assert len(intents(world, job_id)) == 1


def test_an_offset_that_nobody_knows_is_found_in_the_log(world):
    job_id = running(world)
    record = world.recorder.record
    world.recorder.record = lambda *args: record(*args)._replace(offset=None)
    assert world.client().declare(job_id, SUSPEND, reason="x").state == JobState.SUSPENDED


def test_a_job_that_nobody_knows(world):
    with pytest.raises(NotFound):
        world.client().declare("nobody", CANCEL, reason="x")

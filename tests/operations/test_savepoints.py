"""A savepoint request returns with the savepoint, or raises with the reason why none will come."""

from __future__ import annotations

import pytest

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
)  # fmt: skip
from ledger.core.model.registers import Ask, Attempt, Checkpoint, Ended, Intent, Running
from ledger.errors import NotFound, OutcomeUnknown, Refused


@pytest.fixture
def job_id(world) -> str:
    job_id = world.started()
    world.record(job_id, Attempt(1, 1), AttemptStarted("d" * 64))
    world.record(job_id, Running(1), AttemptRunning("17"))
    return job_id


def once_asked(world, job_id, register, fact) -> None:
    """Writes a fact to the job once a savepoint request is in the log. fact(uuid) makes it from the request's uuid."""
    record = world.recorder.record

    def then(job, ask, *rest):
        recorded = record(job, ask, *rest)
        assert isinstance(ask, Ask)
        world.record(job_id, register, fact(ask.uuid))
        return recorded

    world.recorder.record = then


def test_the_savepoint_that_names_the_ask(world, job_id):
    world.record(job_id, Checkpoint(1, 3), CheckpointCompleted("/sav-3", kind=CheckpointKind.SAVEPOINT, ask="another"))
    once_asked(
        world, job_id, Checkpoint(1, 4),
        lambda uuid: CheckpointCompleted("/sav-4", 5, kind=CheckpointKind.SAVEPOINT, ask=uuid),
    )  # fmt: skip
    point = world.client().savepoint(job_id, reason="upgrade")
    assert (str(point), point.location, point.kind) == ("1/4", "/sav-4", CheckpointKind.SAVEPOINT)


def test_a_job_that_ends_first_makes_none(world, job_id):
    once_asked(world, job_id, Ended(1, "finished", "agent-a"), lambda _: AttemptEnded())
    with pytest.raises(Refused, match="was over before it made a savepoint"):
        world.client().savepoint(job_id, reason="upgrade")


def test_an_ask_without_an_answer_stands(world, job_id):
    with pytest.raises(OutcomeUnknown, match="not complete within 3 s"):
        world.client().savepoint(job_id, reason="upgrade", timeout_s=3)
    assert len(world.now(job_id).asks) == 1


def test_what_does_not_run_is_not_asked(world, job_id):
    world.record(job_id, Intent(1, "u"), IntentDeclared(IntentKind.SUSPEND))
    with pytest.raises(Refused, match="SUSPENDED: no attempt of it runs"):
        world.client().savepoint(job_id, reason="upgrade")
    with pytest.raises(NotFound):
        world.client().savepoint("no-such-job", reason="upgrade")
    assert not any(b"/ask/" in key for key in world.values())

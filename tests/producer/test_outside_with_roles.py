"""Outside jobs with a projector and a reconciler: the roles leave them alone while they run, and retire them at the end."""

from __future__ import annotations

import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.sender import MemorySender
from ledger.adapters.runners.outside import OutsideRunner
from ledger.config.config import load_config
from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Intent
from ledger.core.plan.outside import OUTSIDE
from ledger.producer.recorder import Recorder
from tests.support.roles.world import EVENTS, World, run


class Outside(World):
    def __init__(self, folder) -> None:
        super().__init__()
        self.recorder = Recorder(
            "me", config=load_config(folder), sender=MemorySender(self.log), clock=self.clock, new_id=self.new_id
        )
        self.blobs = MemoryBlobs()
        self.roles = self.projector(), self.reconciler({OUTSIDE: OutsideRunner()}, self.blobs)
        self.pass_time()

    def pass_time(self) -> None:
        for _ in range(4):
            run(*self.roles)
            self.clock.advance(2.0)

    def state(self, job_id: str) -> JobState | None:
        entry = self.entry(job_id)
        return entry and entry.state

    def names(self, job_id: str) -> set[str]:
        prefix = f"{job_id}/"
        return {key.decode().removeprefix(prefix) for key in self.values(EVENTS) if key.decode().startswith(prefix)}


@pytest.fixture
def world(tmp_path) -> Outside:
    return Outside(tmp_path)


def test_a_job_is_left_alone_until_it_is_over_and_then_retired(world):
    with world.recorder.job("etl") as job:
        world.pass_time()
        assert world.state(job.job_id) == JobState.CREATED
        job.running("17")
        job.checkpoint("s3://b/1")
        world.pass_time()
        assert world.state(job.job_id) == JobState.RUNNING
        assert not any(name.startswith("attempt") for name in world.names(job.job_id))
    world.pass_time()
    assert world.state(job.job_id) is None
    assert world.names(job.job_id) == {"result/FINISHED"}


def test_a_body_that_raised_makes_the_job_failed(world):
    with pytest.raises(ValueError, match="no"), world.recorder.job("etl") as job:
        job.running("17")
        raise ValueError("no")
    world.pass_time()
    assert world.names(job.job_id) == {"result/FAILED"}


def test_a_producer_that_died_without_a_word_is_canceled_by_force(world):
    job = world.recorder.job("etl").__enter__()
    job.running("17")
    world.pass_time()
    world.record(job.job_id, Intent(1, "u"), IntentDeclared(IntentKind.CANCEL, 1))
    world.pass_time()
    assert world.state(job.job_id) == JobState.CANCELLING
    world.record(job.job_id, Intent(2, "u"), IntentDeclared(IntentKind.CANCEL, 1, force=True))
    world.pass_time()
    assert world.names(job.job_id) == {"result/CANCELED"}

"""An outside job, which its producer runs itself: its records, its entry by the fold, and its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.adapters import avro
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.sender import MemorySender
from ledger.config.config import load_config
from ledger.core.fold.fold import fold
from ledger.core.model.facts import AttemptEnded, IntentDeclared, IntentKind, JobAdmitted
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Admitted, Ended, Intent, Spec, parse_key, register_name
from ledger.core.plan.outside import OUTSIDE, decide
from ledger.core.plan.plan import Close, GiveUp, Retire, Wait
from ledger.errors import Unreachable, UsageError
from ledger.producer.recorder import Recorder


class World:
    def __init__(self, tmp_path) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({"ledger.events": 1}, self.clock)
        self.sender = MemorySender(self.log)
        self.recorder = Recorder("me", config=load_config(tmp_path), sender=self.sender, clock=self.clock)
        self.admitted = True

    def registers(self) -> dict[bytes, object]:
        """The job's registers in the log, decoded, and the admission that a projector would add."""
        out = {}
        for record in self.log.records("ledger.events", 0):
            _, register = parse_key(record.key())
            out[register_name(register).encode()] = avro.read(register, record.value())
            if isinstance(register, Spec) and self.admitted:
                out[b"admitted"] = JobAdmitted(register.digest)
        return out

    def entry(self, job_id: str):
        return fold(job_id, self.registers(), lambda register, fact: fact)


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_a_job_from_submission_to_its_end(world):
    with world.recorder.job("etl", namespace="prod", labels={"team": "a"}, priority=3) as job:
        entry = world.entry(job.job_id)
        assert (entry.state, entry.runner, entry.slots, entry.labels) == (JobState.CREATED, OUTSIDE, 0, {"team": "a"})
        job.running("application_17")
        assert world.entry(job.job_id).state == JobState.RUNNING
        assert job.checkpoint("s3://b/1", size=10) == 1
        assert job.checkpoint("s3://b/2", size=20) == 2
        assert [p.location for p in world.entry(job.job_id).restore_points] == ["s3://b/2", "s3://b/1"]
        world.clock.advance(7.5)
    entry = world.entry(job.job_id)
    assert entry.state == JobState.FINISHED
    assert entry.outcome_writer == f"agent-{world.recorder.instance}"
    name = register_name(Ended(1, "finished", entry.outcome_writer)).encode()
    assert world.registers()[name] == AttemptEnded("", 2, 7.5)
    assert decide(entry) == (Retire(job.job_id),)


def test_a_body_that_raises_ends_the_job_as_failed_with_its_exception(world):
    with pytest.raises(KeyError), world.recorder.job("etl") as job:
        job.running("1")
        raise KeyError("no such table")
    entry = world.entry(job.job_id)
    assert entry.state == JobState.FAILING
    assert "KeyError: 'no such table'" in entry.reason
    assert decide(entry) == (Close(job.job_id, 2, "abandoned"),)


def test_closing_a_failed_one_makes_it_failed_for_good(world):
    with pytest.raises(ValueError, match="x"), world.recorder.job("etl") as job:
        raise ValueError("x")
    registers = world.registers() | {b"ended/2/abandoned/reconciler-1": AttemptEnded()}
    assert fold(job.job_id, registers, lambda register, fact: fact).state == JobState.FAILED


def test_saying_again_that_it_runs_changes_nothing_but_another_engine_is_another_job(world):
    with world.recorder.job("etl") as job:
        job.running("1")
        before = world.registers()
        job.running("1")
        assert world.registers() == before
        with pytest.raises(UsageError, match="another"):
            job.running("2")


def test_running_that_could_not_be_recorded_can_be_said_again(world):
    with world.recorder.job("etl") as job:
        world.log.up = False
        with pytest.raises(Unreachable):
            job.running("1")
        world.log.up = True
        job.running("1")
        assert b"running/1" in world.registers()


def test_an_end_that_cannot_be_recorded_is_told_but_never_hides_the_bodys_own_error(world):
    with pytest.raises(Unreachable), world.recorder.job("etl"):
        world.log.up = False
    world.log.up = True
    with pytest.raises(KeyError) as raised, world.recorder.job("etl"):
        world.log.up = False
        raise KeyError("mine")
    assert "is not recorded" in raised.value.__notes__[0]


def test_nothing_is_done_about_an_outside_job_that_waits_or_runs(world):
    with world.recorder.job("etl") as job:
        assert decide(world.entry(job.job_id)) == ()
        job.running("1")
        assert decide(world.entry(job.job_id)) == ()
        assert decide(replace(world.entry(job.job_id), retiring=True, state=JobState.FINISHED)) == ()


@pytest.mark.parametrize("force", [False, True])
def test_a_cancel_waits_for_the_producers_word_unless_forced(world, force):
    with world.recorder.job("etl") as job:
        job.running("1")
        intent = IntentDeclared(IntentKind.CANCEL, attempt=1, force=force)
        registers = world.registers() | {register_name(Intent(1, "u")).encode(): intent}
        entry = fold(job.job_id, registers, lambda register, fact: fact)
        (action,) = decide(entry)
        assert isinstance(action, GiveUp if force else Wait)
        registers[b"ended/1/lost/reconciler-1"] = AttemptEnded()
        closing = fold(job.job_id, registers, lambda register, fact: fact)
        assert decide(closing) == (Close(job.job_id, 2, "canceled"),)


def test_a_job_that_never_ran_can_be_canceled(world):
    with world.recorder.job("etl") as job:
        registers = world.registers() | {b"intent/1/u": IntentDeclared(IntentKind.CANCEL)}
        entry = fold(job.job_id, registers, lambda register, fact: fact)
        assert decide(entry) == (Close(job.job_id, 1, "canceled"),)


def test_the_admission_is_the_projectors(world):
    with world.recorder.job("etl") as job:
        assert Admitted() not in {parse_key(r.key())[1] for r in world.log.records("ledger.events", 0)}
        world.admitted = False
        assert world.entry(job.job_id) is None

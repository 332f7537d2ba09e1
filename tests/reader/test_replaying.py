"""Replay finds entries that the projector published wrongly. It reports no difference while the projector lags."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import AttemptEnded, AttemptRunning, CheckpointCompleted
from ledger.core.model.published import EPOCH_HEADER
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Checkpoint, Ended, Running, partition_of
from ledger.ports import Event
from ledger.reader.reading import registers_of
from ledger.reader.replaying import replay
from tests.support.operated import EVENTS, RECOVERY
from tests.support.roles.world import PARTITIONS


def publish(world, job_id: str, value: bytes | None) -> None:
    """Publishes a value with the leader's epoch, as only a broken projector would."""
    header = (EPOCH_HEADER, str(world.leader.epoch).encode())
    world.log.append([Event(RECOVERY, partition_of(job_id, PARTITIONS), job_id.encode(), value, (header,))])


def test_what_is_published_agrees_with_the_log(world):
    jobs = [world.started(f"job{n}") for n in range(6)]
    world.record(jobs[0], Running(1), AttemptRunning("1"))
    world.record(jobs[1], Ended(1, "finished", "agent-a"), AttemptEnded())
    world.record(jobs[2], Ended(1, "failed", "agent-a"), AttemptEnded())
    found = replay(world.source())
    assert (found.differences, found.compared, found.behind) == ((), 6, ())


def test_an_entry_that_says_something_else_is_found(world):
    a, b = world.started("a"), world.started("b")
    entry = world.now(a)
    world.working = False
    publish(world, a, avro.encode(replace(entry, state=JobState.RUNNING)))
    (difference,) = replay(world.source()).differences
    assert difference.job_id == a != b
    assert (difference.published.state, difference.folded.state) == (JobState.RUNNING, JobState.CREATED)


def test_an_entry_that_is_missing_and_one_too_many_are_found(world):
    a = world.started("a")
    entry = world.now(a)
    world.working = False
    publish(world, a, None)
    ghost = "ghost-1"
    publish(world, ghost, avro.encode(replace(entry, job_id=ghost, partition=partition_of(ghost, PARTITIONS))))
    found = {d.job_id: d for d in replay(world.source()).differences}
    assert set(found) == {a, ghost}
    assert found[a].published is None and found[ghost].folded is None


def test_a_job_that_the_projector_has_not_come_to_is_behind_and_no_difference(world):
    a, b = world.started("a"), world.started("b")
    world.now(a), world.now(b)
    world.working = False
    world.record(a, Running(1), AttemptRunning("1"))
    found = replay(world.source(), timeout_s=2)
    assert (found.behind, found.differences, found.compared) == ((a,), (), 1)


def test_replay_waits_for_a_projector_that_catches_up(world):
    a = world.started("a")
    world.working = False
    world.record(a, Running(1), AttemptRunning("1"))
    began = world.clock.monotonic()
    sleep = world.clock.sleep

    def work_again(seconds: float) -> None:
        world.working = world.clock.monotonic() - began > 5
        sleep(seconds)

    world.clock.sleep = work_again
    found = replay(world.source(), timeout_s=60)
    assert (found.behind, found.differences, found.compared) == ((), (), 1)


def test_jobs_are_compared_one_by_one_when_they_never_stand_still_together(world):
    """In the first pass only job a can be compared, in every later pass only job b."""
    a, b = world.started("a"), world.started("b")
    world.now(a), world.now(b)
    world.working = False
    world.record(b, Running(1), AttemptRunning("1"))

    def turn(seconds: float) -> None:
        world.clock.advance(seconds)
        if world.clock.sleep is turn:
            world.clock.sleep = world.clock.advance
            world.record(a, Running(1), AttemptRunning("1"))
            entry = registers_of(world.source(), b).entry()
            partition = partition_of(b, PARTITIONS)
            publish(world, b, avro.encode(replace(entry, partition=partition, as_of=1000, epoch=1)))

    world.clock.sleep = turn
    found = replay(world.source(), timeout_s=10)
    assert (found.differences, found.behind, found.compared) == ((), (), 2)


@pytest.mark.parametrize("lie", [False, True])
def test_a_job_that_never_rests_is_compared_with_the_log_as_far_as_its_entry_says(world, lie):
    """The projector is always one record behind, so the entry never covers the whole log."""
    a = world.started("a")
    partition = partition_of(a, PARTITIONS)
    world.now(a)
    world.working = False
    world.record(a, Running(1), AttemptRunning("0"))
    turns: list[int] = []

    def turn(seconds: float) -> None:
        world.clock.advance(seconds)
        world.clock.sleep = world.clock.advance
        entry = replace(registers_of(world.source(), a).entry(), partition=partition, epoch=world.leader.epoch)
        end = world.log.reader([EVENTS]).high_watermarks()[EVENTS, partition]
        turns.append(end)
        world.record(a, Checkpoint(1, len(turns)), CheckpointCompleted(f"/chk-{len(turns)}"))
        said = replace(entry, as_of=end, state=JobState.RESTARTING) if lie else replace(entry, as_of=end)
        publish(world, a, avro.encode(said))
        world.clock.sleep = turn

    world.clock.sleep = turn
    found = replay(world.source(), timeout_s=10)
    assert turns, "the first pass had nothing to compare"
    assert (len(found.differences), found.behind, found.compared) == (int(lie), (), 1)

"""A projector that starts from snapshots has the same state as one that has read the whole log, despite log compaction. If
a snapshot is not safe to use, it reads the log instead."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.archive.snapshots.bootstrap import usable
from ledger.archive.store.archiving import PartitionShape
from ledger.core.model.facts import AttemptRunning, JobResult
from ledger.core.model.registers import Result, Running, partition_of
from ledger.errors import Unreachable
from ledger.ports import Event, TopicPartition
from ledger.roles.common.role_parts import ProjectorSettings
from ledger.roles.projector.cold_start import StartSnapshot, begun
from ledger.roles.projector.projector import Projector
from tests.support.remembered import Remembered, live
from tests.support.repetitions import one_fast, seeds
from tests.support.roles.world import EVENTS, PARTITIONS, RECOVERY, PlainRejects

SEEDS = seeds(4)
RETENTION_S = 600.0
FORGET_S = RETENTION_S / 2
RESULT = JobResult("etl", "prod", "memory", "0" * 64, "", 0.0, 1)


class Lived(Remembered):
    """A ledger whose log removes tombstones RETENTION_S after log compaction first reached them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log.delete_retention_s = RETENTION_S
        self.asked = 0

    def cold_start(self) -> Mapping[TopicPartition, StartSnapshot]:
        self.asked += 1
        found = usable(self.archive, self.shapes(), FORGET_S)
        return {
            (one.topic, one.partition): StartSnapshot(one.snapshot.next, one.newest_s, one.snapshot.records)
            for one in found
        }

    def standby(self, cold: bool, step: bool = True) -> Projector:
        """A projector that is caught up and does not lead. cold: it starts from snapshots. step: read to the end."""
        settings = ProjectorSettings(commit_interval_s=0.0, forget_after_s=FORGET_S)
        more = {"cold_start": self.cold_start} if cold else {}
        made = Projector(self.parts("projector", "p2"), PlainRejects(), settings, **more)  # type: ignore[arg-type]
        if step:
            read_up(made)
        return made

    def clean(self) -> None:
        """Compacts both topics: removes everything older than their minimum compaction lag that may be removed."""
        for topic in (EVENTS, RECOVERY):
            self.log.compact(topic, min_lag_s=100.0)

    def retire(self, job: str, wholly: bool = False) -> None:
        """Writes the job's result, and lets the projector write the tombstones of its other registers. wholly: also
        writes the tombstones of the result."""
        self.record(job, Result("FINISHED"), RESULT)
        for _ in range(8):
            self.step()
        if wholly:
            left = [key for key in self.values() if key.startswith(f"{job}/".encode())]
            writer = self.log.writer("reconciler")
            writer.init()
            writer.commit([Event(EVENTS, partition_of(job, PARTITIONS), key, None) for key in left])
            for _ in range(8):
                self.step()


def read_up(projector: Projector) -> None:
    marks = projector._reader.high_watermarks()
    for _ in range(1000):
        if projector._reached(marks):
            return
        projector.step()
    raise AssertionError("the projector does not reach the end of the log")


def state(projector: Projector) -> dict[str, Any]:
    view, table = projector.published, projector._table
    hidden = {(p, key) for p, keys in view.raw.items() for key in keys if not view.last_is_effective(p, key)}
    return {
        "registers": table.jobs, "claims": table.claims, "entries": view.entries, "raw": view.raw,
        "claimed": view.claimed, "progress": view.progress, "unreadable": view.unreadable, "hidden": hidden,
        "position": projector._reader.position(), "epoch": projector._highest_epoch(),
        "as_of": {job: view.as_of(job, entry.partition) for job, entry in view.entries.items()},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


def told(logged: list[Any], event: str) -> list[Any]:
    return [entry for entry in logged if entry["event"] == event]


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_it_is_the_one_that_has_read_the_log(tmp_path: Path, seed: int, logged: list[Any]) -> None:
    """Log compaction runs at random. Now and then the archiver and the snapshots pause, so that tombstones vanish
    meanwhile."""
    drawn, world = random.Random(seed), Lived(tmp_path)
    jobs: list[str] = []
    away, compared = 0, 0
    for turn in range(160):
        live(world, drawn, jobs)
        if jobs and drawn.random() < 0.12:
            world.retire(jobs.pop(drawn.randrange(len(jobs))), wholly=drawn.random() < 0.5)
        world.step()
        world.clock.advance(drawn.uniform(1.0, 30.0))
        away = drawn.choice([20, 60]) if not away and drawn.random() < 0.02 else max(0, away - 1)
        if not away:
            world.seal()
            if turn % 7 == 0:
                world.snapshot()
        if drawn.random() < 0.5:
            world.clean()
        if turn % 8 == 5:
            assert state(world.standby(cold=True)) == state(world.standby(cold=False)), f"seed {seed}, turn {turn}"
            compared += 1
    assert compared == 20
    assert told(logged, "begins_from_snapshots")


def test_it_reads_of_the_log_only_what_came_since(tmp_path: Path) -> None:
    world, jobs, drawn = Lived(tmp_path), list[str](), random.Random(1)
    for _ in range(60):
        live(world, drawn, jobs)
        world.step()
    world.seal()
    world.snapshot()
    before = {place: world.archive.head(*place).next for place in world.archive.partitions()}
    live(world, drawn, jobs)
    world.step()
    cold, offered = world.standby(cold=True, step=False), []
    poll = cold._reader.poll
    cold._reader.poll = lambda *given: offered.extend(found := poll(*given)) or found  # type: ignore
    read_up(cold)
    assert offered and all(r.offset() >= before[r.topic(), r.partition()] for r in offered)
    assert state(cold) == state(world.standby(cold=False))


def gone_since(world: Lived) -> str:
    """The id of a job that a snapshot holds and that was retired after it. Its tombstones are gone from the log."""
    job = world.started("over")
    world.record(job, Running(1), AttemptRunning("pid 1"))
    other = world.started("other")
    for _ in range(4):
        world.step()
    world.seal()
    world.snapshot()
    world.clock.advance(10.0)
    world.retire(job, wholly=True)
    assert world.entry(job) is None
    for _ in range(4):
        world.clock.advance(RETENTION_S / 2)
        world.record(other, Running(1), AttemptRunning("pid 2"))  # compaction keeps a partition's last record
        world.record(other, Running(1), AttemptRunning("pid 2"))
        world.step()
        world.clean()
        world.clock.advance(101.0)
        world.clean()
    left = [r for p in range(PARTITIONS) for r in world.log.records(EVENTS, p)]
    assert not [r for r in left if (r.key() or b"").startswith(job.encode())], "the tombstones are gone too"
    return job


def test_what_was_over_does_not_come_back_from_a_snapshot_that_is_too_old(tmp_path: Path, logged: list[Any]) -> None:
    world = Lived(tmp_path)
    job = gone_since(world)
    cold = world.standby(cold=True)
    assert not cold._table.registers(job.encode(), partition_of(job, PARTITIONS)), "the finished job would be started again"
    assert state(cold) == state(world.standby(cold=False))
    (why, *_) = told(logged, "snapshot_too_old")
    assert why["age_s"] > why["age_max_s"] == FORGET_S


def test_what_was_over_does_not_come_back_from_an_archive_that_never_saw_its_end(tmp_path: Path, logged: list[Any]) -> None:
    """The archiver was down for so long that it missed the tombstones. Its new snapshot has just been made."""
    world = Lived(tmp_path)
    job = gone_since(world)
    world.seal()
    world.snapshot()
    cold = world.standby(cold=True)
    assert not cold._table.registers(job.encode(), partition_of(job, PARTITIONS)), "the finished job would be started again"
    assert state(cold) == state(world.standby(cold=False))
    assert any("so late that a tombstone" in entry["why"] for entry in told(logged, "no_snapshot"))


def test_an_archive_that_slept_while_nothing_happened_is_as_good_as_any(tmp_path: Path, logged: list[Any]) -> None:
    world = Lived(tmp_path)
    job = world.started("quiet")
    world.seal()
    for _ in range(3):
        world.clock.advance(10 * RETENTION_S)
        world.record(job, Running(1), AttemptRunning("pid 1"))
        world.step()
        world.seal()
    world.snapshot()
    found = {one.topic for one in usable(world.archive, world.shapes(), FORGET_S)}
    assert found == {EVENTS, RECOVERY}, told(logged, "no_snapshot")


def a_snapshot(world: Lived) -> str:
    job = world.started("etl")
    for _ in range(4):
        world.step()
    world.seal()
    world.snapshot()
    return job


def partitions(world: Lived, **shape: Any) -> dict[TopicPartition, PartitionShape]:
    return {place: one._replace(**shape) for place, one in world.shapes().items()}


@pytest.mark.parametrize(("shape", "why"), [
    ({"topic_id": "another"}, "is of another topic with the same name"),
    ({"end": 1}, "the topic ends at 1, but is archived up to"),
])  # fmt: skip
def test_a_topic_that_is_not_the_one_that_was_archived(
    tmp_path: Path, logged: list[Any], shape: dict[str, Any], why: str
) -> None:
    world = Lived(tmp_path)
    a_snapshot(world)
    assert list(usable(world.archive, partitions(world), FORGET_S))
    logged.clear()
    assert not list(usable(world.archive, partitions(world, **shape), FORGET_S))
    assert any(why in entry["why"] for entry in told(logged, "no_snapshot"))


def test_what_does_not_answer_or_can_t_be_read_is_done_without(tmp_path: Path, logged: list[Any]) -> None:
    world = Lived(tmp_path)
    a_snapshot(world)
    kept = world.cold_start()

    def away() -> Any:
        raise Unreachable("the store does not answer")

    assert begun(away, FORGET_S, world.clock).begin == {}
    assert told(logged, "reads_the_log")
    broken = {place: one._replace(records=away) for place, one in kept.items()}
    assert begun(lambda: broken, FORGET_S, world.clock).begin == {}
    assert len(told(logged, "snapshot_unreadable")) == len(kept) > 0
    world.archive.store.up = False  # type: ignore[attr-defined]
    assert state(world.standby(cold=True)) == state(world.standby(cold=False))


def test_the_age_of_a_snapshot_counts_as_time_away_from_the_end(tmp_path: Path, logged: list[Any]) -> None:
    world = Lived(tmp_path)
    a_snapshot(world)
    world.clock.advance(FORGET_S - 20.0)
    cold = world.standby(cold=True, step=False)
    assert told(logged, "begins_from_snapshots") and world.asked == 1
    cold._reached = lambda marks: False  # type: ignore[method-assign]
    world.clock.advance(30.0)
    cold.step()
    assert told(logged, "forgets_everything") and world.asked == 2
    assert told(logged, "snapshot_too_old")

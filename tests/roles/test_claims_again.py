"""If somebody repeats a claim in the log, or tombstones it, no reader loses a job.

Log compaction keeps the last copy of a claim. Earlier records of that epoch then come before their own claim, and readers
drop them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.published import Published
from ledger.core.model.registers import Intent, claim_key, partition_of
from ledger.errors import Fenced
from ledger.roles.projector.projector import Projector
from tests.support.roles.cluster import Cluster, starts
from tests.support.roles.world import EVENTS, PARTITIONS, RECOVERY, World, run

JOBS = [f"job-{n}" for n in range(6)]


def two_terms() -> tuple[World, Projector]:
    """A ledger with three jobs published in epoch 1 and three in epoch 2, and the leader of epoch 2."""
    world = World()
    projector = world.projector()
    for job_id in JOBS[:3]:
        world.submit(job_id)
    run(projector)
    projector.step_down(Fenced("test"))
    run(projector)
    for job_id in JOBS[3:]:
        world.submit(job_id)
    run(projector)
    epochs = {job_id: entry.epoch for job_id, entry in world.published().entries.items()}
    assert projector.epoch == 2 and epochs == dict.fromkeys(JOBS[:3], 1) | dict.fromkeys(JOBS[3:], 2)
    return world, projector


def claim_again(world: World, epoch: int, tombstone: bool = False, role: str = "projector") -> None:
    """Appends a copy of the claim to every partition; or a tombstone for it, without headers."""
    topic = RECOVERY if role == "projector" else EVENTS
    key = claim_key(role, epoch).encode()
    for partition in range(PARTITIONS):
        there = next(record for record in world.log.records(topic, partition) if record.key() == key)
        value, headers = (None, ()) if tombstone else (there.value(), there.headers() or ())
        world.raw(key, value, partition, topic, headers)


def cleaned(world: World) -> World:
    world.log.delete_retention_s = 0.0
    for _ in range(3):
        world.log.compact(RECOVERY)
        world.log.compact(EVENTS)
        world.clock.advance(1.0)
    return world


@pytest.mark.parametrize("tombstone", [False, True])
@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("leads", [True, False])
def test_whoever_reads_after_the_cleaner_finds_every_job(epoch: int, tombstone: bool, leads: bool) -> None:
    """leads: True = there is a leader when it happens; False = the next leader finds it in the log."""
    world, projector = two_terms()
    meaning, progress = world.meaning(), world.published().progress
    if not leads:
        projector.step_down(Fenced("test"))
    claim_again(world, epoch, tombstone)
    if not leads:
        world.elections["projector"].holder = None
        projector = world.projector("p2")
    run(projector)
    assert projector.epoch == (2 if leads else 3)
    cleaned(world)
    assert world.meaning() == meaning and set(meaning) == set(JOBS)
    assert world.published().progress.keys() == progress.keys()
    assert all(world.published().progress[p] >= as_of for p, as_of in progress.items())
    fresh = world.projector("p3")
    fresh._read()
    assert fresh._highest_epoch() == projector.epoch, "no epoch is claimed twice"


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_reader_that_is_there_already_and_one_that_goes_on_from_the_middle_see_no_change(epoch: int) -> None:
    world, projector = two_terms()
    there = world.published()
    seen = {p: len(world.log.records(RECOVERY, p)) for p in range(PARTITIONS)}
    claim_again(world, epoch)
    run(projector)
    cleaned(world)
    middle = Published(avro.decode)
    middle.claimed, middle.entries = dict(there.claimed), dict(there.entries)  # type: ignore[assignment]
    for reader in (there, middle):
        for p in range(PARTITIONS):
            for record in world.log.records(RECOVERY, p):
                if record.offset() >= seen[p]:
                    reader.apply(record)
        assert {j: e.state for j, e in reader.entries.items()} == {j: e.state for j, e in world.meaning().items()}


def test_only_what_that_claim_carried_is_written_again_and_once() -> None:
    world, projector = two_terms()
    claim_again(world, 1)
    run(projector)
    entries = world.published().entries
    assert {entries[job_id].epoch for job_id in JOBS[:3]} == {2}, "the jobs were published in epoch 1 before"
    written = {p: [r.key() for r in world.log.records(RECOVERY, p)] for p in range(PARTITIONS)}
    for job_id in JOBS[3:]:
        assert written[partition_of(job_id, PARTITIONS)].count(job_id.encode()) == 1
    claim_again(world, 1)  # no effective record depends on this claim any more
    run(projector)
    after = {p: [r.key() for r in world.log.records(RECOVERY, p)] for p in range(PARTITIONS)}
    assert after == {p: [*keys, claim_key("projector", 1).encode()] for p, keys in written.items()}


@pytest.mark.parametrize("records_max", [1, 1000])
def test_what_the_leader_wrote_before_it_read_the_tombstone_of_its_own_claim_is_written_again_too(
    records_max: int,
) -> None:
    """The tombstone comes just before the leader's next transaction, whose epoch is then unclaimed."""
    world, projector = two_terms()
    projector._settings = replace(projector._settings, records_max=records_max)

    def tombstone_first(name: str) -> None:
        if name == "begin":
            world.log.failpoint = lambda name: None
            claim_again(world, 2, tombstone=True)

    world.log.failpoint = tombstone_first
    world.submit("job-new")
    world.record("job-4", Intent(1, "u"), IntentDeclared(IntentKind.SUSPEND, 0))
    run(projector, steps=80)
    meaning = world.meaning()
    assert cleaned(world).meaning() == meaning and set(meaning) == {*JOBS, "job-new"}


def test_a_reconciler_whose_claim_was_tombstoned_claims_its_epoch_again_with_the_same_record(tmp_path: Path) -> None:
    """The events have no epoch filter, so no other records must be repeated. But the highest claim shows which epochs are
    used, and an epoch claimed twice would have two writers for `attempt/<n>/<epoch>`."""
    world = Cluster(tmp_path)
    world.job("job")
    world.go()
    barrier = dict(world.r._term.barrier)
    first = [r for r in world.log.records(EVENTS, 0) if r.key() == claim_key("reconciler", 1).encode()]
    claim_again(world, 1, tombstone=True, role="reconciler")
    world.go()
    cleaned(world)
    again = [r for r in world.log.records(EVENTS, 0) if r.key() == claim_key("reconciler", 1).encode()]
    assert [(r.value(), r.headers()) for r in again] == [(r.value(), r.headers()) for r in first]
    assert (world.r.epoch, world.r._term.barrier, world.state("job")) == (1, barrier, "RUNNING")
    world.r.step_down(Fenced("test"))
    world.go()
    assert world.r.epoch == 2


def test_a_copy_of_a_reconcilers_claim_changes_nothing(tmp_path: Path) -> None:
    world = Cluster(tmp_path)
    world.job("job")
    world.go()
    world.r.step_down(Fenced("test"))
    world.go()
    for epoch in (1, 2):
        claim_again(world, epoch, role="reconciler")
    world.go()
    written = len(world.values())
    cleaned(world)
    world.go()
    assert (world.r.epoch, world.state("job"), len(world.values())) == (2, "RUNNING", written)
    assert starts(world) == [(1, None)]

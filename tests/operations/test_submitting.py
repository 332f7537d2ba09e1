"""Submit: one id has one spec. Success, refusal and an unknown outcome are distinguished."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import AttemptEnded, JobResult, RestorePoint
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import NOOP_KEY, Admitted, Ended, Result, Spec, key_of, partition_of
from ledger.errors import OutcomeUnknown, Refused, UsageError
from ledger.ports import Event
from ledger.reader.rejects import RejectsTopic
from tests.support.operated import EVENTS, REJECTS, spec
from tests.support.roles.world import PARTITIONS

RESULT = JobResult("etl", "prod", "memory", "d" * 64, "", 1.0, 1)


def test_a_submitted_job_is_admitted_with_its_graph_in_the_blob_store(world):
    job_id = world.client().submit(spec(labels={"team": "a"}), world.graph("main.py"))
    entry = world.now(job_id)
    assert (entry.state, entry.name, entry.labels) == (JobState.CREATED, "etl", {"team": "a"})
    assert world.blobs.exists(entry.graph)
    target = world.folder / "fetched"
    world.blobs.fetch(entry.graph, target)
    assert target.read_text() == "main.py"


def test_the_id_is_told_before_anything_is_written(world):
    told = []
    world.client().submit(spec(), world.graph(), named=lambda job_id: told.append((job_id, len(world.values()))))
    assert [count for _, count in told] == [0]


def test_the_same_spec_again_under_the_same_id_is_success_and_one_record(world):
    first = world.client().submit(spec(), world.graph(), job_id="job-1")
    records = len(world.log.records(EVENTS, partition_of("job-1", PARTITIONS)))
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == first == "job-1"
    assert len(world.log.records(EVENTS, partition_of("job-1", PARTITIONS))) == records


@pytest.mark.parametrize("other", [spec("other"), spec(priority=1), spec(restore_from=RestorePoint(0, 0, "/chk"))])
def test_another_spec_under_the_same_id_is_refused(world, other):
    world.started(job_id="job-1")
    with pytest.raises(Refused, match="Another spec") as raised:
        world.client().submit(other, world.graph(), job_id="job-1")
    assert raised.value.exit_code == 5
    assert world.now("job-1").name == "etl"


def test_another_graph_is_another_spec(world):
    world.started(job_id="job-1")
    with pytest.raises(Refused):
        world.client().submit(spec(), world.graph("another graph"), job_id="job-1")


def test_the_same_spec_again_records_nothing_when_the_job_is_retired(world):
    world.started(job_id="job-1")
    digest = world.now("job-1").digest
    world.record("job-1", Result("FINISHED"), replace(RESULT, digest=digest))
    for _ in range(5):
        world.step()
    assert set(world.values()) == {b"job-1/result/FINISHED"}
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1"
    with pytest.raises(Refused, match=f"FINISHED and retired, and had another spec: {digest[:12]}"):
        world.client().submit(spec("other"), world.graph(), job_id="job-1")
    assert set(world.values()) == {b"job-1/result/FINISHED"}, "nothing was recorded"


def test_the_graph_of_a_job_that_is_retired_is_not_stored_again(world):
    """Nothing would delete it, because a retirement deletes graphs only once."""
    world.started(job_id="job-1")
    stands = world.now("job-1").digest
    world.record("job-1", Result("FINISHED"), replace(RESULT, digest=stands))
    world.blobs.delete_all("job-1")
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1"
    with pytest.raises(Refused):
        world.client().submit(spec(), world.graph("another graph"), job_id="job-1")
    assert world.blobs.listing() == []


def test_the_loser_of_two_that_submit_at_once_is_refused(world):
    """The other spec is recorded between our read of the log and our record."""
    other = replace(spec("other"), graph=world.blobs.put("job-1", world.graph("other")))
    record = world.recorder.record

    def overtaken(job_id, register, fact):
        world.record("job-1", Spec(avro.spec_digest(other)), other)
        return record(job_id, register, fact)

    world.recorder.record = overtaken
    with pytest.raises(Refused, match="Another spec"):
        world.client().submit(spec(), world.graph(), job_id="job-1")
    assert world.now("job-1").name == "other"


def test_a_rejected_spec_is_refused_with_the_reason(world):
    world.working = False
    record = world.recorder.record

    def rejected(job_id, register, fact):
        recorded = record(job_id, register, fact)
        rejects = RejectsTopic(REJECTS, EVENTS)
        world.log.append([rejects.held(recorded.partition, b"k", b"v", recorded.offset, "not allowed here")])
        return recorded

    world.recorder.record = rejected
    with pytest.raises(Refused, match="not allowed here"):
        world.client().submit(spec(), world.graph(), job_id="job-1")


def test_a_job_that_was_over_and_retired_before_we_looked_was_admitted_all_the_same(world):
    record = world.recorder.record

    def all_in_one(job_id, register, fact):
        recorded = record(job_id, register, fact)
        for _ in range(3):
            world.step()
        world.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded())
        world.record(job_id, Result("FINISHED"), replace(RESULT, digest=register.digest))
        for _ in range(5):
            world.step()
        assert key_of(job_id, Admitted()).encode() not in world.values()
        return recorded

    world.recorder.record = all_in_one
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1"


def test_without_a_projector_the_outcome_is_unknown_and_asking_again_records_nothing_twice(world):
    world.working = False
    with pytest.raises(OutcomeUnknown, match="not admitted within 5 s") as raised:
        world.client().submit(spec(), world.graph(), job_id="job-1", timeout_s=5)
    assert "--id job-1" in raised.value.hint
    with pytest.raises(OutcomeUnknown):
        world.client().submit(spec(), world.graph(), job_id="job-1", timeout_s=5)
    written = world.log.records(EVENTS, partition_of("job-1", PARTITIONS))
    assert len([record for record in written if record.key() != NOOP_KEY.encode()]) == 1
    world.working = True
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1"


def test_a_blob_that_was_collected_before_its_reference_stood_is_put_again(world):
    record = world.recorder.record

    def collected(job_id, register, fact):
        world.blobs.delete_all(job_id)
        return record(job_id, register, fact)

    world.recorder.record = collected
    job_id = world.client().submit(spec(), world.graph())
    assert world.blobs.exists(world.now(job_id).graph)


@pytest.mark.parametrize("taken", ["CREATED", "SUSPENDED", "finished"])
def test_unique_refuses_as_long_as_a_job_of_that_name_is_not_over(world, taken):
    from ledger.core.model.facts import IntentKind

    job_id = world.started("etl")
    world.started("etl", namespace="test")
    if taken == "SUSPENDED":
        world.client().declare(job_id, IntentKind.SUSPEND, reason="later")
    if taken == "finished":
        world.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded())
        world.now(job_id)
        assert world.client().submit(spec(), world.graph(), unique=True) != job_id
        return
    with pytest.raises(Refused, match=job_id):
        world.client().submit(spec(), world.graph(), unique=True)
    assert world.client().submit(spec(), world.graph(), job_id=job_id, unique=True) == job_id


def test_what_is_no_id_is_a_usage_error(world):
    with pytest.raises(UsageError):
        world.client().submit(spec(), world.graph(), job_id="no/id")


def test_only_own_partition_decides(world):
    """A record with the job's key in a foreign partition is no register of the job."""
    foreign = (partition_of("job-1", PARTITIONS) + 1) % PARTITIONS
    key = key_of("job-1", Result("FINISHED")).encode()
    world.log.append([Event(EVENTS, foreign, key, avro.encode(RESULT))])
    assert world.client().submit(spec(), world.graph(), job_id="job-1") == "job-1"

"""The reader: reads up to the high watermark, job lookup by name, waits for a job's end, and the history of a job."""

from __future__ import annotations

import itertools

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import AttemptEnded, AttemptRunning, CheckpointCompleted, IntentKind, JobResult
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Checkpoint, Ended, Result, Running, key_of, partition_of
from ledger.errors import NotFound, Unreachable, UsageError
from ledger.ports import Event
from ledger.reader.job_lookup import one, resolve
from ledger.reader.reading import all_registers, entries_of, history, registers_of, results
from tests.support.operated import RECOVERY
from tests.support.roles.world import PARTITIONS

RESULT = JobResult("etl", "prod", "memory", "d" * 64, "done", 1.0, 1)


def retire(world, job_id: str, name: str = "etl") -> None:
    world.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded())
    world.record(job_id, Result("FINISHED"), JobResult(name, "prod", "memory", "d" * 64, "done", 1.0, 1))
    for _ in range(6):
        world.step()


# -- reading to the end ------------------------------------------------------------------------------------------------


def test_the_recovery_set_is_what_is_published(world):
    a, b = world.started("a"), world.started("b")
    world.client().declare(b, IntentKind.SUSPEND, reason="x")
    entries = entries_of(world.source())
    assert {e.name: e.state for e in entries.values()} == {"a": JobState.CREATED, "b": JobState.SUSPENDED}
    assert set(entries.recovery_set()) == {a}


def test_an_entry_of_an_epoch_that_nobody_claimed_is_not_read(world):
    a = world.started("a")
    zombie = avro.encode(world.now(a))
    partition = partition_of(a, PARTITIONS)
    world.working = False
    world.log.append([Event(RECOVERY, partition, b"zombie", zombie, (("ledger_epoch", b"999"),))])
    assert set(entries_of(world.source())) == {a}


def test_reading_waits_for_an_open_transaction_and_then_gives_up(world):
    world.started("a")
    writer = world.log.writer("foreign")
    writer.init()
    world.log.transaction_timeout_s = 10_000
    transaction = world.log.begin("foreign", 1)
    world.log.produce(transaction, Event(RECOVERY, 0, b"x", b"y"))
    world.working = False
    began = world.clock.monotonic()
    with pytest.raises(Unreachable, match="made no progress at offset"):
        entries_of(world.source())
    assert world.clock.monotonic() - began >= world.source().patience_s
    world.log.end("foreign", committed=False)
    assert len(entries_of(world.source())) == 1


def test_progress_is_told_up_to_the_end(world):
    from dataclasses import replace

    for n in range(5):
        world.started(f"job{n}")
    told = []
    entries_of(replace(world.source(), progressed=lambda *what: told.append(what)))
    assert told[0][1] < told[-1][1] == told[-1][2]


def test_registers_of_one_job_are_those_of_its_partition_and_tombstoned_ones_are_gone(world):
    a = world.started("a")
    world.record(a, Running(1), AttemptRunning("1"))
    world.record(a, Checkpoint(1, 1), CheckpointCompleted("x"))
    partition = partition_of(a, PARTITIONS)
    world.raw(key_of(a, Checkpoint(1, 1)).encode(), None, partition)
    world.raw(key_of(a, Running(2)).encode(), avro.encode(AttemptRunning("2")), 1 - partition)
    log = registers_of(world.source(), a)
    names = {bytes(name) for name in log.registers if not name.startswith(b"spec/")}
    assert names == {b"admitted", b"running/1"}
    assert log.entry().state == JobState.RUNNING
    assert len(all_registers(world.source())) == 1


def test_a_prefix_of_an_id_is_not_the_id(world):
    world.started("a", job_id="job-1")
    world.started("b", job_id="job-11")
    assert all(r.key().startswith(b"job-1/") for r in registers_of(world.source(), "job-1").records)


# -- history -------------------------------------------------------------------------------------------------------------


def test_history_holds_every_record_with_its_headers_and_facts(world):
    a = world.started("a")
    world.client().declare(a, IntentKind.SUSPEND, reason="night")
    world.raw(key_of(a, Running(1)).encode(), b"\xc3\x01 damaged", partition_of(a, PARTITIONS))
    world.raw(key_of(a, Running(1)).encode(), None, partition_of(a, PARTITIONS))
    found = list(history(world.source(), a))
    assert [r.register.partition("/")[0] for r in found] == ["spec", "admitted", "intent", "running", "running"]
    assert [r.offset for r in found] == sorted(r.offset for r in found)
    spec, admitted, intent, damaged, tombstone = found
    assert (spec.actor, spec.type, spec.sequence) == ("ann@here", "io.jobledger.JobSubmitted.v1", 1)
    assert (admitted.epoch, admitted.fact.digest) == (1, spec.register.partition("/")[2])
    assert intent.fact.reason == "night"
    assert (damaged.readable, damaged.tombstone, damaged.fact) == (False, False, None)
    assert (tombstone.readable, tombstone.tombstone) == (True, True)


def test_history_can_be_followed(world):
    a = world.started("a")
    following = history(world.source(), a, follow=True)
    seen = [next(following) for _ in range(2)]
    world.record(a, Running(1), AttemptRunning("1"))
    assert next(following).register == "running/1"
    assert len(seen) == 2


# -- names ---------------------------------------------------------------------------------------------------------------


JOBS = [("abcd-1", "prod", "etl"), ("abcd-2", "test", "etl"), ("abxx-3", "prod", "load"), ("load", "prod", "x")]


@pytest.mark.parametrize(
    "ref, found",
    [
        ("abcd-1", "abcd-1"),
        ("prod/etl", "abcd-1"),
        ("test/etl", "abcd-2"),
        ("abxx", "abxx-3"),
        ("load", "load"),  # an id takes precedence over a name
        ("prod/load", "abxx-3"),
        ("abx", None),  # too short for a prefix
        ("etl2", None),
    ],
)
def test_what_a_reference_means(ref, found):
    assert one(ref, JOBS) == found


@pytest.mark.parametrize("ref, ids", [("etl", ["abcd-1", "abcd-2"]), ("abcd", ["abcd-1", "abcd-2"])])
def test_an_ambiguous_reference_lists_the_ids(ref, ids):
    with pytest.raises(UsageError) as raised:
        one(ref, JOBS)
    assert all(id_ in str(raised.value) for id_ in ids)
    assert raised.value.exit_code == 2


def test_a_job_that_is_not_over_goes_before_one_that_is_and_that_before_a_retired_one(world):
    source = world.source()
    retired = world.started("etl")
    retire(world, retired)
    with pytest.raises(NotFound):
        resolve(source, "etl")
    assert resolve(source, "etl", retired=True) == retired
    assert resolve(source, retired, retired=True) == retired
    assert resolve(source, retired[:5], retired=True) == retired
    over = world.started("etl")
    world.record(over, Ended(1, "finished", "agent-a"), AttemptEnded())
    world.now(over)
    assert resolve(source, "prod/etl", retired=True) == over
    live = world.started("etl")
    assert resolve(source, "etl", retired=True) == live


def test_results_of_retired_jobs(world):
    a = world.started("etl")
    assert not results(world.source(), all_registers(world.source()))
    retire(world, a)
    (found,) = results(world.source(), all_registers(world.source())).values()
    assert (found.job_id, found.state, found.result.reason) == (a, "FINISHED", "done")


# -- waiting for an end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcome, state, finished",
    [("finished", "FINISHED", True), ("canceled", "CANCELED", False), ("abandoned", "FAILED", False),
     ("failed", "QUARANTINED", False)],
)  # fmt: skip
@pytest.mark.parametrize("retired", [False, True])
def test_wait_says_how_it_ended(world, outcome, state, finished, retired):
    job_id = world.started("etl")
    steps = itertools.count()

    def later() -> None:
        if next(steps) == 3:
            world.record(job_id, Ended(1, outcome, "agent-a"), AttemptEnded("because"))

    step, world.step = world.step, lambda: (later(), step())
    world.clock.sleep = lambda seconds: (world.clock.advance(seconds), world.step())
    if retired and state != "QUARANTINED":
        world.record(job_id, Result(state), JobResult("etl", "prod", "memory", "d" * 64, "because", 1.0, 1))
    ended = world.client().wait(job_id)
    assert (ended.state, ended.finished) == (state, finished)
    assert "because" in ended.reason
    assert retired or next(steps) > 3


def test_wait_gives_up_in_time(world):
    job_id = world.started("etl")
    ended = world.client().wait(job_id, timeout_s=3)
    assert (ended.state, ended.finished) == ("", False)
    with pytest.raises(NotFound):
        world.client().wait("nobody")

"""The ledger as of a moment equals a fold of the full copy, however much log compaction has removed since."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.decoding import decoded
from ledger.archive.snapshots import snapshots
from ledger.core.model.facts import AttemptRunning, CheckpointCompleted
from ledger.core.model.registers import Checkpoint, Running
from ledger.errors import LedgerError, NotFound, UsageError
from ledger.history import bundling
from ledger.history.historical_log import picked
from ledger.history.moment import Moment, vector
from ledger.history.resolve_moment import as_of
from ledger.ports import Event, Record, TopicPartition
from ledger.reader.reading import Source, Tail, entries_of
from ledger.reader.replaying import replay
from ledger.util import times
from tests.support.operated import EVENTS, RECOVERY
from tests.support.remembered import LAG_S, Remembered, a_life, folded_from, live, refolded, republished
from tests.support.repetitions import one_fast, seeds

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.slow]
SEEDS = seeds(4)
MOMENTS = 10


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_at_any_moment_it_is_what_the_full_copy_says(tmp_path: Path, seed: int) -> None:
    world, moments = a_life(tmp_path, seed)
    for time_s in random.Random(seed).sample(moments, MOMENTS):
        source, told = world.then(times.rfc3339(time_s))
        assert folded_from(source) == refolded(world, time_s), f"seed {seed}, {told}"
        assert entries_of(source) == republished(world, time_s), f"seed {seed}, {told}"
        spanless = {place: replace(sealed, spans=()) for place, sealed in world.archived().items()}
        assert world.then(times.rfc3339(time_s), spanless)[1] == told
        again, same = world.then(told)
        assert same == told
        assert folded_from(again) == folded_from(source)


def test_a_moment_is_looked_for_only_where_it_lies(tmp_path: Path) -> None:
    """The search reads neither older objects of the archive, nor the topics if the archive continues past the moment."""
    world, moments = a_life(tmp_path, 2)
    time_s, read = moments[60], []
    archived = {}
    for place, sealed in world.archived().items():

        def records(first: int, end: int, place: TopicPartition = place, whole: Any = sealed.records) -> Iterator[Record]:
            for record in whole(first, end):
                read.append((place, record.timestamp()[1] / 1000))
                yield record

        archived[place] = replace(sealed, records=records)
    told = world.then(times.rfc3339(time_s), archived)[1]
    assert told == world.then(times.rfc3339(time_s))[1]
    total = sum(1 for record in world.copy.values() if record.timestamp()[1] / 1000 <= time_s)
    assert 0 < len(read) < total / 4
    first = min(sealed.spans[0].greatest_s for sealed in archived.values())
    assert all(at_s > first for _, at_s in read), "older objects were not read"


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_from_a_snapshot_it_is_the_same(tmp_path: Path, seed: int) -> None:
    world, moments = a_life(tmp_path, seed)
    archived, used = world.with_snapshots(), 0
    for time_s in random.Random(seed).sample(moments, MOMENTS):
        source, cut = as_of(world.source(), Moment(time_s=time_s), archived, LAG_S, thin=True)
        assert folded_from(source) == refolded(world, time_s), f"seed {seed}, {vector(cut)}"
        assert entries_of(source) == republished(world, time_s), f"seed {seed}, {vector(cut)}"
        used += any(archived[place].snapshot(end) for place, end in source.log.cut.items())  # type: ignore[attr-defined]
    assert used > 0


def test_a_snapshot_of_another_chain_or_a_later_one_is_not_taken(tmp_path: Path) -> None:
    world, _ = a_life(tmp_path, 1)
    place = (EVENTS, 0)
    end = world.archive.head(*place).next
    found = snapshots.latest(world.archive, *place, end)
    assert found is not None and found.next <= end
    earlier = snapshots.latest(world.archive, *place, found.next - 1)
    assert earlier is not None and earlier.next < found.next
    assert snapshots.latest(world.archive, *place, 1) is None
    store = world.archive.store
    name = found.name.rpartition("-")[0] + "-" + "f" * 16 + ".parquet"
    data = store.read(found.name)
    assert data is not None and store.create(name, data)
    again = snapshots.latest(world.archive, *place, end)
    assert again is not None and again.name == found.name


def test_a_snapshot_that_would_not_stand_for_the_whole_is_not_made(tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    partition = world.source().partition_of(world.started())
    world.seal()
    with pytest.raises(LedgerError, match="does not fold to what the archive folds to"):
        snapshots.make(world.archive, EVENTS, partition, lambda _: [], lambda r: decoded(r, avro, cloudevents),
                       snapshots.same_registers)  # fmt: skip


def test_what_the_leader_had_published_then_is_compared_with_what_the_log_said_then(tmp_path: Path) -> None:
    world, moments = a_life(tmp_path, 3)
    source, _ = world.then(times.rfc3339(moments[60]))
    found = replay(source, timeout_s=0.0)
    assert found.compared > 0
    assert found.differences == ()


def test_an_event_names_the_moment_at_which_it_was_the_last(tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    job = world.started()
    world.clock.advance(10.0)
    before = world.now(job)
    world.remember()
    record = next(r for r in world.copy.values() if r.topic() == EVENTS and (r.key() or b"").endswith(b"/admitted"))
    event_id = cloudevents.parse(record.headers()).id
    source, told = world.then(event_id)
    assert f"events[{record.partition()}]@{record.offset()}" in told
    assert folded_from(source)[job].state == before.state
    with pytest.raises(NotFound, match="no record of the event"):
        world.then("never-seen")


def test_what_compaction_may_have_taken_is_refused_and_not_made_up(tmp_path: Path) -> None:
    world, moments = a_life(tmp_path, 1)
    with pytest.raises(LedgerError, match="there is no archive"):
        world.then(times.rfc3339(moments[3]), {})
    recent = times.rfc3339(world.clock.time() - LAG_S[EVENTS] + 1)
    assert folded_from(world.then(recent, {})[0]) == refolded(world, world.clock.time() - LAG_S[EVENTS] + 1)
    short = {place: replace(sealed, next=1) for place, sealed in world.archived().items()}
    with pytest.raises(LedgerError, match="the archive ends at 1"):
        world.then(times.rfc3339(moments[30]), short)


def test_an_archive_that_was_begun_late_is_not_trusted_with_what_was_before(tmp_path: Path) -> None:
    drawn, world, jobs = random.Random(1), Remembered(tmp_path), []
    early = world.clock.time()
    for _ in range(20):
        live(world, drawn, jobs)
        world.step()
        world.clock.advance(20.0)
    world.clean()
    world.seal()
    late = world.clock.time()
    world.clock.advance(1000.0)
    with pytest.raises(LedgerError, match="begun, or caught up, only later"):
        world.then(times.rfc3339(early + 30.0))
    assert folded_from(world.then(times.rfc3339(late))[0]) == refolded(world, late)


def test_an_archiver_that_missed_a_tombstone_is_not_trusted_though_all_that_it_found_is_young(tmp_path: Path) -> None:
    """No old record is left of those that the archiver missed. Only the gap in the offsets before the remaining records
    shows it."""
    world = Remembered(tmp_path)
    world.log.delete_retention_s = 300.0
    job = world.started()
    world.record(job, Checkpoint(1, 1), CheckpointCompleted("/x", 1, "0" * 32))
    world.record(job, Checkpoint(1, 2), CheckpointCompleted("/x", 2, "0" * 32))
    world.seal()
    p = world.source().partition_of(job)
    world.log.append([Event(EVENTS, p, f"{job}/checkpoint/1/{n}".encode(), None) for n in (1, 2)])
    world.clock.advance(10.0)
    then_s = world.clock.time()
    for _ in range(2):
        world.clock.advance(400.0)
        world.clean()
    world.record(job, Checkpoint(1, 3), CheckpointCompleted("/x", 3, "0" * 32))
    world.seal()
    world.remember()
    kept = [record.key() for record in world.archive.records(EVENTS, p)]
    assert kept.count(f"{job}/checkpoint/1/1".encode()) == 1, "the archive missed the tombstone"
    world.clock.advance(500.0)
    with pytest.raises(LedgerError, match="begun, or caught up, only later"):
        world.then(times.rfc3339(then_s))


def with_a_hole(folder: Path) -> tuple[Remembered, str, float]:
    """A ledger where a register was written and tombstoned after the archive's end, and compaction removed both records.
    Returns the ledger, the job of the register, and a moment between the two records."""
    world = Remembered(folder)
    world.log.delete_retention_s = 300.0
    job = world.started()
    world.now(job)
    world.working = False
    world.seal()
    world.clock.advance(10.0)
    world.record(job, Running(1), AttemptRunning("1"))
    then_s = world.clock.time()
    world.clock.advance(10.0)
    world.log.append([Event(EVENTS, world.source().partition_of(job), f"{job}/running/1".encode(), None)])
    for _ in range(2):
        world.clock.advance(400.0)
        world.clean()
    assert refolded(world, then_s)[job].state == "RUNNING"
    return world, job, then_s


def test_what_an_archiver_that_is_still_away_has_missed_is_not_made_up(tmp_path: Path) -> None:
    world, job, then_s = with_a_hole(tmp_path)
    with pytest.raises(LedgerError, match="the archive ends at"):
        world.then(times.rfc3339(then_s))
    world.record(job, Running(2), AttemptRunning("2"))
    with pytest.raises(LedgerError, match="the archive ends at"):
        world.then(times.rfc3339(then_s))


def test_nor_is_it_in_a_bundle_that_was_made_meanwhile(tmp_path: Path) -> None:
    world, _, then_s = with_a_hole(tmp_path)
    archived, now_s, store = world.archived(), world.clock.time(), MemoryObjects()
    then, cut = as_of(world.source(), Moment(time_s=now_s), archived, LAG_S)
    why = bundling.Why(times.rfc3339(now_s), "ann", "a case")
    bundling.write(store, then, cut, (), why, lambda r: decoded(r, avro, cloudevents), archived, LAG_S, now_s)
    bundle = bundling.read(store, lambda log, about: Source(log, about, avro, cloudevents, world.clock))
    assert bundle.as_of(Moment(time_s=now_s))
    with pytest.raises(LedgerError, match="log compaction may have removed older records"):
        bundle.as_of(Moment(time_s=then_s))


def test_an_old_offset_is_not_made_young_by_one_that_is_named_beside_it(tmp_path: Path) -> None:
    """Each offset has the age of its own record. A topic that is complete as of the young offset's moment may not be
    complete as of the old one's."""
    world = Remembered(tmp_path)
    job, other = world.started("old", "job-0"), world.started("young", "job-1")
    p, q = world.source().partition_of(job), world.source().partition_of(other)
    assert p != q
    old = world.log.records(RECOVERY, p)[-1].offset()
    assert world.now(job).attempt == 0
    world.clock.advance(10.0)
    world.record(job, Running(1), AttemptRunning("1"))
    assert world.now(job).attempt == 1
    world.clock.advance(2 * LAG_S[RECOVERY])
    archived = world.archived()
    world.seal()
    world.clean()
    world.record(other, Running(1), AttemptRunning("1"))
    world.now(other)
    text = f"recovery[{p}]@{old},recovery[{q}]@{world.log.records(RECOVERY, q)[-1].offset()}"
    with pytest.raises(LedgerError, match="there is no archive"):
        world.then(text, archived)
    with pytest.raises(LedgerError, match="begun, or caught up, only later"):
        world.then(text)


def test_before_the_first_record_of_a_young_topic_there_was_nothing(tmp_path: Path) -> None:
    """The record after an offset shows until when that offset was the end."""
    world = Remembered(tmp_path)
    job = world.started()
    p = world.source().partition_of(job)
    source, _ = world.then(f"events[{p}]@{world.log.records(EVENTS, p)[-1].offset()},recovery[{p}]@-1", {})
    assert job in folded_from(source) and job not in entries_of(source)


def test_who_was_idle_is_trusted(tmp_path: Path) -> None:
    """The archiver missed nothing: the only gaps in the offsets are the control records of transactions."""
    world = Remembered(tmp_path)
    job = world.started()
    world.step()
    world.seal()
    before_s = world.clock.time()
    world.clock.advance(10 * LAG_S[EVENTS])
    world.record(job, Checkpoint(1, 1), CheckpointCompleted("/x", 1, "0" * 32))
    world.step()
    world.seal()
    world.clean()
    assert folded_from(world.then(times.rfc3339(before_s))[0]) == refolded(world, before_s)


def test_of_an_archive_that_can_not_be_asked_by_key_only_what_is_wanted_comes_too(tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    job, other = world.started("one", "job-0"), world.started("two", "job-1")
    world.seal()
    assert all(sealed.picked is None for sealed in world.archived().values())
    source, _ = world.then("0s")
    with Tail(picked(source, (f"{job}/".encode(),)), [EVENTS]) as tail:
        keys = {record.key() for records in tail.to_end() for record in records}
    with Tail(source, [EVENTS]) as tail:
        whole = {record.key() for records in tail.to_end() for record in records}
    assert keys == {key for key in whole if key is not None and key.startswith(f"{job}/".encode())}
    assert any(key is not None and key.startswith(other.encode()) for key in whole)


def test_the_past_is_not_written(tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    world.started()
    source, _ = world.then("0s")
    with pytest.raises(UsageError, match="can't be written"):
        source.log.writer("x")
    assert as_of(world.source(), Moment(time_s=world.clock.time()), {}, LAG_S)


def test_a_partition_that_is_not_there_is_told(tmp_path: Path) -> None:
    world = Remembered(tmp_path)
    world.started()
    with pytest.raises(NotFound, match=r"no partition ledger.events\[7\]"):
        world.then("events[7]@0")

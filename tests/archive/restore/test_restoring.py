"""Restore: archived records come back one by one, and the ledger continues. An interrupted restore never counts as
complete."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.adapters import avro
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog, MemoryReader
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.memory.restore_target import MemoryTarget
from ledger.archive.format.segments import store_segment
from ledger.archive.restore.layout import Placed, TopicPair, lay_out
from ledger.archive.restore.restoring import Restored, Restoring
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Archiver, PartitionShape, ReaderSegments
from ledger.archive.store.verifying import verify
from ledger.core.model.facts import AttemptEnded, AttemptStarted, JobResult
from ledger.core.model.registers import Attempt, Result, partition_of
from ledger.core.model.table import RegisterTable
from ledger.errors import LedgerError, UsageError
from ledger.ports import NOWHERE, Event, Marks, MemoryRecord
from ledger.reader.rejects import RejectsTopic
from ledger.reader.replaying import replay
from ledger.roles.projector.projector import Projector
from tests.support.archives.given import read_out
from tests.support.operated import EVENTS, RECOVERY, REJECTS
from tests.support.remembered import Remembered, live

pytestmark = pytest.mark.usefixtures("quiet")
NAMES = TopicPair(EVENTS, RECOVERY)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Remembered:
    """A ledger with a history: jobs in every state, with compaction and sealing in between, garbage, and misplaced
    records."""
    drawn, jobs = random.Random(7), list[str]()
    with structlog.testing.capture_logs():
        world = Remembered(tmp_path_factory.mktemp("life"))
        for turn in range(100):
            live(world, drawn, jobs)
            world.step()
            world.clock.advance(drawn.uniform(1.0, 30.0))
            if turn % 3 == 0:
                world.seal()
            if turn % 10 == 0:
                world.clean()
        world.record(jobs[0], Result("FINISHED"), JobResult("etl", "prod", "memory", "0" * 64, "", 1.0, 1))
        world.raw(b"garbage", b"\xff", 0)
        world.raw(b"~claim/reconciler/5", b"\xff", 0)
        world.raw(b"~claim/reconciler/5", b"\xff", 1)
        elsewhere = 1 - partition_of(jobs[1], 2)  # misplaced, so it has no effect; the restore must not give it one
        world.raw(f"{jobs[1]}/ended/9/finished/x".encode(), avro.encode(AttemptEnded()), elsewhere)
        for _ in range(4):
            world.step()
        world.seal()
        world.remember()
    return world


class Emptied:
    """An empty cluster, on which the archive of a ledger is restored."""

    def __init__(self, life: Remembered, partitions: int) -> None:
        self.life, self.partitions, self.clock = life, partitions, ManualClock()
        self.clock.advance(life.clock.time() - self.clock.time() + 3600.0)
        self.log = MemoryLog({REJECTS: 1}, self.clock)
        self.restoring: set[str] = set()

    def restore(self, target: MemoryTarget | None = None, archive: Archive | None = None, adopt: bool = False) -> Restored:
        target = target or MemoryTarget(self.log, NAMES, self.partitions, self.restoring)
        restoring = Restoring(archive or self.life.archive, target, self.log, avro, self.clock)
        return restoring.run(NAMES, NAMES, self.partitions, adopt=adopt)

    def projector(self) -> Projector:
        parts = self.life.parts("projector", "p2", force=True, wrap=lambda _: self.log)
        return Projector(parts, RejectsTopic(REJECTS, EVENTS), self.life.settings)

    def records(self, topic: str) -> list[MemoryRecord]:
        return [record for p in range(self.partitions) for record in self.log.records(topic, p)]


def raw(record: MemoryRecord) -> tuple:
    return record.timestamp()[1], record.key(), record.value(), tuple(record.headers() or ())


def of_jobs(records: list[MemoryRecord]) -> dict[bytes, list[tuple]]:
    """Job id -> its records in their order, from all partitions."""
    found: dict[bytes, list[tuple]] = {}
    for record in records:
        if not (record.key() or b"~").startswith(b"~"):
            found.setdefault((record.key() or b"").partition(b"/")[0], []).append(raw(record))
    return found


def is_home(record: MemoryRecord) -> bool:
    return partition_of((record.key() or b"").partition(b"/")[0].decode(), 2) == record.partition()


def archived(life: Remembered, topic: str) -> list[MemoryRecord]:
    return [record for p in (0, 1) for record in life.archive.records(topic, p)]


def test_with_as_many_partitions_everything_lies_where_it_lay(life: Remembered) -> None:
    empty = Emptied(life, 2)
    told = empty.restore()
    assert told.exact and told.differences == () and told.left_out == {}
    for topic in NAMES:
        for p in (0, 1):
            there = {record.offset(): record for record in empty.log.records(topic, p)}
            lay = {record.offset(): record for record in life.archive.records(topic, p)}
            assert {offset: there[offset] for offset in lay} == lay
            assert {there[offset].key() for offset in set(there) - set(lay)} <= {b"~noop"}
            assert sorted(there) == list(range(len(there)))
    assert sum(one.records for one in told.partitions) == sum(len(archived(life, topic)) for topic in NAMES)
    assert sum(one.filled for one in told.partitions) > 0
    assert empty.restoring == set()


@pytest.mark.parametrize("partitions", [1, 3, 5])
def test_with_other_partitions_every_job_has_its_records_in_their_order(life: Remembered, partitions: int) -> None:
    empty = Emptied(life, partitions)
    told = empty.restore()
    assert not told.exact and told.differences == ()
    table = RegisterTable(2)
    table.apply(archived(life, EVENTS))
    jobs = [job for held in table.jobs for job in held]
    assert told.jobs == len(jobs) > 5
    for topic in NAMES:
        home = [record for record in archived(life, topic) if is_home(record)]
        assert of_jobs(empty.records(topic)) == of_jobs(home)
    for record in empty.records(EVENTS):
        job, _, rest = (record.key() or b"").partition(b"/")
        assert job.startswith(b"~") or record.partition() == partition_of(job.decode(), partitions), rest
    strays = [r for t in NAMES for r in archived(life, t) if not is_home(r) and not (r.key() or b"").startswith(b"~")]
    assert told.left_out["foreign"] == len(strays) > 0
    restored = RegisterTable(partitions)
    restored.apply(empty.records(EVENTS))
    assert restored.claims == {"reconciler": 5}


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_projector_leads_on_what_was_restored_and_publishes_the_same(life: Remembered, partitions: int) -> None:
    empty = Emptied(life, partitions)
    empty.restore()
    projector = empty.projector()
    for _ in range(5):
        projector.step()
    assert projector.epoch > 0
    before = life.published()
    after = projector.published
    assert after.entries.keys() == before.entries.keys()
    for job, entry in after.entries.items():
        was = before.entries[job]
        assert (entry.state, entry.attempt, entry.restore_points) == (was.state, was.attempt, was.restore_points)
        assert entry.partition == partition_of(job, partitions)
    if partitions != 2:  # no record of the old epochs has an effect
        assert {entry.epoch for entry in after.entries.values()} == {projector.epoch}
    found = replay(source(empty), timeout_s=0.0)
    assert (found.differences, found.behind) == ((), ())
    assert found.compared >= len(before.entries)


def source(empty: Emptied):
    from dataclasses import replace

    return replace(empty.life.source(), log=empty.log, clock=empty.clock)


def test_where_the_events_are_archived_less_far_their_offsets_are_not_given_again(tmp_path: Path) -> None:
    """An entry may cover offsets of lost events. New events after the disaster must not get these offsets."""
    world = Remembered(tmp_path)
    job = world.started("first")
    world.seal()
    for n in range(1, 4):
        world.record(job, Attempt(n, 1), AttemptStarted("0" * 64))
        world.step()
    late = {place: shape for place, shape in world.shapes().items() if place[0] == RECOVERY}
    world.archiver._shapes = lambda: late  # the newest events are lost
    world.archiver.begin()
    while world.archiver.step():
        pass
    lost = world.now(job).as_of
    partition = world.now(job).partition
    assert world.archive.head(EVENTS, partition).next < lost
    empty = Emptied(world, 2)
    told = empty.restore()
    assert {one.end for one in told.partitions if (one.topic, one.partition) == (EVENTS, partition)} == {lost}
    projector = empty.projector()
    for _ in range(3):
        projector.step()
    assert projector.published.entries[job].attempt == 0
    assert projector.published.entries[job].as_of >= lost


class Dying(MemoryTarget):
    """A target whose process is killed after it wrote `left` records."""

    left = 0

    def write(self, record: MemoryRecord) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().write(record)


@pytest.mark.parametrize("partitions", [2, 3])
def test_killed_anywhere_it_is_told_from_a_whole_one_and_goes_on(life: Remembered, partitions: int) -> None:
    whole = Emptied(life, partitions)
    total = sum(one.end for one in whole.restore().partitions)
    empty, drawn, written = Emptied(life, partitions), random.Random(1), 0
    while True:
        target = Dying(empty.log, NAMES, partitions, empty.restoring)
        target.left = drawn.randrange(1, total // 4)
        written += target.left
        try:
            told = empty.restore(target)
        except KeyboardInterrupt:
            assert empty.restoring == set(NAMES)
            continue
        break
    assert sum(one.resumed for one in told.partitions) > 0
    for topic in NAMES:
        assert empty.records(topic) == whole.records(topic)
    assert empty.restoring == set()


def test_what_holds_anything_is_refused_and_left_as_it_is(life: Remembered) -> None:
    empty = Emptied(life, 2)
    empty.restore()
    before = {topic: empty.records(topic) for topic in NAMES}
    with pytest.raises(LedgerError, match="holds records"):
        empty.restore()
    assert {topic: empty.records(topic) for topic in NAMES} == before


def test_what_another_has_begun_is_not_gone_on_with(life: Remembered) -> None:
    empty = Emptied(life, 2)
    empty.log.create(EVENTS, 2)
    empty.restoring.add(EVENTS)
    empty.log.append([Event(EVENTS, 1, b"job/admitted", b"x")])
    with pytest.raises(LedgerError, match="not those that this archive begins with"):
        empty.restore()
    assert EVENTS in empty.restoring


class Meddled(MemoryTarget):
    """A target in which somebody changes a written record before it is read back."""

    def flush(self) -> None:
        slot = self._log.partitions_of(EVENTS)[0]._slots[3]
        assert slot.record is not None
        slot.record = MemoryRecord(EVENTS, 0, 3, b"job/admitted", None)


def test_what_does_not_hold_what_was_written_is_never_finished(life: Remembered) -> None:
    empty = Emptied(life, 2)
    with pytest.raises(LedgerError, match="does not hold the records that were restored"):
        empty.restore(Meddled(empty.log, NAMES, 2, empty.restoring))
    assert empty.restoring == set(NAMES)


class BusyLog(MemoryLog):
    """A log in which somebody else writes one record to a partition right after it was read back."""

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> MemoryReader:
        made = super().reader(topics, partition, begin)
        ends, place = made.high_watermarks, (EVENTS, 1)

        def high_watermarks() -> Marks:
            if (topics[0], partition) == place:
                self.append([Event(*place, b"job/admitted", b"x")])
            return ends()

        made.high_watermarks = high_watermarks  # type: ignore[method-assign]
        return made


def test_what_somebody_else_writes_beside_a_restore_keeps_it_from_being_finished(life: Remembered) -> None:
    """All restored records are there, and behind them a record that the archive does not hold."""
    empty = Emptied(life, 2)
    empty.log = BusyLog({REJECTS: 1}, empty.clock)
    with pytest.raises(LedgerError, match=rf"Another program writes to {EVENTS}\[1\]"):
        empty.restore()
    assert empty.restoring == set(NAMES)


def test_what_folds_otherwise_than_its_archive_is_told_and_never_finished(
    life: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record with wrong content is read back as written, so only a comparison of the jobs finds the error."""

    def crooked(*given: Any) -> Iterator[Placed]:
        for placed in lay_out(*given):
            record = placed.record
            if not (record.key() or b"").endswith(b"/admitted"):
                yield placed
            else:
                place = record.topic(), record.partition(), record.offset()
                yield Placed(MemoryRecord(*place, b"~noop", None, (), record.timestamp()[1]), filled=True)

    monkeypatch.setattr("ledger.archive.restore.restoring.lay_out", crooked)
    empty = Emptied(life, 2)
    assert empty.restore().differences
    assert empty.restoring == set(NAMES)


def test_partitions_that_were_never_written_to_are_counted_all_the_same(life: Remembered, tmp_path: Path) -> None:
    """The archive holds records of one partition, the settings say two; and two fits the records."""
    world = Remembered(tmp_path)
    for n in range(5):
        world.started(f"job-{n}")
    world.seal()
    archive, empty = world.archive, Emptied(world, 2)
    for name in [name for name in archive.store.names("") if "/1/" in name]:
        archive.store.delete(name)
    assert len(archive.partitions()) == 2
    told = empty.restore(archive=archive)
    assert told.exact
    assert {one.partition for one in told.partitions if one.end} == {0}
    more = Emptied(life, 3)
    assert not more.restore().exact  # here the number of partitions in the archive fits better


def test_who_says_a_wrong_number_of_partitions_is_told(life: Remembered) -> None:
    empty = Emptied(life, 5)
    target = MemoryTarget(empty.log, NAMES, 5, empty.restoring)
    with pytest.raises(LedgerError, match="had not 5 partitions"):
        Restoring(life.archive, target, empty.log, avro, empty.clock).run(NAMES, NAMES, 5, before=5)
    assert empty.restoring == set(NAMES)


def test_an_archive_of_other_topics_is_told(life: Remembered) -> None:
    empty = Emptied(life, 2)
    target = MemoryTarget(empty.log, NAMES, 2, empty.restoring)
    restoring = Restoring(life.archive, target, empty.log, avro, empty.clock)
    with pytest.raises(UsageError, match=r"holds no topic x\.ledger\.events; it holds ledger\.events, ledger\.recovery"):
        restoring.run(TopicPair("x.ledger.events", "x.ledger.recovery"), NAMES, 2)
    with pytest.raises(UsageError, match="given as 1"):
        restoring.run(NAMES, NAMES, 2, before=1)
    assert empty.restoring == set()


def copied(life: Remembered) -> Archive:
    store = MemoryObjects()
    store.stored = dict(life.archive.store.stored)  # type: ignore[attr-defined]
    return Archive(store, "restorer", lambda: "2026-01-01T00:00:00Z")


def test_adopted_the_archive_goes_on_and_anchors_from_before_hold(life: Remembered) -> None:
    empty, archive = Emptied(life, 2), copied(life)
    anchors = [archive.head(*place) for place in archive.partitions()]
    before = {place: list(archive.records(*place)) for place in archive.partitions()}
    target = MemoryTarget(empty.log, NAMES, 2, empty.restoring)
    told = empty.restore(target, archive, adopt=True)
    stream = ReaderSegments(empty.log, archive, read_out)

    def shapes() -> dict[tuple[str, int], PartitionShape]:
        ends = empty.log.reader(NAMES).high_watermarks()
        return {place: PartitionShape(target.topic_id(place[0]), 0, end) for place, end in ends.items()}

    archiver = Archiver(archive, stream, shapes, empty.clock)
    archiver.begin()
    projector = empty.projector()
    for _ in range(5):
        projector.step()
    while archiver.step():
        pass
    for place, records in before.items():
        after = list(archive.records(*place))
        assert after[: len(records)] == records
        end = next(one.end for one in told.partitions if (one.topic, one.partition) == place)
        there = [one for one in empty.log.records(*place) if one.offset() >= end]
        assert after[len(records) :] == there
    verdicts = verify(archive, anchors)
    assert [one.broken for one in verdicts] == [()] * 4
    assert all(one.proved == anchor.next for one, anchor in zip(verdicts, anchors, strict=True))
    later = [archive.head(*place) for place in archive.partitions()]
    assert all(one.proved == one.sealed for one in verify(archive, later))
    with pytest.raises(LedgerError, match="created again"):  # an archiver of the old cluster gets an error
        Archiver(archive, stream, life.shapes, empty.clock).begin()


def test_adopting_twice_says_it_once(life: Remembered) -> None:
    empty, archive = Emptied(life, 2), copied(life)

    class Dies(MemoryTarget):
        def finish(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        empty.restore(Dies(empty.log, NAMES, 2, empty.restoring), archive, adopt=True)
    heads = [archive.head(*place) for place in archive.partitions()]
    empty.restore(archive=archive, adopt=True)
    assert [archive.head(*place) for place in archive.partitions()] == heads


def test_other_partitions_are_not_adopted(life: Remembered) -> None:
    empty = Emptied(life, 3)
    with pytest.raises(UsageError, match="can't go on with 3"):
        empty.restore(adopt=True)
    assert empty.restoring == set()


def test_a_note_beside_the_records_overtakes_nobody(life: Remembered) -> None:
    archive = copied(life)
    head = archive.head(EVENTS, 0)
    record = MemoryRecord(EVENTS, 0, head.next, b"x", None)
    archive.note(head, "other", {})
    sealed = archive.seal(head, head.topic_id, store_segment(archive.store, head.next, [record], read_out))
    assert (sealed.sequence, sealed.next) == (head.sequence + 2, head.next + 1)
    assert verify(archive, [sealed])[0].broken == ()


def test_a_note_that_was_altered_is_found(life: Remembered) -> None:
    archive = copied(life)
    head = archive.note(archive.head(EVENTS, 0), "other", {"says": "this"})
    name = next(name for name in archive.store.names("notes/"))
    archive.store.stored[name] = b"{}"  # type: ignore[attr-defined]
    assert verify(archive, [head])[0].broken[0].sequence == head.sequence

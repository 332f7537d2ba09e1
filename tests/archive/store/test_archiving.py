"""The archiver: whatever fails at whatever point, the archive becomes the full copy, each record once."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import count

import pytest
import structlog

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head
from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive, Overtaken
from ledger.archive.store.archiving import (
    FAILURES_MAX,
    PAUSE_S,
    Archiver,
    Beginning,
    Chore,
    PartitionShape,
    ReaderSegments,
    Stored,
)
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError, Unreachable
from ledger.ports import Event, MemoryRecord, TopicPartition
from tests.support.archives.given import TOPIC, TOPIC_ID, read_out, records
from tests.support.repetitions import one_fast, seeds

pytestmark = pytest.mark.usefixtures("quiet")
SEEDS = seeds(25)


class Killed(BaseException):
    """The whole process is killed between two of its steps."""


class MortalObjects(MemoryObjects):
    """A store that kills its caller or does not answer at random, before or after it carried out the call."""

    def __init__(self, drawn: random.Random) -> None:
        super().__init__()
        self.drawn, self.mortal = drawn, True

    def create(self, name: str, data: bytes) -> bool:
        self._die()
        made = super().create(name, data)
        self._die()
        return made

    def _die(self) -> None:
        if self.mortal and self.drawn.random() < 0.15:
            raise self.drawn.choice([Killed, Unreachable])("here")


class World:
    """A log of two partitions with some records, and archivers over one store."""

    def __init__(self, drawn: random.Random, number: int = 60) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({TOPIC: 2}, self.clock)
        self.store = MortalObjects(drawn)
        writer = self.log.writer("test")
        writer.init()
        for n in range(0, number, 5):
            found = [one for p in (0, 1) for one in records(number, p, p)[n : n + 5]]
            writer.commit([Event(TOPIC, r.partition(), r.key(), r.value(), tuple(r.headers() or ())) for r in found])
        self.written = self._read()
        self.shape = {"begin": 0, "topic_id": TOPIC_ID}

    def shapes(self) -> dict[TopicPartition, PartitionShape]:
        ends = self.log.reader([TOPIC]).high_watermarks()
        return {place: PartitionShape(self.shape["topic_id"], self.shape["begin"], end) for place, end in ends.items()}

    def archiver(self, who: str = "one") -> Archiver:
        archive = Archive(self.store, who)
        return Archiver(archive, ReaderSegments(self.log, archive, read_out, records_max=17), self.shapes, self.clock)

    def archived(self) -> list[list[MemoryRecord]]:
        return [list(Archive(self.store).records(TOPIC, partition)) for partition in (0, 1)]

    def _read(self) -> list[list[MemoryRecord]]:
        reader, found = self.log.reader([TOPIC]), [[], []]
        while batch := reader.poll(1000, 0):
            for record in batch:
                found[record.partition()].append(record)
        return found


def whole(copies: list[list[MemoryRecord]]) -> list[list[tuple]]:
    return [[(r.offset(), r.timestamp()[1], r.key(), r.value(), r.headers()) for r in copy] for copy in copies]


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_whatever_dies_when_the_archive_is_the_full_copy_once(seed: int) -> None:
    """Two archivers run at once without knowledge of each other, and each is killed again and again."""
    drawn = random.Random(seed)
    world = World(drawn)
    running = {who: world.archiver(who) for who in ("one", "two")}
    for turn in range(4000):
        if turn == 400:
            world.store.mortal = False
        who = drawn.choice(["one", "two"])
        archiver = running[who]
        try:
            if not archiver.heads:
                archiver.begin()
            archiver.step()
        except Killed:
            running[who] = world.archiver(who)
        except (Overtaken, Unreachable):
            archiver.heads = {}
        if turn > 400 and turn % 20 == 0 and whole(world.archived()) == whole(world.written):
            break
    assert whole(world.archived()) == whole(world.written), f"seed {seed}"
    assert all(not one.broken for one in verify(Archive(world.store))), f"seed {seed}"


def run(world: World, archiver: Archiver) -> None:
    archiver.run(lambda: whole(world.archived()) == whole(world.written))


def test_it_runs_until_it_is_told_to_stop_and_waits_out_what_passes() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    world.store.up = False
    calls = count()

    def stopped() -> bool:
        world.store.up = next(calls) >= 3
        return world.store.up and whole(world.archived()) == whole(world.written)

    world.archiver().run(stopped)
    assert whole(world.archived()) == whole(world.written)
    assert world.clock.monotonic() > 0


def test_what_never_goes_right_ends_it() -> None:
    world = World(random.Random(1))
    world.store.up = False
    with pytest.raises(Unreachable):
        world.archiver().run(lambda: False)
    assert world.clock.monotonic() == pytest.approx((FAILURES_MAX - 1) * 2.0)


class Behind(Archive):
    """An archive that returns the beginning of a chain as its head, as a faulty store would."""

    def head(self, topic: str, partition: int) -> Head:
        return Head(topic, partition)


def test_who_is_overtaken_where_nobody_goes_on_waits_and_ends() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    run(world, world.archiver())
    archive = Behind(world.store)
    archiver = Archiver(archive, ReaderSegments(world.log, archive, read_out, records_max=5), world.shapes, world.clock)
    with pytest.raises(Overtaken):
        archiver.run(lambda: False)
    assert world.clock.monotonic() == pytest.approx((FAILURES_MAX - 1) * PAUSE_S)


class Outrun(ReaderSegments):
    """A stream with a rival that is always faster: the first record of each stored segment is already sealed."""

    times = 0
    written: list[list[MemoryRecord]]

    def take(self, timeout_s: float) -> list[Stored]:
        self.times += 1
        for partition, written in enumerate(self.written):
            head = self._archive.head(TOPIC, partition)
            left = [one for one in written if one.offset() >= head.next]
            if left:
                found = store_segment(self._archive.store, head.next, left[:1], read_out)
                self._archive.seal(head, TOPIC_ID, found)
        return list(super().take(timeout_s))


def test_who_is_overtaken_by_one_who_goes_on_goes_on_too() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    archive = Archive(world.store)
    stream = Outrun(world.log, archive, read_out, records_max=17)
    stream.written = world.written
    run(world, Archiver(archive, stream, world.shapes, world.clock))
    assert stream.times > FAILURES_MAX
    assert whole(world.archived()) == whole(world.written)


def test_a_chore_that_keeps_failing_is_an_error_and_the_archive_goes_on() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    done = iter([LedgerError("no"), LedgerError("no"), LedgerError("still no"), None, None])

    def do() -> None:
        if (error := next(done)) is not None:
            raise error

    archive = Archive(world.store)
    stream = ReaderSegments(world.log, archive, read_out, records_max=1000)
    archiver = Archiver(archive, stream, world.shapes, world.clock, [Chore("sweep", 10.0, do)])
    turns, failing = count(), []

    def stopped() -> bool:
        failing.append(archiver.failing["sweep"])
        world.clock.sleep(10.0)
        return next(turns) >= 5

    with structlog.testing.capture_logs() as logs:
        archiver.run(stopped)
    told = [(line["log_level"], line["event"], line["times"]) for line in logs if "chore" in line]
    assert told == [
        ("warning", "chore_failed", 1), ("warning", "chore_failed", 2), ("error", "chore_failed", 3),
        ("warning", "chore_done_again", 3),
    ]  # fmt: skip
    assert failing == [0, 1, 2, 3, 0, 0]
    assert sum(archiver.records.values()) == sum(map(len, world.written))


@pytest.mark.parametrize(("change", "says"), [({"topic_id": "other"}, "created again"), ({"end": 3}, "truncated")])
def test_another_topic_is_never_archived_upon_the_old_one(change: dict, says: str) -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    run(world, world.archiver())
    shapes = {place: shape._replace(**change) for place, shape in world.shapes().items()}
    archive = Archive(world.store)
    archiver = Archiver(archive, ReaderSegments(world.log, archive, read_out), lambda: shapes, world.clock)
    with pytest.raises(LedgerError, match=says):
        archiver.run(lambda: False)


class Watched(ReaderSegments):
    """Remembers the arguments of `open`."""

    begin: Mapping[TopicPartition, Beginning] = {}

    def open(self, begin: Mapping[TopicPartition, Beginning]) -> None:
        super().open(begin)
        self.begin = begin


def test_where_the_first_records_are_gone_reading_begins_later_than_sealing() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    world.shape["begin"] = 20
    archive = Archive(world.store)
    stream = Watched(world.log, archive, read_out)
    Archiver(archive, stream, world.shapes, world.clock).begin()
    assert set(stream.begin.values()) == {Beginning(sealed=0, read=20)}


class Skipping(ReaderSegments):
    """Loses the segments that it stored first."""

    lost = False

    def take(self, timeout_s: float) -> list[Stored]:
        if not self.lost:
            self.lost = bool(super().take(timeout_s))
        return list(super().take(timeout_s))


def test_what_comes_behind_a_gap_is_not_sealed() -> None:
    world = World(random.Random(1))
    world.store.mortal = False
    archive = Archive(world.store)
    archiver = Archiver(archive, Skipping(world.log, archive, read_out, records_max=40), world.shapes, world.clock)
    archiver.begin()
    with pytest.raises(Overtaken, match="is sealed up to 0"):
        archiver.step()
    assert all(head.sequence == -1 for head in archiver.heads.values())

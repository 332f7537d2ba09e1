"""The cost of a query about the past, in objects and records read. It grows with the distance between the moment and the
snapshot before it, not with the age of the ledger. The history of one job costs as much as the records of that job."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import structlog

from ledger.archive.format import parquet
from ledger.archive.query.key_scan import picked
from ledger.history import historical_log
from ledger.history.event_trace import steps
from ledger.history.moment import Moment, parse, vector
from ledger.history.resolve_moment import as_of
from ledger.history.state_diff import changed
from ledger.ports import MemoryRecord, TopicPartition
from ledger.reader.explaining import explained
from ledger.reader.job_lookup import resolve
from ledger.reader.reading import Source, history
from tests.support.operated import EVENTS
from tests.support.remembered import LAG_S, Remembered, a_life

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.slow]
MOMENTS = 6


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Remembered, list[float]]:
    with structlog.testing.capture_logs():
        return a_life(tmp_path_factory.mktemp("lived"), 5)


@pytest.fixture
def world(lived: tuple[Remembered, list[float]]) -> Remembered:
    return lived[0]


@pytest.fixture
def moments(lived: tuple[Remembered, list[float]]) -> list[float]:
    return random.Random(5).sample(lived[1][20:], MOMENTS)


class Read:
    """Counts reads of the archive. made: the records. segments: the names of the objects that hold records."""

    def __init__(self, world: Remembered, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[MemoryRecord] = []
        self.segments: list[str] = []
        make, read = parquet._record, world.archive.store.read

        def made(*columns: Any) -> MemoryRecord:
            record = make(*columns)
            self.made.append(record)
            return record

        def seen(name: str) -> bytes | None:
            if name.startswith("records/"):
                self.segments.append(name)
            return read(name)

        monkeypatch.setattr(parquet, "_record", made)
        monkeypatch.setattr(world.archive.store, "read", seen)

    def clear(self) -> None:
        self.made.clear()
        self.segments.clear()


@pytest.fixture
def read(world: Remembered, monkeypatch: pytest.MonkeyPatch) -> Read:
    return Read(world, monkeypatch)


def archived(world: Remembered) -> dict[TopicPartition, historical_log.SealedRecords]:
    """The archive's records by partition. Objects are read on demand, as with the usual settings."""
    return {
        place: replace(one, records=partial(world.archive.records, *place), picked=partial(picked, world.archive, *place))
        for place, one in world.with_snapshots().items()
    }


def then(world: Remembered, time_s: float, thin: bool) -> Source:
    return as_of(world.source(), Moment(time_s=time_s), archived(world), LAG_S, thin)[0]


def jobs(source: Source) -> list[str]:
    found = {(record.key() or b"").partition(b"/")[0].decode() for record in all_events(source)}
    return sorted(job for job in found if not job.startswith("~"))


def all_events(source: Source) -> list[Any]:
    reader = source.log.reader([EVENTS])
    records: list[Any] = []
    while reader.position() != reader.high_watermarks():
        records += reader.poll(1000, 0.0)
    return records


def segments_between(world: Remembered, first: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> int:
    return sum(
        1 for place in world.archive.partitions() for one in world.archive.manifests(*place)
        if one.next > first.get(place, 0) and one.first < end.get(place, 0)
    )  # fmt: skip


@pytest.mark.slow
def test_an_explanation_reads_from_the_snapshot_on_and_says_the_same(
    world: Remembered, moments: list[float], read: Read
) -> None:
    for time_s in moments:
        thin, whole = then(world, time_s, thin=True), then(world, time_s, thin=False)
        for job in jobs(whole)[:5]:
            read.clear()
            told = explained(thin, job)
            cheap = len(read.made)
            cut = thin.log.cut  # type: ignore[attr-defined]
            partition = thin.partition_of(job)
            places = {place: end for place, end in cut.items() if place[1] == partition}
            kept = {place: archived(world)[place].snapshot(end) for place, end in places.items()}
            assert all(kept.values()), "each partition has a snapshot before the moment"
            begun = {place: found[0] for place, found in kept.items() if found}
            assert len(read.segments) <= segments_between(world, begun, places)
            read.clear()
            assert explained(whole, job) == told
            assert cheap < len(read.made)


def test_a_difference_reads_what_lies_between_its_moments(world: Remembered, moments: list[float], read: Read) -> None:
    (one, other), seen = sorted(moments[:2]), 0
    whole = then(world, one, thin=False), then(world, other, thin=False)
    thin = then(world, one, thin=True), then(world, other, thin=True)
    cut = {place[1]: end for place, end in whole[0].log.cut.items() if place[0] == EVENTS}  # type: ignore[attr-defined]
    read.clear()
    found = changed(*thin, cut)
    seen = len(read.segments)
    read.clear()
    assert [(c.job_id, c.before, c.after) for c in changed(*whole, cut)] == [(c.job_id, c.before, c.after) for c in found]
    assert changed(*whole, cut) == found and found
    assert seen < len(read.segments)
    between = [r for c in found for r in c.records]
    assert all(r.offset >= cut[r.partition] for r in between)


def test_what_is_played_from_a_moment_on_begins_at_the_snapshot_before_it(
    world: Remembered, moments: list[float], read: Read
) -> None:
    one, other = sorted(moments[:2])
    cut = {p[1]: end for p, end in then(world, one, thin=False).log.cut.items() if p[0] == EVENTS}  # type: ignore[attr-defined]
    whole = then(world, other, thin=False)
    bare = {place: replace(sealed, snapshot=lambda _: None) for place, sealed in archived(world).items()}
    plain = as_of(world.source(), Moment(time_s=other), bare, LAG_S)[0]
    read.clear()
    found = list(steps(whole, cut))
    seen = len(read.segments)
    read.clear()
    assert list(steps(plain, cut)) == found and found
    assert seen < len(read.segments)


def test_the_history_of_one_job_makes_no_record_of_any_other(world: Remembered, moments: list[float], read: Read) -> None:
    for time_s in moments[:2]:
        whole = then(world, time_s, thin=False)
        for job in jobs(whole):
            expected = list(history(whole, job))
            asked = historical_log.picked(then(world, time_s, thin=True), (f"{job}/".encode(),))
            read.clear()
            assert list(history(asked, job)) == expected
            assert [record.offset() for record in read.made] == [record.offset for record in expected]


def test_who_is_meant_is_found_from_a_snapshot_too(world: Remembered, moments: list[float]) -> None:
    whole, thin = then(world, moments[0], thin=False), then(world, moments[0], thin=True)
    for job in jobs(whole):
        assert resolve(thin, job, retired=True) == resolve(whole, job, retired=True) == job


def test_an_offset_is_looked_up_where_it_lies(world: Remembered, moments: list[float], read: Read) -> None:
    time_s = max(moments)
    source, cut = as_of(world.source(), Moment(time_s=time_s), archived(world), LAG_S, thin=True)
    read.clear()
    asked, again = as_of(world.source(), parse(vector(cut), 0.0), archived(world), LAG_S, thin=True)
    assert vector(again) == vector(cut)
    places = len(cut)
    assert len(read.segments) <= 6 * places, "at most two segments of each partition"
    assert explained(asked, jobs(source)[0]) == explained(source, jobs(source)[0])


def test_of_what_lies_in_the_archive_the_topic_is_not_read(world: Remembered, moments: list[float]) -> None:
    source = then(world, max(moments), thin=True)
    live = source.log._log  # type: ignore[attr-defined]
    offered: list[Any] = []
    whole = live.reader

    class Watched:
        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def poll(self, *arguments: Any) -> Any:
            found = self._reader.poll(*arguments)
            offered.extend(found)
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

    live.reader = lambda *arguments: Watched(whole(*arguments))
    try:
        sealed = {place: one.next for place, one in archived(world).items()}
        list(history(source, jobs(source)[0]))
    finally:
        live.reader = whole
    assert all(r.offset() >= sealed[r.topic(), r.partition()] for r in offered)

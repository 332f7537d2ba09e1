"""Snapshots made by the archiver: each from the one before, sometimes compared with the whole log, and not too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.adapters.clock import SystemClock
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import parquet
from ledger.archive.snapshots import snapshots
from ledger.archive.snapshots.snapshot_retention import thin_out, to_keep
from ledger.archive.snapshots.snapshots import Listed, Snapshot, latest, listed
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Chore
from ledger.config.config import load_config
from ledger.errors import LedgerError, TemporaryError, Unreachable
from ledger.operations import archive_upkeep
from tests.support.archives.given import TOPIC, read_out, records, sealed

DAY_S = 86_400.0
STEP = 20  # records sealed between two snapshots


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


@pytest.fixture
def archive() -> Archive:
    return Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")


def make(archive: Archive, whole: bool = False, **others: Any) -> Snapshot | None:
    thin, same = others.get("thin", snapshots.thin_events), others.get("same", snapshots.same_registers)
    return snapshots.make(archive, TOPIC, 0, thin, read_out, same, whole)


class Growing:
    """A growing archive: each call seals STEP more records of one history."""

    def __init__(self, archive: Archive, number: int = 2000) -> None:
        self.archive, self._left = archive, records(number)

    def grow(self, number: int = STEP) -> None:
        now, self._left = self._left[:number], self._left[number:]
        assert len(now) == number
        sealed(self.archive, now)


@pytest.fixture
def growing(archive: Archive) -> Growing:
    made = Growing(archive)
    made.grow()
    return made


@pytest.fixture
def read(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all records that are read from segments instead of snapshots."""
    seen: list[int] = []
    whole: Callable[..., Any] = archive.segment

    def segment(manifest: Any) -> Any:
        found = whole(manifest)
        seen.extend(record.offset() for record in found)
        return found

    monkeypatch.setattr(archive, "segment", segment)
    return seen


def test_one_is_made_of_the_one_before_it_and_what_was_sealed_since(growing: Growing, read: list[int]) -> None:
    archive = growing.archive
    first = make(archive)
    assert first is not None and first.steps == 0
    for n in range(1, 6):
        before = archive.head(TOPIC, 0).next
        growing.grow()
        read.clear()
        made = make(archive)
        assert made is not None and made.steps == n
        assert read and min(read) >= before, "no record below the last snapshot is read again"
        assert len(read) == 2 * STEP  # once to make the snapshot, once to compare
        whole = list(archive.records(TOPIC, 0))
        assert [r.offset() for r in made.records()] == [r.offset() for r in snapshots.thin_events(whole)]


def test_now_and_then_one_is_compared_with_the_whole(
    growing: Growing, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "WHOLE_EVERY", 3)
    steps = []
    for _ in range(8):
        made = make(growing.archive)
        assert made is not None
        steps.append(made.steps)
        read.clear()
        growing.grow()
    assert steps == [0, 1, 2, 0, 1, 2, 0, 1]
    read.clear()
    by_hand = make(growing.archive, whole=True)
    assert by_hand is not None and by_hand.steps == 0 and min(read) == 0


def test_one_that_does_not_follow_from_the_archive_is_found_out_and_dropped(
    growing: Growing, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    """A disk or an intruder may change a snapshot. All later snapshots are then wrong too, until one is made of the
    whole log."""
    monkeypatch.setattr(snapshots, "WHOLE_EVERY", 4)
    archive = growing.archive
    sound = make(archive)
    growing.grow()
    spoiled = make(archive)
    assert sound is not None and spoiled is not None
    kept = list(spoiled.records())
    archive.store.delete(spoiled.name)
    archive.store.create(spoiled.name, parquet.encode(kept[::2], read_out))
    growing.grow()
    after = make(archive)
    assert after is not None and after.steps == 2
    growing.grow()
    assert make(archive) is not None
    growing.grow()
    mended = make(archive)
    assert mended is not None and mended.steps == 0
    assert snapshots.same_registers(mended.records(), archive.records(TOPIC, 0))
    assert [one.name for one in listed(archive, TOPIC, 0)] == [sound.name, mended.name]
    dropped = [entry["snapshot"] for entry in logged if entry["event"] == "snapshot_dropped"]
    assert dropped[0] == spoiled.name and len(dropped) == 3


def spoil(archive: Archive, one: Snapshot | None) -> Snapshot:
    """Replaces a snapshot by a wrong one of the same name."""
    assert one is not None
    kept = list(one.records())
    archive.store.delete(one.name)
    archive.store.create(one.name, parquet.encode(kept[::2], read_out))
    return one


def must_be_right(archive: Archive) -> None:
    for one in listed(archive, TOPIC, 0):
        found = latest(archive, TOPIC, 0, one.next)
        assert found is not None
        assert snapshots.same_registers(found.records(), archive.records(TOPIC, 0, end=one.next)), one.name


def test_nor_does_one_stay_that_was_compared_with_the_whole_when_it_was_made(
    growing: Growing, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
) -> None:
    monkeypatch.setattr(snapshots, "WHOLE_EVERY", 3)
    archive, root = growing.archive, spoil(growing.archive, make(growing.archive))
    for _ in range(3):
        growing.grow()
        made = make(archive)
    assert made is not None and made.steps == 0
    assert next(entry["snapshot"] for entry in logged if entry["event"] == "snapshot_dropped") == root.name
    assert [one.name for one in listed(archive, TOPIC, 0)] == [made.name]
    must_be_right(archive)


def test_one_that_was_altered_after_the_next_was_made_of_it_goes_alone(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later records hide the error from every fold that continues from it."""
    monkeypatch.setattr(snapshots, "WHOLE_EVERY", 4)
    archive, made = growing.archive, [make(growing.archive)]
    for n in range(1, 5):
        growing.grow()
        if n == 4:
            spoil(archive, made[1])
            archive.store.create(f"snapshots/{TOPIC}/0/{made[2].next:019}-{'f' * 16}.parquet", b"of another chain")
        made.append(make(archive))
    names = {one.name for one in listed(archive, TOPIC, 0)}
    assert {one.name for one in made if one is not None} - names == {made[1].name}
    assert len(names) == 5, "a snapshot of another chain is not touched"


def test_by_hand_one_that_is_there_is_compared_and_made_anew_if_it_is_wrong(growing: Growing) -> None:
    archive, first = growing.archive, make(growing.archive)
    assert first is not None
    before = archive.store.read(first.name)
    assert make(archive, whole=True) is not None and archive.store.read(first.name) == before
    spoil(archive, first)
    again = make(archive, whole=True)
    assert again is not None and again.name == first.name and archive.store.read(first.name) == before
    spoil(archive, first)
    growing.grow()
    assert make(archive, whole=True) is not None
    assert first.name not in [one.name for one in listed(archive, TOPIC, 0)]


def test_a_store_that_does_not_answer_says_nothing_about_a_snapshot(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, first = growing.archive, make(growing.archive)
    assert first is not None
    read = archive.store.read

    def fails(name: str) -> bytes | None:
        if name == first.name:
            raise Unreachable("not now")
        return read(name)

    monkeypatch.setattr(archive.store, "read", fails)
    with pytest.raises(Unreachable):
        make(archive, whole=True)
    assert first.name in archive.store.names("snapshots/")


def test_one_that_does_not_fold_to_what_it_was_made_of_is_not_made(growing: Growing) -> None:
    make(growing.archive)
    growing.grow()
    with pytest.raises(LedgerError, match="does not fold to what the archive folds to"):
        make(growing.archive, thin=lambda found: snapshots.thin_events(found)[1:])
    assert len(listed(growing.archive, TOPIC, 0)) == 1


def test_where_nothing_was_sealed_none_is_made(growing: Growing, read: list[int]) -> None:
    first = make(growing.archive)
    read.clear()
    assert make(growing.archive) is not None and read == []
    assert [one.name for one in listed(growing.archive, TOPIC, 0)] == [first.name if first else ""]


def test_offsets_beyond_its_name_are_no_snapshot(growing: Growing) -> None:
    found = make(growing.archive)
    assert found is not None
    growing.grow()
    archive, beyond = growing.archive, list(growing.archive.records(TOPIC, 0))
    archive.store.delete(found.name)
    archive.store.create(found.name, parquet.encode(beyond, read_out))
    again = latest(archive, TOPIC, 0, found.next)
    assert again is not None
    with pytest.raises(LedgerError, match="its offsets do not match its name"):
        list(again.records())


def test_one_that_is_thinned_out_while_it_is_looked_for_is_asked_for_again(growing: Growing) -> None:
    found = make(growing.archive)
    assert found is not None
    growing.archive.store.delete(found.name)
    with pytest.raises(TemporaryError, match="thinned out"):
        list(found.records())


def test_how_many_stay_follows_the_months_and_not_their_number() -> None:
    now = datetime(2026, 6, 15, 12, 30, tzinfo=UTC)
    hours = [now - timedelta(hours=n) for n in range(24 * 400)]
    made = [(Listed(n, "0" * 16, 0, str(n)), at.timestamp()) for n, at in enumerate(reversed(hours))]
    kept = to_keep(made, now.timestamp())
    ages_s = sorted(now.timestamp() - time_s for one, time_s in made if one in kept)
    assert len([age for age in ages_s if age <= DAY_S]) == 25
    assert len(kept) <= 25 + 32 + 14
    for days in range(1, 31):  # the newest of each day
        at = (now - timedelta(days=days)).date()
        of_day = [time_s for one, time_s in made if one in kept and datetime.fromtimestamp(time_s, UTC).date() == at]
        assert max(of_day) == datetime(at.year, at.month, at.day, 23, 30, tzinfo=UTC).timestamp()
    months = [
        {(at.year, at.month) for one, time_s in some for at in [datetime.fromtimestamp(time_s, UTC)]}
        for some in (made, [(one, time_s) for one, time_s in made if one in kept])
    ]
    assert months[0] == months[1], "one snapshot stays for each month"
    again = to_keep([(one, at) for one, at in made if one in kept], now.timestamp())
    assert again == kept


def test_of_two_up_to_the_same_offset_the_one_stays_that_was_compared_with_more() -> None:
    whole, step = (Listed(7, "0" * 16, steps, f"7-{steps}") for steps in (0, 3))
    assert to_keep([(whole, 0.0), (step, 0.0)], 2 * DAY_S) == {whole}
    assert to_keep([(step, 0.0), (whole, 0.0)], 2 * DAY_S) == {whole}


def test_what_is_thinned_out_is_gone_and_another_chain_s_is_left(growing: Growing) -> None:
    archive = growing.archive
    for _ in range(4):
        make(archive)
        growing.grow()
    foreign = f"snapshots/{TOPIC}/0/{1:019}-{'f' * 16}.parquet"
    archive.store.create(foreign, b"x")
    last_s = max(record.timestamp()[1] for record in archive.records(TOPIC, 0)) / 1000
    assert thin_out(archive, TOPIC, 0, last_s + DAY_S / 2) == 0
    before = listed(archive, TOPIC, 0)
    assert thin_out(archive, TOPIC, 0, last_s + 5 * DAY_S) == 3
    left = listed(archive, TOPIC, 0)
    assert {one.name for one in left} == {foreign, before[-1].name}


def test_the_archiver_makes_them_if_it_is_told_to(tmp_path: Path, growing: Growing) -> None:
    archive = growing.archive
    given = {"adapter": "file", "snapshot_interval_s": 60.0}
    chores = archive_upkeep.chores(load_config(tmp_path, archive=given), archive, SystemClock())
    chore = next(one for one in chores if one.name == "snapshot")
    assert isinstance(chore, Chore) and chore.every_s == 60.0
    chore.do()
    growing.grow()
    chore.do()
    assert [one.steps for one in listed(archive, TOPIC, 0)] in ([0, 1], [1])  # or thinned out, if the records are old
    assert not [
        one for one in archive_upkeep.chores(load_config(tmp_path), archive, SystemClock()) if one.name == "snapshot"
    ]

"""Pins: notes in the chain that protect jobs, also while an archiver seals and after an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head
from ledger.archive.format.segments import store_segment
from ledger.archive.removal import holds, pins
from ledger.archive.removal.pins import Pin
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError, NotFound
from ledger.util import failpoints
from tests.support.archives.given import TOPIC, TOPIC_ID, an_archive, read_out, records

PIN = Pin("pin-1", ("job-1", "job-2"), 1_000, 2_000, "an incident", "ann@here", "2026-01-01T00:00:00Z")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def partition_of(job_id: str) -> int:
    return int(job_id.partition("-")[2]) % 2


def made(archive: Archive, pin: Pin = PIN) -> None:
    pins.pin(archive, pin, TOPIC, partition_of)


def lifted(archive: Archive, pin_id: str = PIN.id) -> Pin | None:
    return pins.unpin(archive, pin_id, "settled", "bob@here", "2026-02-01T00:00:00Z", TOPIC, partition_of)


def test_a_pin_is_a_note_for_each_job_and_as_sure_as_any_record() -> None:
    archive, store, _ = an_archive()
    made(archive)
    heads = [archive.head(TOPIC, p) for p in (0, 1)]
    fresh = Archive(store)
    assert pins.pins(fresh) == [PIN]
    assert pins.held_jobs(fresh) == holds.held_jobs(store) == {"job-1": "pin-1", "job-2": "pin-1"}
    assert [one.broken for one in verify(fresh, heads)] == [(), ()]
    assert [one.proved for one in verify(fresh, heads)] == [head.next for head in heads]
    name = store.names(f"notes/{TOPIC}/1/")[0]
    store.stored[name] = store.stored[name].replace(b"job-1", b"job-3")
    assert [bool(one.broken) for one in verify(fresh, heads)] == [False, True]
    with pytest.raises(LedgerError, match="not what its manifest says"):
        pins.pins(fresh)


def test_it_holds_what_was_appended_up_to_its_end_and_all_before() -> None:
    archive, _, _ = an_archive()
    made(archive)
    made(archive, replace(PIN, id="pin-2", jobs=("job-3",), from_ms=None, to_ms=None))
    held = pins.held(archive)
    assert [held("job-1", ms) for ms in (0, 1_500, 2_000, 2_001)] == [True, True, True, False]
    assert held("job-3", 9_999_999_999_999) and not held("job-4", 0)


def test_a_pin_that_is_lifted_holds_nothing_and_its_history_stays() -> None:
    archive, store, _ = an_archive()
    made(archive)
    made(archive, replace(PIN, id="pin-2", jobs=("job-2",), at="2026-01-02T00:00:00Z"))
    assert lifted(archive) == PIN
    assert [(one.id, one.jobs) for one in pins.pins(archive)] == [("pin-2", ("job-2",))]
    assert pins.held_jobs(archive) == {"job-2": "pin-2"}
    assert holds.held_by(store, "job-1") == "" and holds.held_by(store, "job-2") == "pin-2"
    heads = [archive.head(TOPIC, p) for p in (0, 1)]
    assert lifted(archive) is None
    assert [archive.head(TOPIC, p) for p in (0, 1)] == heads, "a repeated unpin writes nothing"
    assert [one.broken for one in verify(archive, heads)] == [(), ()]
    with pytest.raises(NotFound):
        lifted(archive, "pin-9")


@pytest.mark.parametrize("point", ["pin.marked", "pin.sealed"])
def test_a_pin_that_was_interrupted_holds_what_it_came_to_and_can_be_lifted(point: str) -> None:
    archive, store, _ = an_archive()
    failpoints.arm(f"{point}:raise@1")
    with pytest.raises(failpoints.Failed):
        made(archive)
    failpoints.arm("")
    assert pins.held_jobs(archive) == {"job-1": "pin-1"}
    said = pins.unsealed(archive, pins.pins(archive))
    assert said == ([("pin-1", "job-1")] if point == "pin.marked" else [])
    lifted(archive)
    assert pins.unsealed(archive, pins.pins(archive)) == []
    assert pins.held_jobs(archive) == holds.held_jobs(store) == {}


def test_what_is_half_lifted_is_held_until_that_is_done_again() -> None:
    archive, store, _ = an_archive()
    made(archive)
    failpoints.arm("unpin.sealed:raise@1")
    with pytest.raises(failpoints.Failed):
        lifted(archive)
    failpoints.arm("")
    assert [one.jobs for one in pins.pins(archive)] == [("job-2",)]
    assert set(pins.held_jobs(archive)) == {"job-1", "job-2"}
    assert lifted(archive) is not None
    assert pins.held_jobs(archive) == holds.held_jobs(store) == {} and pins.pins(archive) == []


class Rushed(MemoryObjects):
    """A store in which, several times, an archiver seals a segment just before a note is sealed."""

    times = 0

    def create(self, name: str, data: bytes) -> bool:
        if name.startswith(f"manifests/{TOPIC}/1/") and b'"format":2' in data and self.times:
            self.times -= 1
            beside = Archive(self, "archiver")
            head = beside.head(TOPIC, 1)
            more = records(3, partition=1, begin=head.next + 5, seed=head.sequence)
            beside.seal(head, TOPIC_ID, store_segment(self, head.next, more, read_out))
        return super().create(name, data)


def test_it_is_sealed_beside_an_archiver_at_work() -> None:
    _, store, _ = an_archive()
    rushed = Rushed()
    rushed.stored, rushed.times = store.stored, 5
    archive = Archive(rushed, "ann")
    before = archive.head(TOPIC, 1).sequence
    made(archive)
    assert rushed.times == 0 and archive.head(TOPIC, 1).sequence == before + 6
    assert [one.broken for one in verify(archive)] == [(), ()] and pins.pins(archive) == [PIN]


def test_an_archiver_goes_on_behind_a_pin_and_days_are_joined_over_it() -> None:
    archive, _, heads = an_archive()
    made(archive)
    more = records(20, partition=1, begin=heads[1].next)
    # The segment was stored before the pin, so the archiver does not know the pin.
    head = archive.seal(heads[1], TOPIC_ID, store_segment(archive.store, heads[1].next, more, read_out))
    assert head.sequence == heads[1].sequence + 2
    assert compact(archive, 1_800_000_000.0)
    assert pins.pins(Archive(archive.store)) == [PIN]
    assert [one.broken for one in verify(archive, [head])] == [(), ()]


def test_in_a_partition_with_nothing_yet_it_is_the_first_and_the_archiver_goes_on() -> None:
    archive, _, _ = an_archive(partitions=1)
    made(archive, replace(PIN, jobs=("job-1",)))
    head = archive.head(TOPIC, 1)
    assert head == Head(TOPIC, 1, 0, head.sha256, 0, TOPIC_ID)
    archive.seal(head, TOPIC_ID, store_segment(archive.store, 0, records(5, partition=1), read_out))
    assert [one.broken for one in verify(archive)] == [(), ()]


def test_in_an_archive_with_nothing_at_all_nobody_can_pin() -> None:
    store = MemoryObjects()
    with pytest.raises(LedgerError, match="yet, so nothing can be pinned"):
        made(Archive(store))
    assert store.stored == {}, "a mark alone would protect the job, and no pin would be listed that could be removed"


def test_where_a_manifest_is_missing_nobody_knows_what_is_pinned() -> None:
    archive, store, _ = an_archive()
    made(archive)
    del store.stored[f"manifests/{TOPIC}/0/000000000003.json"]
    for ask in (pins.pins, pins.held, pins.held_jobs):
        with pytest.raises(LedgerError):
            ask(Archive(store))


def test_a_job_whose_id_begins_with_a_dot_is_listed_as_well() -> None:
    store = MemoryObjects()
    store.create(holds.name_of(".job-1", "p", holds.PIN), b"{}")
    assert holds.held_by(store, ".job-1") == "p" and holds.held_jobs(store) == {".job-1": "p"}

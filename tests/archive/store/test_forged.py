"""Consistent forgeries, and where `verify` reports the first bad record."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import notes, objects, parquet
from ledger.archive.format.chain import Head, Manifest, head_of
from ledger.archive.format.segments import leaves_of, manifest_name, store_segment
from ledger.archive.proof.bundle_proofs import carry, check
from ledger.archive.query.key_scan import picked
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.archive.store.verifying import PartitionVerdict, _wrong_times, verify
from ledger.errors import LedgerError
from ledger.ports import MemoryRecord
from tests.support.archives.given import TOPIC, TOPIC_ID, an_archive, read_out, records, sealed


def forged_from(first: int) -> tuple[Archive, list[Head], int]:
    """An archive of ten manifests without one record: from manifest `first` on, the chain is rewritten consistently.
    Also the heads of the true chain, and the offset of the record."""
    honest, _, _ = an_archive(partitions=1)
    manifests = list(honest.manifests(TOPIC, 0))
    runs = [list(honest.records(TOPIC, 0, one.first, one.next)) for one in manifests]
    gone = runs[first].pop(4)
    forged = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")
    head = forged.head(TOPIC, 0)
    for run in runs:
        head = forged.seal(head, TOPIC_ID, store_segment(forged.store, head.next, run, read_out))
    return forged, [head_of(one) for one in manifests], gone.offset()


def verdict_of(archive: Archive, anchors: Sequence[Head] = ()) -> PartitionVerdict:
    (verdict,) = verify(Archive(archive.store), anchors)
    return verdict


def test_with_the_newest_anchor_alone_the_break_may_lie_anywhere() -> None:
    forged, heads, gone = forged_from(3)
    found = verdict_of(forged, heads[-1:])
    assert found.broken[0].offset > gone, "the place where the break shows"
    assert (found.bad_from, found.proved, found.proved_manifest, found.last_manifest) == (0, 0, -1, 9)
    assert found.bad_to is not None and gone <= found.bad_to == heads[-1].next - 1


def test_it_lies_above_the_last_anchor_that_holds() -> None:
    forged, heads, gone = forged_from(3)
    found = verdict_of(forged, heads)
    assert (found.bad_from, found.bad_to) == (heads[2].next, heads[3].next - 1)
    assert heads[2].next <= gone < heads[3].next and found.proved_manifest == 2


def test_a_record_that_is_not_as_its_manifest_says_shows_exactly() -> None:
    archive, store, heads = an_archive(partitions=1)
    manifest = list(archive.manifests(TOPIC, 0))[4]
    run = list(archive.records(TOPIC, 0, manifest.first, manifest.next))
    bad = run.pop(5).offset()
    other = store_segment(MemoryObjects(), manifest.first, run, read_out)
    copy = MemoryObjects()
    store_segment(copy, manifest.first, run, read_out)
    store.stored[manifest.records] = copy.stored[other.records]
    assert (found := verdict_of(archive, heads)).bad_from == found.bad_to == bad
    assert found.broken[0].offset == bad
    whole = verdict_of(an_archive(partitions=1)[0], heads)
    assert (whole.bad_from, whole.bad_to, whole.proved_manifest) == (None, None, 9)


def test_an_end_that_was_cut_off_begins_where_an_anchor_still_holds() -> None:
    archive, store, heads = an_archive(partitions=1)
    every = [head_of(one) for one in archive.manifests(TOPIC, 0)]
    for number in range(6, 10):
        del store.stored[manifest_name(TOPIC, 0, number)]
    found = verdict_of(archive, [every[2], *heads])
    assert (found.bad_from, found.bad_to) == (every[2].next, every[5].next)


def test_of_a_bundle_the_carried_chain_is_told_likewise() -> None:
    forged, heads, gone = forged_from(3)
    leaves = leaves_of(forged.records(TOPIC, 0))
    carried = carry(forged, (TOPIC, 0), leaves)
    assert carried is not None
    newest = check(carried, (TOPIC, 0), leaves, heads[-1:])
    assert newest.broken[0].offset > gone and newest.bad == (0, heads[-1].next - 1)
    assert check(carried, (TOPIC, 0), leaves, heads).bad == (heads[2].next, heads[3].next - 1)
    honest, _, (head,) = an_archive(partitions=1)
    whole = carry(honest, (TOPIC, 0), own := leaves_of(honest.records(TOPIC, 0)))
    assert whole is not None and check(whole, (TOPIC, 0), own, [head]).bad is None


# -- times -------------------------------------------------------------------------------------------------------------


def lying(archive: Archive, number: int, **times: int) -> Archive:
    """The chain rewritten so that one manifest differs in some fields, such as the times of its records."""
    forged, previous = MemoryObjects(), ""
    forged.stored.update({name: data for name, data in archive.store.stored.items() if "manifests/" not in name})  # type: ignore[attr-defined]
    for one in archive.manifests(TOPIC, 0):
        said = {name: getattr(one, name) + by for name, by in times.items()} if one.sequence == number else {}
        made: Manifest = replace(one, previous=previous, **said)  # type: ignore[arg-type]
        forged.create(manifest_name(TOPIC, 0, one.sequence), made.encode())
        previous = made.sha256
    return Archive(forged)


@pytest.mark.parametrize("times", [
    {"least_timestamp_ms": 1}, {"least_timestamp_ms": -1}, {"greatest_timestamp_ms": 1}, {"greatest_timestamp_ms": -1},
    {"least_timestamp_ms": -(10**15), "greatest_timestamp_ms": -(10**15)},
], ids=str)  # fmt: skip
def test_a_manifest_that_lies_about_times_is_found_without_an_anchor(times: dict[str, int]) -> None:
    archive, _, _ = an_archive(partitions=1)
    manifest = list(archive.manifests(TOPIC, 0))[4]
    assert verdict_of(lying(archive, 4)).broken == ()
    (one,) = verdict_of(lying(archive, 4, **times)).broken
    assert one.sequence == 4 and manifest.first <= one.offset < manifest.next and "times" in one.reason


def test_also_where_a_record_has_expired_none_lies_outside_the_times() -> None:
    """The least or greatest time may be that of an expired record."""
    archive, _, _ = an_archive(partitions=1)
    manifest = next(archive.manifests(TOPIC, 0))
    left = list(archive.records(TOPIC, 0, manifest.first, manifest.next))[1:]
    assert _wrong_times(manifest, left) is None
    later = replace(manifest, least_timestamp_ms=left[0].timestamp()[1] + 1, greatest_timestamp_ms=10**15)
    found = _wrong_times(later, left)
    assert found is not None and "outside the times" in found.reason


def test_a_manifest_that_counts_otherwise_is_found_without_an_anchor() -> None:
    """The records are unchanged, and the count of missing ones fits the offsets."""
    (one,) = verdict_of(lying(an_archive(partitions=1)[0], 4, count=-1, missing=1)).broken
    assert one.sequence == 4


def test_a_record_that_was_sealed_twice_is_found() -> None:
    archive, found = Archive(MemoryObjects(), "mallory"), records(20)
    archive.seal(Head(TOPIC, 0), TOPIC_ID, store_segment(archive.store, 0, [*found[:5], *found[4:]], read_out))
    assert next(archive.manifests(TOPIC, 0)).missing >= 0, "there are enough holes"
    (one,) = verdict_of(archive).broken
    assert one.sequence == 0


def test_days_with_such_a_manifest_are_not_joined() -> None:
    archive, _, _ = an_archive(partitions=1)
    forged = lying(archive, 4, greatest_timestamp_ms=1)
    with pytest.raises(LedgerError, match="times"):
        compact(Archive(forged.store, "test", lambda: "2026-01-01T00:00:00Z"), 2_000_000_000.0)


# -- notes -------------------------------------------------------------------------------------------------------------


def test_notes_above_the_last_anchor_are_named() -> None:
    archive, _, heads = an_archive(partitions=1)
    head = archive.note(heads[0], notes.UNPINNED, {"pin": "pin-1", "by": "mallory", "at": "", "reason": ""})
    found = verdict_of(archive, heads)
    assert [(one.sequence, one.kind, one.anchored) for one in found.notes] == [(10, "unpinned", False)]
    assert (found.broken, found.proved, found.proved_manifest, found.last_manifest) == ((), heads[0].next, 9, 10)
    assert verdict_of(archive, [head]).notes == (), "an anchor covers the note"


@pytest.mark.parametrize("data", [b"\xff", b"[]", b"{}", b'{"kind": "pined"}'])
def test_a_note_that_nobody_understands_is_named_also_below_an_anchor(data: bytes) -> None:
    archive, store, heads = an_archive(partitions=1)
    head = archive.note(heads[0], notes.PINNED, {})
    last = list(archive.manifests(TOPIC, 0))[-1]
    odd = replace(last, records="notes/odd.json", records_sha256=sha256(data).hexdigest())
    store.stored["notes/odd.json"], store.stored[manifest_name(TOPIC, 0, 10)] = data, odd.encode()
    for anchors, anchored in (heads, False), ([head_of(odd)], True):
        (one,) = verdict_of(archive, anchors).notes
        assert (one.sequence, one.anchored) == (10, anchored) and one.kind in ("", "pined")
    assert head.sequence == 10


def test_what_an_honest_archive_has_is_not_named() -> None:
    archive, _, heads = an_archive(partitions=1)
    later: list[MemoryRecord] = records(20, begin=heads[0].next)
    sealed(archive, later)
    compact(archive, 2_000_000_000.0)
    assert verdict_of(archive, heads).notes == ()


# -- objects that would exhaust memory or time -------------------------------------------------------------------------


def bomb(rows: int) -> bytes:
    """A few kilobytes that hold many identical rows."""
    columns = [pa.array([1] * rows, pa.int64()).cast(parquet.SCHEMA.field("timestamp").type, safe=False)]
    empty = {"key": pa.binary(), "value": pa.binary(), "headers": parquet.SCHEMA.field("headers").type}
    table = pa.table({
        "offset": pa.array([1] * rows, pa.int64()), "timestamp": columns[0],
        **{name: pa.nulls(rows, kind) for name, kind in empty.items()},
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def test_a_file_with_more_rows_than_were_sealed_is_named_and_not_read() -> None:
    archive, store, heads = an_archive(partitions=1)
    manifest = list(archive.manifests(TOPIC, 0))[4]
    store.stored[manifest.records] = bomb(5000)
    (one,) = verdict_of(archive, heads).broken
    assert one.offset == manifest.first and "it has 5000 rows, but at most 1010 were sealed" in one.reason


def test_nor_where_the_chain_was_made_to_fit() -> None:
    """The manifest names the digest of this object: readers refuse it as well."""
    archive, store, heads = an_archive(partitions=1)
    data, last = bomb(5000), list(archive.manifests(TOPIC, 0))[-1]
    odd = replace(last, records_sha256=sha256(data).hexdigest())
    store.stored[last.records], store.stored[manifest_name(TOPIC, 0, 9)] = data, odd.encode()
    assert "not read" in verdict_of(archive).broken[0].reason
    with pytest.raises(LedgerError, match="5000 rows, but at most 10"):
        list(Archive(store).records(TOPIC, 0))
    with pytest.raises(LedgerError, match="5000 rows, but at most 10"):
        list(picked(Archive(store), TOPIC, 0, 0, heads[0].next, [b"job-1/"]))
    billion = replace(odd, count=10**9, missing=0, next=odd.first + 10**9)
    store.stored[manifest_name(TOPIC, 0, 9)] = billion.encode()
    assert Archive(store).chain(TOPIC, 0).rows_max(billion) <= 500_000


def test_leaves_that_list_more_than_was_sealed_are_not_unpacked() -> None:
    archive, store, _ = an_archive(partitions=1)
    many, last = bytes(40 * 2000), list(archive.manifests(TOPIC, 0))[-1]
    odd = replace(last, leaves_sha256=sha256(many).hexdigest())
    store.stored[last.leaves], store.stored[manifest_name(TOPIC, 0, 9)] = many, odd.encode()
    (one,) = verdict_of(archive).broken
    assert one.reason == f"{last.leaves} is missing or was altered"


def test_an_object_that_is_too_large_is_named_and_the_rest_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store, heads = an_archive(partitions=1)
    first, second = list(archive.manifests(TOPIC, 0))[:2]
    large = max(len(data) for data in store.stored.values())
    store.stored[first.records] = bytes(large + 1)
    store.stored[manifest_name(TOPIC, 0, second.sequence)] = bytes(1 << 21)
    monkeypatch.setattr(objects, "BYTES_MAX", large)
    monkeypatch.setattr(objects.check_size, "__defaults__", (large,))
    found = verdict_of(archive, heads).broken
    assert [(one.sequence, "is not read" in one.reason) for one in found] == [(0, True), (1, False)]


@pytest.mark.timeout(60)
def test_a_fifo_in_place_of_an_object_is_named_and_nobody_waits(tmp_path: Path) -> None:
    archive, store, heads = an_archive(partitions=1)
    folder = FolderObjects(tmp_path / "archive")
    for name, data in store.stored.items():
        folder.create(name, data)
    manifest = list(archive.manifests(TOPIC, 0))[4]
    (tmp_path / "archive" / manifest.records).unlink()
    os.mkfifo(tmp_path / "archive" / manifest.records)
    (one,) = verdict_of(Archive(folder), heads).broken
    assert one.sequence == 4 and "FIFO" in one.reason


# -- with an archiver at work ------------------------------------------------------------------------------------------


def test_what_is_younger_than_a_batch_is_no_stray(tmp_path: Path) -> None:
    _, store, heads = an_archive(partitions=1)
    folder = FolderObjects(tmp_path / "archive")
    for name, data in store.stored.items():
        folder.create(name, data)
    left = store_segment(folder, heads[0].next, records(5, begin=heads[0].next), read_out)
    (verdict,) = verify(Archive(folder), heads, 600.0)
    assert (verdict.orphans, verdict.under_way) == ((), (left.leaves, left.records))
    (verdict,) = verify(Archive(folder), heads)
    assert (verdict.orphans, verdict.under_way) == ((left.records, left.leaves), ())
    for at in (-700.0, 700.0):  # older, or with a time that somebody has set
        moment = time.time() + at
        os.utime(tmp_path / "archive" / left.records, (moment, moment))
        (verdict,) = verify(Archive(folder), heads, 600.0)
        assert (verdict.orphans, verdict.under_way) == ((left.records,), (left.leaves,))

"""Sealing and reading: each stored record is read exactly once, at whatever point a writer was killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger.adapters import avro
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import parquet
from ledger.archive.format.chain import Head
from ledger.archive.format.segments import manifest_name, runs, store_segment
from ledger.archive.store.archive import Archive, Overtaken
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError
from ledger.ports import MemoryRecord
from tests.support.archives.given import SPEC, TOPIC, TOPIC_ID, an_archive, read_out, records, sealed
from tests.support.archives.mutations import NAMELESS, with_cell


def test_what_was_sealed_is_read_in_order() -> None:
    archive, _, heads = an_archive()
    for partition, head in enumerate(heads):
        assert list(archive.records(TOPIC, partition)) == records(100, partition, partition)
        assert archive.head(TOPIC, partition) == head
    assert archive.partitions() == [(TOPIC, 0), (TOPIC, 1)]


def test_a_part_of_it_is_read_from_those_objects_alone_that_hold_it() -> None:
    archive, store, _ = an_archive()
    wanted = [one for one in records(100, 0, 0) if 40 <= one.offset() < 60]
    needless = next(archive.manifests(TOPIC, 0)).records
    del store.stored[needless]
    assert list(archive.records(TOPIC, 0, 40, 60)) == wanted


def test_storing_again_what_a_crash_has_left_unsealed_stores_nothing_twice() -> None:
    store, found = MemoryObjects(), records(30)
    first = store_segment(store, 0, found, read_out)
    before = dict(store.stored)
    assert store_segment(store, 0, found, read_out) == first
    assert store.stored == before


def test_sealing_again_changes_nothing() -> None:
    archive = Archive(MemoryObjects())
    head = Head(TOPIC, 0)
    segment = store_segment(archive.store, 0, records(5), read_out)
    assert archive.seal(head, TOPIC_ID, segment) == archive.seal(head, TOPIC_ID, segment) == archive.head(TOPIC, 0)


@pytest.mark.parametrize("beside", ["old.json", "99.json", "000000000099", "copies/000000000099.json"])
def test_a_copy_of_a_manifest_under_another_name_is_no_head(beside: str) -> None:
    archive, store, heads = an_archive(partitions=1)
    folder = f"manifests/{TOPIC}/0/"
    store.stored[folder + beside] = store.stored[f"{folder}000000000004.json"]
    assert archive.head(TOPIC, 0) == heads[0]
    assert list(archive.manifests(TOPIC, 0))[-1].sequence == heads[0].sequence


def test_one_manifest_in_the_place_of_another_is_no_head() -> None:
    archive, store, _ = an_archive(partitions=1)
    store.stored[manifest_name(TOPIC, 0, 10)] = store.stored[manifest_name(TOPIC, 0, 4)]
    with pytest.raises(LedgerError, match="holds manifest 4 of"):
        archive.head(TOPIC, 0)


def test_of_two_archivers_one_seals_and_the_other_begins_again() -> None:
    archive, found = Archive(MemoryObjects(), "one"), records(30)
    head = Head(TOPIC, 0)
    archive.seal(head, TOPIC_ID, store_segment(archive.store, 0, found[:20], read_out))
    slower = store_segment(archive.store, 0, found[:10], read_out)
    with pytest.raises(Overtaken, match="sealed by one"):
        Archive(archive.store, "two").seal(head, TOPIC_ID, slower)
    assert list(archive.records(TOPIC, 0)) == found[:20]


def test_a_note_of_somebody_else_is_not_ours() -> None:
    archive, head = Archive(MemoryObjects(), "one"), Head(TOPIC, 0)._replace(topic_id=TOPIC_ID)
    first = archive.note(head, "joined", {"n": 1})
    assert Archive(archive.store, "two").note(head, "joined", {"n": 1}) == first, "the same note again changes nothing"
    with pytest.raises(Overtaken, match="sealed by one"):
        Archive(archive.store, "two").note(head, "joined", {"n": 2})


def test_an_object_that_a_disk_has_damaged_is_left_and_passed_by() -> None:
    archive, found = Archive(MemoryObjects()), records(5)
    segment = store_segment(archive.store, 0, found, read_out)
    archive.store.stored[segment.records] = b"damaged"
    again = store_segment(archive.store, 0, found, read_out)
    assert again.records != segment.records
    archive.seal(Head(TOPIC, 0), TOPIC_ID, again)
    assert list(archive.records(TOPIC, 0)) == found


@pytest.mark.parametrize("forged", [
    lambda data, found: with_cell(data, "actor", 2, "somebody"),
    lambda data, found: parquet.rewrite(data, (), {one.offset() for one in found}),
    lambda data, found: parquet.encode(found[:-1], read_out),
], ids=["a column", "values redacted", "a record removed"])  # fmt: skip
def test_what_somebody_has_put_where_an_object_belongs_is_not_sealed(forged: Callable[..., bytes]) -> None:
    """The leaves may match the records, while other columns of the object do not."""
    archive, found = Archive(MemoryObjects()), records(5)
    honest = parquet.encode(found, read_out)
    name = f"records/{TOPIC}/0/{0:019}-{found[-1].offset() + 1:019}.parquet"
    archive.store.create(name, forged(honest, found))
    archive.seal(Head(TOPIC, 0), TOPIC_ID, store_segment(archive.store, 0, found, read_out))
    assert [archive.file(one) for one in archive.files(TOPIC, 0)] == [honest]
    assert verify(archive, [archive.head(TOPIC, 0)])[0].orphans == (name,)


def test_a_file_with_the_same_rows_is_taken_as_it_is() -> None:
    """Another version of the Parquet library writes other bytes."""
    archive, found = Archive(MemoryObjects()), records(5)
    segment = store_segment(archive.store, 0, found, read_out)
    # the same value, in a file that is written again
    other = with_cell(archive.store.stored[segment.records], "actor", 0, None)
    assert other != archive.store.stored[segment.records]
    archive.store.stored[segment.records] = other
    again = store_segment(archive.store, 0, found, read_out)
    assert (again.records, again.records_sha256) == (segment.records, sha256(other).hexdigest())


@pytest.mark.parametrize(("column", "empty"), [("offset", None), ("headers", [NAMELESS])])
def test_a_file_without_what_every_record_has_is_refused(column: str, empty: object) -> None:
    archive, store, _ = an_archive()
    one = next(archive.manifests(TOPIC, 0))
    data = with_cell(store.stored[one.records], column, 0, empty)
    with pytest.raises(ValueError, match="without"):
        parquet.read(data, TOPIC, 0)
    bad = replace(one, records_sha256=sha256(data).hexdigest())
    store.stored[one.records], store.stored[manifest_name(TOPIC, 0, 0)] = data, bad.encode()
    with pytest.raises(LedgerError, match="can't be read"):
        list(Archive(store).records(TOPIC, 0))


def test_a_topic_made_anew_is_not_sealed_upon_the_old_one() -> None:
    archive, _, heads = an_archive()
    segment = store_segment(archive.store, heads[0].next, records(3, begin=heads[0].next), read_out)
    with pytest.raises(LedgerError, match="created again"):
        archive.seal(heads[0], "topic-2", segment)


@pytest.mark.parametrize("data", [None, b"", b"something else"])
def test_an_object_that_is_not_what_it_was_is_never_read(data: bytes | None) -> None:
    archive, store, _ = an_archive()
    name = next(archive.manifests(TOPIC, 0)).records
    if data is None:
        del store.stored[name]
    else:
        store.stored[name] = data
    with pytest.raises(LedgerError, match=r"audit verify|is missing|not what"):
        list(archive.records(TOPIC, 0))


def test_the_columns_say_what_the_bytes_mean() -> None:
    found = records(200)
    table = pq.read_table(pa.BufferReader(parquet.encode(found, read_out))).to_pylist()
    assert [row["event_id"] for row in table] == [f"event-0-{one.offset()}" for one in found]
    facts = {row["fact"] for row in table}
    assert facts == {None, "AttemptRunning", "JobSubmitted", "JobAdmitted"}
    spec = next(row for row in table if row["fact"] == "JobSubmitted")
    assert json.loads(spec["body"])["name"] == "job é"
    assert spec["register"] == f"spec/{avro.spec_digest(SPEC)}"
    garbage = next(row for row in table if row["key"] == b"garbage")
    assert (garbage["fact"], garbage["register"]) == (None, None)
    assert garbage["unreadable"]
    tombstone = next(row for row in table if row["value"] is None)
    assert (tombstone["body"], tombstone["unreadable"]) == (None, None)


def test_the_bytes_come_back_whatever_they_are() -> None:
    odd = [
        MemoryRecord(TOPIC, 0, 0, None, None, (), 0),
        MemoryRecord(TOPIC, 0, 1, b"", b"", (("", b""), ("twice", b"1"), ("twice", None)), -1),
        MemoryRecord(TOPIC, 0, 2, b"\xff\x00", b"\xc3\x01" + b"\xff" * 10, (("ce_time", b"9999-12-31T23:59:59Z"),), 2**53),
        MemoryRecord(TOPIC, 0, 2**62, b"~claim/projector/1", b"\xc3\x01", (), 1),
    ]  # fmt: skip
    assert parquet.read(parquet.encode(odd, read_out), TOPIC, 0) == odd


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 10])
def test_what_is_no_file_of_the_archive_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a Parquet file"):
        parquet.read(data, TOPIC, 0)


def test_other_columns_are_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"offset": [1]}), sink)
    with pytest.raises(ValueError):
        parquet.read(bytes(sink.getvalue()), TOPIC, 0)


def test_runs_are_bounded_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.archive.format.segments.RECORDS_MAX", 7)
    found = records(20)
    assert [len(run) for run in runs(found)] == [7, 7, 6]
    monkeypatch.setattr("ledger.archive.format.segments.BYTES_MAX", 1)
    assert [len(run) for run in runs(found)] == [1] * 20
    assert list(runs([])) == []


def test_sealing_goes_on_where_it_ended() -> None:
    archive = Archive(MemoryObjects())
    found = records(50)
    sealed(archive, found[:20])
    sealed(archive, found[20:])
    manifests = list(archive.manifests(TOPIC, 0))
    assert [one.sequence for one in manifests] == [0, 1, 2, 3, 4]
    assert sum(one.missing for one in manifests) == found[-1].offset() + 1 - 50
    assert list(archive.records(TOPIC, 0)) == found

"""Records and values are removed from an archive, and the rest can still be proved."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consumers import sealed
from docs.check_proof import check
from ledger.adapters import avro, schemas
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import parquet
from ledger.archive.format.chain import Head, hash_of
from ledger.archive.format.decoding import Decoded
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import EXPIRED, REDACTED, Gone, Rewritten, body_of, ranges, rewritten_of
from ledger.archive.format.segments import leaves_of, store_segment
from ledger.archive.proof.proving import prove
from ledger.archive.query.key_scan import picked
from ledger.archive.removal.rewriting import Wanted, rewrite
from ledger.archive.snapshots import snapshots
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.archive.store.verifying import verify
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.redaction import is_redacted, stand_in
from ledger.core.model.registers import Running
from ledger.reader.expiry_gaps import ExpiredJob
from ledger.util import failpoints
from tests.support.archives.days import BEGIN_MS, LATER_S, an_archive, spread
from tests.support.archives.given import TOPIC, TOPIC_ID, id_of, read_out
from tests.support.archives.taking import (
    AT,
    BY,
    GONE,
    LEFT,
    SECRET,
    WANTED,
    check_remaining,
    must_be_gone,
    take_out,
    verdict_of,
)

pytestmark = pytest.mark.slow


def test_what_is_taken_out_is_gone_and_all_else_is_proved_as_before() -> None:
    archive, store, anchors = an_archive()
    assert take_out(archive) == len(GONE) + len(SECRET)
    check_remaining(archive, anchors)
    must_be_gone(store)
    assert list(archive.records(TOPIC, 1)) == spread(1)
    before = dict(store.stored)
    assert take_out(archive) == 0
    assert store.stored == before


def test_by_the_word_of_a_note_above_the_last_anchor_nothing_is_proved_yet() -> None:
    archive, _, anchors = an_archive()
    take_out(archive)
    own = [anchor for anchor in anchors if anchor.partition == 0]
    verdict = verdict_of(archive, own)
    assert verdict.broken == ()
    assert verdict.proved == verdict.unanchored == min(GONE | SECRET) < own[-1].next
    verdict = verdict_of(archive, [*own, archive.head(TOPIC, 0)])
    assert verdict.unanchored is None and verdict.proved == verdict.sealed


def test_who_did_it_why_and_when_is_told() -> None:
    archive, _, _ = an_archive()
    take_out(archive)
    told = [(one.why, one.records, one.namespace, one.until_ms, one.reason, one.by, one.at)
            for one in verdict_of(archive, []).gone]  # fmt: skip
    assert told == [
        (EXPIRED, len(GONE), "prod", BEGIN_MS, "", BY, AT),
        (REDACTED, len(SECRET), "", 0, "a password in it", BY, AT),
    ]


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_joined_and_rewritten_in_any_order(when: str) -> None:
    archive, store, anchors = an_archive()
    half = [replace(one, offsets=frozenset(sorted(one.offsets)[::2])) for one in WANTED]
    if when == "both":
        take_out(archive, half)
    if when != "before":
        compact(archive, LATER_S)
    take_out(archive)
    if when != "after":
        compact(archive, LATER_S)
    check_remaining(archive, anchors)
    must_be_gone(store)
    assert not store.names("records/")
    assert bool(store.names("rewritten/")) == (when != "before")  # of joined records only the rewritten object is left
    assert compact(archive, LATER_S) == []


def test_what_a_killed_joiner_has_left_is_cleared_away_after_a_redaction_too() -> None:
    archive, store, anchors = an_archive()
    failpoints.arm("compact.noted:raise@1")
    try:
        with pytest.raises(failpoints.Failed):
            compact(archive, LATER_S)
    finally:
        failpoints.arm("")
    take_out(archive)
    must_be_gone(store)
    compact(archive, LATER_S)
    assert not store.names("records/")
    check_remaining(archive, anchors)


def test_rewritten_again_the_latest_note_counts() -> None:
    archive, store, anchors = an_archive()
    for part in range(3):
        for one in WANTED:
            take_out(archive, [replace(one, offsets=frozenset(sorted(one.offsets)[part::3]))])
    check_remaining(archive, anchors)
    must_be_gone(store)


def test_more_than_one_note_holds_is_said_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.archive.removal.rewriting.RANGES_MAX", 3)
    archive, _, anchors = an_archive()
    take_out(archive)
    assert len({one.sequence for one in archive.chain(TOPIC, 0).rewritten}) > 3
    check_remaining(archive, anchors)


def test_where_no_record_lies_there_is_nothing_to_take_and_that_is_the_end_of_it() -> None:
    archive, _, _ = an_archive()
    hole = next(a + 1 for a, b in pairwise(one.offset() for one in spread(0)) if b > a + 1)
    assert rewrite(archive, TOPIC, 0, [Wanted(EXPIRED, frozenset({hole}), "prod")], BY, AT) == 0
    assert archive.chain(TOPIC, 0).rewritten == () and verify(archive)[0].broken == ()


def test_all_of_an_object_may_go() -> None:
    archive, _, anchors = an_archive()
    first = next(archive.manifests(TOPIC, 0))
    offsets = frozenset(record.offset() for record in spread(0) if record.offset() < first.next)
    take_out(archive, [Wanted(EXPIRED, offsets, "prod", 1, 1)])
    assert list(archive.records(TOPIC, 0)) == [one for one in spread(0) if one.offset() not in offsets]
    assert list(archive.records(TOPIC, 0, 0, first.next)) == []
    assert verdict_of(archive, [archive.head(TOPIC, 0)]).broken == ()
    compact(archive, LATER_S)
    assert verdict_of(archive, [archive.head(TOPIC, 0)]).broken == ()
    assert anchors


def test_a_value_that_was_redacted_may_expire() -> None:
    archive, _, _ = an_archive()
    take_out(archive)
    take_out(archive, [Wanted(EXPIRED, SECRET, "prod", 1, 1)])
    assert list(archive.records(TOPIC, 0)) == [one for one in LEFT if one.offset() not in SECRET]
    assert verdict_of(archive, [archive.head(TOPIC, 0)]).broken == ()


def test_proofs_hold_and_that_of_a_redacted_record_has_the_hash_of_its_value() -> None:
    archive, _, anchors = an_archive()
    take_out(archive)
    head = archive.head(TOPIC, 0)
    for joined in (False, True):
        if joined:
            compact(archive, LATER_S)
        for record in LEFT[::7] + [one for one in LEFT if one.offset() in SECRET][:3]:
            proof = json.loads(json.dumps(prove(archive, id_of(record), id_of)))
            assert check(proof, head.sha256)
            for anchor in anchors:
                assert check(proof, anchor.sha256) == (anchor.partition == 0 and anchor.next > record.offset())
            redacted = record.offset() in SECRET
            assert ("value_sha256" in proof["record"], "value" in proof["record"]) == (redacted, not redacted)
            if redacted:
                proof["record"]["value_sha256"] = "00" * 32
                assert not check(proof, head.sha256)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_what_stands_in_for_a_value_is_of_no_schema_and_no_tombstone() -> None:
    value = stand_in(b"x" * 32)
    assert is_redacted(value) and not is_redacted(None) and not is_redacted(value[:-1])
    with pytest.raises(ValueError, match="schema"):
        avro.decode(RecoveryEntry, value)
    assert avro.read(Running(1), value) is None
    assert b"REDACTED" not in schemas.by_fingerprint()


def test_every_column_that_was_read_out_of_the_value_is_emptied() -> None:
    """A new column must be added here if it does not come from the value; otherwise it is emptied as well."""
    record = next(one for one in spread(0) if one.offset() in SECRET)
    full = Decoded(**{name: 1 if name in ("sequence", "epoch") else 1.0 if name == "event_time_s" else "x"
                      for name in Decoded.__slots__})  # type: ignore[arg-type]  # fmt: skip
    data = parquet.rewrite(parquet.encode([record], lambda _: full), (), {record.offset()})
    row = pq.read_table(pa.BufferReader(data)).to_pylist()[0]
    left = {name for name, value in row.items() if value is not None}
    assert left == {
        "offset", "timestamp", "key", "headers", "job_id", "register", "event_id", "event_time", "source", "actor",
        "sequence", "epoch", "unreadable", "value_sha256",
    }  # fmt: skip
    assert row["unreadable"] == "the value is redacted"
    assert row["value_sha256"] == hash_of(record.value())


def test_files_without_the_column_are_read_and_rewritten() -> None:
    archive, store, anchors = an_archive()
    for name in [name for name in store.stored if name.endswith(".parquet")]:  # as an older version wrote them
        table = pq.read_table(pa.BufferReader(store.stored[name])).drop_columns(["value_sha256"])
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        store.stored[name] = bytes(sink.getvalue())
    assert parquet.read(store.stored[next(archive.manifests(TOPIC, 0)).records], TOPIC, 0) == spread(0)[:10]
    old = MemoryObjects()
    again, head = Archive(old, "test", lambda: "2026-01-01T00:00:00Z"), Head(TOPIC, 0)
    for manifest in Archive(store).manifests(TOPIC, 0):
        records = parquet.read(store.stored[manifest.records], TOPIC, 0)
        segment = store_segment(old, head.next, records, read_out)
        old.stored[segment.records] = store.stored[manifest.records]
        digest = sha256(old.stored[segment.records]).hexdigest()
        head = again.seal(head, TOPIC_ID, replace(segment, records_sha256=digest))
    assert list(again.records(TOPIC, 0)) == spread(0)
    take_out(again)
    check_remaining(again, [])
    compact(again, LATER_S)
    check_remaining(again, [])
    assert anchors


def test_a_redacted_record_that_is_stored_anew_stays_redacted() -> None:
    """A snapshot, for instance, stores redacted records again."""
    archive, _, _ = an_archive()
    take_out(archive)
    found = list(archive.records(TOPIC, 0))
    assert parquet.read(parquet.encode(found, read_out), TOPIC, 0) == found
    assert leaves_of(found) == [leaf for leaf in leaves_of(spread(0)) if leaf.offset not in GONE]


def test_the_records_of_some_keys_are_those_that_are_left() -> None:
    archive, _, _ = an_archive()
    take_out(archive)
    found = list(picked(Archive(archive.store), TOPIC, 0, 0, 10**9, [b"job-1"]))
    assert found == [one for one in LEFT if (one.key() or b"").startswith(b"job-1")]
    assert any(isinstance(one, RedactedRecord) for one in found)


def test_snapshots_that_hold_what_is_gone_are_deleted_and_others_stay() -> None:
    archive, store, _ = an_archive()
    for place in archive.partitions():
        snapshots.make(archive, *place, snapshots.thin_events, read_out, snapshots.same_registers)
    assert len(store.names("snapshots/")) == 2
    kept = {record.offset() for record in snapshots.thin_events(spread(0))}
    needless = frozenset(record.offset() for record in spread(0)) - kept
    take_out(archive, [Wanted(EXPIRED, needless, "prod", 1, 1)])
    assert len(store.names("snapshots/")) == 2
    take_out(archive, [Wanted(REDACTED, frozenset([max(kept)]), reason="x")])
    assert [name.split("/")[2] for name in store.names("snapshots/")] == ["1"]


def test_a_reader_in_the_middle_of_it_reads_on() -> None:
    archive, _, _ = an_archive()
    reading = archive.records(TOPIC, 0)
    first = [next(reading) for _ in range(5)]
    take_out(Archive(archive.store, "two", lambda: AT))
    rest = [*first, *reading]
    by_offset = {record.offset(): record for record in LEFT}
    assert [one for one in rest if one.offset() >= 30] == [one for one in LEFT if one.offset() >= 30]
    assert set(by_offset) <= {one.offset() for one in rest}


def test_who_reads_the_archive_without_the_library_finds_the_same_files(tmp_path: Path) -> None:
    archive, store, _ = an_archive()
    for step in ("rewritten", "joined", "again"):
        if step == "joined":
            compact(archive, LATER_S)
        elif step == "rewritten":
            take_out(archive, WANTED[:1])
        else:
            take_out(archive)
        kept = FolderObjects(tmp_path / step)
        for name, data in store.stored.items():
            kept.create(name, data)
        objects = sealed.Objects(str(tmp_path / step))
        found = [file for file in sealed.files(objects, TOPIC) if file.partition == 0]
        assert sorted(found) == sorted(sealed.File(0, *file[2:]) for file in archive.files(TOPIC, 0))
        assert all(objects.file(file) for file in found)


def test_notes_are_read_as_they_were_written_and_whatever_else_they_hold_is_no_note() -> None:
    gone = Gone(EXPIRED, ((1, 3), (7, 7)), 4, "prod", 5, 9, "")
    said = Rewritten("records/x", "rewritten/x", "0" * 64, (gone,), BY, AT, 7)
    body = json.loads(json.dumps(body_of([said], BY, AT)))
    assert list(rewritten_of(body, 7)) == [said]
    for broken in ({}, {**body, "objects": 7}, {**body, "objects": [{}]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            list(rewritten_of(broken, 7))
    taken = replace(gone, jobs=(ExpiredJob("job-0", 1, 3, 9), ExpiredJob("job-1", 7, 3, 8)))
    noted = json.loads(json.dumps(body_of([replace(said, gone=(taken,))], BY, AT)))
    assert noted["objects"] == body["objects"]  # older programs read the same part as before
    assert list(rewritten_of(noted, 7)) == [replace(said, gone=(taken,))]
    for jobs in (3, [], {"prod": 3}, {"prod": {"x": 3}}, {"prod": {"x": [1, 2]}}, {"prod": {"x": [1, 2, "3"]}},
                 {"prod": {"x": [1, 2, 2**63]}}, {"prod": {"x": [1, 2, True]}}):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            list(rewritten_of({**body, "jobs": jobs}, 7))
    body["objects"][0]["gone"][0]["why"] = "lost"
    with pytest.raises(ValueError, match="neither"):
        list(rewritten_of(body, 7))


def test_ranges_end_where_a_record_stays_and_not_in_a_hole() -> None:
    assert ranges({2, 3, 9, 12}, [1, 2, 3, 9, 10, 12, 13]) == ((2, 9), (12, 12))
    assert ranges(set(), [1, 2]) == ()

"""Records and values are taken out of an archive, and what proves the rest of it stays."""

from __future__ import annotations

import json
import os
import random
import runpy
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consumers import sealed
from ledger import failpoints
from ledger.adapters import avro, cloudevents, schemas
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive import parquet, snapshots
from ledger.archive.archive import Archive
from ledger.archive.chains import Chain
from ledger.archive.decoding import Decoded
from ledger.archive.gone import EXPIRED, REDACTED, Gone, Rewritten, body_of, ranges, rewritten_of
from ledger.archive.joining import compact
from ledger.archive.notes import REWRITTEN
from ledger.archive.picking import picked
from ledger.archive.proving import prove
from ledger.archive.redacted import RedactedRecord
from ledger.archive.rewriting import Wanted, rewrite
from ledger.archive.segments import leaves_of, pack, store_segment
from ledger.archive.verifying import Verdict, verify
from ledger.core.chain import Head, hash_of
from ledger.core.recovery import RecoveryEntry
from ledger.core.redaction import is_redacted, stand_in
from ledger.core.registers import Running
from ledger.errors import LedgerError
from ledger.left_out import Taken
from ledger.ports import MemoryRecord, Record
from tests.archive.given import TOPIC, TOPIC_ID, Between, read_out
from tests.archive.test_joining import BEGIN_MS, DAY_MS, DAYS, LATER_S, PER_DAY, Dying, an_archive, spread

SCRIPT = Path(__file__).parents[2] / "docs" / "check_proof.py"
check = runpy.run_path(str(SCRIPT))["check"]
BY, AT = "tester@host", "2026-02-01T00:00:00Z"
GONE = frozenset(record.offset() for record in spread(0)[3:60:4])
SECRET = frozenset(record.offset() for record in spread(0)[2:80:5] if record.value() is not None) - GONE
WANTED = [
    Wanted(EXPIRED, GONE, "prod", until_ms=BEGIN_MS, below=10**6),
    Wanted(REDACTED, SECRET, reason="a password in it"),
]


def id_of(record: Record) -> str:
    return cloudevents.parse(record.headers()).id


def take_out(archive: Archive, wanted: list[Wanted] = WANTED) -> int:
    return rewrite(archive, TOPIC, 0, wanted, BY, AT)


def as_left(record: MemoryRecord) -> MemoryRecord:
    """A record as it must be read once SECRET is redacted."""
    if record.offset() not in SECRET:
        return record
    hashed, at = hash_of(record.value()), record.timestamp()[1]
    return RedactedRecord(TOPIC, 0, record.offset(), record.key(), stand_in(hashed), record._headers, at, hashed)


LEFT = [as_left(record) for record in spread(0) if record.offset() not in GONE]
VALUES = [record.value() for record in spread(0) if record.offset() in GONE | SECRET and record.value() is not None]
#: Values that only what is to go has: none of their bytes may be found anywhere afterwards.
ONLY = [value for value in VALUES if sum(value == one.value() for p in (0, 1) for one in spread(p)) == VALUES.count(value)]


def must_be_gone(store: MemoryObjects) -> None:
    """Nothing in the store holds a value that was taken out, and all else is proved by every anchor of the chain."""
    assert ONLY and SECRET and GONE
    for name, data in store.stored.items():
        if name.endswith(".parquet"):
            table = pq.read_table(pa.BufferReader(data))
            assert not set(ONLY).intersection(table.column("value").to_pylist()), name
            bodies = [body for body in table.column("body").to_pylist() if body]
            secrets = [said.body for record in spread(0) if record.value() in ONLY and (said := read_out(record)).body]
            assert not set(secrets).intersection(bodies), name


def verdict_of(archive: Archive, anchors: list[Head]) -> Verdict:
    return verify(Archive(archive.store), anchors)[0]


def must_hold(archive: Archive, anchors: list[Head], strays: bool = False) -> None:
    """strays: who was overtaken may have left some, none of which holds what is gone."""
    heads = [*anchors, archive.head(TOPIC, 0)]
    verdict = verdict_of(archive, [one for one in heads if one.partition == 0])
    assert verdict.broken == () and (strays or verdict.strays == ())
    assert (verdict.expired, verdict.redacted) == (len(GONE), len(SECRET))
    assert verdict.records == DAYS * PER_DAY
    assert verdict.proved == verdict.sealed
    assert list(Archive(archive.store).records(TOPIC, 0)) == LEFT


def test_what_is_taken_out_is_gone_and_all_else_is_proved_as_before() -> None:
    archive, store, anchors = an_archive()
    assert take_out(archive) == len(GONE) + len(SECRET)
    must_hold(archive, anchors)
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
    must_hold(archive, anchors)
    must_be_gone(store)
    assert not store.names("records/")
    assert bool(store.names("rewritten/")) == (when != "before")  # of what was joined nothing else is left
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
    must_hold(archive, anchors)


def test_rewritten_again_the_latest_note_counts() -> None:
    archive, store, anchors = an_archive()
    for part in range(3):
        for one in WANTED:
            take_out(archive, [replace(one, offsets=frozenset(sorted(one.offsets)[part::3]))])
    must_hold(archive, anchors)
    must_be_gone(store)


def test_more_than_one_note_holds_is_said_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.archive.rewriting.RANGES_MAX", 3)
    archive, _, anchors = an_archive()
    take_out(archive)
    assert len({one.sequence for one in archive.chain(TOPIC, 0).rewritten}) > 3
    must_hold(archive, anchors)


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
    """A new column must be named as one that was not, or it goes too."""
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
    for name in [name for name in store.stored if name.endswith(".parquet")]:  # as an older version has written them
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
    must_hold(again, [])
    compact(again, LATER_S)
    must_hold(again, [])
    assert anchors


def test_a_redacted_record_that_is_stored_anew_stays_redacted() -> None:
    """As in a snapshot."""
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
    for place in archive.places():
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


# -- killed, or two at once --------------------------------------------------------------------------------------------


def test_killed_anywhere_nothing_else_is_lost_and_the_next_one_goes_on() -> None:
    _, whole, anchors = an_archive()
    done = False
    for at in range(0, 60, 1 if "REPETITIONS" in os.environ else 3):
        store = Dying()
        store.stored, store.left = dict(whole.stored), at
        archive = Archive(store, "test", lambda: "2026-01-01T00:00:00Z")
        try:
            take_out(archive)
            done = True
        except KeyboardInterrupt:
            store.left = 10**9
            verdict = verdict_of(archive, [])
            assert verdict.broken == ()
            found = list(Archive(store).records(TOPIC, 0))
            assert found in (spread(0), LEFT)
        take_out(Archive(store, "test", lambda: "2026-01-01T00:00:00Z"))
        must_hold(archive, anchors)
        must_be_gone(store)
        if done:
            break
    assert at > 0, "it was never killed"
    assert done, "it was killed everywhere and never came to its end"


@pytest.mark.parametrize("name", ["rewrite.stored", "rewrite.noted", "rewrite.deleted"])
def test_each_failpoint_is_come_to_and_gone_on_from(name: str) -> None:
    archive, store, anchors = an_archive()
    failpoints.arm(f"{name}:raise@1")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive)
    finally:
        failpoints.arm("")
    verdict = verdict_of(archive, [])
    assert verdict.broken == () and verdict.strays  # the new ones, or the old ones: nobody reads them
    take_out(archive)
    must_hold(archive, anchors)
    must_be_gone(store)


def test_what_another_has_left_when_it_was_killed_is_deleted_if_it_holds_what_is_gone() -> None:
    """Its object was stored without what expired, and no note came; what it still holds is redacted then."""
    archive, store, anchors = an_archive()
    failpoints.arm("rewrite.stored:raise")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive, WANTED[:1])
    finally:
        failpoints.arm("")
    left = store_segment(store, 5, [one for one in spread(0) if one.offset() >= 5][:30], read_out)  # an archiver, likewise
    take_out(archive)
    assert left.records not in store.stored
    store.delete(left.leaves)
    must_hold(archive, anchors)
    must_be_gone(store)


def test_what_another_takes_out_between_looking_and_saying_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store, anchors = an_archive()
    load, turns = archive.chain, iter([True])

    def chain(topic: str, partition: int) -> Chain:
        found = load(topic, partition)
        if next(turns, False):  # and is killed before he deletes the old objects
            failpoints.arm("rewrite.noted:raise")
            with pytest.raises(failpoints.Failed):
                take_out(Archive(store, "another", lambda: AT), WANTED[1:])
            failpoints.arm("")
        return found

    monkeypatch.setattr(archive, "chain", chain)
    take_out(archive, WANTED[:1])
    must_hold(archive, anchors, strays=True)
    must_be_gone(store)


@pytest.mark.parametrize("where", ["compact.stored", "rewrite.stored"])
def test_who_joins_and_who_rewrites_see_each_other(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has stored what he is about to name, and then the other comes."""
    archive, store, anchors = an_archive()
    turns = iter([True])

    def hit(name: str) -> None:
        if name == where and next(turns, False):
            other = Archive(store, "another", lambda: AT)
            compact(other, LATER_S) if where == "rewrite.stored" else take_out(other)

    monkeypatch.setattr(failpoints, "hit", hit)
    compact(archive, LATER_S) if where == "compact.stored" else take_out(archive)
    take_out(archive)
    assert list(Archive(store).records(TOPIC, 0)) == LEFT
    compact(archive, LATER_S)
    must_hold(archive, anchors, strays=True)
    must_be_gone(store)


@pytest.mark.parametrize("seed", range(6))
def test_beside_who_joins_who_rewrites_and_an_archiver(seed: int) -> None:
    _, whole, _ = an_archive()
    store, drawn = Between(), random.Random(seed)
    store.stored = dict(whole.stored)
    archive, head = Archive(store, "one", lambda: AT), Archive(store).head(TOPIC, 0)
    added = 0

    def other() -> None:
        nonlocal head, added
        match drawn.randrange(10):
            case 0:
                compact(Archive(store, "two", lambda: AT), LATER_S)
            case 1:
                take_out(Archive(store, "three", lambda: AT), WANTED[1:])
            case 2:
                record = MemoryRecord(TOPIC, 0, head.next, b"job/admitted", b"x", (), BEGIN_MS + 30 * DAY_MS)
                head = Archive(store, "four", lambda: AT).head(TOPIC, 0)
                head = Archive(store, "four").seal(head, TOPIC_ID, store_segment(store, head.next, [record], read_out))
                added += 1
            case 3:
                assert verify(Archive(store))[0].broken == ()

    store.other = other
    take_out(archive)
    compact(archive, LATER_S)
    store.other = lambda: None
    take_out(archive)
    compact(archive, LATER_S)
    found = list(Archive(store).records(TOPIC, 0))
    assert found[: len(LEFT)] == LEFT and len(found) == len(LEFT) + added
    verdict = verify(Archive(store), [archive.head(TOPIC, 0)])[0]
    assert (verdict.broken, verdict.expired, verdict.redacted) == ((), len(GONE), len(SECRET))
    must_be_gone(store)


# -- what an attacker does ---------------------------------------------------------------------------------------------


def test_what_is_missing_without_a_note_is_broken() -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    head = archive.head(TOPIC, 0)
    one = archive.chain(TOPIC, 0).rewritten[1]
    records = parquet.read(store.stored[one.object], TOPIC, 0)
    whole = store.stored[one.object]
    victim = next(record for record in records if record.value() is not None and not isinstance(record, RedactedRecord))
    for gone, redacted, why in (([victim.offset()], (), "a record was removed"),
                                ((), [victim.offset()], "no note says that it was redacted")):  # fmt: skip
        store.stored[one.object] = parquet.rewrite(whole, gone, redacted)
        broken = verdict_of(archive, [head]).broken
        assert broken[0].offset == victim.offset() and why in broken[0].reason
    store.stored[one.object] = parquet.encode(
        [replace(record, _key=b"forged") if isinstance(record, RedactedRecord) else record for record in records], read_out
    )
    assert "the record was altered" in verdict_of(archive, [head]).broken[0].reason


def test_what_a_note_says_is_gone_must_not_be_there() -> None:
    archive, store, _ = an_archive()
    manifest = next(archive.manifests(TOPIC, 0))
    data = store.stored[manifest.records]
    inside = tuple(sorted(offset for offset in GONE if offset < manifest.next))
    for why in (EXPIRED, REDACTED):
        fresh = Archive(MemoryObjects(), "test", lambda: AT)
        fresh.store.stored = dict(store.stored)  # type: ignore[attr-defined]
        gone = Gone(why, ((inside[0], inside[0]),), 1, "prod", 1, 1, "")
        said = Rewritten(manifest.records, manifest.records, manifest.records_sha256, (gone,), BY, AT, -1)
        fresh.note(fresh.head(TOPIC, 0), REWRITTEN, body_of([said], BY, AT))
        broken = verify(fresh)[0].broken
        assert [(one.offset, one.reason) for one in broken] == [(inside[0], "what a note says is gone is there")]
    assert data


@pytest.mark.parametrize("seed", range(int(os.environ.get("REPETITIONS", "1"))))
def test_whatever_is_altered_in_what_was_rewritten_is_found(seed: int) -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    head, drawn = archive.head(TOPIC, 0), random.Random(seed)
    whole = dict(store.stored)
    for name in [name for name in store.stored if f"/{TOPIC}/0/" in name]:
        for way in ("flip", "drop"):
            store.stored = dict(whole)
            if way == "drop":
                del store.stored[name]
            else:
                data = bytearray(whole[name])
                data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
                store.stored[name] = bytes(data)
            verdict = verdict_of(archive, [head])
            assert verdict.broken, f"{way} {name}, seed {seed}: not found"
            assert verdict.proved <= verdict.broken[0].offset


def test_a_stub_that_was_altered_is_found() -> None:
    archive, store, _ = an_archive()
    take_out(archive)
    manifest = next(archive.manifests(TOPIC, 0))
    leaves = archive.leaves(manifest)
    at = next(i for i, leaf in enumerate(leaves) if leaf.offset in GONE)
    leaves[at] = leaves[at]._replace(hash=bytes(32))
    store.stored[manifest.leaves] = pack(leaves)
    assert verdict_of(archive, [archive.head(TOPIC, 0)]).broken
    with pytest.raises(LedgerError, match="not what was sealed"):
        Archive(store).leaves(manifest)


def test_what_is_not_as_it_was_sealed_is_not_rewritten() -> None:
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[2]
    store.stored[manifest.records] = store.stored[manifest.records][:-1] + b"!"
    with pytest.raises(LedgerError, match="not what was sealed"):
        take_out(archive)
    assert manifest.records in store.stored


def test_an_object_of_other_records_than_were_sealed_is_not_rewritten() -> None:
    """Whoever wrote the last manifest named it."""
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[-1]
    other = store.stored[next(archive.manifests(TOPIC, 1)).records]
    store.stored[manifest.records] = other
    forged = replace(manifest, records_sha256=sha256(other).hexdigest()).encode()
    store.stored[f"manifests/{TOPIC}/0/{manifest.sequence:012}.json"] = forged
    with pytest.raises(LedgerError, match="holds other records than were sealed"):
        take_out(archive, [Wanted(EXPIRED, frozenset([archive.leaves(manifest)[1].offset]), "prod", 1, 1)])
    assert manifest.records in store.stored


def test_what_does_not_come_back_as_it_was_stored_takes_the_place_of_nothing() -> None:
    class Damaging(MemoryObjects):
        def create(self, name: str, data: bytes) -> bool:
            return super().create(name, data[:-1] if name.startswith("rewritten/") else data)

    _, whole, _ = an_archive()
    store = Damaging()
    store.stored = dict(whole.stored)
    with pytest.raises(LedgerError, match="does not come back"):
        take_out(Archive(store, "test", lambda: AT))
    assert list(Archive(store).records(TOPIC, 0)) == spread(0)


def test_what_was_damaged_between_rewriting_and_clearing_keeps_what_it_was_made_of() -> None:
    archive, store, _ = an_archive()
    failpoints.arm("rewrite.noted:raise")
    try:
        with pytest.raises(failpoints.Failed):
            take_out(archive)
    finally:
        failpoints.arm("")
    one = archive.chain(TOPIC, 0).rewritten[0]
    store.stored[one.object] = b"damaged"
    with pytest.raises(LedgerError, match="is missing, or not what"):
        take_out(archive)
    assert one.records in store.stored


def test_notes_are_read_as_they_were_written_and_whatever_else_they_hold_is_no_note() -> None:
    gone = Gone(EXPIRED, ((1, 3), (7, 7)), 4, "prod", 5, 9, "")
    said = Rewritten("records/x", "rewritten/x", "0" * 64, (gone,), BY, AT, 7)
    body = json.loads(json.dumps(body_of([said], BY, AT)))
    assert list(rewritten_of(body, 7)) == [said]
    for broken in ({}, {**body, "objects": 7}, {**body, "objects": [{}]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            list(rewritten_of(broken, 7))
    taken = replace(gone, jobs=(Taken("job-0", 1, 3, 9), Taken("job-1", 7, 3, 8)))
    noted = json.loads(json.dumps(body_of([replace(said, gone=(taken,))], BY, AT)))
    assert noted["objects"] == body["objects"]  # what older programs read is what it was
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

"""Days that are over are joined. All records, proofs and anchors hold as before."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs.check_proof import check
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import NOTE, Head, head_of
from ledger.archive.format.decoding import Decoded
from ledger.archive.format.segments import leaves_of, manifest_name, pack, store_segment
from ledger.archive.proof.proving import prove
from ledger.archive.query.querying import opened
from ledger.archive.store.archive import Archive, RecordFile
from ledger.archive.store.archiving import Archiver, Chore, PartitionShape, ReaderSegments
from ledger.archive.store.chains import Joined, lines_of
from ledger.archive.store.compaction import OVER_AFTER_S, compact
from ledger.archive.store.verifying import verify
from ledger.cli import app
from ledger.errors import LedgerError, TemporaryError
from ledger.ports import Event, MemoryRecord
from ledger.roles.common.role_parts import RoleTopics
from tests.support.archives.days import BEGIN_MS, DAY_MS, DAYS, LATER_S, PER_DAY, an_archive, spread
from tests.support.archives.given import TOPIC, TOPIC_ID, Between, Dying, id_of, read_out
from tests.support.archives.mutations import spoiled
from tests.support.repetitions import DEEP, one_fast, seeds

pytestmark = pytest.mark.slow


def require_lease(archive: Archive, anchors: list[Head]) -> None:
    """Checks that all records are there and that every earlier anchor proves them."""
    fresh = Archive(archive.store)
    for partition in (0, 1):
        assert list(fresh.records(TOPIC, partition)) == spread(partition)
        own = [anchor for anchor in anchors if anchor.partition == partition]
        verdict = verify(fresh, own)[partition]
        assert verdict.broken == ()
        assert verdict.records == DAYS * PER_DAY
        assert verdict.proved == verdict.anchored == own[-1].next
        assert verify(fresh, own[:3])[partition].proved == own[2].next


def test_a_day_is_one_object_and_all_that_was_known_of_it_holds() -> None:
    archive, store, anchors = an_archive()
    before = len(store.stored)
    done = compact(archive, LATER_S)
    assert [(one.partition, one.day) for one in done] == [(p, f"2023-11-{15 + day}") for p in (0, 1) for day in range(DAYS)]
    assert {(one.manifests, one.records) for one in done} == {(4, PER_DAY)}
    assert sum(one.removed for one in done) == before
    assert len([name for name in store.stored if name.endswith(".parquet")]) == 2 * DAYS
    assert not store.names("records/") and not store.names("leaves/")
    require_lease(archive, anchors)
    for verdict in verify(archive, anchors):
        assert verdict.orphans == ()
    assert compact(archive, LATER_S) == []


def test_a_part_of_it_is_read_as_before() -> None:
    archive, _, _ = an_archive()
    compact(archive, LATER_S)
    wanted = [one for one in spread(1) if 33 <= one.offset() < 95]
    assert list(archive.records(TOPIC, 1, 33, 95)) == wanted


def test_the_files_that_a_query_reads_are_fewer_and_hold_the_same() -> None:
    archive, store, _ = an_archive()
    place = archive.partitions()[0]

    def offsets(files: list[RecordFile]) -> list[int]:
        return [record.offset() for file in files for record in parquet.read(archive.file(file), *place)]

    before = archive.files(*place)
    whole = offsets(before)
    assert whole == [record.offset() for record in archive.records(*place)]
    compact(archive, LATER_S)
    after = archive.files(*place)
    assert len(after) < len(before) and offsets(after) == whole
    with pytest.raises(TemporaryError, match="was joined with others meanwhile"):
        archive.file(before[0])
    store.stored[after[0].name] += b"x"
    with pytest.raises(LedgerError, match="is not what was sealed"):
        archive.file(after[0])


def test_proofs_are_found_and_hold_against_anchors_taken_before_and_after() -> None:
    archive, _, anchors = an_archive()
    compact(archive, LATER_S)
    head = archive.head(TOPIC, 1)
    for record in spread(1)[::17]:
        proof = json.loads(json.dumps(prove(archive, id_of(record), id_of)))
        assert check(proof, head.sha256)
        for anchor in anchors:
            assert check(proof, anchor.sha256) == (anchor.partition == 1 and anchor.next > record.offset())


def test_a_day_that_is_not_over_waits() -> None:
    archive, store, anchors = an_archive()
    before = dict(store.stored)
    assert compact(archive, BEGIN_MS / 1000 + OVER_AFTER_S) == []
    assert store.stored == before
    second_s = BEGIN_MS / 1000 + 2 * DAY_MS / 1000
    assert {one.day for one in compact(archive, second_s + OVER_AFTER_S - 1)} == {"2023-11-15"}
    assert {one.day for one in compact(archive, second_s + OVER_AFTER_S)} == {"2023-11-16"}
    require_lease(archive, anchors)
    assert {one.day for one in compact(archive, LATER_S)} == {"2023-11-17", "2023-11-18"}
    require_lease(archive, anchors)


def test_what_comes_later_is_sealed_behind_it_and_joined_in_its_time() -> None:
    archive, _, anchors = an_archive()
    compact(archive, LATER_S)
    head = archive.head(TOPIC, 0)
    for day in (11, 12):
        for number in range(3):
            record = MemoryRecord(TOPIC, 0, head.next, b"job/admitted", b"x", (), BEGIN_MS + day * DAY_MS + number)
            head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, [record], read_out))
    done = compact(archive, BEGIN_MS / 1000 + 20 * DAY_MS / 1000)
    assert [(one.day, one.records) for one in done] == [("2023-11-26", 3), ("2023-11-27", 3)]
    assert [one.offset() for one in archive.records(TOPIC, 0)][-6:] == list(range(head.next - 6, head.next))
    assert verify(archive, [*anchors, head])[0].broken == ()
    assert compact(archive, BEGIN_MS / 1000 + 30 * DAY_MS / 1000) == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_killed_anywhere_nothing_is_lost_and_the_next_one_goes_on() -> None:
    _, whole, anchors = an_archive()
    wanted: dict[str, bytes] = {}
    for at in range(0, 200, 1 if DEEP else 8):
        store = Dying()
        store.stored, store.left = dict(whole.stored), at
        archive = Archive(store, "test", lambda: "2026-01-01T00:00:00Z")
        try:
            compact(archive, LATER_S)
            wanted = dict(store.stored)
            break
        except KeyboardInterrupt:
            store.left = 10**9
        require_lease(archive, anchors)
        compact(archive, LATER_S)
        require_lease(archive, anchors)
        assert not store.names("records/") and not store.names("leaves/")
        assert [verdict.orphans for verdict in verify(archive, anchors)] == [(), ()], at
    assert at > 0, "the join was never killed"
    assert wanted, "the join was killed at every point and never completed"


class BetweenReads(Between):
    """Runs the other writer before some reads too."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn = random.Random(seed)

    def read(self, name: str) -> bytes | None:
        if self.drawn.random() < 0.02:
            self.before_change()
        return super().read(name)


@pytest.mark.parametrize("seed", one_fast(range(6)))
def test_two_at_once_and_an_archiver_beside_them(seed: int) -> None:
    """In the middle of the join, another process joins everything, an archiver seals and a reader reads."""
    _, whole, anchors = an_archive()
    store = BetweenReads(seed)
    store.stored = dict(whole.stored)
    archive, drawn = Archive(store, "one"), random.Random(seed)
    head = archive.head(TOPIC, 0)

    def other() -> None:
        nonlocal head
        match drawn.randrange(12):
            case 0:
                compact(Archive(store, "two"), LATER_S)
            case 1:
                record = MemoryRecord(TOPIC, 0, head.next, b"job/admitted", b"x", (), BEGIN_MS + 30 * DAY_MS)
                head = archive.seal(head, TOPIC_ID, store_segment(store, head.next, [record], read_out))
            case 2:
                assert list(Archive(store).records(TOPIC, 1)) == spread(1)
            case 3:
                assert verify(Archive(store), anchors)[1].broken == ()

    store.other = other
    compact(archive, LATER_S)
    store.other = lambda: None
    compact(archive, LATER_S)
    assert not [name for name in store.names("records/") if "/1/" in name]
    found = list(Archive(store).records(TOPIC, 0))
    assert found[: DAYS * PER_DAY] == spread(0)
    assert found[-1].offset() == head.next - 1 or len(found) == DAYS * PER_DAY
    verdicts = verify(archive, anchors)
    assert [verdict.broken for verdict in verdicts] == [(), ()]


def test_a_reader_in_the_middle_of_it_reads_on() -> None:
    archive, _, _ = an_archive()
    reading = archive.records(TOPIC, 0)
    first = [next(reading) for _ in range(15)]
    compact(Archive(archive.store, "two"), LATER_S)
    assert [*first, *reading] == spread(0)


def test_leaves_are_found_though_they_were_joined_since_the_chain_was_read() -> None:
    archive, _, _ = an_archive()
    manifests = list(archive.manifests(TOPIC, 0))
    compact(Archive(archive.store, "two"), LATER_S)
    assert [leaf for one in manifests for leaf in archive.leaves(one)] == leaves_of(spread(0))


def test_what_is_not_as_it_was_sealed_is_not_joined() -> None:
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[6]
    store.stored[manifest.records] = store.stored[manifest.records][:-1] + b"!"
    with pytest.raises(LedgerError, match="is not what was sealed"):
        compact(archive, LATER_S)
    assert manifest.records in store.stored
    assert verify(archive)[0].broken[0].sequence == 6


def test_what_a_manifest_seals_and_its_object_does_not_hold_is_not_joined() -> None:
    """The forger of the manifest named an object with other records."""
    archive, store, _ = an_archive()
    manifest = list(archive.manifests(TOPIC, 0))[-1]
    other = store.stored[next(archive.manifests(TOPIC, 1)).records]
    store.stored[manifest.records] = other
    name = f"manifests/{TOPIC}/0/{manifest.sequence:012}.json"
    store.stored[name] = replace(manifest, records_sha256=sha256(other).hexdigest()).encode()
    with pytest.raises(LedgerError, match="does not hold the records that were sealed"):
        compact(archive, LATER_S)
    assert manifest.records in store.stored


def test_what_was_damaged_between_joining_and_clearing_keeps_what_it_was_made_of() -> None:
    _, whole, _ = an_archive()
    store = Dying()
    # enough for every object and note of a partition, and no delete
    store.stored, store.left = dict(whole.stored), 3 * DAYS + 2 * DAYS
    with pytest.raises(KeyboardInterrupt):
        compact(Archive(store), LATER_S)
    store.left = 10**9
    joined = next(name for name in store.stored if name.startswith("joined/") and name.endswith(".parquet"))
    store.stored[joined] = b"damaged"
    with pytest.raises(LedgerError, match="can't be read"):
        compact(Archive(store), LATER_S)
    assert len(store.names("records/")) == len([name for name in whole.stored if name.startswith("records/")])


def damage_kinds(store: MemoryObjects) -> list[str]:
    return [name for name in store.stored if name.startswith(("joined/", "notes/", "manifests/"))]


@pytest.mark.parametrize("seed", seeds(1))
def test_whatever_is_altered_in_what_was_joined_is_found(seed: int) -> None:
    archive, store, _ = an_archive()
    compact(archive, LATER_S)
    heads, drawn = [archive.head(TOPIC, p) for p in (0, 1)], random.Random(seed)
    whole = dict(store.stored)
    for name in damage_kinds(store):
        for what, store.stored in spoiled(drawn, whole, name):
            verdict = verify(Archive(store), heads)[int(name.split("/")[2])]
            assert verdict.broken, f"{what}, seed {seed}: not found"
            assert verdict.proved <= verdict.broken[0].offset


@pytest.mark.parametrize("joined", [True, False])
def test_a_listing_that_no_note_of_the_chain_names_takes_the_place_of_nothing(joined: bool) -> None:
    """The records in a forged listing may be the right ones, but the columns that queries read could hold anything."""
    archive, store, heads = an_archive()
    if joined:
        compact(archive, LATER_S)
        heads = [archive.head(TOPIC, partition) for partition in (0, 1)]
    before, files = archive.chain(TOPIC, 0), archive.files(TOPIC, 0)
    run = list(archive.manifests(TOPIC, 0))[: 2 * PER_DAY // 10]
    stem, found = f"joined/{TOPIC}/0/forged", spread(0)[: 2 * PER_DAY]
    data = {
        ".jsonl.gz": lines_of(run), ".leaves": pack(leaves_of(found)),
        ".parquet": parquet.encode(found, lambda _: Decoded(body="forged")),
    }  # fmt: skip
    named = [text for suffix, one in data.items() for text in (stem + suffix, sha256(one).hexdigest())]
    lines, leaves, rows = named[:2], named[2:4], named[4:]
    said = Joined(0, run[-1].sequence, "2030-01-01", run[-1].sha256, *lines, *rows, *leaves)
    name, digest = notes.store_note(store, TOPIC, 0, notes.JOINED, asdict(said))
    note = replace(
        run[-1], format=NOTE, sequence=10**6, count=0, missing=0, first=run[-1].next, root=merkle.root([]).hex(),
        records=name, records_sha256=digest, leaves="", leaves_sha256="",
    )  # fmt: skip
    for suffix, one in data.items():
        store.create(stem + suffix, one)
    store.create(f"joined/{TOPIC}/0/note.jsonl.gz", lines_of([note]))

    fresh = Archive(store)
    assert fresh.chain(TOPIC, 0) == before and fresh.files(TOPIC, 0) == files
    verdict = verify(fresh, heads)[0]
    assert verdict.broken == () and len(verdict.orphans) == 5


def test_of_a_chain_that_lost_its_last_note_only_what_that_named_is_missing() -> None:
    """Only the last joined day is missing, although the note of each day is part of the next day's joined manifests."""
    archive, head = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z"), Head(TOPIC, 0)
    for day in range(DAYS):
        found = spread(0)[day * PER_DAY : (day + 1) * PER_DAY]
        for half in (found[:20], found[20:]):
            head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, half, read_out))
        compact(archive, (BEGIN_MS + (day + 1) * DAY_MS) / 1000 + 2 * OVER_AFTER_S)
        head = archive.head(TOPIC, 0)
    chain = archive.chain(TOPIC, 0)
    assert len(chain.joined) == DAYS and len(archive.store.names("manifests/")) == 1
    archive.store.delete(manifest_name(TOPIC, 0, head.sequence))
    left, last = Archive(archive.store).chain(TOPIC, 0), chain.joined[-1]
    assert left.joined == chain.joined[:-1]
    assert list(left.manifests) == list(chain.manifests[: last.first_sequence])


def test_a_record_that_was_altered_in_a_joined_object_is_named() -> None:
    from ledger.archive.format import parquet

    archive, store, _ = an_archive()
    compact(archive, LATER_S)
    head = archive.head(TOPIC, 0)
    name = sorted(name for name in store.stored if name.startswith(f"joined/{TOPIC}/0/") and name.endswith(".parquet"))[1]
    found = parquet.read(store.stored[name], TOPIC, 0)
    old = found[13]
    found[13] = replace(old, _value=b"forged")
    store.stored[name] = parquet.encode(found, read_out)
    broken = verify(archive, [head])[0].broken
    assert [(one.offset, one.reason) for one in broken] == [(old.offset(), "the record was altered")]
    del found[20]
    store.stored[name] = parquet.encode(found, read_out)
    assert verify(archive, [head])[0].broken[0].offset == old.offset()
    with pytest.raises(LedgerError, match="is not what was sealed"):
        list(Archive(store).records(TOPIC, 0))


def test_heads_of_the_chain_before_are_still_those_of_its_manifests() -> None:
    archive, _, anchors = an_archive()
    compact(archive, LATER_S)
    manifests = list(archive.manifests(TOPIC, 0))
    assert [head_of(one) for one in manifests[: DAYS * 4]] == [one for one in anchors if one.partition == 0]
    assert all(one.is_note for one in manifests[DAYS * 4 :])


def test_the_verb_joins_what_lies_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, store, anchors = an_archive()
    kept = FolderObjects(tmp_path / "archive")
    for name, data in store.stored.items():
        kept.create(name, data)
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    for wanted in (2 * DAYS, 0):
        told = CliRunner().invoke(app, ["archive", "compact", "--dir", str(tmp_path), "-o", "json"])
        assert told.exit_code == 0, told.output
        assert len(json.loads(told.stdout)) == wanted
    require_lease(Archive(kept), anchors)
    assert list(archive.records(TOPIC, 0)) == list(Archive(kept).records(TOPIC, 0))


def test_an_archiver_that_is_told_to_does_it_beside_its_work() -> None:
    """The archiver continues to seal behind the notes of a join, and it archives even if the join fails."""
    archive, store, anchors = an_archive()
    clock, log = ManualClock(), MemoryLog({TOPIC: 2}, ManualClock())
    log.append([Event(TOPIC, p, b"~noop", None) for p in (0, 1) for _ in range(anchors[-1].next + 300)])
    shapes = {place: PartitionShape(TOPIC_ID, 0, end) for place, end in log.reader([TOPIC]).high_watermarks().items()}
    stream, calls = ReaderSegments(log, archive, read_out, 50), []

    def beside() -> None:
        calls.append(clock.monotonic())
        if len(calls) == 1:
            raise LedgerError("no day is like another")
        compact(archive, LATER_S)

    def stopped() -> bool:
        clock.advance(1.0)
        return clock.monotonic() > 400.0

    Archiver(archive, stream, lambda: shapes, clock, [Chore("compact", 7.0, beside)]).run(stopped)
    assert len(calls) > 3
    assert len(store.names("joined/")) == 2 * DAYS * 3
    for p in (0, 1):
        found = list(Archive(store).records(TOPIC, p))
        assert found[: DAYS * PER_DAY] == spread(p)
        assert found[-1].offset() == shapes[TOPIC, p].end - 1
        assert verify(archive, anchors)[p].broken == ()


def test_queries_see_what_was_joined_once() -> None:
    archive, _, _ = an_archive()
    compact(archive, BEGIN_MS / 1000 + 3 * DAY_MS / 1000)  # two days are joined, two are not
    with opened(archive, RoleTopics(TOPIC, "ledger.recovery", "ledger.rejects"), lambda _: 0.0) as queries:
        answer = queries.ask('SELECT partition, count(*) a, count(DISTINCT "offset") b FROM events GROUP BY 1 ORDER BY 1')
        found = [tuple(row.values()) for row in answer.rows]
    assert found == [(p, DAYS * PER_DAY, DAYS * PER_DAY) for p in (0, 1)]


class Forgetful(MemoryObjects):
    """A store that confirms a joined object, but has lost its last byte."""

    def create(self, name: str, data: bytes) -> bool:
        return super().create(name, data[:-1] if name.startswith("joined/") and name.endswith(".parquet") else data)


def test_a_store_that_does_not_keep_what_it_takes_is_not_believed() -> None:
    archive, _, _ = an_archive()
    store = Forgetful()
    store.stored.update(archive.store.stored)
    heads = [archive.head(TOPIC, partition) for partition in (0, 1)]
    with pytest.raises(LedgerError, match="does not return"):
        compact(Archive(store), LATER_S)
    assert [Archive(store).head(TOPIC, partition) for partition in (0, 1)] == heads, "no note names the joined objects"

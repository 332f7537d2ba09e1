"""Proofs in a bundle: they show that its records were archived by the ledger, or name the first record that was not."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from docs.check_proof import check as check_alone
from ledger.adapters import cloudevents
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import parquet
from ledger.archive.format.chain import Head
from ledger.archive.format.segments import Leaf, leaves_of, store_segment
from ledger.archive.proof import bundle_proofs
from ledger.archive.proof.bundle_proofs import Carried, ProofCheck, carry, check, parse
from ledger.archive.proof.proving import prove
from ledger.archive.removal.pins import Pin, pin
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.errors import LedgerError, NotFound
from ledger.ports import MemoryRecord
from tests.support.archives.given import TOPIC, TOPIC_ID, an_archive, read_out, records, sealed

PLACE = TOPIC, 0


def some(found: list[MemoryRecord]) -> list[MemoryRecord]:
    """The records of two jobs, as in a bundle of named jobs."""
    return [record for record in found if (record.key() or b"").partition(b"/")[0] in (b"job-1", b"job-2")]


def carried_of(archive: Archive, of: list[MemoryRecord]) -> tuple[Carried, list[Leaf]]:
    leaves = leaves_of(of)
    made = carry(archive, PLACE, leaves)
    assert made is not None
    assert parse(made.encode()) == made and parse(made.encode()).encode() == made.encode()
    return made, leaves


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_an_anchor_of_the_ledger_proves_what_it_carries(joined: bool, whole: bool) -> None:
    archive, _, (head, _) = an_archive()
    anchors = [Head(*PLACE, m.sequence, m.sha256, m.next, m.topic_id) for m in archive.manifests(*PLACE)]
    if joined:
        assert compact(archive, 1_800_000_000.0)
    every = list(archive.records(*PLACE))
    of = every if whole else some(every)
    made, leaves = carried_of(archive, of)
    assert check(made, PLACE, leaves, [head]) == ProofCheck(head.next, head.next, head.next, (), 0, 0)
    middle = anchors[5]
    assert check(made, PLACE, leaves, [middle]) == ProofCheck(head.next, middle.next, middle.next, (), 0, 0)
    assert check(made, PLACE, leaves, []).proved == 0
    assert check(made, PLACE, leaves, [replaced(head, partition=1)]).proved == 0
    hashes = [one for tree in made.trees for one in tree.others]
    assert (not hashes) == whole, "a bundle of all records needs no other hashes"


def replaced(head: Head, **fields: object) -> Head:
    return head._replace(**fields)  # type: ignore[arg-type]


def test_what_came_later_and_what_was_redacted_is_told() -> None:
    archive, _, (head, _) = an_archive()
    every = list(archive.records(*PLACE))
    redacted = replace(every[40], _value=None if every[40].value() else b"x")
    later = records(3, begin=head.next)
    made, leaves = carried_of(archive, [*every[:40], redacted, *every[41:], *later])
    assert check(made, PLACE, leaves, [head]) == ProofCheck(head.next, head.next, every[40].offset(), (), 1, 3)
    assert carry(archive, PLACE, leaves_of(later)) is None and carry(archive, ("other", 0), leaves) is None


def altered(of: list[MemoryRecord], at: int) -> list[MemoryRecord]:
    return [*of[:at], replace(of[at], _headers=(("x", b"y"),)), *of[at + 1 :]]


def test_the_first_record_that_is_not_the_ledgers_is_named() -> None:
    archive, _, (head, _) = an_archive()
    of = some(list(archive.records(*PLACE)))
    made, _ = carried_of(archive, of)
    offset = of[3].offset()
    inserted = replace(of[3], _offset=of[3].offset() + 1)
    assert inserted.offset() not in [record.offset() for record in of]
    cases = {
        "is not the one that": (altered(of, 3), offset),
        "removed from the bundle": ([*of[:3], *of[4:]], offset),
        "nothing shows": ([*of[:4], inserted, *of[4:]], inserted.offset()),
    }
    for words, (there, at) in cases.items():
        found = check(made, PLACE, leaves_of(there), [head])
        assert [(one.offset, words in one.reason) for one in found.broken] == [(at, True)]
        assert found.proved == at
    before = replace(of[0], _offset=0)
    if before.offset() != of[0].offset():
        found = check(made, PLACE, leaves_of([before, *of]), [head])
        assert found.broken[0].offset == 0 and found.proved == 0


def test_an_alteration_that_its_proofs_were_made_to_fit_is_found_by_the_root() -> None:
    archive, _, (head, _) = an_archive()
    of = some(list(archive.records(*PLACE)))
    made, _ = carried_of(archive, of)
    there = leaves_of(altered(of, 3))
    forged = [replace(t, shown={i: next(o for o in there if o.offset == leaf.offset) for i, leaf in t.shown.items()})
              for t in made.trees]  # fmt: skip
    found = check(replace(made, trees=forged), PLACE, there, [head])
    (broken,) = found.broken
    assert "does not lead to the root" in broken.reason and found.proved == broken.offset <= of[3].offset()


def test_a_chain_that_was_made_to_fit_is_found_by_the_anchor() -> None:
    """The file is consistent in itself. Only an anchor that somebody kept reveals the forgery."""
    archive, _, (head, _) = an_archive()
    every = list(archive.records(*PLACE))
    forged_archive = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")
    sealed(forged_archive, altered(every, 50))
    forged = carry(forged_archive, PLACE, there := leaves_of(altered(every, 50)))
    assert forged is not None
    assert check(forged, PLACE, there, [forged_archive.head(*PLACE)]).broken == ()
    found = check(forged, PLACE, there, [head])
    assert found.proved == 0 and found.broken[0].sequence == head.sequence
    early = next(archive.manifests(*PLACE))
    kept = Head(*PLACE, 0, early.sha256, early.next, early.topic_id)
    assert check(forged, PLACE, there, [kept]).proved == early.next, "the chain below is unchanged"
    # One manifest in the middle of the true chain is changed. The proof then holds only for the manifests above it.
    made, leaves = carried_of(archive, every)
    bad = [replace(m, written_by="somebody") if m.sequence == 4 else m for m in made.manifests]
    found = check(replace(made, manifests=bad), PLACE, leaves, [head])
    assert found.broken[0].sequence == 4 and found.proved == 0
    moved = replace(made, manifests=made.manifests[1:])
    assert check(moved, PLACE, leaves, [head]).broken
    elsewhere = check(made, (TOPIC, 1), leaves, [])
    assert {one.reason for one in elsewhere.broken} == {"it is not the manifest that belongs here"}


def test_a_proof_from_a_bundle_holds_against_the_ledgers_anchors_by_itself() -> None:
    archive, _, (head, _) = an_archive()
    # a note between the records and the head
    pin(archive, Pin("p", ("job-2",), None, None, "r", "b", "a"), TOPIC, lambda _: 0)
    of, later = some(list(archive.records(*PLACE))), records(2, begin=head.next)
    bundle = Archive(MemoryObjects())
    bundle.seal(bundle.head(*PLACE), TOPIC_ID, store_segment(bundle.store, 0, [*of, *later], read_out))
    made, _ = carried_of(archive, of)
    bundle.store.create(bundle_proofs.name_of(*PLACE), made.encode())
    for record in of:
        event_id = cloudevents.parse(record.headers()).id
        proof = bundle_proofs.prove(bundle, event_id, lambda one: cloudevents.parse(one.headers()).id)
        assert proof == prove(archive, event_id, lambda one: cloudevents.parse(one.headers()).id)
        plain = json.loads(json.dumps(proof))
        assert check_alone(plain, head.sha256) and check_alone(plain, archive.head(*PLACE).sha256)
        assert not check_alone(plain, bundle.head(*PLACE).sha256)
    with pytest.raises(LedgerError, match="was not archived yet"):
        bundle_proofs.prove(
            bundle, cloudevents.parse(later[0].headers()).id, lambda one: cloudevents.parse(one.headers()).id
        )
    with pytest.raises(NotFound):
        bundle_proofs.prove(bundle, "nobody", lambda one: cloudevents.parse(one.headers()).id)


def test_a_record_that_was_altered_is_proved_by_nobody() -> None:
    archive, _, _ = an_archive()
    of = some(list(archive.records(*PLACE)))
    bundle = Archive(MemoryObjects())
    bad = [replace(one, _timestamp_ms=one.timestamp()[1] + 1) for one in of]
    bundle.seal(bundle.head(*PLACE), TOPIC_ID, store_segment(bundle.store, 0, bad, read_out))
    bundle.store.create(bundle_proofs.name_of(*PLACE), carried_of(archive, of)[0].encode())
    with pytest.raises(LedgerError, match="is not the one"):
        bundle_proofs.prove(bundle, cloudevents.parse(of[0].headers()).id, lambda one: cloudevents.parse(one.headers()).id)


def test_an_archive_that_is_not_as_it_was_sealed_gives_no_proofs() -> None:
    archive, store, _ = an_archive()
    every = list(archive.records(*PLACE))
    manifest = list(archive.manifests(*PLACE))[2]
    store.stored[manifest.leaves] = store.stored[manifest.leaves][:-1] + b"\0"
    assert carry(archive, PLACE, leaves_of(every)) is not None, "the leaves can be computed from the records"
    bad = parquet.encode(altered(list(archive.segment(manifest)), 0), read_out)
    store.stored[manifest.records] = bad
    with pytest.raises(LedgerError):
        carry(archive, PLACE, leaves_of(every))


def test_an_archive_whose_manifest_swears_something_else_gives_no_proofs() -> None:
    archive, store, _ = an_archive()
    every = list(archive.records(*PLACE))
    forged = replace(list(archive.manifests(*PLACE))[2], root="0" * 64)
    store.stored[f"manifests/{TOPIC}/0/000000000002.json"] = forged.encode()
    with pytest.raises(LedgerError, match="is not what was sealed"):
        carry(archive, PLACE, leaves_of(every))


def test_what_is_cut_off_is_no_proof() -> None:
    archive, _, _ = an_archive(20)
    data = carried_of(archive, list(archive.records(*PLACE)))[0].encode()
    for end in (len(data) - 1, len(data) - 8, len(data) - 9, len(data) // 2):
        with pytest.raises(ValueError):
            parse(data[:end])


@pytest.mark.parametrize("spoil", [
    lambda body: body | {"format": 2}, lambda body: {}, lambda body: body | {"manifests": []},
    lambda body: body | {"manifests": [1]}, lambda body: body | {"manifests": ["{}"]}, lambda body: body | {"trees": 7},
    lambda body: body | {"trees": [{"sequence": 0}]}, lambda body: body | {"unproved": ["x"]}, lambda body: [body],
])  # fmt: skip
def test_what_can_not_be_read_is_no_proof(spoil: object) -> None:
    archive, _, _ = an_archive(20)
    body = json.loads(gzip.decompress(carried_of(archive, list(archive.records(*PLACE)))[0].encode()))
    data = gzip.compress(json.dumps(spoil(body)).encode())  # type: ignore[operator]
    for bad in (data, data[:-9], b"", b"no gzip"):
        with pytest.raises(ValueError):
            parse(bad)

"""Data that an anchor covers can't be altered unnoticed."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from hashlib import sha256

import pytest

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import NOTE, Head, head_of
from ledger.archive.format.removals import EXPIRED, Gone, Rewritten, body_of
from ledger.archive.format.segments import manifest_name, store_segment
from ledger.archive.store.archive import Archive
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError
from tests.support.archives.given import TOPIC, an_archive, read_out, records, sealed
from tests.support.archives.mutations import MUTATIONS, Mutation, cut_off_the_end
from tests.support.repetitions import seeds

ROUNDS = seeds(10)  # rounds of each mutation


def test_what_nobody_touched_is_proved_up_to_the_anchor() -> None:
    archive, _, heads = an_archive()
    for verdict, head in zip(verify(archive, heads), heads, strict=True):
        assert (verdict.broken, verdict.orphans, verdict.records, verdict.manifests) == ((), (), 100, 10)
        assert verdict.proved == verdict.anchored == verdict.sealed == head.next


def test_without_an_anchor_nothing_is_proved() -> None:
    archive, _, _ = an_archive()
    assert [(verdict.proved, verdict.broken) for verdict in verify(archive)] == [(0, ()), (0, ())]


def test_what_was_sealed_after_the_anchor_is_consistent_but_not_proved() -> None:
    archive, _, heads = an_archive()
    later = sealed(archive, records(20, begin=heads[0].next))[-1]
    first = verify(archive, heads)[0]
    assert (first.proved, first.sealed, first.broken) == (heads[0].next, later.next, ())


@pytest.mark.parametrize("data", [b"cut", b"", b"0" * 40])
def test_leaves_are_looked_into_also_where_their_digest_fits(data: bytes) -> None:
    archive, store, heads = an_archive()
    later = sealed(archive, records(5, begin=heads[0].next))[-1]
    last = list(archive.manifests(TOPIC, 0))[-1]
    bad = replace(last, leaves="leaves/x", leaves_sha256=sha256(data).hexdigest())
    store.stored[bad.leaves], store.stored[manifest_name(TOPIC, 0, bad.sequence)] = data, bad.encode()
    (found,) = verify(Archive(store), heads)[0].broken
    assert (found.sequence, found.offset, found.reason[:8]) == (later.sequence, heads[0].next, "leaves/x")


def test_leaves_that_are_cut_are_refused() -> None:
    archive, store, _ = an_archive()
    one = next(archive.manifests(TOPIC, 0))
    store.stored["leaves/cut"] = b"cut"
    bad = replace(one, leaves="leaves/cut", leaves_sha256=sha256(b"cut").hexdigest())
    with pytest.raises(LedgerError, match="leaves/cut can't be read"):
        Archive(store).leaves(bad)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_mutation_is_found_and_named(mutation: Mutation) -> None:
    """REPETITIONS=100 makes 1400 rounds. The message names the seed of the round that fails."""
    archive, store, heads = an_archive()
    whole = dict(store.stored)
    for seed in ROUNDS:
        store.stored = dict(whole)
        struck = mutation(random.Random(seed), archive, store.stored)
        if struck is None:
            continue
        partition, offset = struck
        verdict = next(one for one in verify(archive, heads) if one.partition == partition)
        assert verdict.broken, f"{mutation.__name__}, seed {seed}: not found"
        found = verdict.broken[0]
        between = [one for one in records(100, partition, partition) if offset <= one.offset() < found.offset]
        assert found.offset >= offset, f"{mutation.__name__}, seed {seed}: {found}"
        assert not between, f"{mutation.__name__}, seed {seed}: {found}"
        assert verdict.proved <= found.offset, f"{mutation.__name__}, seed {seed}: proved up to {verdict.proved}"


def test_a_forged_chain_is_consistent_and_only_the_anchor_tells() -> None:
    _, _, heads = an_archive(partitions=1)
    forged = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")
    other = records(100, 0, 0)
    del other[50]
    sealed(forged, other)
    assert verify(forged)[0].broken == ()
    assert verify(forged, heads)[0].broken


def test_below_a_manifest_that_was_altered_an_older_anchor_proves_on() -> None:
    """The forger may have rewritten the whole chain below. Only the older anchor proves that it is unchanged."""
    archive, store, _ = an_archive(partitions=1)
    heads = [head_of(manifest) for manifest in archive.manifests(TOPIC, 0)]
    name = f"manifests/{TOPIC}/0/{7:012}.json"
    store.stored[name] = store.stored[name].replace(b'"test"', b'"Test"')
    assert verify(archive, [heads[9]])[0].proved == 0
    assert verify(archive, [heads[9], heads[4]])[0].proved == heads[4].next
    assert verify(archive, [heads[9], heads[4]])[0].broken[0].offset == heads[6].next


def test_an_end_that_was_cut_off_is_told_by_the_anchor_alone() -> None:
    archive, store, heads = an_archive()
    cut_off_the_end(random.Random(1), archive, store.stored)
    assert [verdict.broken for verdict in verify(archive)] == [(), ()]
    assert any(verdict.broken for verdict in verify(archive, heads))


def test_a_whole_partition_that_is_gone_is_missed_by_its_anchor() -> None:
    archive, store, heads = an_archive()
    for name in [name for name in store.stored if f"/{TOPIC}/1/" in name]:
        del store.stored[name]
    assert verify(archive, heads)[1].broken


def test_what_a_killed_archiver_has_left_is_a_stray_and_no_harm() -> None:
    archive, _, heads = an_archive(partitions=1)
    left = store_segment(archive.store, heads[0].next, records(5, begin=heads[0].next), read_out)
    verdict = verify(archive, heads)[0]
    assert verdict.broken == ()
    assert verdict.orphans == (left.records, left.leaves)


def test_an_anchor_of_another_chain_is_told() -> None:
    archive, _, heads = an_archive(partitions=1)
    wrong = heads[0]._replace(sha256="0" * 64)
    assert "an anchor" in verify(archive, [wrong])[0].broken[-1].reason
    none = verify(archive, [Head(TOPIC, 0)])[0]
    assert (none.broken, none.proved) == ((), 0)


def test_a_note_that_is_no_link_of_the_chain_takes_nothing_out() -> None:
    """A note outside the chain has no effect, even if it is stored among joined manifests and claims to precede all
    anchors."""
    archive, store, heads = an_archive()
    first = next(iter(archive.manifests(TOPIC, 0)))
    victim = archive.segment(first)[4].offset()
    without = parquet.rewrite(store.stored[first.records], {victim}, ())
    store.create("rewritten/forged.parquet", without)
    gone = Gone(EXPIRED, ((victim, victim),), 1, "prod")
    said = Rewritten(first.records, "rewritten/forged.parquet", sha256(without).hexdigest(), (gone,), "", "", -1)
    name, digest = notes.store_note(store, TOPIC, 0, notes.REWRITTEN, body_of([said], "nobody", ""))
    forged = replace(
        first, format=NOTE, count=0, missing=0, next=first.first, root=merkle.root([]).hex(), records=name,
        records_sha256=digest, leaves="", leaves_sha256="",
    )  # fmt: skip
    listing = f"joined/{TOPIC}/0/forged.jsonl.gz"
    store.create(listing, gzip.compress(forged.encode() + b"\n"))

    verdict = verify(Archive(store), heads)[0]
    assert (verdict.broken, verdict.expired, verdict.gone) == ((), 0, ())
    assert set(verdict.orphans) == {name, listing}
    assert list(Archive(store).records(TOPIC, 0)) == records(100, 0, 0)

    del store.stored[first.records]
    broken = verify(Archive(store), heads)[0].broken
    assert [(one.sequence, one.offset) for one in broken] == [(0, first.first)]


@pytest.mark.parametrize("data", [b"[" * 100_000, b"1" * 5000, b"\xff", b"[]", b'{"kind": "rewritten", "objects": 1}'])
def test_a_note_that_says_nothing_readable_stops_nobody(data: bytes) -> None:
    archive, store, heads = an_archive()
    store.create("notes/odd.json", data)
    last = list(archive.manifests(TOPIC, 0))[-1]
    odd = replace(
        last, format=NOTE, count=0, missing=0, first=last.next, root=merkle.root([]).hex(), records="notes/odd.json",
        records_sha256=sha256(data).hexdigest(), leaves="", leaves_sha256="", sequence=10, previous=heads[0].sha256,
    )  # fmt: skip
    store.create(manifest_name(TOPIC, 0, 10), odd.encode())
    verdict = verify(Archive(store), heads)[0]
    assert (verdict.broken, verdict.manifests, verdict.proved) == ((), 11, heads[0].next)
    assert list(Archive(store).records(TOPIC, 0)) == records(100, 0, 0)


def test_an_object_of_a_number_far_beyond_is_told_and_costs_no_memory() -> None:
    _, store, heads = an_archive()
    name = manifest_name(TOPIC, 0, 999_999_999_999)
    store.create(name, b"anything")
    verdict = verify(Archive(store), heads)[0]
    assert [(one.sequence, one.offset) for one in verdict.broken] == [(10, heads[0].next)]
    assert verdict.orphans == (name,) and verdict.proved == heads[0].next

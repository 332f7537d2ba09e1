"""Listings of joined manifests: anybody who can write to the store may add one."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, replace
from hashlib import sha256

import pytest

from ledger.archive.format import notes
from ledger.archive.format.chain import Manifest
from ledger.archive.format.removals import REDACTED, Gone, Rewritten, body_of
from ledger.archive.format.segments import manifest_name
from ledger.archive.store import chains
from ledger.archive.store.chains import Joined, lines_of
from tests.support.archives.given import TOPIC, an_archive


@pytest.mark.parametrize("kind", ["nothing", "lines", "manifests"])
def test_one_that_is_packed_small_is_not_unpacked_into_all_memory(kind: str) -> None:
    archive, store, _ = an_archive(partitions=1)
    before = archive.chain(TOPIC, 0)
    text = {"nothing": b"\0", "lines": b"\n", "manifests": next(archive.manifests(TOPIC, 0)).encode() + b"\n"}[kind]
    bomb = gzip.compress(text * ((32 << 20) // len(text)))
    store.create(f"joined/{TOPIC}/0/x.jsonl.gz", bomb)
    tracemalloc.start()
    try:
        assert archive.chain(TOPIC, 0) == before
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_of_manifests_as_small_as_they_can_be_all_are_read() -> None:
    """No run of manifests compresses better than this one: they differ only in their hashes."""
    archive, _, heads = an_archive(number=1, each=1, partitions=1)
    head = heads[0]
    for n in range(500):
        head = archive.note(head, "x", {"n": n})
    run = list(archive.manifests(TOPIC, 0))
    assert chains.unpacked(lines_of(run)) == run


@pytest.mark.parametrize(("listed", "digest", "counts"), [
    (lambda run: run, "", True), (lambda run: run[:-1], "", False), (lambda run: run, "0" * 64, False),
], ids=["as the note says", "one too few", "not what the note names"])  # fmt: skip
def test_a_note_names_a_listing_that_holds_what_it_says(
    listed: Callable[[list[Manifest]], list[Manifest]], digest: str, counts: bool
) -> None:
    """Manifests are counted from the first one that the note names: one too few would shift all that follow."""
    archive, store, heads = an_archive(partitions=1)
    run = list(archive.manifests(TOPIC, 0))
    data, name = lines_of(listed(run)), f"joined/{TOPIC}/0/2026-01-01/x.jsonl.gz"
    store.create(name, data)
    said = Joined(0, len(run) - 1, "2026-01-01", run[-1].sha256, name, digest or sha256(data).hexdigest(), *["x"] * 4)
    archive.note(heads[0], notes.JOINED, asdict(said))
    assert bool(archive.chain(TOPIC, 0).joined) == counts


def test_a_note_that_is_no_link_of_the_chain_takes_nothing_out() -> None:
    archive, store, heads = an_archive(partitions=1)
    first = next(archive.manifests(TOPIC, 0))
    gone = Gone(REDACTED, ((0, 0),), 1, reason="forged")
    said = Rewritten(first.records, "rewritten/x", "0" * 64, (gone,), "mallory", "", -1)
    archive.note(heads[0], notes.REWRITTEN, body_of([said], "mallory", ""))
    assert len(archive.chain(TOPIC, 0).rewritten) == 1
    *_, note = archive.manifests(TOPIC, 0)
    store.stored[manifest_name(TOPIC, 0, 10)] = replace(note, sequence=50).encode()
    assert archive.chain(TOPIC, 0).rewritten == ()

"""Listings of joined manifests: anybody who may write to the store may put one there."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from ledger.archive import chains
from ledger.archive.chains import lines_of
from tests.archive.given import TOPIC, an_archive


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
    """As packed as a run of them ever is: but for the hashes, one is like the other."""
    archive, _, heads = an_archive(number=1, each=1, partitions=1)
    head = heads[0]
    for n in range(500):
        head = archive.note(head, "x", {"n": n})
    run = list(archive.manifests(TOPIC, 0))
    assert chains.unpacked(lines_of(run)) == run

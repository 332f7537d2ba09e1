"""Proves that an archive holds what was sealed, up to the last anchor; or names the first record that it can't prove.

A chain alone proves that it is consistent: who can write to the store could make a whole new one. An anchor, a head that
was kept elsewhere, proves all that lies below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise, zip_longest

from ledger.archive import chains, parquet
from ledger.archive.archive import Archive
from ledger.archive.chains import Chain, Joined
from ledger.archive.objects import ObjectStore
from ledger.archive.segments import Leaf, leaves_of, manifest_name, unpack
from ledger.core import merkle
from ledger.core.chain import Broken, Head, Manifest, broken_links


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one partition. sealed: the first offset beyond the last manifest. anchored: the first offset beyond
    the last anchor, 0 without one. proved: every record below this offset is as it was sealed, by the word of an anchor.
    broken: lowest offset first. strays: objects that no manifest names: left by a crash, or put there by somebody; nobody
    reads them."""

    topic: str
    partition: int
    manifests: int
    records: int
    sealed: int
    anchored: int
    proved: int
    broken: tuple[Broken, ...]
    strays: tuple[str, ...] = ()


def verify(archive: Archive, anchors: Iterable[Head] = ()) -> list[Verdict]:
    """Of every partition that has a chain or an anchor. Reads the whole archive.

    Raises: as the store."""
    kept = list(anchors)
    places = sorted({*archive.places(), *((anchor.topic, anchor.partition) for anchor in kept)})
    return [
        verify_partition(archive.store, *place, [one for one in kept if (one.topic, one.partition) == place])
        for place in places
    ]


def verify_partition(store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head]) -> Verdict:
    """What is joined while we read moves: then it is read again."""
    reach = max((anchor.sequence for anchor in anchors), default=-1) + 1
    chain = chains.load(store, topic, partition, reach)
    while True:
        verdict = _verdict(store, topic, partition, anchors, chain)
        if not verdict.broken or (again := chains.load(store, topic, partition, reach)).joined == chain.joined:
            return verdict
        chain = again


def _verdict(store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head], chain: Chain) -> Verdict:
    manifests, there = chain.manifests, len(chain.manifests)
    links = broken_links(topic, partition, manifests, {anchor.sequence: anchor.sha256 for anchor in anchors})
    sealed = [manifest for manifest in manifests if manifest is not None]
    altered = [one for manifest in sealed if not chain.joined_of(manifest.sequence) for one in _segment(store, manifest)]
    for joined in chain.joined:
        run = [manifest for manifest in sealed if joined.covers(manifest.sequence)]
        altered += _joined(store, joined, run)
    # What hangs on a manifest that does not hold is proved by nobody, unless an anchor lies below it.
    holding = min((one.sequence for one in links), default=there)
    reach = max((anchor.next for anchor in anchors if anchor.sequence < holding), default=0)
    named = {name for manifest in sealed for name in (manifest.records, manifest.leaves)}
    named |= {name for one in chain.joined for name in (one.manifests, one.records, one.leaves)}
    named |= {manifest_name(topic, partition, sequence) for sequence in range(there)}
    kinds = ("records", "leaves", "notes", "joined", "manifests")
    lying = [name for kind in kinds for name in store.names(f"{kind}/{topic}/{partition}/")]
    return Verdict(
        topic, partition, len(sealed), sum(manifest.count for manifest in sealed),
        sealed[-1].next if sealed else 0, max((anchor.next for anchor in anchors), default=0),
        min([reach, *(one.offset for one in altered)]),
        tuple(sorted({*links, *altered}, key=lambda one: (one.offset, one.sequence))),
        tuple(name for name in lying if name not in named),
    )  # fmt: skip


def _segment(store: ObjectStore, manifest: Manifest) -> Iterator[Broken]:
    """What of the objects of one manifest is not as sealed."""
    if manifest.is_note:
        yield from _note(store, manifest)
        return
    data, listed = chains.read(store, manifest.records), chains.read(store, manifest.leaves)
    altered = data is None or sha256(data).hexdigest() != manifest.records_sha256
    try:
        leaves = leaves_of(parquet.read(data or b"", manifest.topic, manifest.partition))
    except ValueError as error:
        why = "is missing" if data is None else f"can't be read: {error}"
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} {why}")
        return
    sound = _root(leaves) == manifest.root and _in_order(leaves, manifest)
    if not sound:
        yield _first_wrong(manifest, leaves, _trusted(listed, manifest.leaves_sha256), manifest.records)
    elif altered:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} was altered, beside its records")
    if listed is None or sha256(listed).hexdigest() != manifest.leaves_sha256:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} is missing or was altered")


def _note(store: ObjectStore, manifest: Manifest) -> Iterator[Broken]:
    note = chains.read(store, manifest.records)
    if note is None or sha256(note).hexdigest() != manifest.records_sha256:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} is missing or was altered")


def _joined(store: ObjectStore, joined: Joined, run: Sequence[Manifest]) -> Iterator[Broken]:
    """What of the objects of a joined run is not as its manifests seal it. run: those manifests that can be read."""
    segments = [manifest for manifest in run if not manifest.is_note]
    for manifest in run:
        if manifest.is_note:
            yield from _note(store, manifest)
    if not segments:
        return
    first, (topic, partition) = segments[0], (run[0].topic, run[0].partition)
    data, listed = chains.read(store, joined.records), chains.read(store, joined.leaves)
    altered = data is None or sha256(data).hexdigest() != joined.records_sha256
    sealed = _trusted(listed, joined.leaves_sha256)
    if sealed is None:
        yield Broken(first.sequence, first.first, f"{joined.leaves} is missing or was altered")
    found: list[Broken] = []
    try:
        opened = parquet.Opened(data or b"")
        for manifest in segments:
            leaves = leaves_of(opened.records(topic, partition, manifest.first, manifest.next))
            if _root(leaves) != manifest.root or not _in_order(leaves, manifest):
                own = None if sealed is None else [leaf for leaf in sealed if manifest.first <= leaf.offset < manifest.next]
                found.append(_first_wrong(manifest, leaves, own, joined.records))
    except ValueError as error:
        why = "is missing" if data is None else f"can't be read: {error}"
        found = [Broken(first.sequence, first.first, f"{joined.records} {why}")]
    if altered and not found:
        found = [Broken(first.sequence, first.first, f"{joined.records} was altered, beside its records")]
    yield from found


def _first_wrong(manifest: Manifest, found: Sequence[Leaf], sealed: Sequence[Leaf] | None, name: str) -> Broken:
    """The record at which what is there departs from what was sealed."""
    if sealed is None:
        reason = f"{name} does not hold the records that were sealed; which of them, nobody can tell any more"
        return Broken(manifest.sequence, manifest.first, reason)
    for there, wanted in zip_longest(found, sealed):
        if wanted is None:
            return Broken(manifest.sequence, there.offset, "a record was inserted")
        if there is None or there.offset > wanted.offset:
            return Broken(manifest.sequence, wanted.offset, "a record was removed")
        if there.offset < wanted.offset:
            at = max(there.offset, manifest.first)  # what was moved here from elsewhere tells of another place
            return Broken(manifest.sequence, at, "a record was inserted, repeated or moved")
        if there.hash != wanted.hash:
            return Broken(manifest.sequence, wanted.offset, "the record was altered")
    return Broken(manifest.sequence, manifest.first, "the records are as the leaves say, which the manifest denies")


def _trusted(listed: bytes | None, digest: str) -> list[Leaf] | None:
    return unpack(listed) if listed is not None and sha256(listed).hexdigest() == digest else None


def _root(leaves: Sequence[Leaf]) -> str:
    return merkle.root([leaf.hash for leaf in leaves]).hex()


def _in_order(leaves: Sequence[Leaf], manifest: Manifest) -> bool:
    offsets = [leaf.offset for leaf in leaves]
    inside = not offsets or (offsets[0] >= manifest.first and offsets[-1] < manifest.next)
    return inside and len(offsets) == manifest.count and all(a < b for a, b in pairwise(offsets))

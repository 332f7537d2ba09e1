"""Proves that an archive holds what was sealed, up to the last anchor; or names the first record that it can't prove.

A chain alone proves that it is consistent: who can write to the store could make a whole new one. An anchor, a head that
was kept elsewhere, proves all that lies below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise, zip_longest

from ledger.archive import parquet
from ledger.archive.archive import Archive
from ledger.archive.objects import ObjectStore
from ledger.archive.segments import Leaf, leaves_of, manifest_name, manifests_prefix, unpack
from ledger.core import merkle
from ledger.core.chain import Broken, Head, Manifest, broken_links, decode
from ledger.errors import UsageError


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
    names = store.names(manifests_prefix(topic, partition))
    numbers = [int(stem) for name in names if (stem := name.rpartition("/")[2].removesuffix(".json")).isdecimal()]
    there = max([*numbers, *(anchor.sequence for anchor in anchors)], default=-1) + 1
    manifests = [_manifest(store, manifest_name(topic, partition, sequence)) for sequence in range(there)]
    links = broken_links(topic, partition, manifests, {anchor.sequence: anchor.sha256 for anchor in anchors})
    sealed = [manifest for manifest in manifests if manifest is not None]
    altered = [one for manifest in sealed for one in _segment(store, manifest)]
    # What hangs on a manifest that does not hold is proved by nobody, unless an anchor lies below it.
    holding = min((one.sequence for one in links), default=there)
    reach = max((anchor.next for anchor in anchors if anchor.sequence < holding), default=0)
    named = {name for manifest in sealed for name in (manifest.records, manifest.leaves)}
    wanted = {manifest_name(topic, partition, sequence) for sequence in range(there)}
    kinds = ("records", "leaves", "notes")
    lying = [name for kind in kinds for name in store.names(f"{kind}/{topic}/{partition}/")] + names
    return Verdict(
        topic, partition, len(sealed), sum(manifest.count for manifest in sealed),
        sealed[-1].next if sealed else 0, max((anchor.next for anchor in anchors), default=0),
        min([reach, *(one.offset for one in altered)]),
        tuple(sorted({*links, *altered}, key=lambda one: (one.offset, one.sequence))),
        tuple(name for name in lying if name not in named and name not in wanted),
    )  # fmt: skip


def _manifest(store: ObjectStore, name: str) -> Manifest | None:
    try:
        return decode(store.read(name) or b"")
    except ValueError:
        return None


def _segment(store: ObjectStore, manifest: Manifest) -> Iterator[Broken]:
    """What of the objects of one manifest is not as sealed."""
    if manifest.is_note:
        note = _read(store, manifest.records)
        if note is None or sha256(note).hexdigest() != manifest.records_sha256:
            yield Broken(manifest.sequence, manifest.first, f"{manifest.records} is missing or was altered")
        return
    data, listed = _read(store, manifest.records), _read(store, manifest.leaves)
    altered = data is None or sha256(data).hexdigest() != manifest.records_sha256
    try:
        leaves = leaves_of(parquet.read(data or b"", manifest.topic, manifest.partition))
    except ValueError as error:
        why = "is missing" if data is None else f"can't be read: {error}"
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} {why}")
        return
    sound = _root(leaves) == manifest.root and _in_order(leaves, manifest)
    if not sound:
        yield _first_wrong(manifest, leaves, _trusted(listed, manifest))
    elif altered:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} was altered, beside its records")
    if listed is None or sha256(listed).hexdigest() != manifest.leaves_sha256:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} is missing or was altered")


def _read(store: ObjectStore, name: str) -> bytes | None:
    """The name comes from a manifest, which may be anybody's."""
    try:
        return store.read(name)
    except UsageError:
        return None


def _first_wrong(manifest: Manifest, found: Sequence[Leaf], sealed: Sequence[Leaf] | None) -> Broken:
    """The record at which what is there departs from what was sealed."""
    if sealed is None:
        reason = f"{manifest.records} does not hold the records that were sealed; which of them, nobody can tell any more"
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


def _trusted(listed: bytes | None, manifest: Manifest) -> list[Leaf] | None:
    return unpack(listed) if listed is not None and sha256(listed).hexdigest() == manifest.leaves_sha256 else None


def _root(leaves: Sequence[Leaf]) -> str:
    return merkle.root([leaf.hash for leaf in leaves]).hex()


def _in_order(leaves: Sequence[Leaf], manifest: Manifest) -> bool:
    offsets = [leaf.offset for leaf in leaves]
    inside = not offsets or (offsets[0] >= manifest.first and offsets[-1] < manifest.next)
    return inside and len(offsets) == manifest.count and all(a < b for a, b in pairwise(offsets))

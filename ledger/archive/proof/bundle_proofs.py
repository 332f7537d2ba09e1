"""Proofs in a bundle: they show that its records are in the archive of the ledger that the bundle was made from.

A bundle has a chain of its own, which shows that the file is complete, but not which ledger it comes from. So the
bundle also has a file `proofs/<topic>/<partition>.json.gz` for each partition. This file covers each manifest of the
ledger's own chain that seals some of the bundle's records. It holds the leaves of these records and the other nodes
that the hash tree needs, once for all of them. It also holds the manifests from the first of those up to the head. With
this file, an anchor of the ledger, stored anywhere, proves the records of the bundle. Source: docs/decisions/0032.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ledger.archive.format import merkle
from ledger.archive.format.chain import Broken, Head, Manifest, decode
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.segments import Leaf, leaves_of, pack, unpack
from ledger.archive.proof.proving import is_named, plain
from ledger.archive.removal.redacting import RecordPosition, must_be_id
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive
from ledger.errors import LedgerError, NotFound
from ledger.ports import Record, TopicPartition

FORMAT = 1
BYTES_MAX = 1 << 30  # of one such file, unpacked


def name_of(topic: str, partition: int) -> str:
    return f"proofs/{topic}/{partition}.json.gz"


@dataclass(frozen=True, slots=True)
class Tree:
    """The shown part of the hash tree of one manifest. shown: index -> leaf. others: as in `merkle.others`. size:
    number of leaves."""

    sequence: int
    size: int
    shown: Mapping[int, Leaf]
    others: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Carried:
    """The proofs of one partition. manifests: of the ledger's chain, consecutive; the last one was its head when the
    bundle was made. unproved: offsets of records that differ from what was sealed, because their values had been
    redacted."""

    manifests: Sequence[Manifest]
    trees: Sequence[Tree]
    unproved: Sequence[int] = ()

    @property
    def next(self) -> int:
        """The first offset that was not archived when the bundle was made."""
        return self.manifests[-1].next

    def encode(self) -> bytes:
        """The proofs as bytes. The same proofs give the same bytes."""
        body = {
            "format": FORMAT,
            "manifests": [one.encode().decode() for one in self.manifests],
            "trees": [
                {"sequence": tree.sequence, "size": tree.size, "others": [one.hex() for one in tree.others],
                 "shown": [[index, leaf.offset, leaf.hash.hex()] for index, leaf in sorted(tree.shown.items())]}
                for tree in self.trees
            ],
            "unproved": list(self.unproved),
        }  # fmt: skip
        return gzip.compress(json.dumps(body, sort_keys=True, separators=(",", ":")).encode(), mtime=0)


def parse(data: bytes) -> Carried:
    """The proofs in these bytes. `check` decides whether they prove anything.

    Raises: ValueError if this is not what `encode` returns."""
    try:
        unpacker = zlib.decompressobj(31)
        text = unpacker.decompress(data, BYTES_MAX)
        if not unpacker.eof:
            raise ValueError("too large, or cut off")
        body = json.loads(text)
        if body["format"] != FORMAT:
            raise ValueError(f"format {body['format']!r} is unknown: this version knows only {FORMAT}")
        trees = [
            Tree(
                int(tree["sequence"]), int(tree["size"]),
                {int(index): Leaf(int(offset), bytes.fromhex(hashed)) for index, offset, hashed in tree["shown"]},
                [bytes.fromhex(one) for one in tree["others"]],
            )
            for tree in body["trees"]
        ]  # fmt: skip
        manifests = [decode(one.encode()) for one in body["manifests"]]
        if not manifests:
            raise ValueError("no manifests")
        return Carried(manifests, trees, [int(offset) for offset in body["unproved"]])
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError, zlib.error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


# -- making ------------------------------------------------------------------------------------------------------------


def carry(archive: Archive, tp: TopicPartition, leaves: Iterable[Leaf]) -> Carried | None:
    """The proofs of these records (of one partition, in offset order) by the chain of an archive; None if none is
    archived.

    Raises: LedgerError if the archive is not as it was sealed."""
    if tp not in archive.partitions():
        return None
    sealed_by, manifests = _Leaves(archive, tp), list(archive.manifests(*tp))
    trees, unproved = list[Tree](), list[int]()
    for manifest, wanted in _by_manifest(manifests, list(leaves)):
        every = sealed_by.of(manifest)
        at = {leaf: index for index, leaf in enumerate(every)}
        shown = {at[leaf]: leaf for leaf in wanted if leaf in at}
        unproved += sorted({leaf.offset for leaf in wanted} - {leaf.offset for leaf in shown.values()})
        if shown:
            trees.append(
                Tree(manifest.sequence, len(every), shown, merkle.others([leaf.hash for leaf in every], shown))
            )  # fmt: skip
    if not trees:
        return None
    first = next(i for i, manifest in enumerate(manifests) if manifest.sequence == trees[0].sequence)
    return Carried(manifests[first:], trees, unproved)


def _by_manifest(manifests: Sequence[Manifest], leaves: Sequence[Leaf]) -> Iterator[tuple[Manifest, list[Leaf]]]:
    at = 0
    for manifest in manifests:
        begin = at
        while at < len(leaves) and leaves[at].offset < manifest.next:
            at += 1
        if at > begin and not manifest.is_note:
            yield manifest, list(leaves[begin:at])


class _Leaves:
    """All leaves that the manifests of a partition seal. They are read from the objects that list them, so they include
    those of records that were redacted since."""

    def __init__(self, archive: Archive, tp: TopicPartition) -> None:
        self._archive, self._chain = archive, archive.chain(*tp)
        self._read = "", list[Leaf]()  # the last list: that of a whole day serves each of its manifests

    def of(self, manifest: Manifest) -> list[Leaf]:
        """Raises: LedgerError."""
        joined = self._chain.joined_of(manifest.sequence)
        name, digest = (joined.leaves, joined.leaves_sha256) if joined else (manifest.leaves, manifest.leaves_sha256)
        if self._read[0] != name:
            data = chains.read(self._archive.store, name)
            if data is None or sha256(data).hexdigest() != digest:  # it may have been joined meanwhile
                data = pack(leaves_of(self._archive.segment(manifest)))
                name = ""
            self._read = name, unpack(data)
        found = [leaf for leaf in self._read[1] if manifest.first <= leaf.offset < manifest.next]
        if merkle.root([leaf.hash for leaf in found]).hex() != manifest.root:
            raise LedgerError(f"{manifest.leaves} is not what was sealed.", hint="Run: jobledger audit verify")
        return found


# -- checking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProofCheck:
    """The result of `check`. sealed: the first offset that was not archived when the bundle was made. anchored: the
    first offset beyond the last anchor of this chain, 0 = no anchor. proved: an anchor proves that every record of the
    bundle below this offset is as it was sealed in the ledger's archive. unproved: how many records had been redacted
    when the bundle was made. later: how many were not archived yet.

    bad: set if the carried chain itself is broken. The first record that may not be the ledger's has an offset in this
    range, both ends included."""

    sealed: int
    anchored: int
    proved: int
    broken: tuple[Broken, ...]
    unproved: int
    later: int
    bad: tuple[int, int] | None = None


def check(carried: Carried, tp: TopicPartition, leaves: Sequence[Leaf], anchors: Iterable[Head]) -> ProofCheck:
    """Checks the proofs of one partition. leaves: of the bundle's records of that partition. anchors: of the ledger, of
    any partition. Total: it never fails."""
    manifests = carried.manifests
    broken, anchored = _chain(manifests, tp, [one for one in anchors if (one.topic, one.partition) == tp])
    bad = _between(manifests, min(broken), anchored) if broken else None
    sworn: dict[int, tuple[int, Leaf]] = {}
    opaque = set[int]()  # manifests whose sealed records are unknown
    by_sequence = {manifest.sequence: manifest for manifest in manifests}
    for tree in carried.trees:
        manifest = by_sequence.get(tree.sequence)
        levels = merkle.rebuilt({i: leaf.hash for i, leaf in tree.shown.items()}, tree.others, tree.size)
        if manifest is None or levels is None or (levels[-1][0].hex(), tree.size) != (manifest.root, manifest.count):
            at = manifest.first if manifest else min((leaf.offset for leaf in tree.shown.values()), default=0)
            opaque.add(tree.sequence)
            broken.append(Broken(tree.sequence, at, "the proof in the bundle does not lead to the root of this manifest"))
            continue
        sworn.update({leaf.offset: (tree.sequence, leaf) for leaf in tree.shown.values()})
    there = {leaf.offset: leaf for leaf in leaves}
    unproved = set(carried.unproved) - sworn.keys()
    for offset, (sequence, leaf) in sworn.items():
        if offset not in there:
            broken.append(Broken(sequence, offset, "a record was removed from the bundle"))
        elif there[offset] != leaf:
            broken.append(Broken(sequence, offset, "the record is not the one that the ledger's archive holds"))
    for offset in there:
        if offset < carried.next and offset not in sworn and offset not in unproved:
            sequence = next((m.sequence for m in manifests if m.first <= offset < m.next), -1)
            if sequence not in opaque:
                broken.append(Broken(sequence, offset, "nothing shows that the ledger's archive holds this record"))
    stays = sorted({offset for offset in there if offset in unproved and offset < carried.next})
    reach = min([anchored, *stays, *(one.offset for one in broken)])
    later = sum(offset >= carried.next for offset in there)
    return ProofCheck(
        carried.next, anchored, reach, tuple(sorted(set(broken), key=lambda one: (one.offset, one.sequence))), len(stays),
        later, bad,
    )  # fmt: skip


def _between(manifests: Sequence[Manifest], first: Broken, anchored: int) -> tuple[int, int]:
    """The range of offsets with the first doubtful record, both ends included. Somebody who forges one manifest can
    also forge those below it to fit, down to the last valid anchor."""
    last = max((one.next - 1 for one in manifests if one.sequence == first.sequence), default=first.offset)
    return min(anchored, first.offset), max(first.offset, last)


def _chain(manifests: Sequence[Manifest], tp: TopicPartition, anchors: Sequence[Head]) -> tuple[list[Broken], int]:
    """The broken points of the carried chain, and the offset that an anchor proves. Hashes prove downwards."""
    broken: list[Broken] = []
    first, held = manifests[0].sequence, list[int]()
    for number, manifest in enumerate(manifests):
        if (manifest.topic, manifest.partition, manifest.sequence) != (*tp, first + number):
            broken.append(Broken(first + number, manifest.first, "it is not the manifest that belongs here"))
    for above, below in zip(manifests[1:], manifests, strict=False):
        if above.previous != below.sha256:
            broken.append(Broken(below.sequence, below.first, "its hash is not the one that its successor names"))
    for anchor in anchors:
        number = anchor.sequence - first
        if not 0 <= number < len(manifests):
            continue
        if manifests[number].sha256 == anchor.sha256:
            held.append(number)
        else:
            broken.append(Broken(anchor.sequence, manifests[number].first, "its hash is not the one that an anchor names"))
    # An anchor at or above a broken manifest proves nothing; only an anchor below it does.
    holding = min((one.sequence for one in broken), default=first + len(manifests))
    return broken, max((manifests[number].next for number in held if first + number < holding), default=0)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(store: ObjectStore, tp: TopicPartition) -> Carried | None:
    """The proofs that a bundle carries for a partition; None if there are none. Raises: LedgerError if they can't be
    read."""
    data = store.read(name_of(*tp))
    try:
        return None if data is None else parse(data)
    except ValueError as error:
        raise LedgerError(f"{name_of(*tp)} can't be read: {error}") from error


def partitions(store: ObjectStore) -> list[TopicPartition]:
    """The partitions for which a bundle carries proofs."""
    parts = (name.removesuffix(".json.gz").split("/") for name in store.names("proofs/"))
    return sorted((part[1], int(part[2])) for part in parts if len(part) == 3 and part[2].isdecimal())


def carries_any(store: ObjectStore) -> bool:
    """Whether a bundle has proofs at all. Older bundles have none, and neither have those of a ledger without an
    archive."""
    return bool(store.names("proofs/"))


def prove(bundle: Archive, named: str | RecordPosition, id_of: Callable[[Record], str]) -> dict[str, Any]:
    """The proof of a record in a bundle, in the form of `proving.prove`, by the chain of the ledger that the bundle was
    made from.

    Raises: NotFound if there is no such record. UsageError if the id is empty. LedgerError if the record was not
    archived when the bundle was made, or no proof in the bundle covers the record.
    """
    if isinstance(named, str):
        must_be_id(named)
    of, label = ("" if isinstance(named, RecordPosition) else "of the event "), str(named)[:200]
    for topic, partition in bundle.partitions():
        for record in bundle.records(topic, partition):
            if not is_named(record, named, id_of):
                continue
            (leaf,) = leaves_of([record])
            carried = read(bundle.store, (topic, partition))
            if carried is None or leaf.offset >= carried.next:
                raise LedgerError(f"The record {of}{label} was not archived yet when this bundle was made.",
                                  hint="Ask the ledger itself: jobledger audit prove")  # fmt: skip
            for tree in carried.trees:
                index = next((i for i, one in tree.shown.items() if one == leaf), None)
                levels = merkle.rebuilt({i: one.hash for i, one in tree.shown.items()}, tree.others, tree.size)
                if index is None or levels is None:
                    continue
                manifests = [one for one in carried.manifests if one.sequence >= tree.sequence]
                return {
                    "topic": topic, "partition": partition, "record": plain(record), "index": index, "size": tree.size,
                    "path": [hashed.hex() for hashed in merkle.path_in(levels, index)],
                    "manifests": [one.encode().decode() for one in manifests], "head": manifests[-1].sha256,
                }  # fmt: skip
            raise LedgerError(f"The record {of}{label} is not the one that the ledger's archive holds.",
                              hint="Run: jobledger audit verify --bundle FILE --anchors FILE")  # fmt: skip
    raise NotFound(f"No record {of}{label} is in the bundle.")

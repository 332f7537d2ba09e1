"""The chain of one partition as it lies in a store: manifests as objects of their own, and those that were joined by day.

What was joined counts once a note of the chain says so (`notes.JOINED`); until then it is nobody's. The manifests of a
joined run lie in one object, byte for byte, so that every hash that was ever kept of one of them is still its hash.
Source: docs/decisions/0031.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256

from ledger.archive import notes
from ledger.archive.objects import ObjectStore
from ledger.archive.segments import manifest_name, manifests_prefix
from ledger.core.chain import Manifest, decode
from ledger.errors import LedgerError, UsageError

LINES = ".jsonl.gz"
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Joined:
    """A run of manifests, `first_sequence` to `last_sequence`, that lies in three objects: the manifests themselves, a line
    each; their records as one Parquet file; their leaves. day: of the newest record (UTC). head: hash of the last one."""

    first_sequence: int
    last_sequence: int
    day: str
    head: str
    manifests: str
    manifests_sha256: str
    records: str
    records_sha256: str
    leaves: str
    leaves_sha256: str

    def covers(self, sequence: int) -> bool:
        return self.first_sequence <= sequence <= self.last_sequence


@dataclass(frozen=True)
class Chain:
    """manifests: by sequence; None: it is missing or can't be read. joined: in order, none overlaps another."""

    manifests: Sequence[Manifest | None]
    joined: Sequence[Joined] = field(default=())

    def joined_of(self, sequence: int) -> Joined | None:
        return self._by_sequence.get(sequence)

    @cached_property
    def _by_sequence(self) -> dict[int, Joined]:
        return {n: one for one in self.joined for n in range(one.first_sequence, one.last_sequence + 1)}


def joined_prefix(topic: str, partition: int) -> str:
    return f"joined/{topic}/{partition}/"


def lines_of(manifests: Iterable[Manifest]) -> bytes:
    """The same manifests give the same bytes. Any gunzip reads them."""
    return gzip.compress(b"".join(one.encode() + b"\n" for one in manifests), mtime=0)


def load(store: ObjectStore, topic: str, partition: int, reach: int = 0) -> Chain:
    """Total: what is broken is None. reach: how many manifests there must be at least (an anchor says so).

    What is being joined meanwhile is there all the time, but not always in the place where it was listed: then it is looked
    for again. Raises: as the store."""
    for _ in range(_TRIES):
        chain, vanished = _load(store, topic, partition, reach)
        if not vanished:
            break
    return chain


def _load(store: ObjectStore, topic: str, partition: int, reach: int) -> tuple[Chain, bool]:
    listed = store.names(manifests_prefix(topic, partition))
    numbers = {int(stem) for name in listed if (stem := name.rpartition("/")[2].removesuffix(".json")).isdecimal()}
    found = {number: store.read(manifest_name(topic, partition, number)) for number in sorted(numbers)}
    singles = {number: _decoded(data) for number, data in found.items()}
    listings = {
        name: data for name in store.names(joined_prefix(topic, partition))
        if name.endswith(LINES) and (data := store.read(name)) is not None
    }  # fmt: skip
    inside = {name: _unpacked(data) for name, data in listings.items()}
    said = _said(store, [*singles.values(), *(one for manifests in inside.values() for one in manifests)])
    joined: list[Joined] = []
    for one in sorted(said, key=lambda one: (one.first_sequence, -one.last_sequence)):
        whole = one.manifests in listings and sha256(listings[one.manifests]).hexdigest() == one.manifests_sha256
        fits = whole and len(inside[one.manifests]) == one.last_sequence - one.first_sequence + 1
        if fits and (not joined or one.first_sequence > joined[-1].last_sequence):
            joined.append(one)
    manifests: dict[int, Manifest | None] = dict(singles)
    for one in joined:
        for number, manifest in enumerate(inside[one.manifests], start=one.first_sequence):
            manifests[number] = manifests.get(number) or manifest
    there = max([reach - 1, *manifests], default=-1) + 1
    vanished = any(data is None and manifests[number] is None for number, data in found.items())
    return Chain([manifests.get(number) for number in range(there)], tuple(joined)), vanished


def _said(store: ObjectStore, manifests: Iterable[Manifest | None]) -> set[Joined]:
    """What notes say was joined."""
    found = set()
    for manifest in manifests:
        if manifest is None or not manifest.is_note:
            continue
        try:
            body = notes.read_note(store, manifest)
            if body.pop("kind", "") == notes.JOINED:
                one = Joined(**body)
                if [type(value) for value in asdict(one).values()] == [int, int, *[str] * 8]:
                    found.add(one)
        except (LedgerError, TypeError):  # it is told by `audit verify`; what it named is then not found
            continue
    return found


def read(store: ObjectStore, name: str) -> bytes | None:
    """The name comes from a manifest or a note, which may be anybody's."""
    try:
        return store.read(name)
    except UsageError:
        return None


def _decoded(data: bytes | None) -> Manifest | None:
    try:
        return decode(data or b"")
    except ValueError:
        return None


def _unpacked(data: bytes) -> list[Manifest | None]:
    try:
        return [_decoded(line) for line in gzip.decompress(data).splitlines()]
    except (OSError, EOFError, zlib.error):
        return []

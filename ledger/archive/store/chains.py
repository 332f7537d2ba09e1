"""The chain of one partition as it is stored: single manifests, each in an object of its own, and manifests joined by
day.

A joined run counts only once a note of the chain names it (`notes.JOINED`); until then it is ignored, and so are the
notes in it. One object holds the manifests of a joined run, byte for byte, so their hashes stay the same, and anchors
stay valid. Record objects may be rewritten (`notes.REWRITTEN`); the latest note about an object counts.
Source: docs/decisions/0031, 0035.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from typing import NamedTuple

from ledger.archive.format import notes
from ledger.archive.format.chain import Manifest, decode
from ledger.archive.format.objects import ObjectStore, Unfit
from ledger.archive.format.removals import Absences, Rewritten, rewritten_of
from ledger.archive.format.segments import RECORDS_MAX, manifest_name, manifests_prefix
from ledger.errors import LedgerError, UsageError

LINES = ".jsonl.gz"
GAP_MAX = 1_000_000  # consecutive manifests that may be missing
VERIFY = "Run: jobledger audit verify"
_TRIES = 3
_RECORDS_MAX = 10 * RECORDS_MAX  # records of one manifest, at most; a forged manifest may name any number
_LINE_MAX = 1 << 20  # bytes of a manifest
_PACKED_MIN = 32  # compressed bytes of a manifest, at least: it holds a hash, and a hash can't be compressed


class Missing(LedgerError):
    """An object is missing. It may have been joined or rewritten since its name was read."""


class Named(NamedTuple):
    """An object and its SHA-256."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A run of manifests, `first_sequence` to `last_sequence`, stored in three objects: the manifests, one a line;
    their records as one Parquet file; their leaves. day: of the newest record (UTC). head: the hash of the last
    manifest."""

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

    @property
    def of_records(self) -> Named:
        return Named(self.records, self.records_sha256)

    def covers(self, sequence: int) -> bool:
        return self.first_sequence <= sequence <= self.last_sequence


@dataclass(frozen=True)
class Chain:
    """The chain of one partition. manifests: by sequence; None = missing or unreadable. joined: in order, without
    overlap. rewritten: in the order of the notes."""

    manifests: Sequence[Manifest | None]
    joined: Sequence[Joined] = field(default=())
    rewritten: Sequence[Rewritten] = field(default=())

    def joined_of(self, sequence: int) -> Joined | None:
        return self._by_sequence.get(sequence)

    def object_of(self, manifest: Manifest) -> Named:
        """The object that holds the records of a manifest now."""
        one = self.joined_of(manifest.sequence)
        return self.now(Named(manifest.records, manifest.records_sha256) if one is None else one.of_records)

    def rows_max(self, manifest: Manifest) -> int:
        """The largest number of records that the object with the records of a manifest may have."""
        one = self.joined_of(manifest.sequence)
        numbers = [manifest.sequence] if one is None else range(one.first_sequence, one.last_sequence + 1)
        run = [found for n in numbers if (found := self.manifests[n]) is not None] if one else [manifest]
        return sum(min(max(found.count, 0), _RECORDS_MAX) for found in run)

    def leaves_of(self, manifest: Manifest) -> Named:
        """The object that holds the leaves of a manifest."""
        one = self.joined_of(manifest.sequence) or manifest
        return Named(one.leaves, one.leaves_sha256)

    def now(self, named: Named) -> Named:
        """The object to read now in place of an object that a manifest, or the note of a joined run, names."""
        latest = self._latest.get(named.name)
        return named if latest is None else Named(latest.object, latest.object_sha256)

    @cached_property
    def absences(self) -> Absences:
        return Absences(self.rewritten)

    @cached_property
    def replaced(self) -> Mapping[str, Named]:
        """The names of replaced objects -> the rewritten object that is read now."""
        earlier = {(name, one.records) for one in self.rewritten for name in (one.records, one.object)}
        found = {name: self.now(Named(records, "")) for name, records in sorted(earlier)}
        return {name: now for name, now in found.items() if name != now.name}

    @cached_property
    def _latest(self) -> dict[str, Rewritten]:
        return {one.records: one for one in self.rewritten}

    @cached_property
    def _by_sequence(self) -> dict[int, Joined]:
        return {n: one for one in self.joined for n in range(one.first_sequence, one.last_sequence + 1)}


def numbers(store: ObjectStore, topic: str, partition: int) -> list[int]:
    """The numbers of the single manifests, in order. Objects with any other form of name, such as copies, are
    ignored."""
    prefix = manifests_prefix(topic, partition)
    names = set(store.names(prefix))
    stems = (name.removeprefix(prefix).removesuffix(".json") for name in names)
    found = {int(stem) for stem in stems if stem.isdecimal()}
    return sorted(number for number in found if manifest_name(topic, partition, number) in names)


def joined_prefix(topic: str, partition: int) -> str:
    return f"joined/{topic}/{partition}/"


def lines_of(manifests: Iterable[Manifest]) -> bytes:
    """The manifests as gzip-compressed lines. The same manifests always give the same bytes."""
    return gzip.compress(b"".join(one.encode() + b"\n" for one in manifests), mtime=0)


def load(store: ObjectStore, topic: str, partition: int) -> Chain:
    """The chain as it is stored. A broken manifest is None in it, never an error.

    While a run is being joined, each of its manifests stays in the store, but may move between two reads. If one
    vanished since it was listed, the chain is read again. Raises: as the store."""
    for _ in range(_TRIES):
        chain, vanished = _load(store, topic, partition)
        if not vanished:
            break
    return chain


def _load(store: ObjectStore, topic: str, partition: int) -> tuple[Chain, bool]:
    every = numbers(store, topic, partition)
    found = {number: _or_unreadable(store, manifest_name(topic, partition, number)) for number in every}
    singles = {number: _decoded(data) for number, data in found.items()}
    listings = {
        name: data for name in store.names(joined_prefix(topic, partition))
        if name.endswith(LINES) and (data := _or_unreadable(store, name)) is not None
    }  # fmt: skip
    inside = {name: unpacked(data) for name, data in listings.items()}
    said, rewritten = _said(store, [*singles.values(), *(one for manifests in inside.values() for one in manifests)])
    fitting = {
        note: one for note, one in said.items()
        if one.manifests in listings and sha256(listings[one.manifests]).hexdigest() == one.manifests_sha256
        and len(inside[one.manifests]) == one.last_sequence - one.first_sequence + 1
    }  # fmt: skip
    joined = _joined(singles, inside, fitting)
    manifests: dict[int, Manifest | None] = dict(singles)
    for one in joined:
        for number, manifest in enumerate(inside[one.manifests], start=one.first_sequence):
            manifests[number] = manifests.get(number) or manifest
    there = _end(manifests)
    vanished = any(data is None and manifests[number] is None for number, data in found.items())
    whole = [manifests.get(number) for number in range(there)]
    # Only a note that is a link of the chain may declare removals: anyone who can write to the store can put a listing
    # there that no note names.
    links = (one for number, one in enumerate(whole) if one is not None and one.sequence == number)
    taken_out = tuple(one for link in links for one in rewritten.get(link, ()))
    return Chain(whole, tuple(joined), taken_out), vanished


def _joined(
    singles: Mapping[int, Manifest | None], inside: Mapping[str, Sequence[Manifest | None]],
    fitting: Mapping[Manifest, Joined],
) -> list[Joined]:  # fmt: skip
    """The joined runs that count, in order and without overlap. fitting: note -> the run that it names, if the run's
    listing is stored as the note says.

    The last note on a join is a single manifest. It names a listing that may hold the previous note on a join, and so on:
    the runs of these notes count. Other runs are forged, or their notes were lost. Such a run counts only for manifests
    that would be missing without it."""
    sure, found = set[Joined](), list[Joined]()
    left = [one for number, one in singles.items() if one is not None and one.sequence == number]
    while left:
        new = {fitting[one] for one in left if one in fitting} - sure
        sure |= new
        left = [one for name in {joined.manifests for joined in new} for one in inside[name] if one is not None]
    for one in sorted(sure, key=_widest_first):
        if not found or one.first_sequence > found[-1].last_sequence:
            found.append(one)
    for one in sorted(set(fitting.values()) - sure, key=_widest_first):
        beside = (one.last_sequence < other.first_sequence or other.last_sequence < one.first_sequence for other in found)
        if all(beside) and not any(map(one.covers, singles)):
            found.append(one)
    return sorted(found, key=_widest_first)


def _widest_first(one: Joined) -> tuple[int, int]:
    return one.first_sequence, -one.last_sequence


def _end(numbers: Iterable[int]) -> int:
    """The number after the last manifest. If more than GAP_MAX manifests are missing before a manifest, the gap and all
    behind it count as one missing manifest. Anyone who can write to the store can create a manifest of any number, and
    a list with such a gap would exhaust the memory."""
    end = 0
    for number in sorted(numbers):
        if number - end > GAP_MAX:
            return end + 1
        end = number + 1
    return end


def _said(
    store: ObjectStore, manifests: Iterable[Manifest | None]
) -> tuple[dict[Manifest, Joined], dict[Manifest, tuple[Rewritten, ...]]]:  # fmt: skip
    """The joined run that each note names, and the rewritten objects that each note names."""
    found, rewritten = dict[Manifest, Joined](), dict[Manifest, tuple[Rewritten, ...]]()
    for manifest in manifests:
        if manifest is None or not manifest.is_note:
            continue
        try:
            body = notes.read_note(store, manifest)
            kind = body.pop("kind", "")
            if kind == notes.JOINED:
                one = Joined(**body)
                if [type(value) for value in asdict(one).values()] == [int, int, *[str] * 8]:
                    found[manifest] = one
            elif kind == notes.REWRITTEN:
                rewritten[manifest] = tuple(rewritten_of(body, manifest.sequence))
        except (LedgerError, TypeError, KeyError, ValueError):  # `audit verify` reports it; the note has no effect
            continue
    return found, rewritten


def _or_unreadable(store: ObjectStore, name: str) -> bytes | None:
    """The bytes of an object; None = there is none; b"" = the store refuses to read it (Unfit), which no decoder
    accepts."""
    try:
        return store.read(name)
    except Unfit:
        return b""


def read(store: ObjectStore, name: str) -> bytes | None:
    """The bytes of an object that a manifest or note names; None = there is none. The name may be forged: one that the
    store does not allow counts as missing. Raises: Unfit."""
    try:
        return store.read(name)
    except UsageError:
        return None


def read_as(store: ObjectStore, named: Named) -> bytes:
    """The bytes of an object, checked against its SHA-256. Raises: Missing if there is no such object. LedgerError if
    the hash differs."""
    data = read(store, named.name)
    if data is None:
        raise Missing(f"{named.name} is missing.", hint=VERIFY)
    if sha256(data).hexdigest() != named.sha256:
        raise LedgerError(f"{named.name} is not what was sealed.", hint=VERIFY)
    return data


def _decoded(data: bytes | None) -> Manifest | None:
    try:
        return decode(data or b"")
    except ValueError:
        return None


def unpacked(data: bytes) -> list[Manifest | None]:
    """The manifests that `lines_of` packed; None for a line that is no manifest; [] if the data is damaged. Forged data
    may unpack to any size, so it is read line by line, and no more lines than so many bytes can hold."""
    found: list[Manifest | None] = []
    try:
        with gzip.open(BytesIO(data)) as lines:
            while len(found) * _PACKED_MIN < len(data) and (line := lines.readline(_LINE_MAX)):
                found.append(_decoded(line.removesuffix(b"\n")))
    except (OSError, EOFError, zlib.error):
        return []
    return found

"""The chain of manifests: what an archive swears of each partition, and what breaks the oath.

A manifest seals a range of offsets of one partition: how many records lie in it and the root of the hash tree over them
(`merkle`). It names the hash of the manifest before it, so that the hash of the last one, the head, stands for every record
from the first on. Whoever has kept a head elsewhere (an anchor) can tell whether anything below it was altered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from ledger.archive.format import merkle

FORMAT = 1
NOTE = 2  # a manifest that seals no record: `records` names what it says (`ledger.archive.format.notes`), no `leaves`
_ABSENT = bytes(32)  # in the place of the hash of a key or value that is null
_NULL = b"\xff\xff\xff\xff"  # in the place of the length of a header's value that is null
_length = Struct(">I").pack


def leaf_of(
    offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The leaf of one record. Layout: as `leaf_of_hashed`."""
    return leaf_of_hashed(offset, timestamp_ms, key, hash_of(value), headers)


def leaf_of_hashed(
    offset: int, timestamp_ms: int, key: bytes | None, value_sha256: bytes, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The leaf of a record whose value is known by its hash alone. Key, value and headers go in as hashes of their own: so
    a value can be redacted and its hash be left in its place, and every proof still holds.

    Layout: offset and timestamp (8 bytes each, big-endian, signed), SHA-256 of key, of value, of headers; a null key or
    value is 32 zero bytes; headers are the concatenation of name and value, each after its length (4 bytes, big-endian),
    where a null value has the length 2^32 - 1."""
    fixed = offset.to_bytes(8, "big", signed=True) + timestamp_ms.to_bytes(8, "big", signed=True)
    packed = bytearray()  # in one loop: of all that an archive reckons, most is reckoned here
    for name, data in headers:
        raw = name.encode()
        packed += _length(len(raw)) + raw
        packed += _NULL if data is None else _length(len(data)) + data
    return merkle.leaf(fixed + hash_of(key) + value_sha256 + sha256(packed).digest())


def hash_of(data: bytes | None) -> bytes:
    return _ABSENT if data is None else sha256(data).digest()


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is sworn of the offsets from `first` up to, not including, `next`.

    previous: SHA-256 (hex) of the manifest before it, "" for the first. root: of the tree over the leaves, hex. missing:
    how many offsets of the range hold no record (removed by the cleaner, or control records). Timestamps: the least and the
    greatest append time, milliseconds since the epoch. records, leaves: the objects that hold them, and their SHA-256.
    format: FORMAT, or NOTE.
    """

    topic: str
    topic_id: str
    partition: int
    sequence: int
    previous: str
    first: int
    next: int
    count: int
    missing: int
    root: str
    least_timestamp_ms: int
    greatest_timestamp_ms: int
    records: str
    records_sha256: str
    leaves: str
    leaves_sha256: str
    written_by: str
    written_at: str
    format: int = FORMAT

    def encode(self) -> bytes:
        """Canonical: names in order, no spaces, ASCII. The hash is taken of these bytes."""
        plain = {name: getattr(self, name) for name in _KINDS}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @property
    def sha256(self) -> str:
        return sha256(self.encode()).hexdigest()

    @property
    def is_note(self) -> bool:
        return self.format == NOTE


_KINDS: dict[str, type] = {field.name: {"int": int, "str": str}[str(field.type)] for field in fields(Manifest)}


def decode(data: bytes) -> Manifest:
    """Raises: ValueError if these are not the very bytes that `encode` gives."""
    try:
        plain = json.loads(data)
        if not isinstance(plain, dict) or {name: type(value) for name, value in plain.items()} != _KINDS:
            raise ValueError("not the fields of a manifest")
        made = Manifest(**plain)
        if made.format not in (FORMAT, NOTE):
            raise ValueError(f"of format {made.format}, and this version knows {FORMAT} and {NOTE} only")
        if made.is_note and made.count:
            raise ValueError("a note that seals records")
        if made.encode() != data:
            raise ValueError("not written canonically")
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"no JSON: {error}") from error
    return made


class Head(NamedTuple):
    """The end of a chain: what is to be kept elsewhere (as an anchor) to prove all that is below it.

    sequence: of the last manifest, -1 = there is none. sha256: of that manifest. next: the first offset that is not sealed.
    """

    topic: str
    partition: int
    sequence: int = -1
    sha256: str = ""
    next: int = 0
    topic_id: str = ""


def head_of(manifest: Manifest) -> Head:
    return Head(manifest.topic, manifest.partition, manifest.sequence, manifest.sha256, manifest.next, manifest.topic_id)


class Broken(NamedTuple):
    """Where a chain, or what it seals, does not hold. offset: of the first record that is concerned."""

    sequence: int
    offset: int
    reason: str


def broken_links(
    topic: str, partition: int, manifests: Sequence[Manifest | None], anchors: Mapping[int, str]
) -> list[Broken]:
    """Every manifest that is not what was sealed, lowest first. manifests: of one partition, in sequence from 0; None: it
    is missing or can't be read. anchors: sequence -> the hash that was kept of that manifest.

    Hashes prove downwards: an anchor says what its manifest is, that one what its predecessor is, and so on. So one that is
    not what its successor names is to blame, and by its own word nobody is."""
    broken: list[Broken] = []
    begins, end = list[int](), 0  # of each where the last one below it that can be read ends
    for one in manifests:
        begins.append(end)
        end = end if one is None else one.next
    claim = ""  # what the successor says, if it is itself sound
    for sequence in reversed(range(len(manifests))):
        manifest, below = manifests[sequence], manifests[sequence - 1] if sequence else None
        reason = _why_broken(Head(topic, partition, sequence), manifest, [claim, anchors.get(sequence, "")])
        if not reason and manifest is not None:
            reason = _why_unfit(manifest, below, sequence)
        if reason:
            broken.append(Broken(sequence, begins[sequence], reason))
        claim = manifest.previous if manifest is not None and not reason else ""
    return broken[::-1]


def _why_broken(place: Head, manifest: Manifest | None, claims: Sequence[str]) -> str:
    if manifest is None:
        return "the manifest is missing or can't be read"
    if any(claim not in ("", manifest.sha256) for claim in claims):
        return "the manifest was altered: its hash is not the one that its successor, or an anchor, names"
    if (manifest.topic, manifest.partition, manifest.sequence) != place[:3]:
        return f"the manifest is of {manifest.topic}[{manifest.partition}], number {manifest.sequence}"
    if manifest.count < 0 or manifest.missing < 0 or manifest.count + manifest.missing != manifest.next - manifest.first:
        return "its numbers of records do not fit its offsets"
    return ""


def _why_unfit(manifest: Manifest, below: Manifest | None, sequence: int) -> str:
    """Whether it goes on where the one below ends. If that can't be read, nobody can say."""
    if sequence == 0:
        return "" if (manifest.first, manifest.previous) == (0, "") else "it is the first, and does not begin at offset 0"
    if below is None or below.sha256 != manifest.previous:  # that one is blamed itself
        return ""
    anew = manifest.topic_id != below.topic_id and not manifest.is_note  # a restored topic is another, and a note says so
    if manifest.first != below.next or anew:
        return f"it does not go on where number {below.sequence} ends"
    return ""

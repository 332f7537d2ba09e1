"""The chain of manifests: what an archive guarantees about each partition, and how a broken chain is found.

A manifest seals a range of offsets of one partition. It holds the number of records in the range and the root of the
hash tree over them (`merkle`). It also names the hash of the manifest before it, so the hash of the last manifest, the
head, covers every record from the first on. A head that is stored elsewhere (an anchor) shows whether anything below it
was altered.
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
NOTE = 2  # a manifest that seals no record: `records` names the note (`ledger.archive.format.notes`), no `leaves`
_ABSENT = bytes(32)  # replaces the hash of a key or value that is null
_NULL = b"\xff\xff\xff\xff"  # replaces the length of a header value that is null
_length = Struct(">I").pack


def leaf_of(
    offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The leaf of one record. Layout: as in `leaf_of_hashed`."""
    return leaf_of_hashed(offset, timestamp_ms, key, hash_of(value), headers)


def leaf_of_hashed(
    offset: int, timestamp_ms: int, key: bytes | None, value_sha256: bytes, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The leaf of a record whose value is known by its hash alone. Key, value and headers enter the leaf as separate
    hashes. So a value can be redacted: its hash stays, and every proof remains valid.

    Layout: offset and timestamp (8 bytes each, big-endian, signed), SHA-256 of key, of value, of headers; a null key or
    value is 32 zero bytes; headers are the concatenation of name and value, each after its length (4 bytes,
    big-endian), where a null value has the length 2^32 - 1."""
    fixed = offset.to_bytes(8, "big", signed=True) + timestamp_ms.to_bytes(8, "big", signed=True)
    packed = bytearray()  # in one loop: an archive spends most of its computing time here
    for name, data in headers:
        raw = name.encode()
        packed += _length(len(raw)) + raw
        packed += _NULL if data is None else _length(len(data)) + data
    return merkle.leaf(fixed + hash_of(key) + value_sha256 + sha256(packed).digest())


def hash_of(data: bytes | None) -> bytes:
    return _ABSENT if data is None else sha256(data).digest()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The seal of the offsets from `first` up to, not including, `next`.

    previous: SHA-256 (hex) of the manifest before it, "" for the first. root: of the tree over the leaves, hex.
    missing: how many offsets of the range hold no record (removed by log compaction, or control records). Timestamps:
    the least and the greatest append time, milliseconds since the epoch. records, leaves: the objects that hold them,
    and their SHA-256. format: FORMAT, or NOTE.
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
        """The manifest as canonical JSON: names in order, no spaces, ASCII. Its hash is computed over these bytes."""
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
    """The manifest in these bytes. Raises: ValueError if they differ from the bytes that `encode` returns."""
    try:
        plain = json.loads(data)
        if not isinstance(plain, dict) or {name: type(value) for name, value in plain.items()} != _KINDS:
            raise ValueError("not the fields of a manifest")
        made = Manifest(**plain)
        if made.format not in (FORMAT, NOTE):
            raise ValueError(f"format {made.format} is unknown: this version knows only {FORMAT} and {NOTE}")
        if made.is_note and made.count:
            raise ValueError("a note must not seal records")
        if made.encode() != data:
            raise ValueError("not the canonical form")
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from error
    return made


class Head(NamedTuple):
    """The end of a chain. If it is stored elsewhere (as an anchor), it proves everything below it.

    sequence: of the last manifest, -1 = there is none. sha256: of that manifest. next: the first offset that is not
    sealed.
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
    """A point where a chain, or the data that it seals, is broken. offset: of the first record that is affected."""

    sequence: int
    offset: int
    reason: str


def broken_links(
    topic: str, partition: int, manifests: Sequence[Manifest | None], anchors: Mapping[int, str]
) -> list[Broken]:
    """The manifests that are not what was sealed, lowest first. manifests: of one partition, in sequence from 0; None:
    a manifest is missing or can't be read. anchors: sequence -> the anchored hash of that manifest.

    Hashes prove downwards: an anchor proves its manifest, that manifest proves its predecessor, and so on. So a
    manifest whose hash differs from the hash that its successor or an anchor recorded is the broken one. A broken
    manifest does not count as evidence about its predecessor.
    """
    broken: list[Broken] = []
    begins, end = list[int](), 0  # for each manifest: where the last readable one below it ends
    for one in manifests:
        begins.append(end)
        end = end if one is None else one.next
    claim = ""  # the hash that the successor recorded, unless it is broken itself
    for sequence in reversed(range(len(manifests))):
        manifest, below = manifests[sequence], manifests[sequence - 1] if sequence else None
        reason = _why_broken(Head(topic, partition, sequence), manifest, [claim, anchors.get(sequence, "")])
        if not reason and manifest is not None:
            reason = _why_unfit(manifest, below, sequence)
        if reason:
            broken.append(Broken(sequence, begins[sequence], reason))
        claim = manifest.previous if manifest is not None and not reason else ""
    return broken[::-1]


def _why_broken(where: Head, manifest: Manifest | None, claims: Sequence[str]) -> str:
    if manifest is None:
        return "the manifest is missing or can't be read"
    if any(claim not in ("", manifest.sha256) for claim in claims):
        return "the manifest was altered: its hash is not the one that its successor, or an anchor, names"
    if (manifest.topic, manifest.partition, manifest.sequence) != where[:3]:
        return f"this is manifest {manifest.sequence} of {manifest.topic}[{manifest.partition}], which does not belong here"
    if manifest.count < 0 or manifest.missing < 0 or manifest.count + manifest.missing != manifest.next - manifest.first:
        return "its numbers of records do not fit its offsets"
    return ""


def _why_unfit(manifest: Manifest, below: Manifest | None, sequence: int) -> str:
    """Why a manifest does not continue where the one below ends; "" if it does, or if the one below can't be read."""
    if sequence == 0:
        return "" if (manifest.first, manifest.previous) == (0, "") else "the first manifest does not begin at offset 0"
    if below is None or below.sha256 != manifest.previous:  # the one below is reported itself
        return ""
    anew = manifest.topic_id != below.topic_id and not manifest.is_note  # a restored topic has a new id, and a note
    if manifest.first != below.next or anew:
        return f"it does not continue where manifest {below.sequence} ends"
    return ""

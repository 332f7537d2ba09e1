"""Anchors: heads of chains, stored where a writer of the archive can't change them. They are signed if there is a key.

An anchor as text is one line of canonical JSON with the fields of its head. A signed anchor also has `key` (the
fingerprint of the public key) and `signature` (hex). The signature covers the head alone. Source: docs/decisions/0037.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ledger.archive.format.chain import Head, Manifest

DOMAIN = b"jobledger anchor 1\n"  # signed before the head, so that the signature is valid for nothing else
BYTES_MAX = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_HEX = re.compile(r"(?:[0-9a-f]{2}){1,256}\Z")
_NUMBER_MAX = 2**53


class Anchor(NamedTuple):
    """A head of a chain with its signature. key, signature: hex; both are "" if the anchor is not signed."""

    head: Head
    key: str = ""
    signature: str = ""


class AnchorRecord(NamedTuple):
    """An anchor as it was found. where: the location of the anchor for people, such as "ledger.anchors[0]@5". time_s:
    when it was stored, in seconds since the epoch; 0 = unknown."""

    anchor: Anchor
    where: str
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JudgedAnchors:
    """The result of `judge`. heads: of the anchors that count, without duplicates. refused: the anchors whose signature
    is invalid, and why. forks: contradictions, which are two hashes of one manifest."""

    heads: tuple[Head, ...]
    refused: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()


def chain_of(head: Head) -> str:
    """The name of a chain: `topic[partition]`."""
    return f"{head.topic}[{head.partition}]"


def signed_bytes(head: Head) -> bytes:
    """The bytes that a signature covers."""
    return DOMAIN + _canonical(head._asdict())


def encode(anchor: Anchor) -> bytes:
    signature = {"key": anchor.key, "signature": anchor.signature} if anchor.signature else {}
    return _canonical({**anchor.head._asdict(), **signature})


def decode(data: bytes | str) -> Anchor:
    """The anchor in a text. Raises: ValueError if it is not an anchor."""
    if len(data) > BYTES_MAX:
        raise ValueError(f"longer than {BYTES_MAX} bytes")
    try:
        plain = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(plain, dict):
        raise ValueError("not a JSON object")
    key, signature = plain.pop("key", ""), plain.pop("signature", "")
    try:
        head = Head(**plain)
    except TypeError as error:
        raise ValueError(f"not the fields of an anchor: {error}") from error
    kinds = [type(value) for value in (*head, key, signature)]
    if kinds != [str, int, int, str, int, str, str, str]:
        raise ValueError("topic, partition, sequence, sha256, next, topic_id, key or signature has a wrong type")
    numbers = (head.partition, head.sequence, head.next)
    sound = all(0 <= number <= _NUMBER_MAX for number in numbers) and _SHA256.match(head.sha256)
    if not sound or not _TOPIC.match(head.topic):
        raise ValueError("topic, partition, sequence, sha256 or next has an invalid value")
    if bool(key) != bool(signature) or not all(_HEX.match(text) for text in (key, signature) if text):
        raise ValueError("key or signature is missing or invalid")
    return Anchor(head, key, signature)


def judge(found: Iterable[AnchorRecord], why_not: Callable[[Anchor], str] | None = None) -> JudgedAnchors:
    """Decides which anchors count. why_not: returns "" if the signature of an anchor is valid, else the reason; None:
    no signature is required."""
    heads: dict[Head, str] = {}
    refused: list[str] = []
    for kept in found:
        why = "" if why_not is None else why_not(kept.anchor)
        if why:
            refused.append(f"{kept.where}, of {chain_of(kept.anchor.head)} manifest {kept.anchor.head.sequence}: {why}")
        else:
            heads.setdefault(kept.anchor.head, kept.where)
    return JudgedAnchors(tuple(heads), tuple(refused), tuple(_forks(heads)))


def _forks(heads: dict[Head, str]) -> Iterable[str]:
    first: dict[tuple[str, int, int], Head] = {}
    for head, where in heads.items():
        other = first.setdefault((head.topic, head.partition, head.sequence), head)
        if other.sha256 != head.sha256:
            yield (f"{chain_of(head)}, manifest {head.sequence}: {heads[other]} says {other.sha256}, and {where} says "
                   f"{head.sha256}. There were two chains.")  # fmt: skip


def going_back(found: Iterable[AnchorRecord], why_not: Callable[[Anchor], str] | None = None) -> list[str]:
    """Reports each anchor of a topic that names a lower manifest of its chain than an earlier anchor in the topic.

    A slower archiver writes such an anchor, or a person who wants log compaction to remove the newer one. why_not: as
    in `judge`. An anchor that does not count is ignored."""
    highest: dict[tuple[str, int], AnchorRecord] = {}
    contradictions = []
    for kept in found:
        head = kept.anchor.head
        if why_not is not None and why_not(kept.anchor):
            continue
        before = highest.setdefault((head.topic, head.partition), kept)
        if head.sequence < before.anchor.head.sequence:
            contradictions.append(f"{kept.where} names manifest {head.sequence} of {chain_of(head)}, and {before.where} "
                                  f"named {before.anchor.head.sequence} before")  # fmt: skip
        elif head.sequence > before.anchor.head.sequence:
            highest[head.topic, head.partition] = kept
    return contradictions


def why_not_above(anchor: Head, manifests: Sequence[Manifest | None]) -> str:
    """Why a chain is neither the anchored chain nor a longer version of it; "" if it is. manifests: those from the
    anchored manifest to the last; None for a manifest that can't be read."""
    if not manifests:
        return f"manifest {anchor.sequence} was anchored, but the chain ends below it: it was cut off"
    wanted = anchor.sha256
    for number, manifest in enumerate(manifests, start=anchor.sequence):
        if manifest is None:
            return f"manifest {number} can't be read"
        if number == anchor.sequence and manifest.sha256 != wanted:
            return f"manifest {number} is not the one that was anchored"
        if number > anchor.sequence and manifest.previous != wanted:
            return f"manifest {number} does not continue manifest {number - 1}"
        wanted = manifest.sha256
    return ""


def _canonical(plain: dict[str, object]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

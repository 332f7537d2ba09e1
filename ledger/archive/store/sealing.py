"""The seal of a bundle: a note at the end of each of its chains that names every object outside the chains by its hash.

These objects are `bundle.json`, timelines, logs and proofs. The seal ties them to the chains, and the chains to each other:
it names the head that each chain had before the seal. The same seal ends every chain. It is no signature: anyone who
rewrites the whole file can seal it again, so the receiver compares the SHA-256 of the file. Source: docs/decisions/0032.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ledger.archive.format import notes
from ledger.archive.format.chain import Broken, Manifest, decode
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.segments import manifest_name
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive
from ledger.errors import LedgerError
from ledger.ports import TopicPartition

_OF_CHAINS = ("records/", "leaves/", "notes/", "manifests/", "joined/", "rewritten/")
_VERIFY = "Run: jobledger audit verify --bundle FILE"


class SealCheck(NamedTuple):
    """The result of comparing a bundle with its seal. sealed: whether any chain has a seal. objects: how many objects
    the seal names. broken: chain -> the chain's differences from the seal."""

    sealed: bool
    objects: int
    broken: Mapping[TopicPartition, Sequence[Broken]]


def seal(archive: Archive, otherwise: TopicPartition, topic_id: str) -> None:
    """Ends every chain of a bundle with the seal. otherwise: the partition that gets the seal if there is no chain.

    Raises: as `Archive.note`."""
    heads = [archive.head(*tp) for tp in archive.partitions() or [otherwise]]
    body = {
        "heads": {_name(head[:2]): head.sha256 for head in heads},
        "objects": {name: sha256(archive.store.read(name) or b"").hexdigest() for name in _beside(archive.store)},
    }
    for head in heads:
        archive.note(head, notes.SEALED, body, topic_id=head.topic_id or topic_id)


def must_be_as_sealed(archive: Archive, name: str) -> None:
    """Compares one object with the seal at the end of each chain. A bundle without a seal passes.

    Raises: LedgerError if the object differs from the seal, or the end of a chain can't be read."""
    for tp in archive.partitions():
        body = _seal_of(archive.store, _last(archive, tp))
        if body is not None and _objects(body).get(name) != _digest(archive.store, name):
            raise LedgerError(f"{name} of this bundle is not what was sealed when the bundle was made.", hint=_VERIFY)


def check(store: ObjectStore) -> SealCheck:
    """Compares a bundle with its seal and returns the differences. Raises: as the store."""
    tps = Archive(store).partitions()
    found = {tp: chains.load(store, *tp).manifests for tp in tps}
    sealed_by = {tp: body for tp, manifests in found.items() if (body := _any_seal(store, manifests)) is not None}
    if not sealed_by:
        return SealCheck(False, 0, {})
    first, body = min(sealed_by.items())
    heads, broken = _texts(body, "heads"), dict[TopicPartition, list[Broken]]()
    missing = [tp for name in heads if (tp := _tp_of(name)) is not None and tp not in found]
    for tp in sorted({*tps, *missing}):
        broken[tp] = list(_broken(store, tp, found.get(tp), body, heads))
    last = next((one for one in reversed(found[first]) if one is not None), None)
    at = (last.sequence, last.next) if last is not None else (0, 0)
    objects = _objects(body)
    for name in sorted({*objects, *_beside(store)}):
        if (why := _altered(store, name, objects.get(name))) != "":
            broken[first].append(Broken(*at, f"{name} {why}"))
    return SealCheck(True, len(objects), broken)


def _altered(store: ObjectStore, name: str, digest: str | None) -> str:
    if digest is None:
        return "is not named by the seal: it was added later"
    try:
        found = _digest(store, name)
    except LedgerError as error:
        return f"can't be read: {error}"
    return "" if found == digest else "is missing" if found is None else "is not what was sealed"


def _broken(
    store: ObjectStore, tp: TopicPartition, manifests: Sequence[Manifest | None] | None, body: Mapping[str, Any],
    heads: Mapping[str, str],
) -> Iterator[Broken]:  # fmt: skip
    if not manifests:
        yield Broken(0, 0, "the seal of the bundle names this chain, but the bundle holds no manifest of it")
        return
    last, end = manifests[-1], next((one.next for one in reversed(manifests) if one is not None), 0)
    at, own = len(manifests) - 1, _seal_of(store, last, strict=False)
    if _name(tp) not in heads:
        yield Broken(0, 0, "the seal of the bundle does not name this chain: it was added later")
    if own is None:
        yield Broken(at, end, "the chain does not end with the seal of the bundle, unlike other chains in it")
    elif own != body:
        yield Broken(at, end, "the chain ends with a different seal than other chains in the bundle")
    elif last is not None and last.previous != heads.get(_name(tp), last.previous):
        yield Broken(at, end, "the head of the chain is not the one that the seal of the bundle names")


def _last(archive: Archive, tp: TopicPartition) -> Manifest | None:
    """The last manifest of a chain; None = the chain is empty. Raises: LedgerError if the manifest can't be read."""
    numbers = chains.numbers(archive.store, *tp)
    if not numbers:
        return None
    name = manifest_name(*tp, numbers[-1])
    try:
        return decode(archive.store.read(name) or b"")
    except ValueError as error:
        raise LedgerError(f"{name} can't be read: {error}", hint=_VERIFY) from error


def _any_seal(store: ObjectStore, manifests: Sequence[Manifest | None]) -> dict[str, Any] | None:
    """The body of the last seal in a chain, even if other manifests follow it; None = there is no seal."""
    bodies = (_seal_of(store, one, strict=False) for one in reversed(manifests))
    return next((body for body in bodies if body is not None), None)


def _seal_of(store: ObjectStore, manifest: Manifest | None, strict: bool = True) -> dict[str, Any] | None:
    """The body of a seal; None = the manifest is no seal. Raises: LedgerError (strict only) if a note can't be read."""
    if manifest is None or not manifest.is_note:
        return None
    try:
        body = notes.read_note(store, manifest)
    except LedgerError:
        if strict:
            raise
        return None
    return body if body.get("kind") == notes.SEALED else None


def _objects(body: Mapping[str, Any]) -> Mapping[str, str]:
    return _texts(body, "objects")


def _texts(body: Mapping[str, Any], field: str) -> dict[str, str]:
    """A field of the seal as name -> text. The seal may be forged: anything but a mapping gives {}."""
    found = body.get(field)
    return {name: str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _digest(store: ObjectStore, name: str) -> str | None:
    data = chains.read(store, name)
    return None if data is None else sha256(data).hexdigest()


def _beside(store: ObjectStore) -> list[str]:
    return [name for name in store.names("") if not name.startswith(_OF_CHAINS)]


def _name(tp: TopicPartition | Sequence[Any]) -> str:
    return f"{tp[0]}/{tp[1]}"


def _tp_of(name: str) -> TopicPartition | None:
    topic, _, partition = name.rpartition("/")
    return (topic, int(partition)) if topic and partition.isdecimal() and len(partition) < 10 else None

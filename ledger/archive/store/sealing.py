"""The seal of a bundle: a note at the end of each of its chains that names every object outside the chains by its hash.

`bundle.json`, timelines, logs and proofs lie beside the chains. The seal ties them to the chains, and the chains to each
other: it names the head that each had before it. The same seal ends every chain. It is no signature: a person who writes
the whole file anew can seal it anew, so the receiver compares the SHA-256 of the file. Source: docs/decisions/0032.
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
    """sealed: whether any chain has a seal. objects: how many it names. broken: what is not as sealed, by chain."""

    sealed: bool
    objects: int
    broken: Mapping[TopicPartition, Sequence[Broken]]


def seal(archive: Archive, otherwise: TopicPartition, topic_id: str) -> None:
    """Ends every chain of a bundle with its seal. otherwise: gets the seal where no chain has any record.

    Raises: as `Archive.note`."""
    heads = [archive.head(*place) for place in archive.places() or [otherwise]]
    body = {
        "heads": {_name(head[:2]): head.sha256 for head in heads},
        "objects": {name: sha256(archive.store.read(name) or b"").hexdigest() for name in _beside(archive.store)},
    }
    for head in heads:
        archive.note(head, notes.SEALED, body, topic_id=head.topic_id or topic_id)


def must_be_as_sealed(archive: Archive, name: str) -> None:
    """Compares one object with the seal at the end of each chain. A bundle without a seal passes.

    Raises: LedgerError: the object is not what was sealed, or the end of a chain can't be read."""
    for place in archive.places():
        body = _seal_of(archive.store, _last(archive, place))
        if body is not None and _objects(body).get(name) != _digest(archive.store, name):
            raise LedgerError(f"{name} of this bundle is not what was sealed when the bundle was made.", hint=_VERIFY)


def check(store: ObjectStore) -> SealCheck:
    """Compares all that the seal names with what is there. Total, but for the errors of the store."""
    places = Archive(store).places()
    found = {place: chains.load(store, *place).manifests for place in places}
    sealed_by = {place: body for place, manifests in found.items() if (body := _any_seal(store, manifests)) is not None}
    if not sealed_by:
        return SealCheck(False, 0, {})
    first, body = min(sealed_by.items())
    heads, broken = _texts(body, "heads"), dict[TopicPartition, list[Broken]]()
    missing = [place for name in heads if (place := _place(name)) is not None and place not in found]
    for place in sorted({*places, *missing}):
        broken[place] = list(_broken(store, place, found.get(place), body, heads))
    last = next((one for one in reversed(found[first]) if one is not None), None)
    at = (last.sequence, last.next) if last is not None else (0, 0)
    objects = _objects(body)
    for name in sorted({*objects, *_beside(store)}):
        if (why := _altered(store, name, objects.get(name))) != "":
            broken[first].append(Broken(*at, f"{name} {why}"))
    return SealCheck(True, len(objects), broken)


def _altered(store: ObjectStore, name: str, digest: str | None) -> str:
    if digest is None:
        return "is not named by the seal: it was put in"
    try:
        found = _digest(store, name)
    except LedgerError as error:
        return f"can't be read: {error}"
    return "" if found == digest else "is missing" if found is None else "is not what was sealed"


def _broken(
    store: ObjectStore, place: TopicPartition, manifests: Sequence[Manifest | None] | None, body: Mapping[str, Any],
    heads: Mapping[str, str],
) -> Iterator[Broken]:  # fmt: skip
    if not manifests:
        yield Broken(0, 0, "the seal of the bundle names this chain, and nothing of it is in the bundle")
        return
    last, end = manifests[-1], next((one.next for one in reversed(manifests) if one is not None), 0)
    at, own = len(manifests) - 1, _seal_of(store, last, strict=False)
    if _name(place) not in heads:
        yield Broken(0, 0, "the seal of the bundle does not name this chain: it was put in")
    if own is None:
        yield Broken(at, end, "the chain does not end with the seal of the bundle, as others in it do")
    elif own != body:
        yield Broken(at, end, "the chain ends with another seal than others in the bundle")
    elif last is not None and last.previous != heads.get(_name(place), last.previous):
        yield Broken(at, end, "the chain is not the one that the seal of the bundle names")


def _last(archive: Archive, place: TopicPartition) -> Manifest | None:
    """Raises: LedgerError."""
    numbers = chains.numbers(archive.store, *place)
    if not numbers:
        return None
    name = manifest_name(*place, numbers[-1])
    try:
        return decode(archive.store.read(name) or b"")
    except ValueError as error:
        raise LedgerError(f"{name} can't be read: {error}", hint=_VERIFY) from error


def _any_seal(store: ObjectStore, manifests: Sequence[Manifest | None]) -> dict[str, Any] | None:
    """Also one that is not the last of its chain any more."""
    bodies = (_seal_of(store, one, strict=False) for one in reversed(manifests))
    return next((body for body in bodies if body is not None), None)


def _seal_of(store: ObjectStore, manifest: Manifest | None, strict: bool = True) -> dict[str, Any] | None:
    """None: it is no seal. Raises: LedgerError (strict only): it is a note that can't be read."""
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
    """The seal may be anybody's."""
    found = body.get(field)
    return {name: str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _digest(store: ObjectStore, name: str) -> str | None:
    data = chains.read(store, name)
    return None if data is None else sha256(data).hexdigest()


def _beside(store: ObjectStore) -> list[str]:
    return [name for name in store.names("") if not name.startswith(_OF_CHAINS)]


def _name(place: TopicPartition | Sequence[Any]) -> str:
    return f"{place[0]}/{place[1]}"


def _place(name: str) -> TopicPartition | None:
    topic, _, partition = name.rpartition("/")
    return (topic, int(partition)) if topic and partition.isdecimal() and len(partition) < 10 else None

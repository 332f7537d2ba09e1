"""Proves that an archive holds what was sealed, up to the last anchor; or names the first record that it can't prove.

A record may be missing, or its value, where a note of the chain says that it expired or was redacted, and nowhere else:
then its leaf, which stays, takes its place.

A chain alone proves that it is consistent: who can write to the store could make a whole new one. An anchor, a head that
was kept elsewhere, proves all that lies below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise, zip_longest

from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import Broken, Head, Manifest, broken_links
from ledger.archive.format.objects import ObjectStore, Unfit
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import EXPIRED, REDACTED, with_stubs
from ledger.archive.format.segments import LEAF_BYTES, Leaf, leaves_of, manifest_name, unpack
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive
from ledger.archive.store.chains import Chain, Joined
from ledger.errors import LedgerError
from ledger.ports import Record

_CLOCKS_DIFFER_S = 60.0
_SLACK = 1000  # records more than were sealed that are still read, to name those that were put in


@dataclass(frozen=True, slots=True)
class RemovalSummary:
    """What a note says of one object. records: how many are gone, or their values. Other fields as those of `gone.Gone`;
    by, at: who did it, and when (RFC 3339)."""

    why: str
    records: int
    namespace: str
    until_ms: int
    reason: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Note:
    """A note that `audit verify` names: one above the last anchor, which nobody proves yet, or one of no known kind.
    sequence: of its manifest. kind: "" if the note says nothing that can be read. by, at: as its manifest says, the time as
    RFC 3339. anchored: whether an anchor stands for it."""

    sequence: int
    kind: str
    by: str
    at: str
    anchored: bool


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What was found of one partition. sealed: the first offset beyond the last manifest. anchored: the first offset
    beyond the last anchor, 0 without one. proved: every record below this offset is as it was sealed, by the
    word of an anchor. proved_manifest: number of the last manifest for which an anchor stands, -1 without one;
    last_manifest: of the last one. broken: lowest offset first. bad_from, bad_to: between these offsets, both
    included, lies the first record that may not be as it was sealed; where a manifest does not hold, it may lie
    far below the place where that shows. None: there is no such record. notes: those to be named. under_way:
    objects that no manifest names yet, too young to be strays. strays: objects that no manifest names, or that
    rewritten ones took the place of: left by a crash, or put there by somebody; nobody reads them. expired,
    redacted: how many records are gone, or their values, by the word of notes; gone: those words. unanchored:
    the lowest offset that is gone by a note above the last anchor, which nobody proves yet; None: there is none."""

    topic: str
    partition: int
    manifests: int
    records: int
    sealed: int
    anchored: int
    proved: int
    broken: tuple[Broken, ...]
    strays: tuple[str, ...] = ()
    expired: int = 0
    redacted: int = 0
    gone: tuple[RemovalSummary, ...] = ()
    unanchored: int | None = None
    proved_manifest: int = -1
    last_manifest: int = -1
    bad_from: int | None = None
    bad_to: int | None = None
    notes: tuple[Note, ...] = ()
    under_way: tuple[str, ...] = ()


def verify(archive: Archive, anchors: Iterable[Head] = (), young_s: float = 0.0) -> list[PartitionVerdict]:
    """Of every partition that has a chain or an anchor. Reads the whole archive. young_s: an object that no manifest names
    and that was put there less than so many seconds ago is no stray: an archiver may be about to name it.

    Raises: as the store."""
    kept = list(anchors)
    places = sorted({*archive.places(), *((anchor.topic, anchor.partition) for anchor in kept)})
    return [
        verify_partition(archive.store, *place, [one for one in kept if (one.topic, one.partition) == place], young_s)
        for place in places
    ]


def verify_partition(
    store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head], young_s: float = 0.0
) -> PartitionVerdict:
    """What is joined or rewritten while we read moves: then it is read again. young_s: as of `verify`."""
    chain = _load(store, topic, partition, anchors)
    while True:
        verdict = _verdict(store, topic, partition, anchors, chain)
        if not verdict.broken:
            break
        again = _load(store, topic, partition, anchors)
        if (again.joined, again.rewritten) == (chain.joined, chain.rewritten):
            break
        chain = again
    young = {name for name in verdict.strays if young_s and _is_young(store, name, young_s)}
    strays = tuple(name for name in verdict.strays if name not in young)
    return replace(verdict, strays=strays, under_way=tuple(sorted(young)))


def _is_young(store: ObjectStore, name: str, young_s: float) -> bool:
    """Also one that has gone since. An age far below zero is a time that somebody has set."""
    found = store.stat(name)
    return found is None or (found.age_s is not None and -_CLOCKS_DIFFER_S <= found.age_s < young_s)


def _load(store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head]) -> Chain:
    """With one manifest that is missing where an anchor says that there were more: its number may be anybody's."""
    chain = chains.load(store, topic, partition)
    there = len(chain.manifests)
    cut_off = any(anchor.sequence >= there for anchor in anchors)
    return replace(chain, manifests=[*chain.manifests, None]) if cut_off else chain


def _verdict(store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head], chain: Chain) -> PartitionVerdict:
    manifests, there = chain.manifests, len(chain.manifests)
    links = broken_links(topic, partition, manifests, {anchor.sequence: anchor.sha256 for anchor in anchors})
    sealed = [manifest for manifest in manifests if manifest is not None]
    altered = [
        one for manifest in sealed if not chain.joined_of(manifest.sequence) for one in _segment(store, chain, manifest)
    ]
    for joined in chain.joined:
        run = [manifest for manifest in sealed if joined.covers(manifest.sequence)]
        altered += broken_in(store, chain, joined, run)
    # What hangs on a manifest that does not hold is proved by nobody, unless an anchor lies below it.
    holding = min((one.sequence for one in links), default=there)
    # How far an anchor reaches is the word of its manifest, whose hash it names.
    proving = [one for anchor in anchors if 0 <= anchor.sequence < holding and (one := manifests[anchor.sequence])]
    reach, proved_by = max((one.next for one in proving), default=0), max((one.sequence for one in proving), default=-1)
    unanchored = _unanchored(chain, proved_by)
    named = {name for manifest in sealed for name in (manifest.records, manifest.leaves)}
    named |= {name for one in chain.joined for name in (one.manifests, one.records, one.leaves)}
    named |= {one.object for one in chain.rewritten}
    named |= {manifest_name(topic, partition, sequence) for sequence in range(there)}
    named -= chain.replaced.keys()
    kinds = ("records", "leaves", "notes", "joined", "rewritten", "manifests")
    lying = [name for kind in kinds for name in store.names(f"{kind}/{topic}/{partition}/")]
    told = _told(chain)
    bad_from, bad_to = _first_bad(links, altered, manifests, reach)
    return PartitionVerdict(
        topic, partition, len(sealed), sum(manifest.count for manifest in sealed),
        sealed[-1].next if sealed else 0, max((anchor.next for anchor in anchors), default=0),
        min([reach, *(one.offset for one in altered), *([] if unanchored is None else [unanchored])]),
        tuple(sorted({*links, *altered}, key=lambda one: (one.offset, one.sequence))),
        tuple(name for name in lying if name not in named),
        sum(one.records for one in told if one.why == EXPIRED), sum(one.records for one in told if one.why == REDACTED),
        told, unanchored, proved_by, there - 1, bad_from, bad_to, tuple(_notes(store, sealed, proved_by, bool(anchors))),
    )  # fmt: skip


def _first_bad(
    links: Sequence[Broken], altered: Sequence[Broken], manifests: Sequence[Manifest | None], reach: int
) -> tuple[int, int] | tuple[None, None]:
    """Between which offsets the first bad record lies. reach: where the last anchor that holds ends.

    A record that is not as its manifest says shows exactly. A manifest that does not hold shows only that somebody wrote
    it: from the last anchor that holds on, all manifests below it may be written to fit."""
    exact = min((one.offset for one in altered), default=None)
    if links and (exact is None or exact >= reach):
        first = manifests[links[0].sequence] if links[0].sequence < len(manifests) else None
        last = links[0].offset if first is None else max(links[0].offset, first.next - 1)
        return min(reach, last), last if exact is None else min(last, exact)
    return (None, None) if exact is None else (exact, exact)


_NAMED_ABOVE = {notes.RESTORED, notes.PINNED, notes.UNPINNED}
_KNOWN = {*_NAMED_ABOVE, notes.JOINED, notes.REWRITTEN, notes.SEALED}


def _notes(store: ObjectStore, manifests: Sequence[Manifest], proved_by: int, anchored: bool) -> Iterator[Note]:
    """What expired and was redacted is told by `RemovalSummary`; what was joined changes no record."""
    for manifest in manifests:
        if not manifest.is_note:
            continue
        try:
            kind = str(notes.read_note(store, manifest).get("kind", ""))[:100]
        except LedgerError:
            kind = ""
        above = anchored and manifest.sequence > proved_by
        if kind not in _KNOWN or (above and kind in _NAMED_ABOVE):
            yield Note(manifest.sequence, kind, manifest.written_by, manifest.written_at, not above and anchored)


def _told(chain: Chain) -> tuple[RemovalSummary, ...]:
    """What the notes say, those of one act and namespace together."""
    found: dict[RemovalSummary, int] = {}
    for note in chain.rewritten:
        for one in note.gone:
            told = RemovalSummary(one.why, 0, one.namespace, one.until_ms, one.reason, note.by, note.at)
            found[told] = found.get(told, 0) + one.records
    return tuple(replace(told, records=count) for told, count in found.items())


def _unanchored(chain: Chain, anchored: int) -> int | None:
    """Whoever can write to the store can write a note; only what an anchor stands for is proved."""
    later = [note for note in chain.rewritten if note.sequence > anchored]
    return min((first for note in later for one in note.gone for first, _ in one.offsets), default=None)


def _segment(store: ObjectStore, chain: Chain, manifest: Manifest) -> Iterator[Broken]:
    """What of the objects of one manifest is not as sealed."""
    if manifest.is_note:
        yield from _note(store, manifest)
        return
    name, digest = chain.object_of(manifest)
    (data, why), (listed, _) = _read(store, name), _read(store, manifest.leaves)
    altered = data is None or sha256(data).hexdigest() != digest
    try:
        opened = parquet.Opened(data or b"", chain.rows_max(manifest) + _SLACK)
        records = opened.records(manifest.topic, manifest.partition)
    except ValueError as error:
        why = why or f"can't be read: {error}"
        yield Broken(manifest.sequence, manifest.first, f"{name} {why}")
        return
    sealed = _trusted(listed, manifest.leaves_sha256, manifest.count)
    wrong = _first_wrong(chain, manifest, records, sealed, name)
    if wrong is not None:
        yield wrong
    elif altered:
        yield Broken(manifest.sequence, manifest.first, f"{name} was altered, beside its records")
    elif (times := _wrong_times(manifest, records)) is not None:
        yield times
    if sealed is None:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} is missing or was altered")
    elif wrong is None and _root(sealed) != manifest.root:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} does not list what was sealed")


def _read(store: ObjectStore, name: str) -> tuple[bytes | None, str]:
    """An object, and why it can't be had."""
    try:
        data = chains.read(store, name)
    except Unfit as error:
        return None, f"can't be read: {error}"
    return data, "is missing" if data is None else ""


def _note(store: ObjectStore, manifest: Manifest) -> Iterator[Broken]:
    note, _ = _read(store, manifest.records)
    if note is None or sha256(note).hexdigest() != manifest.records_sha256:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.records} is missing or was altered")


def broken_in(store: ObjectStore, chain: Chain, joined: Joined, run: Sequence[Manifest]) -> Iterator[Broken]:
    """What of the objects of a joined run is not as its manifests seal it. run: those manifests that can be read."""
    segments = [manifest for manifest in run if not manifest.is_note]
    for manifest in run:
        if manifest.is_note:
            yield from _note(store, manifest)
    if not segments:
        return
    first, (topic, partition) = segments[0], (run[0].topic, run[0].partition)
    name, digest = chain.now(joined.of_records)
    (data, why), (listed, _) = _read(store, name), _read(store, joined.leaves)
    altered = data is None or sha256(data).hexdigest() != digest
    sealed = _trusted(listed, joined.leaves_sha256, sum(manifest.count for manifest in segments))
    if sealed is None:
        yield Broken(first.sequence, first.first, f"{joined.leaves} is missing or was altered")
    found: list[Broken] = []
    try:
        opened = parquet.Opened(data or b"", chain.rows_max(first) + _SLACK)
        for manifest in segments:
            records = opened.records(topic, partition, manifest.first, manifest.next)
            own = None if sealed is None else [leaf for leaf in sealed if manifest.first <= leaf.offset < manifest.next]
            wrong = _first_wrong(chain, manifest, records, own, name)
            if wrong is None and own is not None and _root(own) != manifest.root:
                wrong = Broken(manifest.sequence, manifest.first, f"{joined.leaves} does not list what was sealed")
            wrong = wrong or _wrong_times(manifest, records)
            found += [] if wrong is None else [wrong]
    except ValueError as error:
        why = why or f"can't be read: {error}"
        found = [Broken(first.sequence, first.first, f"{name} {why}")]
    if altered and not found:
        found = [Broken(first.sequence, first.first, f"{name} was altered, beside its records")]
    yield from found


def _first_wrong(
    chain: Chain, manifest: Manifest, records: Sequence[Record], sealed: Sequence[Leaf] | None, name: str
) -> Broken | None:
    """The record at which what is there departs from what was sealed and from what notes say is gone; None: nowhere."""
    found = with_stubs(leaves_of(records), sealed, chain.absences)
    unsaid = _unsaid(chain, manifest, records)
    if _root(found) != manifest.root or not _in_order(found, manifest):
        wrong = _departs(manifest, found, sealed, name)
        return wrong if unsaid is None or wrong.offset <= unsaid.offset else unsaid
    return unsaid


def _unsaid(chain: Chain, manifest: Manifest, records: Sequence[Record]) -> Broken | None:
    """The first record whose value is missing though no note says so, or that is there though a note says it is not."""
    said = chain.absences
    for record in records:
        offset, redacted = record.offset(), isinstance(record, RedactedRecord)
        if redacted and not said.redacted(offset):
            return Broken(manifest.sequence, offset, "the value is missing, and no note says that it was redacted")
        if said and (said.expired(offset) or (said.redacted(offset) and not redacted)):
            return Broken(manifest.sequence, offset, "what a note says is gone is there")
    return None


def _wrong_times(manifest: Manifest, records: Sequence[Record]) -> Broken | None:
    """The manifest says the least and the greatest append time, which readers of the past go by. records: as sealed, but
    for what has expired."""
    least, greatest = manifest.least_timestamp_ms, manifest.greatest_timestamp_ms
    times = [record.timestamp()[1] for record in records]
    beyond = next((one.offset() for one, at in zip(records, times, strict=True) if not least <= at <= greatest), None)
    if beyond is not None:
        return Broken(manifest.sequence, beyond, "the record lies outside the times that its manifest says")
    if len(records) == manifest.count > 0 and (min(times), max(times)) != (least, greatest):
        return Broken(manifest.sequence, manifest.first, "the times that the manifest says are not those of its records")
    return None


def _departs(manifest: Manifest, found: Sequence[Leaf], sealed: Sequence[Leaf] | None, name: str) -> Broken:
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


def _trusted(listed: bytes | None, digest: str, count: int) -> list[Leaf] | None:
    """count: so many there must be."""
    if listed is not None and len(listed) > LEAF_BYTES * (max(count, 0) + _SLACK):
        return None
    try:
        return unpack(listed) if listed is not None and sha256(listed).hexdigest() == digest else None
    except ValueError:  # as whoever sealed it may have wanted
        return None


def _root(leaves: Sequence[Leaf]) -> str:
    return merkle.root([leaf.hash for leaf in leaves]).hex()


def _in_order(leaves: Sequence[Leaf], manifest: Manifest) -> bool:
    offsets = [leaf.offset for leaf in leaves]
    inside = not offsets or (offsets[0] >= manifest.first and offsets[-1] < manifest.next)
    return inside and len(offsets) == manifest.count and all(a < b for a, b in pairwise(offsets))

"""Proves that an archive holds the sealed records, up to the last anchor, or finds the first record that it can't
prove.

A record or a value may be missing only if a note of the chain says that it expired or was redacted. Its leaf stays, and
replaces the record in the proof.

A chain alone proves only that it is consistent: anyone who can write to the store could write a whole new chain. An
anchor, a head that was kept elsewhere, proves everything below it.
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
_SLACK = 1000  # so many records more than were sealed are still read, to name inserted ones


@dataclass(frozen=True, slots=True)
class RemovalSummary:
    """The removals of one operation in one namespace, as notes declare them. records: how many records, or values, were
    removed. by, at: who removed them, and when (RFC 3339). Other fields as those of `removals.Gone`."""

    why: str
    records: int
    namespace: str
    until_ms: int
    reason: str
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Note:
    """A note that `audit verify` names, because no anchor proves it yet or its kind is unknown. sequence: the number of
    its manifest. kind: "" if the note can't be read. by, at: from its manifest; the time is RFC 3339. anchored: whether
    an anchor proves it."""

    sequence: int
    kind: str
    by: str
    at: str
    anchored: bool


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The result of verifying one partition.

    sealed: the first offset behind the last manifest. anchored: the first offset behind the last anchor, 0 without an
    anchor. proved: an anchor proves that every record below this offset is as it was sealed. proved_manifest: the
    number of the last manifest that an anchor proves, -1 without an anchor. last_manifest: the number of the last
    manifest. broken: lowest offset first.

    bad_from, bad_to: the first record that may not be as it was sealed lies between these offsets, both included; None
    = there is no such record. If a manifest is broken, the first bad record may lie far below it.

    notes: the notes to name in a report. under_way: objects that no manifest names, but too young to be orphans. orphans:
    objects that no manifest names, or that rewritten objects replaced. They are left by a crash or were put there by
    somebody; no reader uses them. expired, redacted: how many records, or values, notes declare as removed. gone: these
    declarations. unanchored: the lowest offset removed by a note that no anchor proves yet; None = there is none.
    """

    topic: str
    partition: int
    manifests: int
    records: int
    sealed: int
    anchored: int
    proved: int
    broken: tuple[Broken, ...]
    orphans: tuple[str, ...] = ()
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
    """The results for all partitions that have a chain or an anchor. Reads the whole archive. young_s: an object that
    no manifest names is no stray if it is younger than so many seconds, because an archiver may be about to name it.

    Raises: as the store."""
    kept = list(anchors)
    tps = sorted({*archive.partitions(), *((anchor.topic, anchor.partition) for anchor in kept)})
    return [
        verify_partition(archive.store, *tp, [one for one in kept if (one.topic, one.partition) == tp], young_s)
        for tp in tps
    ]


def verify_partition(
    store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head], young_s: float = 0.0
) -> PartitionVerdict:
    """The result of verifying one partition. If objects were joined or rewritten meanwhile, the partition is read
    again. young_s: as for `verify`."""
    chain = _load(store, topic, partition, anchors)
    while True:
        verdict = _verdict(store, topic, partition, anchors, chain)
        if not verdict.broken:
            break
        again = _load(store, topic, partition, anchors)
        if (again.joined, again.rewritten) == (chain.joined, chain.rewritten):
            break
        chain = again
    young = {name for name in verdict.orphans if young_s and _is_young(store, name, young_s)}
    orphans = tuple(name for name in verdict.orphans if name not in young)
    return replace(verdict, orphans=orphans, under_way=tuple(sorted(young)))


def _is_young(store: ObjectStore, name: str, young_s: float) -> bool:
    """Whether an object is younger than young_s, or deleted by now. An object with an age far below zero is not young,
    because somebody has set its time."""
    found = store.stat(name)
    return found is None or (found.age_s is not None and -_CLOCKS_DIFFER_S <= found.age_s < young_s)


def _load(store: ObjectStore, topic: str, partition: int, anchors: Sequence[Head]) -> Chain:
    """The chain. If an anchor names a manifest behind its end, one missing manifest (None) is appended; only one,
    because the anchor's number may be forged."""
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
    # Only anchors below the first broken manifest prove anything.
    holding = min((one.sequence for one in links), default=there)
    # Take the offset from the manifest whose hash the anchor names; the anchor's own offset proves nothing.
    proving = [one for anchor in anchors if 0 <= anchor.sequence < holding and (one := manifests[anchor.sequence])]
    reach, proved_by = max((one.next for one in proving), default=0), max((one.sequence for one in proving), default=-1)
    unanchored = _unanchored(chain, proved_by)
    named = {name for manifest in sealed for name in (manifest.records, manifest.leaves)}
    named |= {name for one in chain.joined for name in (one.manifests, one.records, one.leaves)}
    named |= {one.object for one in chain.rewritten}
    named |= {manifest_name(topic, partition, sequence) for sequence in range(there)}
    named -= chain.replaced.keys()
    kinds = ("records", "leaves", "notes", "joined", "rewritten", "manifests")
    present = [name for kind in kinds for name in store.names(f"{kind}/{topic}/{partition}/")]
    summaries = _removal_summaries(chain)
    bad_from, bad_to = _first_bad(links, altered, manifests, reach)
    return PartitionVerdict(
        topic, partition, len(sealed), sum(manifest.count for manifest in sealed),
        sealed[-1].next if sealed else 0, max((anchor.next for anchor in anchors), default=0),
        min([reach, *(one.offset for one in altered), *([] if unanchored is None else [unanchored])]),
        tuple(sorted({*links, *altered}, key=lambda one: (one.offset, one.sequence))),
        tuple(name for name in present if name not in named),
        sum(one.records for one in summaries if one.why == EXPIRED),
        sum(one.records for one in summaries if one.why == REDACTED), summaries, unanchored, proved_by, there - 1,
        bad_from, bad_to, tuple(_notes(store, sealed, proved_by, bool(anchors))),
    )  # fmt: skip


def _first_bad(
    links: Sequence[Broken], altered: Sequence[Broken], manifests: Sequence[Manifest | None], reach: int
) -> tuple[int, int] | tuple[None, None]:
    """The offsets between which the first bad record lies, both included. reach: the offset up to which the last valid
    anchor proves records.

    A record that differs from its manifest gives the exact offset. A broken manifest shows only that somebody wrote it:
    all manifests between the last valid anchor and the broken one may have been rewritten to match."""
    exact = min((one.offset for one in altered), default=None)
    if links and (exact is None or exact >= reach):
        first = manifests[links[0].sequence] if links[0].sequence < len(manifests) else None
        last = links[0].offset if first is None else max(links[0].offset, first.next - 1)
        return min(reach, last), last if exact is None else min(last, exact)
    return (None, None) if exact is None else (exact, exact)


_NAMED_ABOVE = {notes.RESTORED, notes.PINNED, notes.UNPINNED}
_KNOWN = {*_NAMED_ABOVE, notes.JOINED, notes.REWRITTEN, notes.SEALED}


def _notes(store: ObjectStore, manifests: Sequence[Manifest], proved_by: int, anchored: bool) -> Iterator[Note]:
    """Yields the notes to name in a report. `RemovalSummary` reports expired and redacted records; joins change no
    record."""
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


def _removal_summaries(chain: Chain) -> tuple[RemovalSummary, ...]:
    """The removals that notes declare, summed up by operation and namespace."""
    found: dict[RemovalSummary, int] = {}
    for note in chain.rewritten:
        for one in note.gone:
            summaries = RemovalSummary(one.why, 0, one.namespace, one.until_ms, one.reason, note.by, note.at)
            found[summaries] = found.get(summaries, 0) + one.records
    return tuple(replace(summaries, records=count) for summaries, count in found.items())


def _unanchored(chain: Chain, anchored: int) -> int | None:
    """The lowest offset removed by a note that no anchor proves; None = there is none. Anyone who can write to the
    store can write a note, so only anchored notes are proved."""
    later = [note for note in chain.rewritten if note.sequence > anchored]
    return min((first for note in later for one in note.gone for first, _ in one.offsets), default=None)


def _segment(store: ObjectStore, chain: Chain, manifest: Manifest) -> Iterator[Broken]:
    """Yields the first difference of each object of one manifest from what was sealed."""
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
        yield Broken(manifest.sequence, manifest.first, f"{name} was altered, but not its records")
    elif (times := _wrong_times(manifest, records)) is not None:
        yield times
    if sealed is None:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} is missing or was altered")
    elif wrong is None and _root(sealed) != manifest.root:
        yield Broken(manifest.sequence, manifest.first, f"{manifest.leaves} does not list the sealed records")


def _read(store: ObjectStore, name: str) -> tuple[bytes | None, str]:
    """The bytes of an object, or None and the reason."""
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
    """Yields the differences of a joined run's objects from what its manifests seal. run: the readable manifests."""
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
                wrong = Broken(manifest.sequence, manifest.first, f"{joined.leaves} does not list the sealed records")
            wrong = wrong or _wrong_times(manifest, records)
            found += [] if wrong is None else [wrong]
    except ValueError as error:
        why = why or f"can't be read: {error}"
        found = [Broken(first.sequence, first.first, f"{name} {why}")]
    if altered and not found:
        found = [Broken(first.sequence, first.first, f"{name} was altered, but not its records")]
    yield from found


def _first_wrong(
    chain: Chain, manifest: Manifest, records: Sequence[Record], sealed: Sequence[Leaf] | None, name: str
) -> Broken | None:
    """The first record that differs from what was sealed, apart from removals that notes declare; None = there is
    none."""
    found = with_stubs(leaves_of(records), sealed, chain.absences)
    unsaid = _unsaid(chain, manifest, records)
    if _root(found) != manifest.root or not _in_order(found, manifest):
        wrong = _departs(manifest, found, sealed, name)
        return wrong if unsaid is None or wrong.offset <= unsaid.offset else unsaid
    return unsaid


def _unsaid(chain: Chain, manifest: Manifest, records: Sequence[Record]) -> Broken | None:
    """The first record whose value is missing without a note, or that is there although a note says it was removed."""
    said = chain.absences
    for record in records:
        offset, redacted = record.offset(), isinstance(record, RedactedRecord)
        if redacted and not said.redacted(offset):
            return Broken(manifest.sequence, offset, "the value is missing, and no note says that it was redacted")
        if said and (said.expired(offset) or (said.redacted(offset) and not redacted)):
            return Broken(manifest.sequence, offset, "the record or its value is there, but a note says it was removed")
    return None


def _wrong_times(manifest: Manifest, records: Sequence[Record]) -> Broken | None:
    """The first record whose append time contradicts the manifest's least and greatest one; None = there is none.
    Readers of past moments rely on these times. records: the sealed records, except expired ones."""
    least, greatest = manifest.least_timestamp_ms, manifest.greatest_timestamp_ms
    times = [record.timestamp()[1] for record in records]
    beyond = next((one.offset() for one, at in zip(records, times, strict=True) if not least <= at <= greatest), None)
    if beyond is not None:
        return Broken(manifest.sequence, beyond, "the append time is outside the times that the manifest names")
    if len(records) == manifest.count > 0 and (min(times), max(times)) != (least, greatest):
        return Broken(manifest.sequence, manifest.first, "no record has one of the append times that the manifest names")
    return None


def _departs(manifest: Manifest, found: Sequence[Leaf], sealed: Sequence[Leaf] | None, name: str) -> Broken:
    if sealed is None:
        reason = f"{name} does not hold the records that were sealed; without the leaves, the bad one can't be found"
        return Broken(manifest.sequence, manifest.first, reason)
    for there, wanted in zip_longest(found, sealed):
        if wanted is None:
            return Broken(manifest.sequence, there.offset, "a record was inserted")
        if there is None or there.offset > wanted.offset:
            return Broken(manifest.sequence, wanted.offset, "a record was removed")
        if there.offset < wanted.offset:
            at = max(there.offset, manifest.first)  # a record that was moved here may have an offset of another segment
            return Broken(manifest.sequence, at, "a record was inserted, repeated or moved")
        if there.hash != wanted.hash:
            return Broken(manifest.sequence, wanted.offset, "the record was altered")
    return Broken(manifest.sequence, manifest.first, "the records match the leaves, but not the manifest")


def _trusted(listed: bytes | None, digest: str, count: int) -> list[Leaf] | None:
    """The leaves of an object, if its hash matches; else None. count: how many leaves the manifests name; a list that
    is far longer is not read."""
    if listed is not None and len(listed) > LEAF_BYTES * (max(count, 0) + _SLACK):
        return None
    try:
        return unpack(listed) if listed is not None and sha256(listed).hexdigest() == digest else None
    except ValueError:  # sealed as it is, but no list of leaves; its writer may be hostile
        return None


def _root(leaves: Sequence[Leaf]) -> str:
    return merkle.root([leaf.hash for leaf in leaves]).hex()


def _in_order(leaves: Sequence[Leaf], manifest: Manifest) -> bool:
    offsets = [leaf.offset for leaf in leaves]
    inside = not offsets or (offsets[0] >= manifest.first and offsets[-1] < manifest.next)
    return inside and len(offsets) == manifest.count and all(a < b for a, b in pairwise(offsets))

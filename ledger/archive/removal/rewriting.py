"""Removes records, or their values, from an archive, and leaves proof in its chain that nothing else was removed.

Each affected record object is stored again without them and read back. One note in the chain then names the
replacements and the reason. Only then are the old objects deleted. The leaves stay as they were sealed. After a crash
at any point the archive is complete, and the next run continues. If another process rewrites or joins at the same time,
the note fails because the chain has grown, and the loop starts again from the new chain. Source: docs/decisions/0035.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import Manifest
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import EXPIRED, REDACTED, Gone, Rewritten, body_of, ranges, with_stubs
from ledger.archive.format.segments import Leaf, leaves_of, unpack
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive, Overtaken
from ledger.archive.store.chains import Chain, Named
from ledger.errors import LedgerError
from ledger.reader.expiry_gaps import ExpiredJob
from ledger.util import failpoints

RANGES_MAX = 50_000  # in one note, unless a single object needs more; the rest gets another note
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records to remove from one partition. offsets: of the records. Other fields: as those of `Gone`, for the note."""

    why: str
    offsets: frozenset[int]
    namespace: str = ""
    until_ms: int = 0
    below: int = 0
    reason: str = ""
    jobs: tuple[ExpiredJob, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Object:
    """One object of records. base: as a manifest, or the note of a joined run, names it. now: the object that is read
    in place of base. manifests: those whose records the object holds."""

    base: Named
    now: Named
    leaves: Named
    manifests: tuple[Manifest, ...]


def rewrite(archive: Archive, topic: str, partition: int, wanted: Sequence[Wanted], by: str, at: str) -> int:
    """Removes the wanted records that are sealed and not removed yet. Returns how many it removed. by, at: who removes
    them, and when (RFC 3339). A repeated call does what is left to do.

    Raises: LedgerError if an object is not as it was sealed; that object stays as it is.
    """
    tp = topic, partition
    made: dict[tuple[Named, tuple[Wanted, ...]], Rewritten] = {}
    went = overtaken = 0
    while overtaken < _TRIES:
        head = archive.head(*tp)  # read before the chain, so that `note` fails if a manifest was sealed in between
        chain = archive.chain(*tp)
        batch: list[Rewritten] = []
        moved = False
        for one in _objects(chain):
            due = tuple(_due(one, chain, each) for each in wanted)
            if any(each.offsets for each in due):
                key = one.now, due
                try:
                    made[key] = made.get(key) or _made(archive, tp, one, chain, due)
                except LedgerError:
                    if list(_objects(archive.chain(*tp))) == list(_objects(chain)):
                        raise
                    moved = True
                    break
                if not made[key].gone:  # the object holds none of the offsets
                    continue
                batch.append(replace(made[key], by=by, at=at))
                if sum(len(gone.offsets) for stored in batch for gone in stored.gone) > RANGES_MAX:
                    break
        if moved:  # another process has joined or rewritten the object meanwhile
            overtaken += 1
            continue
        if not batch:
            clear(archive, topic, partition)
            return went
        failpoints.hit("rewrite.stored")
        try:
            archive.note(head, notes.REWRITTEN, body_of(batch, by, at))
        except Overtaken:  # by an archiver, or by another process that rewrites
            overtaken += 1
            continue
        failpoints.hit("rewrite.noted")
        went += sum(gone.records for stored in batch for gone in stored.gone)
    raise LedgerError(f"Other writers kept changing the chain of {topic}[{partition}], so nothing more was removed.")


def clear(archive: Archive, topic: str, partition: int) -> int:
    """Deletes the objects that rewritten objects replaced, and all other unnamed objects that still hold removed
    records: leftovers of a killed process, and snapshots. Returns the number of deleted objects.

    Raises: LedgerError if a replacement does not hold the sealed records; then the replaced object is kept."""
    removed = 0
    for left in reversed(range(_TRIES)):
        chain = archive.chain(topic, partition)
        if not chain.rewritten:
            return removed
        try:
            for name in _needless(archive, chain, topic, partition):
                archive.store.delete(name)
                removed += 1
                failpoints.hit("rewrite.deleted")
            return removed
        except LedgerError:
            if not left or list(_objects(archive.chain(topic, partition))) == list(_objects(chain)):
                raise
    return removed


def _needless(archive: Archive, chain: Chain, topic: str, partition: int) -> Iterator[str]:
    """Yields the names of the objects that `clear` deletes. Raises: as `clear`."""
    store = archive.store
    present = [name for kind in ("records", "joined", "rewritten", "snapshots")
             for name in store.names(f"{kind}/{topic}/{partition}/") if name.endswith(".parquet")]  # fmt: skip
    named = {one.now.name: one for one in _objects(chain)}
    for name in present:
        if name in named:
            continue
        now = chain.replaced.get(name)
        if now is not None and now.name in named:
            one = named[now.name]  # named by a note, which anyone who can write to the store could have written: verify
            _must_hold(one, _sealed(archive, one), (topic, partition), chains.read_as(archive.store, one.now), chain, ())
            yield name
        elif _holds_removed_records(archive, name, chain, topic, partition):
            yield name


def _objects(chain: Chain) -> Iterator[_Object]:
    """Yields the record objects of a chain, in order.

    Raises: LedgerError if a manifest is missing, because objects behind it can't be verified."""
    bases: dict[Named, list[Manifest]] = {}
    leaves: dict[Named, Named] = {}
    for sequence, manifest in enumerate(chain.manifests):
        if manifest is None:
            raise LedgerError(f"Manifest {sequence} is missing or can't be read.", hint=chains.VERIFY)
        if manifest.is_note:
            continue
        joined = chain.joined_of(sequence)
        base = Named(manifest.records, manifest.records_sha256) if joined is None else joined.of_records
        bases.setdefault(base, []).append(manifest)
        leaves[base] = chain.leaves_of(manifest)
    for base, manifests in bases.items():
        yield _Object(base, chain.now(base), leaves[base], tuple(manifests))


def _due(one: _Object, chain: Chain, wanted: Wanted) -> Wanted:
    """The removal reduced to those wanted offsets that lie in this object and are not removed yet."""
    first, end = one.manifests[0].first, one.manifests[-1].next
    said = chain.absences
    left = frozenset(
        offset for offset in wanted.offsets
        if first <= offset < end and not said.expired(offset)
        and not (wanted.why == REDACTED and said.redacted(offset))
    )  # fmt: skip
    return replace(wanted, offsets=left)


def _made(archive: Archive, tp: tuple[str, int], one: _Object, chain: Chain, due: Sequence[Wanted]) -> Rewritten:
    """Stores the object without the due records or values, reads it back, and returns what a note says of it.

    Raises: LedgerError if the stored records are not as they were sealed."""
    data, sealed = chains.read_as(archive.store, one.now), _sealed(archive, one)
    gone = tuple(
        Gone(
            each.why, ranges(there, offsets), len(there), each.namespace, each.until_ms, each.below, each.reason, each.jobs
        )
        for each in due
        if (there := each.offsets.intersection(offsets := [leaf.offset for leaf in sealed]))
    )  # fmt: skip
    expired = {offset for each in due if each.why == EXPIRED for offset in each.offsets}
    redacted = {offset for each in due if each.why == REDACTED for offset in each.offsets}
    new = parquet.rewrite(data, expired, redacted)
    digest = sha256(new).hexdigest()
    first, end = one.manifests[0].first, one.manifests[-1].next
    name = f"rewritten/{tp[0]}/{tp[1]}/{first:019}-{end:019}.{digest[:32]}.parquet"
    archive.store.create(name, new)
    if archive.store.read(name) != new:
        raise LedgerError(f"The store does not return {name} as it was written.")
    _must_hold(one, sealed, tp, new, chain, gone)
    return Rewritten(one.base.name, name, digest, gone, "", "", -1)


def _must_hold(
    one: _Object, sealed: Sequence[Leaf], tp: tuple[str, int], data: bytes, chain: Chain, gone: tuple[Gone, ...]
) -> None:
    """Raises: LedgerError if the data, together with the stubs of removed records, is not what the manifests seal.
    gone: removals that no note of the chain holds yet."""
    said = replace(chain, rewritten=(*chain.rewritten, Rewritten(one.base.name, "", "", gone, "", "", -1)))
    try:
        leaves = with_stubs(leaves_of(parquet.read(data, *tp)), sealed, said.absences)
    except ValueError:
        leaves = []
    for manifest in one.manifests:
        own = [leaf.hash for leaf in leaves if manifest.first <= leaf.offset < manifest.next]
        if merkle.root(own).hex() != manifest.root:
            raise LedgerError(f"{one.now.name} does not hold the records that were sealed.", hint=chains.VERIFY)


def _sealed(archive: Archive, one: _Object) -> list[Leaf]:
    """The leaves of an object, as they were sealed. Raises: LedgerError if they can't be read."""
    try:
        return unpack(chains.read_as(archive.store, one.leaves))
    except ValueError as error:
        raise LedgerError(f"{one.leaves.name} can't be read: {error}", hint=chains.VERIFY) from error


def _holds_removed_records(archive: Archive, name: str, chain: Chain, topic: str, partition: int) -> bool:
    """Whether an unnamed object holds a removed record or value. No manifest can name such an object later, because the
    chain has grown since the object was made. An object that can't be read is left alone (False)."""
    try:
        records = parquet.read(chains.read(archive.store, name) or b"", topic, partition)
    except ValueError:
        return False
    said = chain.absences
    return any(
        said.expired(record.offset()) or (said.redacted(record.offset()) and not isinstance(record, RedactedRecord))
        for record in records
    )

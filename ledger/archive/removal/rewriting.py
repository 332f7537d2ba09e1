"""Takes records, or their values, out of an archive, and leaves in its chain what proves that nothing else was taken.

Objects of records are stored anew without them and read back; one note in the chain says what took their place, and why;
only then are the old ones deleted. The leaves stay as they were sealed. Killed anywhere, the archive is whole, and the next
run goes on. Who rewrites beside another (or beside who joins) finds that the chain has moved, and looks again.
Source: docs/decisions/0035.
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

RANGES_MAX = 50_000  # in one note; what is beyond gets a note of its own
_TRIES = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to go of one partition: the offsets, and what a note is to say of them (fields as those of `Gone`)."""

    why: str
    offsets: frozenset[int]
    namespace: str = ""
    until_ms: int = 0
    below: int = 0
    reason: str = ""
    jobs: tuple[ExpiredJob, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Object:
    """One object of records. base: as a manifest, or the note of a joined run, names it; now: what is read in its place."""

    base: Named
    now: Named
    leaves: Named
    manifests: tuple[Manifest, ...]


def rewrite(archive: Archive, topic: str, partition: int, wanted: Sequence[Wanted], by: str, at: str) -> int:
    """Takes them out, as far as they are sealed and there; how many went. by, at: who, and when (RFC 3339). Repeated, it
    does what is left to do.

    Raises: LedgerError: something is not as it was sealed; it is left as it is."""
    place = topic, partition
    made: dict[tuple[Named, tuple[Wanted, ...]], Rewritten] = {}
    went = overtaken = 0
    while overtaken < _TRIES:
        head = archive.head(*place)  # before the chain: whatever comes between is found by the note
        chain = archive.chain(*place)
        batch: list[Rewritten] = []
        moved = False
        for one in _objects(chain):
            due = tuple(_due(one, chain, each) for each in wanted)
            if any(each.offsets for each in due):
                key = one.now, due
                try:
                    made[key] = made.get(key) or _made(archive, place, one, chain, due)
                except LedgerError:
                    if list(_objects(archive.chain(*place))) == list(_objects(chain)):
                        raise
                    moved = True
                    break
                if not made[key].gone:  # no record lies there
                    continue
                batch.append(replace(made[key], by=by, at=at))
                if sum(len(gone.offsets) for stored in batch for gone in stored.gone) > RANGES_MAX:
                    break
        if moved:  # somebody else has joined or rewritten it meanwhile
            overtaken += 1
            continue
        if not batch:
            clear(archive, topic, partition)
            return went
        failpoints.hit("rewrite.stored")
        try:
            archive.note(head, notes.REWRITTEN, body_of(batch, by, at))
        except Overtaken:  # an archiver goes on beside us, or somebody else who rewrites
            overtaken += 1
            continue
        failpoints.hit("rewrite.noted")
        went += sum(gone.records for stored in batch for gone in stored.gone)
    raise LedgerError(f"{topic}[{partition}] is sealed so fast that nobody else gets a turn.")


def clear(archive: Archive, topic: str, partition: int) -> int:
    """Deletes what rewritten objects took the place of, and whatever else nobody names that holds what is gone: left by who
    was killed, or snapshots; the number of objects.

    Raises: LedgerError: what took the place of something is not what it was; then that is kept."""
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
    """Raises: LedgerError: what took the place of one is not what it was."""
    store = archive.store
    lying = [name for kind in ("records", "joined", "rewritten", "snapshots")
             for name in store.names(f"{kind}/{topic}/{partition}/") if name.endswith(".parquet")]  # fmt: skip
    named = {one.now.name: one for one in _objects(chain)}
    for name in lying:
        if name in named:
            continue
        now = chain.replaced.get(name)
        if now is not None and now.name in named:
            one = named[now.name]  # by the word of a note, which may be anybody's
            _must_hold(one, _sealed(archive, one), (topic, partition), chains.read_as(archive.store, one.now), chain, ())
            yield name
        elif _holds_what_is_gone(archive, name, chain, topic, partition):
            yield name


def _objects(chain: Chain) -> Iterator[_Object]:
    """In order. Raises: LedgerError at a manifest that is missing: nothing beyond it can be told from what was altered."""
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
    """What of it is to be taken out of this object, and was not yet."""
    first, end = one.manifests[0].first, one.manifests[-1].next
    said = chain.absences
    left = frozenset(
        offset for offset in wanted.offsets
        if first <= offset < end and not said.expired(offset)
        and not (wanted.why == REDACTED and said.redacted(offset))
    )  # fmt: skip
    return replace(wanted, offsets=left)


def _made(archive: Archive, place: tuple[str, int], one: _Object, chain: Chain, due: Sequence[Wanted]) -> Rewritten:
    """Stores the object without them, and reads it back. Raises: LedgerError if what is there is not as it was sealed."""
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
    name = f"rewritten/{place[0]}/{place[1]}/{first:019}-{end:019}.{digest[:32]}.parquet"
    archive.store.create(name, new)
    if archive.store.read(name) != new:
        raise LedgerError(f"{name} does not come back as it was stored.")
    _must_hold(one, sealed, place, new, chain, gone)
    return Rewritten(one.base.name, name, digest, gone, "", "", -1)


def _must_hold(
    one: _Object, sealed: Sequence[Leaf], place: tuple[str, int], data: bytes, chain: Chain, gone: tuple[Gone, ...]
) -> None:
    """Raises: LedgerError: that object and the stubs are not what the manifests seal."""
    said = replace(chain, rewritten=(*chain.rewritten, Rewritten(one.base.name, "", "", gone, "", "", -1)))
    try:
        leaves = with_stubs(leaves_of(parquet.read(data, *place)), sealed, said.absences)
    except ValueError:
        leaves = []
    for manifest in one.manifests:
        own = [leaf.hash for leaf in leaves if manifest.first <= leaf.offset < manifest.next]
        if merkle.root(own).hex() != manifest.root:
            raise LedgerError(f"{one.now.name} holds other records than were sealed.", hint=chains.VERIFY)


def _sealed(archive: Archive, one: _Object) -> list[Leaf]:
    """Raises: LedgerError."""
    try:
        return unpack(chains.read_as(archive.store, one.leaves))
    except ValueError as error:
        raise LedgerError(f"{one.leaves.name} can't be read: {error}", hint=chains.VERIFY) from error


def _holds_what_is_gone(archive: Archive, name: str, chain: Chain, topic: str, partition: int) -> bool:
    """Such an object can never be named: who would, finds that the chain has moved. What can't be read is left alone."""
    try:
        records = parquet.read(chains.read(archive.store, name) or b"", topic, partition)
    except ValueError:
        return False
    said = chain.absences
    return any(
        said.expired(record.offset()) or (said.redacted(record.offset()) and not isinstance(record, RedactedRecord))
        for record in records
    )

"""Joins the small objects of a day: manifests, records and leaves of one partition become three objects in all.

Nothing is dropped before a note in the chain names what has taken its place, and that was read back. Killed anywhere, the
archive is whole, and the next run goes on; two at once make the same objects and one note. Source: docs/decisions/0031.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from ledger.archive.format import merkle, notes, parquet
from ledger.archive.format.chain import Manifest
from ledger.archive.format.removals import with_stubs
from ledger.archive.format.segments import leaves_of, manifest_name, manifests_prefix, pack, store_object
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive, Overtaken
from ledger.archive.store.chains import Chain, Joined, Named
from ledger.archive.store.verifying import broken_in
from ledger.errors import LedgerError
from ledger.util import failpoints

DAY_S = 86_400.0
OVER_AFTER_S = 3600.0  # how long after midnight (UTC) a day is over for us: by then the archiver has its last records
JOINED_BYTES_MAX = 256 << 20  # of the objects that are joined: a day that has more makes several
_TRIES = 100
_YEAR_9999_MS = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """manifests, records: how many were joined into the objects of that day. removed: objects that were dropped; of a day
    that an earlier run had joined and not cleared away, manifests is 0."""

    topic: str
    partition: int
    day: str
    manifests: int
    records: int
    removed: int


def compact(archive: Archive, now_s: float, told: Callable[[str], object] = len) -> list[Compacted]:
    """Joins all days that are over, in every partition.

    Raises: LedgerError: something is not as it was sealed; it is left as it is, and so is what comes after it there."""
    found = []
    for topic, partition in archive.places():
        told(f"{topic}[{partition}]")
        found += _Partition(archive, topic, partition).compact(now_s)
    return found


class _Partition:
    def __init__(self, archive: Archive, topic: str, partition: int) -> None:
        self._archive, self._place = archive, (topic, partition)

    def compact(self, now_s: float) -> list[Compacted]:
        made, chain = {}, self._chain()
        for run in _runs(chain, (now_s - OVER_AFTER_S) * 1000):
            for part in self._bounded(run, chain):
                if (one := self._join(part)) is not None:
                    made[one.first_sequence] = len(part), sum(manifest.count for manifest in part)
        removed = self._clear(self._chain())
        return [Compacted(*self._place, one.day, *made.get(one.first_sequence, (0, 0)), gone) for one, gone in removed]

    def _chain(self) -> Chain:
        return self._archive.chain(*self._place)

    def _bounded(self, run: Sequence[Manifest], chain: Chain) -> Iterator[list[Manifest]]:
        part: list[Manifest] = []
        size = 0
        for manifest in run:
            if manifest.is_note:
                part.append(manifest)
                continue
            data = chains.read(self._archive.store, chain.object_of(manifest).name)
            if part and size + len(data or b"") > JOINED_BYTES_MAX:
                yield part
                part, size = [], 0
            part.append(manifest)
            size += len(data or b"")
        if part:
            yield part

    def _join(self, run: Sequence[Manifest]) -> Joined | None:
        """None: it is not worth it, or another has done it meanwhile."""
        if sum(not manifest.is_note for manifest in run) < 2:
            return None
        chain = self._chain()
        if any(chain.joined_of(manifest.sequence) is not None for manifest in run):
            return None
        try:
            made = self._store(run, chain)
        except LedgerError:
            if self._moved(run, chain, self._chain()):
                return None
            raise
        failpoints.hit("compact.stored")
        for _ in range(_TRIES):
            head = self._archive.head(*self._place)
            if self._moved(run, chain, self._chain()):  # what was stored is not what would be read now
                return None
            try:
                self._archive.note(head, notes.JOINED, asdict(made))
            except Overtaken:  # an archiver goes on beside us: say it behind what it has sealed
                continue
            failpoints.hit("compact.noted")
            return made
        raise LedgerError(f"{self._place[0]}[{self._place[1]}] is sealed so fast that nobody else gets a turn.")

    def _moved(self, run: Sequence[Manifest], before: Chain, now: Chain) -> bool:
        """Whether another has joined these manifests meanwhile, or rewritten what they seal."""
        return any(not m.is_note and now.object_of(m) != before.object_of(m) for m in run)

    def _store(self, run: Sequence[Manifest], chain: Chain) -> Joined:
        """Raises: LedgerError if anything is not as it was sealed, or does not come back as it was stored."""
        store, (topic, partition) = self._archive.store, self._place
        tables, leaves = [], []
        for manifest in run:
            if manifest.is_note:
                notes.read_note(store, manifest)
                continue
            named = chain.object_of(manifest)
            data = chains.read_as(store, named)
            try:
                own = leaves_of(parquet.read(data, topic, partition))
                if len(own) != manifest.count:
                    own = with_stubs(own, self._archive.leaves(manifest), chain.absences)
            except ValueError:
                own = []
            if merkle.root([leaf.hash for leaf in own]).hex() != manifest.root:
                raise LedgerError(f"{named.name} holds other records than were sealed.", hint=chains.VERIFY)
            tables.append(data)
            leaves.append(pack(own))
        day, last = _day(run), run[-1]
        stem = f"{chains.joined_prefix(*self._place)}{day}/{run[0].sequence:012}-{last.sequence:012}"
        wanted = {chains.LINES: chains.lines_of(run), ".parquet": parquet.join(tables), ".leaves": b"".join(leaves)}
        made = {}
        for suffix, data in wanted.items():
            made[suffix] = store_object(store, stem, suffix, data)
            if store.read(made[suffix][0]) != data:
                raise LedgerError(f"{made[suffix][0]} does not come back as it was stored.")
        return Joined(
            run[0].sequence, last.sequence, day, last.sha256, *made[chains.LINES], *made[".parquet"], *made[".leaves"]
        )

    def _clear(self, chain: Chain) -> list[tuple[Joined, int]]:
        """Drops what was joined: the objects first, then the manifests that name them. How many, of each run."""
        store, (topic, partition) = self._archive.store, self._place
        kinds = (
            *(f"{kind}/{topic}/{partition}/" for kind in ("records", "leaves", "rewritten")),
            manifests_prefix(topic, partition),
        )
        lying = {name for kind in kinds for name in store.names(kind)}
        found = []
        for one in chain.joined:
            run = [m for m in chain.manifests[one.first_sequence : one.last_sequence + 1] if m is not None]
            objects = [name for m in run if not m.is_note for name in (m.records, m.leaves)]
            bases = set(objects)
            objects += [again.object for again in chain.rewritten if again.records in bases]
            singles = [manifest_name(topic, partition, m.sequence) for m in run]
            gone = [name for name in (*objects, *singles) if name in lying]
            if gone:
                self._must_be_sound(one, chain, run)
            for name in gone:
                store.delete(name)
                failpoints.hit("compact.deleted")
            if gone:
                found.append((one, len(gone)))
        return found

    def _must_be_sound(self, one: Joined, chain: Chain, run: Sequence[Manifest]) -> None:
        """Raises: LedgerError: what took the place of what is to be dropped does not hold what that holds. A note that says
        so may be anybody's."""
        lines = chains.unpacked(chains.read_as(self._archive.store, Named(one.manifests, one.manifests_sha256)))
        wrong = next(iter(broken_in(self._archive.store, chain, one, run)), None)
        if lines != run or wrong is not None:
            what = "it does not list what it was made of" if wrong is None else f"offset {wrong.offset}: {wrong.reason}"
            raise LedgerError(f"{one.manifests}: {what}.",
                              hint=f"What it was made of is still there. {chains.VERIFY}")  # fmt: skip


def _runs(chain: Chain, over_ms: float) -> Iterator[list[Manifest]]:
    """Manifests of one day each, one behind the other, not yet joined, of days that were over at that time.

    Raises: LedgerError at one that is missing: nothing from there on can be told from what was altered."""
    run: list[Manifest] = []
    for sequence, manifest in enumerate(chain.manifests):
        if manifest is None:
            raise LedgerError(f"Manifest {sequence} is missing or can't be read.", hint="Run: jobledger audit verify")
        joined = chain.joined_of(sequence) is not None
        if run and (joined or (not manifest.is_note and _day(run) not in ("", _day([manifest])))):
            yield from _if_over(run, over_ms)
            run = []
        if not joined:
            run.append(manifest)
    yield from _if_over(run, over_ms)


def _if_over(run: list[Manifest], over_ms: float) -> Iterator[list[Manifest]]:
    """Without the notes at its end: there may be more of them tomorrow, and who repeats this must make the same objects."""
    last = max((i for i, manifest in enumerate(run) if not manifest.is_note), default=-1)
    if last >= 0 and _day(run) < _date(over_ms):
        yield run[: last + 1]


def _day(run: Sequence[Manifest]) -> str:
    """Of the newest record; "" if there are notes only."""
    times = [manifest.greatest_timestamp_ms for manifest in run if not manifest.is_note]
    return _date(max(times)) if times else ""


def _date(time_ms: float) -> str:
    return datetime.fromtimestamp(min(max(time_ms, 0), _YEAR_9999_MS) / 1000, UTC).date().isoformat()

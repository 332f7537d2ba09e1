"""Joins the small objects of a day: the manifests, records and leaves of one partition become three objects in all.

An object is deleted only after its replacement was read back and a note in the chain names the replacement. After a
crash at any point the archive is complete, and the next run continues. Two runs at the same time make the same objects
and one note. Source: docs/decisions/0031.
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
OVER_AFTER_S = 3600.0  # a day is joined so long after midnight (UTC): by then the archiver has sealed its last records
JOINED_BYTES_MAX = 256 << 20  # of the objects joined into one; a day with more makes several
_TRIES = 100
_YEAR_9999_MS = 253_402_300_799_000


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result for one joined run of a day. manifests, records: how many were joined; 0 if an earlier run had joined
    them and this one only deleted the old objects. removed: how many old objects were deleted."""

    topic: str
    partition: int
    day: str
    manifests: int
    records: int
    removed: int


def compact(archive: Archive, now_s: float, report: Callable[[str], object] = len) -> list[Compacted]:
    """Joins all days that are over, in every partition.

    Raises: LedgerError if an object is not as it was sealed. That day, the later days of its partition, and the later
    partitions stay as they are."""
    found = []
    for topic, partition in archive.partitions():
        report(f"{topic}[{partition}]")
        found += _Partition(archive, topic, partition).compact(now_s)
    return found


class _Partition:
    def __init__(self, archive: Archive, topic: str, partition: int) -> None:
        self._archive, self._tp = archive, (topic, partition)

    def compact(self, now_s: float) -> list[Compacted]:
        made, chain = {}, self._chain()
        for run in _runs(chain, (now_s - OVER_AFTER_S) * 1000):
            for part in self._bounded(run, chain):
                if (one := self._join(part)) is not None:
                    made[one.first_sequence] = len(part), sum(manifest.count for manifest in part)
        removed = self._clear(self._chain())
        return [Compacted(*self._tp, one.day, *made.get(one.first_sequence, (0, 0)), gone) for one, gone in removed]

    def _chain(self) -> Chain:
        return self._archive.chain(*self._tp)

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
        """Joins a run. None = it holds fewer than two segments, or another process has joined or rewritten it
        meanwhile."""
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
            head = self._archive.head(*self._tp)
            if self._moved(run, chain, self._chain()):  # the joined objects were made from objects since replaced
                return None
            try:
                self._archive.note(head, notes.JOINED, asdict(made))
            except Overtaken:  # an archiver has sealed a manifest meanwhile: append the note after it
                continue
            failpoints.hit("compact.noted")
            return made
        raise LedgerError(f"Other writers kept sealing {self._tp[0]}[{self._tp[1]}], so the note was not written.")

    def _moved(self, run: Sequence[Manifest], before: Chain, now: Chain) -> bool:
        """Whether another process has joined these manifests, or rewritten their records, between two reads of the
        chain."""
        return any(not m.is_note and now.object_of(m) != before.object_of(m) for m in run)

    def _store(self, run: Sequence[Manifest], chain: Chain) -> Joined:
        """Stores the joined objects of a run. Raises: LedgerError if an object is not as it was sealed, or the store
        does not return a new one as it was written."""
        store, (topic, partition) = self._archive.store, self._tp
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
                raise LedgerError(f"{named.name} does not hold the records that were sealed.", hint=chains.VERIFY)
            tables.append(data)
            leaves.append(pack(own))
        day, last = _day(run), run[-1]
        stem = f"{chains.joined_prefix(*self._tp)}{day}/{run[0].sequence:012}-{last.sequence:012}"
        wanted = {chains.LINES: chains.lines_of(run), ".parquet": parquet.join(tables), ".leaves": b"".join(leaves)}
        made = {}
        for suffix, data in wanted.items():
            made[suffix] = store_object(store, stem, suffix, data)
            if store.read(made[suffix][0]) != data:
                raise LedgerError(f"The store does not return {made[suffix][0]} as it was written.")
        return Joined(
            run[0].sequence, last.sequence, day, last.sha256, *made[chains.LINES], *made[".parquet"], *made[".leaves"]
        )

    def _clear(self, chain: Chain) -> list[tuple[Joined, int]]:
        """Deletes the objects that joined runs replaced: first the objects, then the manifests that name them. Returns
        how many, for each run."""
        store, (topic, partition) = self._archive.store, self._tp
        kinds = (
            *(f"{kind}/{topic}/{partition}/" for kind in ("records", "leaves", "rewritten")),
            manifests_prefix(topic, partition),
        )
        present = {name for kind in kinds for name in store.names(kind)}
        found = []
        for one in chain.joined:
            run = [m for m in chain.manifests[one.first_sequence : one.last_sequence + 1] if m is not None]
            objects = [name for m in run if not m.is_note for name in (m.records, m.leaves)]
            bases = set(objects)
            objects += [again.object for again in chain.rewritten if again.records in bases]
            singles = [manifest_name(topic, partition, m.sequence) for m in run]
            gone = [name for name in (*objects, *singles) if name in present]
            if gone:
                self._must_be_sound(one, chain, run)
            for name in gone:
                store.delete(name)
                failpoints.hit("compact.deleted")
            if gone:
                found.append((one, len(gone)))
        return found

    def _must_be_sound(self, one: Joined, chain: Chain, run: Sequence[Manifest]) -> None:
        """Raises: LedgerError if the joined objects do not hold all that the old objects hold. The note alone is no
        proof: anyone who can write to the store can write one."""
        lines = chains.unpacked(chains.read_as(self._archive.store, Named(one.manifests, one.manifests_sha256)))
        wrong = next(iter(broken_in(self._archive.store, chain, one, run)), None)
        if lines != run or wrong is not None:
            what = "it does not list the joined manifests" if wrong is None else f"offset {wrong.offset}: {wrong.reason}"
            raise LedgerError(f"{one.manifests}: {what}.",
                              hint=f"The objects that were joined are still there. {chains.VERIFY}")  # fmt: skip


def _runs(chain: Chain, over_ms: float) -> Iterator[list[Manifest]]:
    """Yields runs of consecutive manifests to join, each of one day that was over at that time.

    Raises: LedgerError if a manifest is missing, because the manifests behind it can't be verified."""
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
    """Yields the run, if its day is over, without the notes at its end. More notes may follow them later, and a
    repeated join must make the same objects."""
    last = max((i for i, manifest in enumerate(run) if not manifest.is_note), default=-1)
    if last >= 0 and _day(run) < _date(over_ms):
        yield run[: last + 1]


def _day(run: Sequence[Manifest]) -> str:
    """The day of the newest record (UTC); "" if the run holds only notes."""
    times = [manifest.greatest_timestamp_ms for manifest in run if not manifest.is_note]
    return _date(max(times)) if times else ""


def _date(time_ms: float) -> str:
    return datetime.fromtimestamp(min(max(time_ms, 0), _YEAR_9999_MS) / 1000, UTC).date().isoformat()

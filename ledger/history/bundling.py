"""Bundles: the ledger up to a moment in one file, with all jobs or some. Every reading verb opens one without servers.

A bundle is a zip file with an archive (the same objects, with a hash chain of its own) and its description, `bundle.json`.
Source: decision 32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.archive.format.decoding import Decoded
from ledger.archive.format.notes import REWRITTEN
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.removals import redacted_before
from ledger.archive.format.segments import Leaf, leaves_of, runs, store_segment
from ledger.archive.store.archive import Archive
from ledger.errors import LedgerError, UsageError
from ledger.history.bundle_about import ABOUT, TIME_MAX_S, About, decode, expired_of, plain
from ledger.history.historical_log import (
    Archived,
    HistoricalLog,
    HistoricalSource,
    SealedRecords,
    historical,
    left_out_between,
)
from ledger.history.moment import Cut, Moment, parse, vector
from ledger.history.resolve_moment import as_of
from ledger.ports import NOWHERE, EventLog, Marks, Reader, Record, TopicPartition, Writer
from ledger.reader.expiry_gaps import Expired, ExpiredJob
from ledger.reader.reading import Source, Tail
from ledger.util.times import rfc3339

if TYPE_CHECKING:
    from ledger.archive.proof.bundle_proofs import Carried

TOPIC_ID = "bundle"
#: Returns the proof of a partition's records, given their leaves; None = there is none.
Carrying = Callable[[TopicPartition, Sequence[Leaf]], "Carried | None"]
_NEVER_MS = 10**15
RESERVED = b"~"  # begins the ledger's own keys, and no job id


@dataclass(frozen=True, slots=True)
class Why:
    """The fields of a bundle's description (`About`) that do not come from the log."""

    made_at: str
    made_by: str
    reason: str
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def write(
    store: ObjectStore, then: Source, cut: Cut, jobs: Collection[str], why: Why, decoded: Callable[[Record], Decoded],
    archived: Archived, lag_s: Mapping[str, float], now_s: float, carried: Carrying = lambda _tp, _leaves: None,
) -> int:  # fmt: skip
    """Writes the ledger of a moment into an empty store. Returns the number of records. Call `seal` afterwards.

    then, cut: the result of `resolve_moment.as_of`; archived, lag_s: its arguments. now_s: seconds since the epoch.
    carried: proves records by the hash chain of the ledger's archive. Raises: as reading; LedgerError."""
    from ledger.archive.proof.bundle_proofs import name_of  # a reader of bundles does not need it

    archive = Archive(store, why.made_by, lambda: why.made_at)
    topics = {"events": then.topics.events, "recovery": then.topics.recovery}
    written, sure, expired = 0, {}, {}
    hidden, holes = _hidden(then, cut), then.log.holes if isinstance(then, HistoricalSource) else ()
    for (short, partition), _ in sorted(cut.items()):
        tp = topics[short], partition
        seen = _Seen(archived.get(tp), now_s - lag_s[tp[0]], tp in holes)
        head, leaves = archive.head(*tp), list[Leaf]()
        for run in runs(_wanted(seen.of(_records(then, *tp)), set(jobs))):
            segment = store_segment(store, head.next, run, decoded)
            head = archive.seal(head, TOPIC_ID, segment)
            if (said := redacted_before(segment, run, why.made_by, why.made_at)) is not None:
                head = archive.note(head, REWRITTEN, said)
            written += len(run)
            leaves += leaves_of(run)
        if (proofs := carried(tp, leaves)) is not None:
            store.create(name_of(*tp), proofs.encode())
        name = f"{short}[{partition}]"
        sure[name] = seen.sure_from_s
        known = [*(archived[tp].expired if tp in archived else ()), *hidden.get(tp, ())]
        if of_partition := [row for one in known if (row := plain(one, set(jobs)))]:
            expired[name] = of_partition
    about = About(
        why.made_at, why.made_by, why.reason, tuple(jobs), topics["events"], topics["recovery"], then.topics.rejects,
        keep=then.keep,
        partitions={short: then.log.partitions(topic) for short, topic in topics.items()}, cut=vector(cut),
        sure_from_s=sure, config=why.config, versions=why.versions, expired=expired,
        as_of_s=as_of_s if (as_of_s := then.clock.time()) < now_s else None,
    )  # fmt: skip
    store.create(ABOUT, about.encode())
    return written


def seal(store: ObjectStore) -> None:
    """Ends the hash chains of a written bundle with a note that holds the hashes of all other objects.

    Raises: as `sealing.seal`."""
    from ledger.archive.store import sealing

    about = decode(store.read(ABOUT))
    archive = Archive(store, about.made_by, lambda: about.made_at)
    sealing.seal(archive, (about.events, 0), TOPIC_ID)


@dataclass
class _Seen:
    """Finds the oldest moment from which a partition is known to be complete, as its records pass. Behind the archive, log
    compaction may have removed records. hole: some are known to be missing there."""

    sealed: SealedRecords | None
    by_topic_s: float
    hole: bool = False
    sure_from_s: float = 0.0

    def of(self, records: Iterator[Record]) -> Iterator[Record]:
        begin = self.sealed.next if self.sealed else 0
        self.sure_from_s = self.sealed.sure_from_s if self.sealed else self.by_topic_s
        if self.hole:
            self.sure_from_s = max(self.sure_from_s, self.by_topic_s)
        for record in records:
            if record.offset() >= begin and record.timestamp()[1] / 1000 < self.by_topic_s:
                self.sure_from_s = max(self.sure_from_s, self.by_topic_s)
            yield record


def _hidden(then: Source, cut: Cut) -> dict[TopicPartition, list[Expired]]:
    """The expired records of the jobs that are left out of the moment, by partition. The bundle holds no record of
    these jobs, so it cannot answer questions about them at any moment."""
    found: dict[TopicPartition, list[Expired]] = {}
    left_out = then.expiry_gaps
    for job_id, (namespace, _) in left_out.jobs.items():
        partition = then.partition_of(job_id)
        end = cut.get(("events", partition), 0) + 1
        taken = [ExpiredJob(job_id, -1, _NEVER_MS, end)]
        one = Expired(namespace, left_out.namespaces[namespace], end, taken)
        found.setdefault((then.topics.events, partition), []).append(one)
    return found


def _records(source: Source, topic: str, partition: int) -> Iterator[Record]:
    with Tail(source, [topic], partition) as tail:
        for records in tail.to_end():
            yield from (record for record in records if record.partition() == partition)


def _wanted(records: Iterator[Record], jobs: Collection[str]) -> Iterator[Record]:
    """The records of the jobs (none = all), and the ledger's own (claims, progress), without which no entry is valid."""
    for record in records:
        key = record.key() or b""
        job_id = key.partition(b"/")[0].decode("utf-8", "replace")
        if not jobs or job_id in jobs or key.startswith(RESERVED):
            yield record


# -- opening -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bundle:
    """An open bundle. source: the ledger that the bundle holds."""

    about: About
    archive: Archive
    source: Source
    archived: Archived

    def must_hold_all(self) -> None:
        """Checks that the bundle holds every partition that its description names. Raises: LedgerError if one is
        missing, because no question about the jobs of that partition can be answered."""
        there = set(self.archive.partitions())
        for tp, last in sorted(self.about.reaching().items()):
            if tp not in there:
                raise LedgerError(
                    f"The description of this bundle names {tp[0]}[{tp[1]}] up to offset {last}, but the bundle does not "
                    "hold this partition.",
                    hint="To see what the bundle still holds: jobledger audit verify --bundle FILE",
                )

    def as_of(self, moment: Moment) -> tuple[Source, Cut]:
        """The ledger in the bundle as it was at a moment, and the cut, as `resolve_moment.as_of`. Raises: as that;
        LedgerError if the bundle lacks the record that dates the moment."""
        self._must_tell_when(moment)
        nothing_s = {self.about.events: 0.0, self.about.recovery: 0.0}
        return as_of(self.source, moment, self.archived, nothing_s, refusal=_refusal)

    def _must_tell_when(self, moment: Moment) -> None:
        """Checks that the bundle holds the record at each named offset, because its time cuts the other partitions. A
        bundle of some jobs may lack this record. Raises: LedgerError if it does."""
        topics = {"events": self.about.events, "recovery": self.about.recovery}
        named = {(topics[short], partition): last for (short, partition), last in (moment.last or {}).items()}
        if not self.about.jobs or self.archived.keys() <= named.keys():
            return
        for tp, last in sorted(named.items()):
            there = tp in self.archived and last < self.archived[tp].next
            if there and last >= 0 and not any(self.archive.records(*tp, last, last + 1)):
                raise LedgerError(
                    f"This bundle holds some jobs only, and {tp[0]}[{tp[1]}]@{last} is not a record of one of them. So its "
                    f"time is unknown, and the other partitions can't be cut at that time.",
                    hint="Use a time, or an offset for every partition, as in the last line of answers: as of events[0]@….",
                )


def _refusal(tp: TopicPartition, sealed: SealedRecords | None, end: int) -> LedgerError:
    name = f"{tp[0]}[{tp[1]}]"
    if sealed is None or sealed.next < end:
        ends = 0 if sealed is None else sealed.next
        return LedgerError(f"This bundle holds {name} up to offset {ends} only, and that moment is later.",
                           hint="Use an earlier moment.")  # fmt: skip
    sure = (
        f"only from {rfc3339(sealed.sure_from_s, 'milliseconds')} on" if sealed.sure_from_s < TIME_MAX_S else "at no moment"
    )
    return LedgerError(
        f"This bundle is surely complete for {name} {sure}: log compaction may have removed older records before the "
        f"bundle was made.", hint="Use a later moment.",
    )  # fmt: skip


def must_be_as_sealed(store: ObjectStore) -> None:
    """Checks the description of a bundle against its seal. A bundle without a seal passes. Raises: LedgerError."""
    from ledger.archive.store import sealing

    sealing.must_be_as_sealed(Archive(store), ABOUT)


def read(store: ObjectStore, source: Callable[[EventLog, About], Source]) -> Bundle:
    """The opened bundle. source: makes a Source from a log and a description. Raises: UsageError if the store holds no
    bundle."""
    about = decode(store.read(ABOUT))
    archive = Archive(store)
    cut = parse(about.cut, 0.0).last or {}
    topics = {"events": about.events, "recovery": about.recovery}
    archived, ends = {}, {}
    for (short, partition), last in cut.items():
        tp = topics[short], partition
        sure_from_s = about.sure_from_s.get(f"{short}[{partition}]", float("inf"))
        gone = [expired_of(one) for one in about.expired.get(f"{short}[{partition}]", ())]
        archived[tp] = SealedRecords(last + 1, sure_from_s, partial(archive.records, *tp), expired=gone)
        ends[tp] = last + 1
    counts = {topics[short]: number for short, number in about.partitions.items()}
    log = HistoricalLog(BundleLog(ends, counts), {}, archived)
    made = source(log, about)
    left_out = left_out_between(made, ends, ends, archived)
    return Bundle(about, archive, historical(made, log.leaving_out(left_out)), archived)


class BundleLog:
    """The log of a bundle behind its archive, an EventLog without records. ends: partition -> offset at which the
    archive ends. counts: topic -> number of partitions."""

    def __init__(self, ends: Mapping[TopicPartition, int], counts: Mapping[str, int]) -> None:
        self._ends, self._counts = ends, counts

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> Reader:  # noqa: ARG002
        if unknown := [topic for topic in topics if topic not in self._counts]:
            raise UsageError(f"A bundle holds no {unknown[0]}.")
        return _EndedReader({p: e for p, e in self._ends.items() if p[0] in topics and partition in (None, p[1])})

    def writer(self, transactional_id: str) -> Writer:  # noqa: ARG002
        raise UsageError("A bundle can't be written.")

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "")

    def partitions(self, topic: str) -> int:
        return self._counts[topic]


class _EndedReader:
    def __init__(self, ends: Marks) -> None:
        self._ends = dict(ends)

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:  # noqa: ARG002
        return []

    def position(self) -> Marks:
        return dict(self._ends)

    def high_watermarks(self) -> Marks:
        return dict(self._ends)

    def close(self) -> None: ...

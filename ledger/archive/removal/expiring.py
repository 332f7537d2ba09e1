"""Retention: removes records that were superseded longer ago than their namespace's retention.

It is log compaction with a delay. A record is removed if it was appended before a moment (`until`) and superseded by a
later record of its key that was appended before `until` too. If the last record of a key before `until` is a tombstone,
all records of the key are removed, except the last record of a job that has any register left, as in snapshots. So
every fold at `until` or later gives the same result as before, and so does a restore. The state of these jobs at
earlier moments is then unknown. Records of no job (claims, progress, no-ops) never expire, nor do jobs whose namespace
can't be read. Source: docs/decisions/0035.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ledger.archive.format.removals import EXPIRED
from ledger.archive.removal.retention import ALL
from ledger.archive.removal.rewriting import Wanted, clear, rewrite
from ledger.archive.snapshots.snapshots import Thin, thin_events, thin_recovery
from ledger.archive.store.archive import Archive
from ledger.core.model.facts import JobResult, JobSubmitted
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.redaction import is_redacted
from ledger.core.model.registers import Result, Spec, is_job_id, parse_key
from ledger.ports import Codec, Record, TopicPartition
from ledger.reader.expiry_gaps import ExpiredJob
from ledger.reader.reading import TopicNames

#: Namespace -> seconds for which its superseded records are kept; None = forever. ALL: the default for other
#: namespaces.
Retention = Mapping[str, float | None]
#: Whether a pin protects a job's record, by the job's id and the append time in milliseconds since the epoch.
HoldCheck = Callable[[str, int], bool]


def nothing_held(_job_id: str, _time_ms: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Expiry:
    """The records of a namespace in one partition that are due for removal. bytes: the size of their keys and values.
    until_ms, below, jobs: as `removals.Gone`."""

    topic: str
    partition: int
    namespace: str
    records: int
    bytes: int
    until_ms: int
    below: int
    offsets: frozenset[int]
    jobs: tuple[ExpiredJob, ...]


def expire(archive: Archive, due: Iterable[Expiry], by: str, at: str, report: Callable[[str], object] = len) -> int:
    """Removes the due records, and finishes what an interrupted run began. Returns the number of removed records. by,
    at: as `rewriting.rewrite`.

    Raises: LedgerError if an object is not as it was sealed. Records that were removed before the error stay
    removed."""
    wanted = defaultdict[TopicPartition, list[Wanted]](list)
    for one in due:
        said = Wanted(EXPIRED, one.offsets, one.namespace, one.until_ms, one.below, jobs=one.jobs)
        wanted[one.topic, one.partition].append(said)
    went = 0
    for tp in archive.partitions():
        report(f"{tp[0]}[{tp[1]}]")
        if tp in wanted:
            went += rewrite(archive, *tp, wanted[tp], by, at)
        else:
            clear(archive, *tp)
    return went


def plan(
    archive: Archive, topics: TopicNames, retention: Retention, now_s: float, codec: Codec, held: HoldCheck = nothing_held,
    report: Callable[[str], object] = len,
) -> list[Expiry]:  # fmt: skip
    """The records due for removal now, by partition and namespace. Reads each partition once to find the jobs'
    namespaces, and once for each distinct retention.

    Raises: as `Archive.records`."""
    if all(seconds is None for seconds in retention.values()):
        return []
    named = _Named(codec)
    tps = [tp for tp in archive.partitions() if tp[0] in (topics.events, topics.recovery)]
    for topic, partition in sorted(tps, key=lambda tp: tp[0] != topics.events):
        report(f"finding the namespaces of jobs: {topic}[{partition}]")
        take = named.take_event if topic == topics.events else named.take_entry
        for record in archive.records(topic, partition):
            take(record)
    terms = dict(named.terms(retention))
    found: list[Expiry] = []
    for topic, partition in tps:
        events = topic == topics.events
        thin: Thin = thin_events if events else partial(thin_recovery, decode=codec.decode)
        for seconds in sorted({term.seconds for term in terms.values()}):
            report(f"{topic}[{partition}]")
            mine = {job: term.namespace for job, term in terms.items() if term.seconds == seconds}
            past = _Past(archive.records(topic, partition), int((now_s - seconds) * 1000), mine)
            due = past.superseded(thin, held, named.saying[partition] if events else {})
            found += _by_namespace(topic, partition, past, due, mine)
    return found


class _Term(NamedTuple):
    namespace: str
    seconds: float


class _Named:
    """The namespaces of jobs, from their specs and results in ledger.events. If a job has neither, from its entries."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._namespaces = defaultdict[str, set[str]](set)
        self._unread = set[str]()
        #: partition -> job -> offsets of the events that hold the job's namespace
        self.saying = defaultdict[int, dict[str, list[int]]](dict)

    def take_event(self, record: Record) -> None:
        value, named = record.value(), parse_key(record.key())
        if named is None or value is None or not isinstance(named[1], Spec | Result):
            return
        job_id, register = named
        fact = self._codec.read(register, value)
        if isinstance(fact, JobSubmitted | JobResult):
            self._namespaces[job_id].add(fact.namespace)
            self.saying[record.partition()].setdefault(job_id, []).append(record.offset())
        elif not is_redacted(value):
            self._unread.add(job_id)

    def take_entry(self, record: Record) -> None:
        job_id, value = job_of(record), record.value()
        if job_id is None or value is None or job_id in self._namespaces or job_id in self._unread:
            return
        try:
            entry = self._codec.decode(RecoveryEntry, value)
        except ValueError:
            return
        if entry.job_id == job_id:
            self._namespaces[job_id].add(entry.namespace)

    def terms(self, retention: Retention) -> Iterator[tuple[str, _Term]]:
        """Yields each job that can expire, with its retention. The longest one counts if a job was submitted to several
        namespaces; if one of them is kept forever, the job never expires."""
        for job_id, namespaces in self._namespaces.items():
            kept = {one: retention.get(one, retention.get(ALL)) for one in namespaces}
            terms = [_Term(one, seconds) for one, seconds in kept.items() if seconds is not None]
            if len(terms) == len(kept) and job_id not in self._unread:
                yield job_id, max(terms, key=lambda term: (term.seconds, term.namespace))


def job_of(record: Record) -> str | None:
    """The id of the job that a record of either topic belongs to; None = it belongs to no job."""
    head = (record.key() or b"~").partition(b"/")[0].decode("ascii", "replace")
    return head if is_job_id(head) else None


class _Old(NamedTuple):
    offset: int
    job_id: str
    time_ms: int
    seen_ms: int
    size: int
    is_spec: bool


@dataclass
class _Past:
    """The records of a partition in order, cut at the first one that is not older than until_ms. jobs: id -> namespace
    of the jobs with the retention in question; the others are not considered."""

    records: Iterator[Record]
    until_ms: int
    jobs: Mapping[str, str]
    old: list[_Old] = field(default_factory=list)
    below: int = 0
    _later: set[str] = field(default_factory=set)
    _last: dict[str, int] = field(default_factory=dict)

    def superseded(self, thin: Thin, held: HoldCheck, saying: Mapping[str, Sequence[int]]) -> dict[str, list[_Old]]:
        """job -> its records due for removal. saying: job -> offsets of events that hold its namespace; {} = the
        namespace need not stay known."""
        kept = {record.offset() for record in thin(self._before())}
        self._later.update(filter(None, map(job_of, self.records)))
        by_job, due = defaultdict[str, list[_Old]](list), {}
        for one in self.old:
            by_job[one.job_id].append(one)
        for job_id, own in by_job.items():
            goes = [one for one in own if one.offset not in kept]
            # If a pin protects one of these records, all of them stay. Without a removed tombstone, a protected older
            # record would take effect again.
            if goes and not any(held(job_id, one.time_ms) for one in goes):
                due[job_id] = self._known_still(job_id, own, goes, saying.get(job_id, ()))
        return {job_id: goes for job_id, goes in due.items() if goes}

    def _known_still(self, job_id: str, own: Sequence[_Old], goes: Sequence[_Old], saying: Sequence[int]) -> list[_Old]:
        """The records to remove. Specs are left out of them if records of the job remain and no remaining event would
        hold the job's namespace: without a namespace, the remaining records would never expire."""
        offsets = {one.offset for one in goes}
        rest = len(goes) < len(own) or job_id in self._later
        if not rest or not saying or any(offset not in offsets for offset in saying):
            return list(goes)
        return [one for one in goes if not one.is_spec]

    def taken(self, job_id: str, goes: Sequence[_Old]) -> ExpiredJob:
        """The job's entry for the note. `below` is the offset behind the job's last record before the cut. The records
        that superseded the removed ones are all below it, so a reader that has read up to it misses nothing."""
        return ExpiredJob(job_id, goes[0].offset, goes[0].seen_ms, self._last[job_id] + 1)

    def _before(self) -> Iterator[Record]:
        seen_ms = 0
        for record in self.records:
            if record.timestamp()[1] >= self.until_ms:
                if (job_id := job_of(record)) is not None:
                    self._later.add(job_id)
                return
            job_id, seen_ms = job_of(record), max(seen_ms, record.timestamp()[1])
            if job_id is not None and job_id in self.jobs:
                key, value = record.key() or b"", record.value() or b""
                is_spec = key[len(job_id) :].startswith(b"/spec/")
                size, self._last[job_id] = len(key) + len(value), record.offset()
                self.old.append(_Old(record.offset(), job_id, record.timestamp()[1], seen_ms, size, is_spec))
            self.below = record.offset() + 1
            yield record


def _by_namespace(
    topic: str, partition: int, past: _Past, due: Mapping[str, Sequence[_Old]], namespaces: Mapping[str, str]
) -> Iterator[Expiry]:
    found, jobs = defaultdict[str, list[_Old]](list), defaultdict[str, list[ExpiredJob]](list)
    for job_id, goes in due.items():
        found[namespaces[job_id]] += goes
        jobs[namespaces[job_id]].append(past.taken(job_id, goes))
    for namespace, goes in sorted(found.items()):
        offsets, size = frozenset(one.offset for one in goes), sum(one.size for one in goes)
        taken = tuple(sorted(jobs[namespace]))
        yield Expiry(topic, partition, namespace, len(goes), size, past.until_ms, past.below, offsets, taken)

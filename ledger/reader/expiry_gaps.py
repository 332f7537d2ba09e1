"""Expiry gaps: jobs whose state at a past moment is unknown, because records of that moment have expired.

Archive retention removes superseded records (`ledger.archive.removal.expiring`). Between the first removed record of a job
and the last record that superseded one, the job is left out of answers about the past. Other jobs are not affected, not
even those of the same namespace. Source: decision 35.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ledger.core.model.facts import JobResult, JobSubmitted
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Result, Spec, is_job_id, parse_key
from ledger.errors import LedgerError
from ledger.ports import Codec, Record
from ledger.util.times import utc

#: At most so many jobs are listed by name.
JOBS_NAMED_MAX = 5


class ExpiredJob(NamedTuple):
    """A job that lost records in one partition of a topic. first: offset of the first removed record. since_ms: the
    latest append time up to that record, milliseconds since the epoch. below: an offset; a read up to it, or further, gives
    the complete job."""

    job_id: str
    first: int
    since_ms: int
    below: int


class Expired(NamedTuple):
    """The removal of superseded records of a namespace in one partition. until_s: records superseded before this time
    are removed, seconds since the epoch. below: the offset behind the last record before until_s; a reader that has
    read up to there knows the complete namespace. jobs: the jobs that lost records; None = unknown, so it may be any
    job. records: how many were removed."""

    namespace: str
    until_s: float
    below: int
    jobs: Sequence[ExpiredJob] | None = None
    records: int = 0

    def between(self, begin: int, end: int) -> Expired | None:
        """The part of the removal that affects a reader whose cut lies between `begin` and `end` (offsets; equal for one
        moment); None = it has no effect."""
        if self.jobs is None:
            return self if begin < self.below else None
        jobs = [job for job in self.jobs if job.first < end and begin < job.below]
        return self._replace(jobs=jobs) if jobs else None


def reaching(expired: Iterable[Expired], time_s: float) -> int:
    """The offset behind the last removed record that existed at a moment (seconds since the epoch), 0 = none. The
    remaining records alone do not show that the partition reached so far."""
    known = (job for one in expired for job in one.jobs or ())
    return max((job.first + 1 for job in known if job.since_ms <= time_s * 1000), default=0)


@dataclass(frozen=True, slots=True)
class ExpiryGaps:
    """Jobs that are left out of answers about the past. namespaces: name -> until when the namespace's past is
    incomplete, seconds since the epoch. jobs: id -> (namespace, name); name "" = unknown."""

    namespaces: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __or__(self, other: ExpiryGaps) -> ExpiryGaps:
        """The jobs that are left out on either side."""
        latest = dict(self.namespaces)
        for namespace, until_s in other.namespaces.items():
            latest[namespace] = max(until_s, latest.get(namespace, 0.0))
        return replace(self, namespaces=latest, jobs={**self.jobs, **other.jobs})

    def hides(self, record: Record) -> bool:
        head = (record.key() or b"").partition(b"/")[0]
        return bool(self.jobs) and head.decode("ascii", "replace") in self.jobs

    def refuse(self, job_id: str) -> LedgerError:
        """The error for a question about a job that is left out."""
        namespace, name = self.jobs[job_id]
        return LedgerError(
            f"Records of {namespace} that were superseded before {utc(self.namespaces[namespace])} have expired. "
            f"So the state of {f'{namespace}/{name}' if name else job_id} at that moment is unknown.",
            hint="The setting archive.retention removed them. Use a later moment, or a bundle that was made before.",
        )  # fmt: skip

    def descriptions(self) -> Iterator[str]:
        """One line for each namespace, for people: the number of its jobs, and their names if they are few."""
        for namespace, until_s in sorted(self.namespaces.items()):
            names = sorted(name or job_id for job_id, (of, name) in self.jobs.items() if of == namespace)
            if names:
                who = f" ({', '.join(names)})" if len(names) <= JOBS_NAMED_MAX else ""
                jobs, are, they = ("job", "is", "it") if len(names) == 1 else ("jobs", "are", "they")
                left = f"{len(names)} {jobs} of {namespace} {are} left out{who}"
                yield f"{left}: the records that {they} superseded before {utc(until_s)} have expired"


#: The present has none.
NO_GAPS = ExpiryGaps()


def left_out(
    codec: Codec, expired: Mapping[int, Collection[Expired]], records: Callable[[int], Iterable[Record]]
) -> ExpiryGaps:
    """The jobs to leave out of answers about a moment. expired: partition -> removals in either topic that matter at
    that moment (`Expired.between`). records: partition -> all its archived records of both topics; read only if
    needed."""
    namespaces: dict[str, float] = {}
    jobs: dict[str, tuple[str, str]] = {}
    for partition, some in expired.items():
        whole: set[str] = set()
        for one in some:
            namespaces[one.namespace] = max(one.until_s, namespaces.get(one.namespace, 0.0))
            if one.jobs is None:
                whole.add(one.namespace)
            jobs |= {job.job_id: (one.namespace, "") for job in one.jobs or ()}
        for record in records(partition) if some else ():
            for job_id, namespace, name in _said(codec, record):
                if namespace in whole or job_id in jobs:
                    jobs[job_id] = jobs.get(job_id, (namespace,))[0], name
    return ExpiryGaps(namespaces, jobs)


def _said(codec: Codec, record: Record) -> Iterator[tuple[str, str, str]]:
    """Namespace and name of the job, if the record holds them."""
    value, named = record.value(), parse_key(record.key())
    if value is None:
        return
    if named is not None and isinstance(named[1], Spec | Result):
        fact = codec.read(named[1], value)
        if isinstance(fact, JobSubmitted | JobResult):
            yield named[0], fact.namespace, fact.name
    elif named is None and is_job_id(job_id := (record.key() or b"").decode("ascii", "replace")):
        try:
            entry = codec.decode(RecoveryEntry, value)
        except ValueError:
            return
        yield job_id, entry.namespace, entry.name

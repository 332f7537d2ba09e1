"""Jobs of which the past can't tell any more: something of theirs expired that was there at that moment.

Retention takes out what was superseded (`ledger.archive.removal.expiring`). At moments behind the first record of a
job that went, and before the last of those that took their place, that job is left out of answers, and it alone: all
others are answered for as ever, also those of its namespace. Source: docs/decisions/0035.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from ledger.core.model.facts import JobResult, JobSubmitted
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Result, Spec, is_job_id, parse_key
from ledger.errors import LedgerError
from ledger.ports import Codec, Record

#: So many are told by name.
JOBS_TOLD_MAX = 5


class ExpiredJob(NamedTuple):
    """A job of which a run took something, in one partition of a topic. first: the offset of the first record that went;
    since_ms: the latest append time up to it, milliseconds since the epoch. below: the offset beyond the last record of the
    job that was old enough: who reads up to there has all of it that counts."""

    job_id: str
    first: int
    since_ms: int
    below: int


class Expired(NamedTuple):
    """Of a namespace, in one partition: what was superseded before until_s (seconds since the epoch) is gone. below: the
    offset beyond the last record that is older: who reads up to there has all of that namespace that counts. jobs: those of
    which something went; None: nobody noted which, so it may be any of them. records: how many went."""

    namespace: str
    until_s: float
    below: int
    jobs: Sequence[ExpiredJob] | None = None
    records: int = 0

    def between(self, begin: int, end: int) -> Expired | None:
        """As it matters to who reads the partition up to some offset from `begin` to `end` (of one moment: both are its
        cut); None: it does not."""
        if self.jobs is None:
            return self if begin < self.below else None
        jobs = [job for job in self.jobs if job.first < end and begin < job.below]
        return self._replace(jobs=jobs) if jobs else None


def reaching(expired: Iterable[Expired], time_s: float) -> int:
    """The offset beyond all of which it is known that it lay there at that moment (seconds since the epoch) and is gone:
    the records that are left don't tell that the partition went so far. 0: nothing did."""
    known = (job for one in expired for job in one.jobs or ())
    return max((job.first + 1 for job in known if job.since_ms <= time_s * 1000), default=0)


@dataclass(frozen=True, slots=True)
class ExpiryGaps:
    """namespaces: name -> until when not all of its jobs can be told of. jobs: id -> (namespace, name); name "": nobody
    knows it any more."""

    namespaces: Mapping[str, float] = field(default_factory=dict)
    jobs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __or__(self, other: ExpiryGaps) -> ExpiryGaps:
        """Who is left out on either side."""
        latest = dict(self.namespaces)
        for namespace, until_s in other.namespaces.items():
            latest[namespace] = max(until_s, latest.get(namespace, 0.0))
        return replace(self, namespaces=latest, jobs={**self.jobs, **other.jobs})

    def hides(self, record: Record) -> bool:
        head = (record.key() or b"").partition(b"/")[0]
        return bool(self.jobs) and head.decode("ascii", "replace") in self.jobs

    def refuse(self, job_id: str) -> LedgerError:
        """Why a question about one of them has no answer."""
        namespace, name = self.jobs[job_id]
        return LedgerError(
            f"What was superseded in the jobs of {namespace} before {_utc(self.namespaces[namespace])} is gone from the "
            f"archive: nobody can tell any more how {f'{namespace}/{name}' if name else job_id} stood at that moment.",
            hint="It had expired by archive.retention. Ask for a later moment; or open a bundle that was made before.",
        )  # fmt: skip

    def told(self) -> Iterator[str]:
        """For people, a line for each namespace: how many, and if they are few, which."""
        for namespace, until_s in sorted(self.namespaces.items()):
            names = sorted(name or job_id for job_id, (of, name) in self.jobs.items() if of == namespace)
            if names:
                who = f" ({', '.join(names)})" if len(names) <= JOBS_TOLD_MAX else ""
                jobs, are, they = ("job", "is", "it") if len(names) == 1 else ("jobs", "are", "they")
                left = f"{len(names)} {jobs} of {namespace} {are} left out{who}"
                yield f"{left}: what {they} held before {_utc(until_s)} has expired"


#: The present has none.
NO_GAPS = ExpiryGaps()


def left_out(
    codec: Codec, expired: Mapping[int, Collection[Expired]], records: Callable[[int], Iterable[Record]]
) -> ExpiryGaps:
    """expired: partition -> what of it matters at that moment, of either topic (`Expired.between`). records: partition ->
    all that an archive has of it, in both topics; asked for only where something matters."""
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
    """Whose job it is, if the record says so."""
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


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

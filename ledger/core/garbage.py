"""Which of what lies in blob stores and with runners nobody will ask for again, and how that is known. Pure.

Garbage is what no fold refers to: not that of the registers as they were read, nor that of these and whatever comes later.
The one exception, a spec that comes later, is its submitter's to see to: it puts the graph anew if it finds it gone once
its spec is in the log (`client.submit`), and what was put lately is young. So age counts: since the last put, by the clock
of whoever keeps the thing.

What somebody has pinned stays, garbage or not. What can't be judged stays: the job's entry or registers can't be read; or
the thing is older than the log, so that some other log may have known it. Source: docs/decisions/0019, 0036.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model.facts import JobResult, JobSubmitted
from ledger.core.model.recovery import RecoveryEntry

#: The least grace that there is, in seconds: a put that was longer ago than half of it is made anew by its submitter.
GRACE_MIN_S = 3600.0
#: What a store may make a thing older than it is, in seconds: a put of what is there need not renew its age each time.
AGE_OFF_S = 600.0


class Kind(StrEnum):
    BLOB = "blob"
    UNFINISHED = "unfinished-put"  # what a put has left that did not come to its end
    RUN_FOLDER = "run-folder"  # all that a runner keeps of a job, but for its checkpoints
    CHECKPOINTS = "checkpoints"  # savepoints are never among them
    SAVEPOINT = "savepoint"  # one that was disposed of and is still there


@dataclass(frozen=True, slots=True)
class StoredItem:
    """Something that lies somewhere on behalf of a job.

    holder: "blobs", or the runner's name. where: a blob's uri, a runner's folder. size: in bytes, 0 where nobody knows.
    age_s: since it was last put or changed. alive: attempts of the job that may run. locations: of the checkpoints.
    """

    kind: Kind
    holder: str
    job_id: str
    where: str
    size: int
    age_s: float
    alive: tuple[int, ...] = ()
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claims:
    """What the log says of one job, as far as it decides what may go.

    known: whether there is anything of it. why_unread: why nothing of it may be judged, "" = all can be read. graphs: uris
    that a fold refers to now, or may yet. points: locations that an attempt may begin from, of any job; begins: those that
    are not only named by a result. disposed: locations of its savepoints that are given up. state: of its result, "" = it
    has none. keeps: whether its result says that its checkpoints were kept.
    """

    known: bool = True
    why_unread: str = ""
    graphs: frozenset[str] = frozenset()
    points: frozenset[str] = frozenset()
    begins: frozenset[str] = frozenset()
    disposed: frozenset[str] = frozenset()
    state: str = ""
    keeps: bool = False
    name: str = ""
    namespace: str = ""


class Orphan(NamedTuple):
    lying: StoredItem
    evidence: str
    name: str = ""
    namespace: str = ""


class Retained(NamedTuple):
    """What may be garbage and is not touched, because that can't be known, or a pin holds it."""

    lying: StoredItem
    why: str


class Classified(NamedTuple):
    """orphans: older than the grace. young: how many others would be. spared: see there."""

    orphans: tuple[Orphan, ...]
    spared: tuple[Retained, ...]
    young: int


UNKNOWN_JOB = Claims(known=False)
ENTRY_UNREAD = Claims(why_unread="its published entry can't be read")


def claims_of(job: Job, published: RecoveryEntry | None, keep: int) -> Claims:
    """Of a job that has registers. published: its entry, where there is one. keep: restore points that a fold offers."""
    specs = [job.fact(spec, JobSubmitted) for spec in job.specs]
    results = [job.fact(result, JobResult) for result in job.results]
    admitted, folded = job.admitted, fold_job(job, keep)
    if job.unreadable:
        unread = min(job.names[register] for register in job.unreadable)
        return Claims(why_unread=f"its register {unread.decode()[:80]} can't be read")
    if admitted is not None and job.spec is None and not results:
        return Claims(why_unread="its admitted spec is not there")
    entries = [entry for entry in (published, folded) if entry is not None]
    points = [spec.restore_from for spec in specs if spec is not None]
    for entry in entries:
        points += [entry.base, *entry.restore_points]
    begins = frozenset(point.location for point in points if point is not None)
    points += [result.restore_point for result in results if result is not None]
    graphs = {entry.graph.uri for entry in entries if entry.graph is not None}
    state = ""
    named: JobResult | JobSubmitted | None = next((result for result in results if result is not None), None)
    if job.result is not None:
        state = job.result.state
    else:
        # What is admitted stays until the job is retired, over or not: a retirement deletes its blobs itself.
        held = [job.spec] if job.spec is not None else [spec for spec in specs if spec is not None]
        graphs |= {spec.graph.uri for spec in held}
        named = next(iter(held), None)
    return Claims(
        graphs=frozenset(graphs),
        points=frozenset(point.location for point in points if point is not None),
        begins=begins,
        disposed=frozenset(gone.location for place in job.disposed if (gone := job.disposal(*place)) is not None),
        state=state,
        keeps=any(result is not None and result.restore_point is not None for result in results),
        name=named.name if named else "",
        namespace=named.namespace if named else "",
    )


def judge(
    lying: Iterable[StoredItem],
    claims: Mapping[str, Claims],
    read_to: Callable[[str], str],
    grace_s: float,
    log_age_s: float,
    held: Mapping[str, str],
) -> Classified:
    """claims: of every job that has registers or an entry. read_to: job id -> how far its partition was read, for people.
    log_age_s: how long ago the log's first leader was there. held: job id -> the pin that holds it, and all that is its.

    Order: the log is read after the things were listed. What is referred to is then either seen, or its reference is
    younger than the listing."""
    points = frozenset[str]().union(*(claim.points for claim in claims.values()))
    begins = frozenset[str]().union(*(claim.begins for claim in claims.values()))
    orphans: list[Orphan] = []
    spared: list[Retained] = []
    young = 0
    for one in lying:
        claim = claims.get(one.job_id, UNKNOWN_JOB)
        if claim.why_unread:
            spared.append(Retained(one, claim.why_unread))
        elif not (why := _why_garbage(one, claim, begins if one.kind is Kind.SAVEPOINT else points, read_to)):
            continue
        elif one.job_id in held:
            spared.append(Retained(one, f"the pin {held[one.job_id]} holds its job"))
        elif one.age_s < max(grace_s, GRACE_MIN_S):
            young += 1
        elif one.age_s >= log_age_s:
            spared.append(Retained(one, "it is older than this log: another one may have known it"))
        else:
            orphans.append(Orphan(one, why, claim.name, claim.namespace))
    orphans.sort(key=lambda orphan: (orphan.lying.job_id, orphan.lying.where, orphan.lying.kind))
    return Classified(tuple(orphans), tuple(spared), young)


def _why_garbage(one: StoredItem, claim: Claims, points: frozenset[str], read_to: Callable[[str], str]) -> str:
    """The evidence; empty if it is none."""
    match one.kind:
        case Kind.BLOB if one.where in claim.graphs:
            return ""
        case Kind.UNFINISHED if claim.graphs:
            return f"a put that did not come to its end left it; the graph of the job is {min(claim.graphs)}"
        case Kind.RUN_FOLDER if one.alive or (claim.known and not claim.state):
            return ""  # what is alive is an orphan: to be stopped with a record, by the reconciler
        case Kind.CHECKPOINTS if one.alive or not claim.state or claim.keeps or points.intersection(one.locations):
            return ""
        case Kind.SAVEPOINT if one.where not in claim.disposed or not claim.state or points.intersection(one.locations):
            return ""  # as long as the job is not retired, the reconciler deletes it
        case Kind.SAVEPOINT:
            return f"it was disposed of, the job is {claim.state} and retired, and no job begins from it"
    if claim.state:
        why = f"the job is {claim.state} and retired"
        return why + (", keeps no checkpoint, and no job begins from these" if one.kind is Kind.CHECKPOINTS else "")
    if claim.graphs:
        return f"another graph is the job's: {min(claim.graphs)}"
    if not claim.known:
        return f"no register of this job in the log up to {read_to(one.job_id)}"
    return f"no spec of this job in the log up to {read_to(one.job_id)}"

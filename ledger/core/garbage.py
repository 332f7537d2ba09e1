"""Garbage: stored objects that no job will need again, each with the evidence. Pure.

An object in a blob store or with a runner is garbage if no fold refers to it, neither the fold of the registers that were
read nor that of any later ones. One later register could refer to it: a spec that is on its way. Therefore a submitter
puts its graph again if it is gone once the spec is in the log (`client.submit`), and young objects are never garbage. Age
counts from the last put, by the clock of the store or runner.

Pinned objects stay. So do objects that cannot be judged: an entry or register of the job is unreadable, or the object is
older than the log, so that another log may have known it. Source: decisions 19 and 36.
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

#: The shortest grace, in seconds. A submitter repeats a put that is older than half of it.
GRACE_MIN_S = 3600.0
#: A store may report an age that is too high by so many seconds: a put of an existing object need not renew its age.
AGE_OFF_S = 600.0


class Kind(StrEnum):
    BLOB = "blob"
    UNFINISHED = "unfinished-put"  # the remains of an interrupted put
    RUN_FOLDER = "run-folder"  # a runner's files of a job, without checkpoints
    CHECKPOINTS = "checkpoints"  # savepoints are never among them
    SAVEPOINT = "savepoint"  # a disposed savepoint that still exists


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An object that a store or runner holds for a job.

    holder: "blobs", or the runner's name. where: a blob's uri, or a runner's folder. size: in bytes, 0 = unknown. age_s:
    since it was last put or changed. alive: attempts of the job that may run. locations: of the checkpoints.
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
    """The references of one job to stored objects, from the log.

    known: whether the job has any register. why_unread: why the job's objects cannot be judged, "" = they can. graphs:
    uris that a fold refers to now or later. points: locations that an attempt of any job may begin from. begins:
    `points` without the locations that only a result names. disposed: locations of the job's disposed savepoints.
    state: of the job's result, "" = there is none. keeps: whether the result names checkpoints that were kept.
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
    item: StoredItem
    evidence: str
    name: str = ""
    namespace: str = ""


class Retained(NamedTuple):
    """An object that may be garbage but stays: the log does not prove that it is garbage, or a pin holds it."""

    item: StoredItem
    why: str


class Classified(NamedTuple):
    """The result of `judge`. orphans: garbage older than the grace period. young: the number of younger pieces of
    garbage. spared: objects that may be garbage but stay."""

    orphans: tuple[Orphan, ...]
    spared: tuple[Retained, ...]
    young: int


UNKNOWN_JOB = Claims(known=False)
ENTRY_UNREAD = Claims(why_unread="its published entry can't be read")


def claims_of(job: Job, published: RecoveryEntry | None, keep: int) -> Claims:
    """The references of a job with registers to stored objects. published: the job's published entry, None = there is
    none. keep: how many restore points a fold offers at most."""
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
        # The admitted graph stays until the job is retired, even if the job is over: the retirement deletes it.
        held = [job.spec] if job.spec is not None else [spec for spec in specs if spec is not None]
        graphs |= {spec.graph.uri for spec in held}
        named = next(iter(held), None)
    return Claims(
        graphs=frozenset(graphs),
        points=frozenset(point.location for point in points if point is not None),
        begins=begins,
        disposed=frozenset(gone.location for point in job.disposed if (gone := job.disposal(*point)) is not None),
        state=state,
        keeps=any(result is not None and result.restore_point is not None for result in results),
        name=named.name if named else "",
        namespace=named.namespace if named else "",
    )


def judge(
    items: Iterable[StoredItem],
    claims: Mapping[str, Claims],
    read_to: Callable[[str], str],
    grace_s: float,
    log_age_s: float,
    held: Mapping[str, str],
) -> Classified:
    """Sorts stored objects into garbage, young and retained ones.

    claims: of every job that has registers or an entry. read_to: job id -> how far the job's partition was read, for
    people. grace_s: the grace period in seconds; younger objects are never garbage. log_age_s: seconds since the log's
    first leader. held: job id -> the pin that holds the job's objects.

    List the objects first, then read the log: a reference is then either seen, or younger than the listing.
    """
    points = frozenset[str]().union(*(claim.points for claim in claims.values()))
    begins = frozenset[str]().union(*(claim.begins for claim in claims.values()))
    orphans: list[Orphan] = []
    spared: list[Retained] = []
    young = 0
    for one in items:
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
    orphans.sort(key=lambda orphan: (orphan.item.job_id, orphan.item.where, orphan.item.kind))
    return Classified(tuple(orphans), tuple(spared), young)


def _why_garbage(one: StoredItem, claim: Claims, points: frozenset[str], read_to: Callable[[str], str]) -> str:
    """The evidence that an object is garbage; "" if it is not."""
    match one.kind:
        case Kind.BLOB if one.where in claim.graphs:
            return ""
        case Kind.UNFINISHED if claim.graphs:
            return f"a put that did not come to its end left it; the graph of the job is {min(claim.graphs)}"
        case Kind.RUN_FOLDER if one.alive or (claim.known and not claim.state):
            return ""  # an attempt that is alive here is an orphan: the reconciler stops and records it
        case Kind.CHECKPOINTS if one.alive or not claim.state or claim.keeps or points.intersection(one.locations):
            return ""
        case Kind.SAVEPOINT if one.where not in claim.disposed or not claim.state or points.intersection(one.locations):
            return ""  # until the job is retired, the reconciler deletes it
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

"""The restore points of a job: which of them the next start is offered, and which must not be pruned.

The *restore path* lists restore points, best first. It begins with the checkpoints of the highest attempt that has a
record or a checkpoint, newest first, and goes on from the base of each attempt to the attempt below. It ends with
`restore_from` of the spec. Decision 43 says what happens where a base is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ledger.core.fold.job import Job
from ledger.core.model import facts
from ledger.core.model.facts import RestorePoint
from ledger.core.model.registers import CHECKPOINT_ID_MAX, Checkpoint, parse_register

#: How many restore points are offered and kept.
RESTORE_POINTS = 3


def path(job: Job) -> Iterator[RestorePoint]:
    """The restore path of the next start, disposed savepoints included."""
    retry = retry_of_end(job)
    return _path_from(job, retry.from_ if retry else "latest")


def first(job: Job, points: Iterator[RestorePoint], keep: int) -> tuple[RestorePoint, ...]:
    """The first `keep` points of a path, without disposed savepoints.

    A disposed savepoint still uses one of the `keep` slots. An older point must not fill it: that one may be pruned
    already, and a late duplicate would bring it back.
    """
    return tuple(point for point in islice(points, keep) if job.disposal(*point.order) is None)


def kept(job: Job, keep: int) -> set[tuple[int, int]]:
    """(attempt, id) of all restore points that must not be pruned: those that are offered now, those that a pending retry
    would offer, and the newest checkpoints."""
    paths = [_path_from(job, "latest")]
    if pending := pending_retry(job):
        paths.append(_path_from(job, pending.from_))
    if job.checkpointed:
        paths.append(_downwards(job, _newest_of(job.checkpointed)))
    return {point.order for points in paths for point in first(job, points, keep)}


def named(job: Job) -> bool:
    """Whether the next start must restore from something. If then nothing is offered, the job must not start at all: it
    never begins from scratch in silence."""
    retry = retry_of_end(job)
    if retry and retry.from_ != "latest":
        return retry.from_ != "scratch"
    highest = max(job.recorded, job.checkpointed)
    if highest == 0:
        return job.spec is not None and job.spec.restore_from is not None
    record = job.attempt(highest)
    return highest == job.checkpointed or (record is not None and record.base is not None)


def inherits(job: Job, spec: facts.JobSubmitted) -> bool:
    """Whether the next start takes its restore point from the job that this one replaces. True as long as this job has no
    checkpoint of its own and no spec or retry names another restore point."""
    own = spec.restore is facts.RestoreBy.EXTERNAL or spec.restore_from is not None
    if spec.replaces is None or own or spec.replacement.from_ not in ("", "latest"):
        return False
    retry = retry_of_end(job)
    return not job.checkpointed and (retry is None or retry.from_ == "latest")


def labels(job: Job, points: tuple[RestorePoint, ...]) -> tuple[str, ...]:
    """The consistency label of each point, "" for a point without one; () if no point has a label."""
    completed = [job.checkpoint(*point.order) for point in points]
    found = tuple(fact.consistency if fact else "" for fact in completed)
    return found if any(found) else ()


def pending_retry(job: Job) -> facts.IntentDeclared | None:
    """The winning intent if it is a retry and no attempt above the one that it names has used it."""
    wants = job.intent[1] if job.intent else None
    return wants if wants and wants.kind is facts.IntentKind.RETRY and wants.attempt >= job.top else None


def retry_of_end(job: Job) -> facts.IntentDeclared | None:
    """The retry that counts now: it names the highest attempt, which has ended. A terminal job has none."""
    pending = pending_retry(job) if job.terminal_end is None else None
    return pending if pending and pending.attempt == job.top and job.end(job.top) else None


def _path_from(job: Job, chosen: str) -> Iterator[RestorePoint]:
    """The restore path of a start that requests `chosen`: "latest", "scratch" or "<attempt>/<id>"."""
    if chosen == "latest":
        highest = max(job.recorded, job.checkpointed)
        record = job.attempt(highest)
        if highest == 0:
            yield from _outside(job)
        elif highest == job.checkpointed:
            yield from _downwards(job, _newest_of(highest))
        elif record is not None and record.base is not None:
            yield from _downwards(job, record.base, highest)
    elif chosen != "scratch":
        register = parse_register(f"checkpoint/{chosen}")
        point = job.restore_point(register) if isinstance(register, Checkpoint) else None
        if point is not None and job.disposal(*point.order) is None:
            yield from _downwards(job, point)


def _downwards(job: Job, start: RestorePoint, began: int = 0) -> Iterator[RestorePoint]:
    """`start` and the restore points below it: the older ones of its attempt, then those below the attempt's base.

    began: the attempt that began at `start`, 0 = none. If no checkpoint is left at `start` (an attempt recorded from an
    old entry can name one that is pruned since), the path goes on at the newest checkpoint of the attempts below `began`;
    the newest are never pruned. A base that is not below its attempt is invalid and ends the path.
    """
    while start.attempt > 0:
        newest: facts.CheckpointCompleted | facts.SavepointDisposed | None = None
        for id_ in job.checkpoint_ids(start.attempt):
            if id_ > start.id:
                continue
            fact, gone = job.checkpoint(start.attempt, id_), job.disposal(start.attempt, id_)
            newest = newest or fact or gone
            if fact is not None:
                yield RestorePoint(start.attempt, id_, fact.location, fact.size, fact.digest, fact.kind)
            elif gone is not None:
                yield RestorePoint(start.attempt, id_, gone.location, kind=facts.CheckpointKind.SAVEPOINT)
        if newest is None:
            below = job.checkpointed_below(began) if 0 < start.attempt < began and start.id >= 0 else 0
            if not below:
                return
            start, began = _newest_of(below), below
        elif newest.base is None or newest.base.attempt >= start.attempt:
            return
        else:
            start, began = newest.base, start.attempt
    if start.attempt == 0:
        yield from _outside(job, start)


def _outside(job: Job, recorded: RestorePoint | None = None) -> Iterator[RestorePoint]:
    """The restore point from outside this job, as attempt 0: `restore_from` of the spec. A job that replaces another uses
    the point that its attempt recorded, since no spec could know it."""
    if job.spec is None:
        return
    point = recorded if recorded is not None and job.spec.replaces is not None else job.spec.restore_from
    if point is not None:
        yield replace(point, attempt=0, id=0)


def _newest_of(n: int) -> RestorePoint:
    return RestorePoint(n, CHECKPOINT_ID_MAX, "")

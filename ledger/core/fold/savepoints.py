"""Savepoints: which requests are open, when a policy requests the next one, and which savepoints are to be deleted.

Pure; the leader stamps the time (`roles.projector.savepoint_times`). Source: decision 27.
"""

from __future__ import annotations

from collections.abc import Collection

from ledger.core.fold.job import Job
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, RestorePoint, SavepointAsked
from ledger.core.model.periodic_savepoints import NO_SAVEPOINT, TRIES_MAX, CheckpointId, Periodic, parse
from ledger.core.model.registers import Ask

DISPOSALS_MAX = 100  # that an entry lists; the rest follow when those are gone


def open_asks(job: Job) -> list[Ask]:
    """Savepoint requests that no savepoint answers yet: the periodic request first, then by uuid."""
    if not job.asks:
        return []
    points = (c for checkpoints in job.checkpoints.values() for c in checkpoints)
    facts = [fact for c in points if (fact := job.fact(c, CheckpointCompleted)) is not None]
    spent = {fact.ask for fact in facts if fact.kind is CheckpointKind.SAVEPOINT}
    spent |= {gone.ask for point in job.disposed if (gone := job.disposal(*point)) is not None}
    last = _last_periodic(job)
    wanted = [
        ask for ask in job.asks
        if ask.uuid not in spent and job.fact(ask, SavepointAsked) is not None
        and (parse(ask.uuid) is None or (last is not None and ask.uuid == last.uuid))
    ]  # fmt: skip
    return sorted(wanted, key=lambda ask: (parse(ask.uuid) is None, ask.uuid))


def next_ask(job: Job) -> str:
    """The uuid of the periodic request to make next; "" = TRIES_MAX requests in a row had no answer."""
    last = _last_periodic(job)
    if last is None:
        return Periodic(newest(job), 0).uuid
    return Periodic(last.after, last.tries + 1).uuid if last.tries < TRIES_MAX else ""


def newest(job: Job) -> CheckpointId:
    """The newest savepoint that the job ever had, disposed ones included; NO_SAVEPOINT = it never had one."""
    for n in sorted({*job.checkpoints, *(n for n, _ in job.disposed)}, reverse=True):
        for id_ in job.checkpoint_ids(n):
            if _is_savepoint(job, n, id_):
                return n, id_
    return NO_SAVEPOINT


def disposals(job: Job, kept: Collection[CheckpointId]) -> tuple[RestorePoint, ...]:
    """Savepoints whose files are to be deleted, oldest first: those that a person disposed of, and the periodic ones
    beyond `keep_max` of the policy. The policy spares `kept`, the restore points that are or could be offered. The
    savepoint that a running attempt began from stays until that attempt ends."""
    keep_max = job.spec.savepoint_policy.keep_max if job.spec is not None else 0
    record = job.attempt(job.top)
    base = record.base.order if record is not None and record.base is not None and job.end(job.top) is None else None
    surplus = set(sorted(_periodic(job), reverse=True)[keep_max:]) - set(kept) if keep_max else set()
    registers = sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints)
    out = []
    for register in registers:
        named = (register.n, register.id)
        if named == base or not (named in surplus or job.disposal(*named) is not None):
            continue
        point = job.restore_point(register)
        if point is not None and point.kind is CheckpointKind.SAVEPOINT:
            out.append(point)
    return tuple(out[:DISPOSALS_MAX])


def _last_periodic(job: Job) -> Periodic | None:
    """The newest periodic request, unless a savepoint has come since."""
    asks = (parse(ask.uuid) for ask in job.asks if job.fact(ask, SavepointAsked) is not None)
    last = max((ask for ask in asks if ask is not None), default=None)
    return last if last is not None and last.after >= newest(job) else None


def _is_savepoint(job: Job, n: int, id_: int) -> bool:
    fact = job.checkpoint(n, id_)
    return job.disposal(n, id_) is not None if fact is None else fact.kind is CheckpointKind.SAVEPOINT


def _periodic(job: Job) -> set[CheckpointId]:
    """All savepoints that answered a periodic request. Disposed ones count too; without them the policy would keep an
    older savepoint again."""
    found = set()
    for point in job.disposed:
        if (gone := job.disposal(*point)) is not None and parse(gone.ask) is not None:
            found.add(point)
    for checkpoints in job.checkpoints.values():
        for c in checkpoints:
            fact = job.fact(c, CheckpointCompleted)
            if fact is not None and fact.kind is CheckpointKind.SAVEPOINT and parse(fact.ask) is not None:
                found.add((c.n, c.id))
    return found

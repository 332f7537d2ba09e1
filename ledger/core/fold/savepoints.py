"""Savepoints beyond one that a person asks for: periodic asks, which of them are open, and what is to be deleted.

A periodic ask is `ask/periodic-<attempt>-<id>-<try>`: the one that follows savepoint attempt/id (0-0: there was none
before). So whoever leads makes the same register, and one that is spent is known by its name: any savepoint that comes
after the one it names answers it. A job that does not answer is asked again, each time after twice as long (`try`), and
only the last ask is open. Pure; time is stamped by the leader (`roles.savepoint_times`). Source: docs/decisions/0027.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ledger.core.fold.job import Job
from ledger.core.fold.restart import NUMBER_MAX as SECONDS_MAX
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, RestorePoint, SavepointAsked, SavepointPolicy
from ledger.core.model.registers import CHECKPOINT_ID_MAX, NUMBER_MAX, Ask

INTERVAL_MIN_S = 1.0
KEEP_MAX = 1_000_000
TRIES_MAX = 20  # the last waits a million intervals
DISPOSALS_MAX = 100  # that an entry lists; the rest come when those are gone
_ASK = re.compile(r"periodic-(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]?)\Z")
Place = tuple[int, int]  # attempt, id
NOWHERE: Place = (0, 0)


class Periodic(NamedTuple):
    """What the uuid of a periodic ask says. after: the savepoint that it follows. tries: asks before it after the same."""

    after: Place
    tries: int

    @property
    def uuid(self) -> str:
        return f"periodic-{self.after[0]}-{self.after[1]}-{self.tries}"

    def wait_s(self, policy: SavepointPolicy) -> float:
        """From the savepoint, or the ask before, until it is due."""
        return min(policy.interval_s * (1 << self.tries), SECONDS_MAX)


def parse(uuid: str | None) -> Periodic | None:
    """None: a person asked, or nobody."""
    found = _ASK.match(uuid) if uuid else None
    if found is None:
        return None
    attempt, id_, tries = map(int, found.groups())
    known = attempt <= NUMBER_MAX and id_ <= CHECKPOINT_ID_MAX and tries <= TRIES_MAX
    return Periodic((attempt, id_), tries) if known else None


def problem(policy: SavepointPolicy) -> str:
    """Why nobody can ask by this policy; "" if one can, or need not. A spec with such a policy is not started."""
    interval_s = policy.interval_s
    if interval_s != 0 and not INTERVAL_MIN_S <= interval_s <= SECONDS_MAX:  # true for NaN too
        return f"savepoint_policy.interval_s is {interval_s}; it must be 0, or from {INTERVAL_MIN_S:g} to {SECONDS_MAX:.0e}"
    if not 0 <= policy.keep_max <= KEEP_MAX:
        return f"savepoint_policy.keep_max is {policy.keep_max}; it must be 0 to {KEEP_MAX}"
    return ""


def open_asks(job: Job) -> list[Ask]:
    """Savepoints that are wanted and not there yet: the periodic one first, then by uuid."""
    if not job.asks:
        return []
    points = (c for checkpoints in job.checkpoints.values() for c in checkpoints)
    facts = [fact for c in points if (fact := job.fact(c, CheckpointCompleted)) is not None]
    spent = {fact.ask for fact in facts if fact.kind is CheckpointKind.SAVEPOINT}
    spent |= {gone.ask for place in job.disposed if (gone := job.disposal(*place)) is not None}
    last = _last_periodic(job)
    wanted = [
        ask for ask in job.asks
        if ask.uuid not in spent and job.fact(ask, SavepointAsked) is not None
        and (parse(ask.uuid) is None or (last is not None and ask.uuid == last.uuid))
    ]  # fmt: skip
    return sorted(wanted, key=lambda ask: (parse(ask.uuid) is None, ask.uuid))


def next_ask(job: Job) -> str:
    """The uuid of the periodic ask that comes next, once its time has come; none that is there. "" = there was no answer
    for so long that none is expected any more."""
    last = _last_periodic(job)
    if last is None:
        return Periodic(newest(job), 0).uuid
    return Periodic(last.after, last.tries + 1).uuid if last.tries < TRIES_MAX else ""


def newest(job: Job) -> Place:
    """Of all savepoints that there were; a savepoint that is given up was one."""
    for n in sorted({*job.checkpoints, *(n for n, _ in job.disposed)}, reverse=True):
        for id_ in job.places(n):
            if _is_savepoint(job, n, id_):
                return n, id_
    return NOWHERE


def disposals(job: Job, kept: Collection[Place]) -> tuple[RestorePoint, ...]:
    """Savepoints whose files are to be deleted, oldest first: given up by a person, or one periodic savepoint more than
    the policy keeps. kept: restore points that are offered, or would be; those the policy leaves alone. What an attempt
    that is not over began from stays until it is."""
    keep_max = job.spec.savepoint_policy.keep_max if job.spec is not None else 0
    record = job.attempt(job.top)
    base = record.base.order if record is not None and record.base is not None and job.end(job.top) is None else None
    surplus = set(sorted(_periodic(job), reverse=True)[keep_max:]) - set(kept) if keep_max else set()
    registers = sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints)
    out = []
    for register in registers:
        place = (register.n, register.id)
        if place == base or not (place in surplus or job.disposal(*place) is not None):
            continue
        point = job.restore_point(register)
        if point is not None and point.kind is CheckpointKind.SAVEPOINT:
            out.append(point)
    return tuple(out[:DISPOSALS_MAX])


def _last_periodic(job: Job) -> Periodic | None:
    """The newest periodic ask, unless a savepoint has come since."""
    asks = (parse(ask.uuid) for ask in job.asks if job.fact(ask, SavepointAsked) is not None)
    last = max((ask for ask in asks if ask is not None), default=None)
    return last if last is not None and last.after >= newest(job) else None


def _is_savepoint(job: Job, n: int, id_: int) -> bool:
    fact = job.checkpoint(n, id_)
    return job.disposal(n, id_) is not None if fact is None else fact.kind is CheckpointKind.SAVEPOINT


def _periodic(job: Job) -> set[Place]:
    """All that answered a periodic ask. Those that are given up count too, or one that has to go for their sake would be
    kept again."""
    found = set()
    for place in job.disposed:
        if (gone := job.disposal(*place)) is not None and parse(gone.ask) is not None:
            found.add(place)
    for checkpoints in job.checkpoints.values():
        for c in checkpoints:
            fact = job.fact(c, CheckpointCompleted)
            if fact is not None and fact.kind is CheckpointKind.SAVEPOINT and parse(fact.ask) is not None:
                found.add((c.n, c.id))
    return found

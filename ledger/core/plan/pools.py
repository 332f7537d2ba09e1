"""Pools and slots: which jobs may start now. `admit` decides every start of a pass.

A pool has a number of slots. A job takes some of them while an attempt of it is alive. Settings say which pool a job
belongs to (decision 18), so the pool can be changed while jobs run. Jobs without a pool are not limited.

Within a pool no job overtakes another. If the first job does not fit, all jobs behind it wait too, so that a large job
gets its slots in the end. Other pools are not affected. Two kinds of jobs do not make others wait: those that need more
slots than their pool has, and those in backoff after a start that could not be made. Jobs of a region that start together
count as one large job of all their pools: all of them start, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.plan import Action, Start, StartAgain, Wait
from ledger.core.plan.regions import Region, starts_with_region


class Pool(NamedTuple):
    """A pool of slots. slots: the size of the pool. namespaces, runners: of the jobs that belong to the pool; empty =
    any."""

    name: str
    slots: int
    namespaces: frozenset[str] = frozenset()
    runners: frozenset[str] = frozenset()

    def takes(self, namespace: str, runner: str) -> bool:
        return (not self.namespaces or namespace in self.namespaces) and self.may_take(runner)

    def may_take(self, runner: str) -> bool:
        """Whether jobs of this runner can belong to the pool, whatever their namespace."""
        return not self.runners or runner in self.runners

    @property
    def precision(self) -> tuple[bool, bool]:
        """Whether the pool names namespaces and runners. If several pools take a job, the highest value wins."""
        return bool(self.namespaces), bool(self.runners)


class Pools:
    """All pools of a ledger. Raises: ValueError if a job could belong to two of them."""

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        self._pools = sorted(pools, key=lambda pool: (pool.precision, pool.name), reverse=True)
        for a, b in combinations(self._pools, 2):
            if a.precision == b.precision and _meet(a.namespaces, b.namespaces) and _meet(a.runners, b.runners):
                raise ValueError(f"the pools {b.name} and {a.name} take the same jobs: neither says so more precisely")
        self._found: dict[tuple[str, str], Pool | None] = {}

    def __iter__(self) -> Iterator[Pool]:
        """By name."""
        return iter(sorted(self._pools, key=lambda pool: pool.name))

    def __bool__(self) -> bool:
        return bool(self._pools)

    def of(self, entry: RecoveryEntry) -> Pool | None:
        """The pool of a job; None = the job is not limited, because it belongs to no pool or takes no slots."""
        if not self._pools or entry.slots <= 0 or entry.runner == OUTSIDE:
            return None
        key = entry.namespace, entry.runner
        if key not in self._found:
            self._found[key] = next((pool for pool in self._pools if pool.takes(*key)), None)
        return self._found[key]

    def of_runner(self, runner: str) -> list[Pool]:
        """All pools that jobs of the runner can belong to."""
        return [pool for pool in self._pools if pool.may_take(runner)]


NO_POOLS = Pools()


def _meet(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a & b) or (not a and not b)


def holding(
    entry: RecoveryEntry, alive: frozenset[int] | None, before: frozenset[int] = frozenset(), starting: int = 0
) -> frozenset[int]:
    """The attempts of a job that hold slots; each holds as many as the job takes.

    An attempt that the runner reports as alive holds slots until it is gone, even after an order to stop. A recorded
    attempt without a report holds slots too, since it may begin at any moment. For a silent runner (alive None) count the
    attempts that it last reported (`before`), and those that were started and have no end. An attempt that an operator
    gave up holds none. starting: the attempt whose start is not in the entry yet, 0 = none.
    """
    top = entry.attempt
    held = {starting} if starting else set()
    if entry.state is JobState.RUNNING and not entry.known:
        held.add(top)
    if alive is not None:
        held |= alive
    elif entry.outcome:
        held |= before - {top}
    else:
        held |= before | {top}
    covered = entry.intent.attempt if entry.intent and entry.intent.force else 0
    return frozenset(n for n in held if n > covered)


def urgency(entry: RecoveryEntry) -> tuple[int, bool, tuple[int, int], str]:
    """The sort key of starts: priority, then the newest restore point first (its job has most to lose), then the job
    id, which by default follows the order of submission (decision 2)."""
    points = entry.restore_points
    attempt, id_ = points[0].order if points else (0, 0)
    return -entry.priority, not points, (-attempt, -id_), entry.job_id


def admit(
    actions: Iterable[Action],
    entries: Mapping[str, RecoveryEntry],
    held: Mapping[str, int],
    pools: Pools,
    starts_max: int,
    backoff: Collection[str] = (),
    unread: str = "",
) -> list[Action]:
    """The actions to perform in this pass: other actions first, then the starts that fit, then a Wait for each other
    start.

    held: pool -> slots held. starts_max: starts in one pass. backoff: jobs whose last start could not be made; they
    come last and make no other job wait. unread: why it is not known yet which attempts hold slots, "" = it is known;
    until then nothing starts in a pool. An attempt that is started again holds its slots already.
    """
    starts: list[Start | StartAgain] = []
    rest: list[Action] = []
    for action in actions:
        if isinstance(action, Start | StartAgain):
            starts.append(action)
        else:
            rest.append(action)
    free = {pool.name: pool.slots - held.get(pool.name, 0) for pool in pools}
    queues: Counter[str] = Counter()
    admitted: list[Action] = []
    late: list[Action] = []
    for group in _in_order(starts, entries, backoff):
        needs: Counter[Pool] = Counter()
        for action in group:
            entry = entries[action.job_id]
            if isinstance(action, Start) and (pool := pools.of(entry)) is not None:
                needs[pool] += entry.slots
        if reason := _why_not(needs, free, queues, unread):
            region = starts_with_region(group[0], entries[group[0].job_id]) if group[1:] else None
            text = f"region {region[1]} starts together: {reason}" if region else reason
            late += [Wait(action.job_id, text) for action in group]
            if all(need <= pool.slots for pool, need in needs.items()) and not any(a.job_id in backoff for a in group):
                queues.update({pool.name: len(group) for pool in needs})
            continue
        for pool, need in needs.items():
            free[pool.name] -= need
        if len(admitted) < starts_max:  # a group starts together, so it may exceed starts_max
            admitted += group
        else:
            late += [Wait(action.job_id, "start rate") for action in group]
    return rest + admitted + late


def _in_order(
    starts: Iterable[Start | StartAgain], entries: Mapping[str, RecoveryEntry], backoff: Collection[str]
) -> list[list[Start | StartAgain]]:
    """Starts in their order. Those of one region form a group, at the position of its most urgent job."""
    groups: dict[str | Region, list[Start | StartAgain]] = {}
    for action in starts:
        groups.setdefault(starts_with_region(action, entries[action.job_id]) or action.job_id, []).append(action)
    for group in groups.values():
        group.sort(key=lambda action: urgency(entries[action.job_id]))

    def group_key(group: list[Start | StartAgain]) -> tuple[bool, tuple[int, bool, tuple[int, int], str]]:
        return any(action.job_id in backoff for action in group), urgency(entries[group[0].job_id])

    return sorted(groups.values(), key=group_key)


def _why_not(needs: Mapping[Pool, int], free: Mapping[str, int], queues: Mapping[str, int], unread: str) -> str:
    """Why a group does not start, "" = it may. A need that exceeds a whole pool comes first."""
    by_size = sorted(needs.items(), key=lambda item: (item[1] <= item[0].slots, item[0].name))
    reasons = (_wait(need, pool, free[pool.name], queues[pool.name], unread) for pool, need in by_size)
    return next((reason for reason in reasons if reason), "")


def _wait(needs: int, pool: Pool, free: int, behind: int, unread: str) -> str:
    """Why a job that needs so many slots does not start, "" = it may."""
    if needs > pool.slots:
        return (
            f"waiting for slots: needs {needs}, and pool {pool.name} has {pool.slots} in all; "
            f"raise pools.{pool.name}.slots, or cancel it and submit it anew with fewer"
        )
    if unread:
        return unread
    if not behind and needs <= free:
        return ""
    others = f", behind {behind} other{'s' if behind > 1 else ''}" if behind else ""
    return f"waiting for slots: needs {needs}, {max(free, 0)} of {pool.slots} free in pool {pool.name}{others}"

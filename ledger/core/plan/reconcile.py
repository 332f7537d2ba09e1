"""One pass over all jobs: from all entries and the reports of all runners to the actions to take now.

The reconciler performs the actions, `jobledger plan` prints them. Both call `plan_actions`, so they cannot differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ledger.core.model.recovery import RecoveryEntry
from ledger.core.plan import outside, regions
from ledger.core.plan.plan import NOTHING, Action, Dispose, Knowledge, Start, Wait, decide
from ledger.core.plan.pools import Pools, admit, holding
from ledger.core.plan.replacements import apply_replacements
from ledger.core.plan.replacing import Side
from ledger.core.plan.runner_report import RunnerReport, disposable, held_elsewhere, stored_elsewhere

#: (job id, attempt, alive, id in the engine), as in ports.ObservedAttempt.
Listed = tuple[str, int, bool, str]
#: Runner -> all attempts that it lists; None = it did not answer.
Answers = Mapping[str, Iterable[Listed] | None]


class Observed:
    """The answers of all runners. An answer comes from one instance of a runner, about its own attempts. If a runner did
    not answer, only its previous answer is known.

    listed: (runner, job id) of everything in an answer. engine_ids: (job id, attempt) -> id in the engine, for attempts
    that are alive. why: runner -> why it did not answer. instances: runner -> the instance that answered, "" = it has none.
    """

    def __init__(
        self, answers: Answers, earlier: Observed | None = None, why: Mapping[str, str] | None = None,
        instances: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.why, self.instances = why or {}, instances or {}
        self._attempts: dict[tuple[str, str], set[int]] = {}
        self.silent = frozenset(runner for runner, attempts in answers.items() if attempts is None)
        self.listed: set[tuple[str, str]] = set()
        self.engine_ids: dict[tuple[str, int], str] = {}
        self._alive: dict[str, dict[str, frozenset[int]]] = {}
        for runner, attempts in answers.items():
            if attempts is None:
                self._alive[runner] = earlier._alive.get(runner, {}) if earlier is not None else {}
            else:
                self._alive[runner] = self._take(runner, attempts)

    def _take(self, runner: str, attempts: Iterable[Listed]) -> dict[str, frozenset[int]]:
        alive: dict[str, set[int]] = {}
        for job_id, n, runs, engine_id in attempts:
            self.listed.add((runner, job_id))
            self._attempts.setdefault((runner, job_id), set()).add(n)
            if runs:
                alive.setdefault(job_id, set()).add(n)
                self.engine_ids[job_id, n] = engine_id
        return {job_id: frozenset(found) for job_id, found in alive.items()}

    def alive(self, runner: str, job_id: str) -> frozenset[int] | None:
        """The attempts of a job that run; None if the runner did not answer. An unknown runner runs nothing."""
        return None if runner in self.silent else self.last_alive(runner, job_id)

    def of(self, entry: RecoveryEntry) -> RunnerReport:
        """The runner's report on a job. Depends on which instance answers and which one holds the newest attempt."""
        runner, job_id = entry.runner, entry.job_id
        alive, reached = self.alive(runner, job_id), self.instances.get(runner, "")
        if alive is None:
            why = self.why.get(runner, "")
            return RunnerReport(None, f"the {runner} runner does not answer{why and f': {why}'}")
        attempts = frozenset(self._attempts.get((runner, job_id), ()))
        if elsewhere := held_elsewhere(entry, reached, attempts):
            return RunnerReport(None, elsewhere, reached, attempts, frozenset(n for n in alive if n < entry.attempt))
        return RunnerReport(alive, "", reached, attempts)

    def last_alive(self, runner: str, job_id: str) -> frozenset[int]:
        """The attempts that ran in the runner's last answer, which may be from an earlier pass."""
        return self._alive.get(runner, {}).get(job_id, frozenset())

    def everything_alive(self) -> Iterable[tuple[str, str, frozenset[int]]]:
        """(runner, job id, attempts that run) from the last answer of each runner."""
        for runner, jobs in self._alive.items():
            for job_id, attempts in jobs.items():
                yield runner, job_id, attempts


class JobView(NamedTuple):
    """A job as the planner sees it.

    idle: False while an action on the job runs, or while the entry does not hold yet what the last action wrote;
    nothing is planned then. waits_for: why nothing can be planned for the job, "" = something can. starting: as in
    `pools.holding`. put_off: the job is in backoff after a start that could not be made. steady: as in
    `replacing.Side`.
    """

    entry: RecoveryEntry
    known: Knowledge = NOTHING
    idle: bool = True
    waits_for: str = ""
    starting: int = 0
    backoff: bool = False
    steady: bool = False


def plan_actions(
    views: Mapping[str, JobView], observed: Observed, pools: Pools, starts_max: int, unread: str = "",
    unreadable: Collection[str] = (),
) -> list[Action]:  # fmt: skip
    """All actions to take now. views: job id -> view, for every job that has an entry. unread: as in `pools.admit`.
    unreadable: jobs whose entry cannot be decoded."""
    wanted: list[Action] = []
    together: dict[regions.Region, list[regions.RegionMember]] = {}
    # While one job replaces another, the replacement decides their order, so neither belongs to a region.
    pairs = [(job_id, old) for job_id, view in views.items() if (old := view.entry.replaces) is not None]
    paired = {job_id for new, old in pairs if old in views and not views[old].entry.retiring for job_id in (new, old)}
    for job_id, view in views.items():
        report = observed.of(view.entry)
        own: tuple[Action, ...] | None = None
        if view.waits_for:
            own = (Wait(job_id, view.waits_for),)
        elif view.idle:
            own = judge(view.entry, report, view.known)
        if job_id not in paired and (region := regions.region_of(view.entry)) is not None:
            together.setdefault(region, []).append(regions.RegionMember(view.entry, view.known, report.alive, own))
        elif own is not None:
            wanted += own
    for region, members in together.items():
        wanted += regions.together(region, members)
    held = slots_held(views, observed, pools)

    def side(job_id: str) -> Side | None:
        view = views.get(job_id)
        if view is None or view.entry.retiring:
            return None
        report, idle = observed.of(view.entry), view.idle and not view.waits_for
        elsewhere = stored_elsewhere(view.entry.restore_points, view.entry, report)
        return Side(view.entry, report.alive, view.known, idle, view.starting, view.steady, report.why, elsewhere)

    def no_room(new: RecoveryEntry, old: Side) -> str:
        return _no_room(new, old, held, pools)

    new_ones = [job_id for job_id, view in views.items() if view.entry.replaces is not None]
    wanted = _spared(wanted, views, unread)
    wanted = apply_replacements(wanted, side, new_ones, unread, unreadable, no_room)
    entries = {action.job_id: views[action.job_id].entry for action in wanted}
    for action in wanted:
        if isinstance(action, Start) and action.inherited is not None:  # they decide its position in the pool's queue
            entries[action.job_id] = replace(entries[action.job_id], restore_points=action.inherited.points)
    backoff = {job_id for job_id in entries if views[job_id].backoff}
    found = admit(wanted, entries, held, pools, starts_max, backoff, unread)
    return [*found, *_spared(_disposing(views, observed, found), views, unread)]


def _disposing(views: Mapping[str, JobView], observed: Observed, found: list[Action]) -> list[Action]:
    """Deletions of savepoints for jobs without another action now, even if they wait for something."""
    acted = {action.job_id for action in found if not isinstance(action, Wait)}
    out: list[Action] = []
    for job_id, view in views.items():
        entry, idle = view.entry, view.idle and not view.waits_for
        if entry.disposals and idle and job_id not in acted and not (entry.terminal or entry.runner in observed.silent):
            report = observed.of(entry)
            if here := disposable(entry, report):
                out.append(Dispose(job_id, here))
    return out


def _spared(wanted: list[Action], views: Mapping[str, JobView], unread: str) -> list[Action]:
    """Keeps savepoints that other jobs began from or may begin from. To know that, all entries must be read."""
    if not any(isinstance(action, Dispose) for action in wanted):
        return wanted
    needs: dict[str, set[str]] = {}
    for job_id, view in views.items():
        for location in needed(view.entry):
            needs.setdefault(location, set()).add(job_id)
    out: list[Action] = []
    for action in wanted:
        if not isinstance(action, Dispose):
            out.append(action)
            continue
        users = {point: min(needs.get(point.location, set()) - {action.job_id}, default="") for point in action.points}
        free = tuple(point for point, user in users.items() if not user)
        if free and not unread:
            out.append(Dispose(action.job_id, free))
        elif views[action.job_id].entry.terminal:  # its retirement must wait for the deletion
            point, user = next(iter(users.items()))
            out.append(Wait(action.job_id, unread or f"{user} needs its savepoint {point}, which is given up"))
    return out


def needed(entry: RecoveryEntry) -> frozenset[str]:
    """Locations of the restore points that a job began from or may begin from; none for a terminal job."""
    if entry.terminal or entry.retiring:
        return frozenset()
    points = (*entry.restore_points, *((entry.base,) if entry.base is not None else ()))
    return frozenset(point.location for point in points)


def _no_room(new: RecoveryEntry, old: Side, held: Mapping[str, int], pools: Pools) -> str:
    """Why a job would wait for slots even if the job that it replaces were gone, so that the old one must run on until
    then; "" = there would be room."""
    pool = pools.of(new)
    if pool is None:
        return ""
    gone = len(holding(old.entry, old.alive, frozenset(), old.starting)) if pools.of(old.entry) is pool else 0
    free = pool.slots - held[pool.name] + gone * old.entry.slots
    if new.slots <= free:
        return ""
    return (
        f"waiting for slots: needs {new.slots}, {max(free, 0)} of {pool.slots} would be free in pool {pool.name} "
        f"without {old.entry.job_id}, which runs on until then"
    )


def slots_held(views: Mapping[str, JobView], observed: Observed, pools: Pools) -> Counter[str]:
    """Pool -> slots held by attempts that are or may be alive.

    An attempt without a readable entry (an orphan, for example) holds one slot in every pool that jobs of its runner can
    belong to.
    """
    held: Counter[str] = Counter()
    if not pools:
        return held
    for job_id, view in views.items():
        entry = view.entry
        if (pool := pools.of(entry)) is not None:
            alive, before = observed.of(entry).alive, observed.last_alive(entry.runner, job_id)
            held[pool.name] += entry.slots * len(holding(entry, alive, before, view.starting))
    for runner, job_id, attempts in observed.everything_alive():
        if job_id not in views or views[job_id].entry.runner != runner:
            for pool in pools.of_runner(runner):
                held[pool.name] += len(attempts)
    return held


def judge(entry: RecoveryEntry, report: RunnerReport, known: Knowledge) -> tuple[Action, ...]:
    """The actions on one job, whether the ledger or its producer runs it."""
    return outside.decide(entry) if entry.runner == outside.OUTSIDE else decide(entry, report, known)

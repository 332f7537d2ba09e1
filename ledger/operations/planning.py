"""The plan of a leader elected now, with reasons. Writes nothing anywhere.

The runners are asked first. Then both topics are read to the high watermark and folded, and the pass of the reconciler
(`core.plan.reconcile`) decides the next action for each job. Since the log is newer than the answers, a contradiction
between the two is real. Restore points are verified by the same task that precedes a start.

A plan does not know the answer to a fence (it does not fence), the actions that a running reconciler has begun, or future
events. If another action must come before a start, `then` names the action that follows it if all goes well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from ledger.core.model.facts import CheckpointRetention, IntentKind, RefusedRestorePoint, RestoreBy, RestorePoint
from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.table import RegisterTable
from ledger.core.plan.plan import (
    RESTART_DELAY,
    Action,
    AskSavepoint,
    Close,
    Confirm,
    Declare,
    Dispose,
    GiveUp,
    Inherited,
    Knowledge,
    Lose,
    Refuse,
    Retire,
    Settle,
    Start,
    StartAgain,
    Stop,
    StopStalled,
    Verify,
    Wait,
    WantSavepoint,
)
from ledger.core.plan.pools import Pools
from ledger.core.plan.reconcile import JobView, Observed, judge, plan_actions, slots_held
from ledger.core.plan.regions import points_from, region_of
from ledger.core.plan.runner_report import stored_elsewhere
from ledger.history.historical_runner import RecordedBlobs, recorded_runners
from ledger.operations.region_cuts import with_cuts
from ledger.ports import BlobStore, Prepared, PrepareTask, Runner, TaskOutcome
from ledger.reader.reading import Source, Tail, jobs_in
from ledger.roles.projector.clocks import LeaderClocks
from ledger.tasks import observe, observed_from, perform

_STEPS_MAX = 4
RETIRED = "the ledger has no such job, or it is retired"
_STARTABLE = frozenset({"CREATED", "RESTARTING", "RUNNING"})


class PlannedAction(StrEnum):
    """The word for an action in the answer of `jobledger plan`."""

    WAIT = "wait"
    START = "start"
    START_AGAIN = "start-again"
    QUARANTINE = "quarantine"
    SETTLE = "settle"
    STOP = "stop"
    SAVEPOINT = "savepoint"
    LOSE = "lose"
    GIVE_UP = "give-up"
    CLOSE = "close"
    DISPOSE = "dispose"
    RETIRE = "retire"
    FORGET = "forget"
    NOTHING = "nothing"
    DECLARE = "declare"
    SUSPEND = "suspend"
    RESUME = "resume"
    CANCEL = "cancel"


_WORDS: Mapping[type[Action], PlannedAction] = {
    Wait: PlannedAction.WAIT, Confirm: PlannedAction.WAIT, Verify: PlannedAction.WAIT, Stop: PlannedAction.STOP,
    Settle: PlannedAction.SETTLE, Start: PlannedAction.START, StartAgain: PlannedAction.START_AGAIN,
    StopStalled: PlannedAction.STOP, AskSavepoint: PlannedAction.SAVEPOINT, Lose: PlannedAction.LOSE,
    GiveUp: PlannedAction.GIVE_UP, Close: PlannedAction.CLOSE, Retire: PlannedAction.RETIRE,
    Declare: PlannedAction.DECLARE, Refuse: PlannedAction.QUARANTINE, WantSavepoint: PlannedAction.SAVEPOINT,
    Dispose: PlannedAction.DISPOSE,
}  # fmt: skip
#: The intents of a replacement on the replaced job, by the names of the verbs.
_INTENTS = {
    IntentKind.SUSPEND: PlannedAction.SUSPEND, IntentKind.RUN: PlannedAction.RESUME,
    IntentKind.CANCEL: PlannedAction.CANCEL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """The next action on one job.

    state: "" = the job has no entry. action: suspend, resume and cancel are for a job that another job replaces.
    attempt: of the action, 0 = none. restore_point: of a start, None = from scratch, or no start. refused: offered
    restore points that do not verify. then: the action after this one, if all goes well. deletes: files that are
    deleted for good. pool: "" = not limited. external: the job restores by itself.
    """

    job_id: str
    name: str
    namespace: str
    runner: str
    state: str
    action: PlannedAction
    attempt: int
    why: str
    restore_point: RestorePoint | None = None
    refused: tuple[RefusedRestorePoint, ...] = ()
    then: str = ""
    deletes: tuple[str, ...] = ()
    pool: str = ""
    slots: int = 0
    external: bool = False


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The use of a pool. held: slots taken now, also by attempts to be stopped. starting: slots of the planned starts.
    waiting: the number of jobs that wait."""

    name: str
    slots: int
    held: int
    starting: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one pass. jobs: in the order of a pass (stops before starts); a job with two actions is listed twice.
    silent: runner -> why it did not answer. as_of: topic -> partition -> offset; all records below it were read."""

    jobs: tuple[Planned, ...]
    pools: tuple[PoolUse, ...]
    silent: Mapping[str, str]
    as_of: Mapping[str, Mapping[int, int]]


def plan_then(source: Source, pools: Pools, starts_max: int) -> Plan:
    """The plan of a leader elected at the moment of a source of the past, from the log alone
    (`ledger.history.historical_runner`). Raises: Unreachable."""
    return plan(source, recorded_runners(_Read(source).entries), RecordedBlobs, pools, starts_max)


def plan(
    source: Source, runners: Mapping[str, Runner], blobs: Callable[[], BlobStore], pools: Pools, starts_max: int
) -> Plan:
    """The plan of a leader elected now. blobs: called if the graph of a start must be checked. Raises: Unreachable if
    Kafka does not answer."""
    silent: dict[str, str] = {}
    answers = observe(runners, lambda runner, error: silent.update({runner: str(error)}))
    observed = observed_from(answers, why=silent)
    read = _Read(source)
    views = {entry.job_id: JobView(entry, Knowledge(confirmed=True)) for entry in read.entries}
    judged = partial(plan_actions, views, observed, pools, starts_max, unreadable=read.unreadable)
    actions = with_cuts(views, runners, observed, judged)
    begun = _started_meanwhile(actions, runners)
    actions = [action for action in actions if action.job_id not in begun]
    started = [a for a in actions if isinstance(a, Start | StartAgain)]
    check = partial(perform, runners=runners, blobs=blobs()) if started else None
    planner = _Planner(views, observed, pools, check, source.clock.time())
    rows = [planner.row(action) for action in actions]
    wanted = {action.job_id for action in actions}
    rows += [planner.idle(view.entry) for job_id, view in views.items() if job_id not in wanted]
    unread = "the projector has not admitted its spec"
    rows += [Planned(job_id, "", "", "", "", PlannedAction.WAIT, 0, unread) for job_id in read.new]
    orphans = _orphans(observed, {*views, *read.new, *read.unreadable})
    return Plan((*orphans, *rows), tuple(_uses(views, observed, pools, rows)), silent, read.as_of)


def _started_meanwhile(actions: list[Action], runners: Mapping[str, Runner]) -> set[str]:
    """Jobs with an attempt that was recorded after the runners answered, and runs by now; no leader starts them again. Asks
    the runners again only if the plan has such a start."""
    doubted = [action for action in actions if isinstance(action, StartAgain)]
    if not doubted:
        return set()
    later = observed_from(observe(runners, lambda *_: None))
    return {action.job_id for action in doubted if (action.job_id, action.n) in later.engine_ids}


class _Read:
    """The ledger as read. entries: as a projector elected now would publish them. new: jobs with a spec that is not
    admitted yet. unreadable: jobs whose published entry cannot be decoded; no action touches them."""

    def __init__(self, source: Source) -> None:
        topics, partitions = source.topics, source.log.partitions(source.topics.events)
        published, table = Published(source.codec.decode), RegisterTable(partitions)
        with Tail(source, [topics.recovery]) as recovery, Tail(source, [topics.events]) as events:
            self.as_of: dict[str, dict[int, int]] = {}
            for tail in (recovery, events):
                for (topic, partition), end in sorted(tail.high_watermarks().items()):
                    self.as_of.setdefault(topic, {})[partition] = end
            for records in recovery.to_end():
                for record in records:
                    published.apply(record)
            for records in events.to_end():
                table.apply(records, tell_touched=False)
        self.entries: list[RecoveryEntry] = []
        self.new: list[str] = []
        self.unreadable = published.unreadable
        # The clocks of a leader that sees every job for the first time.
        clocks, now = LeaderClocks(), (source.clock.time(), source.clock.monotonic())
        for job, partition in jobs_in(source, table):
            if job.job_id in self.unreadable:
                continue
            before = published.entries.get(job.job_id)
            if (entry := clocks.fold(job, source.keep, before, *now)) is not None:
                self.entries.append(replace(entry, partition=partition))
            elif job.specs and job.result is None:
                self.new.append(job.job_id)
        self.entries.sort(key=lambda entry: entry.job_id)


class _Planner:
    """Turns actions into rows for people. check: performs the task that precedes a start."""

    def __init__(
        self, views: Mapping[str, JobView], observed: Observed, pools: Pools,
        check: Callable[[PrepareTask], TaskOutcome[Prepared]] | None, now: float,
    ) -> None:  # fmt: skip
        self._views, self._observed, self._pools, self._check, self._now = views, observed, pools, check, now

    def row(self, action: Action) -> Planned:
        entry = self._views[action.job_id].entry
        row = self._row(entry, _WORDS[type(action)], getattr(action, "n", 0), self._why(action, entry))
        match action:
            case Start(inherited=inherited) if inherited is not None:
                return self._checked(row, entry, inherited)
            case Start(together=together):
                points, newer = points_from(entry, together.consistency if together else "")
                return self._checked(row, entry, self._own(entry, points + newer, entry.restore_from_named))
            case Stop(_, n) if n == entry.attempt and entry.state is JobState.RUNNING and region_of(entry):
                return replace(row, then=f"start attempt {n + 1} together with region {entry.region}")
            case StartAgain():
                base = (entry.base,) if entry.base else ()
                return self._checked(row, entry, self._own(entry, base, entry.base is not None))
            case Retire(_, forced):
                return replace(row, deletes=tuple(_deletes(entry, forced)))
            case Dispose(_, points):
                deletes = tuple(f"savepoint {point} at {point.location}" for point in points)
                return replace(row, then=self._then(entry), deletes=deletes)
            case Declare(_, _, _, fact):
                return replace(row, action=_INTENTS[fact.kind])
            case Refuse() | WantSavepoint():
                return row
        return replace(row, then=self._then(entry))

    def idle(self, entry: RecoveryEntry) -> Planned:
        """The row of a job without an action."""
        if entry.retiring:
            why = "it is over; the projector removes its remaining registers"
        elif entry.state is JobState.RUNNING:
            why = f"attempt {entry.attempt} runs"
            if entry.savepoint_at is not None and not entry.savepoint_due:
                why += f"; the next periodic savepoint is due in {max(0.0, entry.savepoint_at - self._now):.0f} s"
        else:
            why = entry.reason or f"it is {entry.state}"
        return self._row(entry, PlannedAction.NOTHING, entry.attempt, why)

    def _row(self, entry: RecoveryEntry, action: PlannedAction, attempt: int, why: str) -> Planned:
        pool = self._pools.of(entry)
        return Planned(
            entry.job_id, entry.name, entry.namespace, entry.runner, str(entry.state), action, attempt, why,
            pool=pool.name if pool else "", slots=entry.slots, external=entry.restore is RestoreBy.EXTERNAL,
        )  # fmt: skip

    def _own(self, entry: RecoveryEntry, points: tuple[RestorePoint, ...], named: bool) -> Inherited:
        """The job's own restore points, in the form of inherited ones."""
        return Inherited(points, named, stored_elsewhere(points, entry, self._observed.of(entry)))

    def _checked(self, row: Planned, entry: RecoveryEntry, offered: Inherited) -> Planned:
        """The row of a start after its graph and restore points were checked."""
        assert self._check is not None
        task = PrepareTask(
            runner=entry.runner, job_id=entry.job_id, n=row.attempt, graph=entry.graph, restore_points=offered.points,
            restore_from_named=offered.named, elsewhere=offered.elsewhere, instance=self._observed.of(entry).instance,
        )  # fmt: skip
        outcome = self._check(task)
        if outcome.refused and row.action is PlannedAction.START_AGAIN:
            return replace(row, action=PlannedAction.SETTLE, why=f"it can't be started again: {outcome.reason}")
        if outcome.refused:
            return replace(row, action=PlannedAction.QUARANTINE, why=outcome.reason)
        prepared = outcome.answer
        if prepared is None:
            return replace(row, action=PlannedAction.WAIT, why=f"its start could not be prepared: {outcome.reason}")
        row = replace(row, refused=prepared.refused)
        if prepared.unknown:
            return replace(row, action=PlannedAction.WAIT, why=prepared.unknown)
        return replace(row, restore_point=prepared.base)

    def _why(self, action: Action, entry: RecoveryEntry) -> str:
        match action:
            case Wait(_, reason) if reason == RESTART_DELAY and entry.due_at is not None:
                return f"{reason}: due in {max(0.0, entry.due_at - self._now):.0f} s"
            case Wait(_, reason) | Confirm(_, reason) | Stop(_, _, _, reason):
                return reason
            case StopStalled(_, n):
                return f"attempt {n} runs without progress"
            case AskSavepoint(_, n, asks):
                return f"a savepoint is requested, and this leader has not asked attempt {n} yet: {', '.join(asks)}"
            case WantSavepoint(_, n, _, how_often):
                return f"attempt {n} is to make a savepoint {how_often}"
            case Dispose():
                return "disposed of by a person, or because its policy keeps only newer ones"
            case Settle(_, n):
                return f"all facts that the runner has of attempt {n} must be in the log before the next one starts"
            case Verify():
                return f"region {entry.region} restarts together: its restore point can't be verified at the moment"
            case Start(together=together):
                return (together.reason if together else "") or _why_start(entry)
            case StartAgain(_, n):
                return f"attempt {n} is recorded, and its runner does not list it: the start is repeated, which is harmless"
            case Lose(_, _, _, cause) | Refuse(_, _, cause):
                return cause
            case Declare(_, _, _, fact):
                return fact.reason
            case GiveUp() | Close() | Retire():
                return entry.reason or f"it is {entry.state}"

    def _then(self, entry: RecoveryEntry) -> str:
        """The action after this one, if the stopped attempt ends and the fence returns nothing new."""
        report, known = self._observed.of(entry), self._views[entry.job_id].known
        for step in range(_STEPS_MAX):
            match next(iter(judge(entry, report, known)), None):
                case Stop(_, n) if report.alive is not None:
                    report = report._replace(alive=report.alive - {n})
                case StopStalled():
                    return "count a failure, go on by its restart policy"
                case Settle(_, n):
                    known = known._replace(settled=known.settled | {n})
                case Start(_, n):
                    nothing = "its own state" if entry.restore is RestoreBy.EXTERNAL else "scratch"
                    newest = f"restore point {entry.restore_points[0]}" if entry.restore_points else nothing
                    return f"start attempt {n} from {newest}" if step else ""
                case Close(_, n, outcome):
                    return f"close attempt {n} as {outcome}, retire the job" if step else "retire the job"
                case Lose(_, n) | GiveUp(_, n):
                    return f"give up attempt {n}, go on by its restart policy" if step else "go on by its restart policy"
                case Dispose():
                    return "retire the job" if entry.terminal else ""
                case Retire():
                    return "retire the job" if step else ""
                case _:
                    break
        return ""


def _why_start(entry: RecoveryEntry) -> str:
    if not entry.attempt:
        return "it was never started"
    return entry.reason or f"attempt {entry.attempt} ended: {entry.outcome or 'its outcome is unknown'}"


def _deletes(entry: RecoveryEntry, forced: bool) -> Iterator[str]:
    yield f"every blob under graphs/{entry.job_id}/"
    if entry.checkpoint_retention is CheckpointRetention.DELETE and not forced:
        yield from (f"checkpoint {point} at {point.location}" for point in entry.checkpoints)
        yield "the runner's other files of the job"
    yield f"{len(entry.registers)} registers"


def _orphans(observed: Observed, known: set[str]) -> Iterator[Planned]:
    for runner, job_id in sorted(observed.listed):
        if job_id in known:
            continue
        alive = sorted(observed.alive(runner, job_id) or ())
        for n in alive:
            why = "an orphan: it runs, and the ledger has no such job"
            yield Planned(job_id, "", "", runner, "", PlannedAction.STOP, n, why, then="record that, forget the job")
        if not alive:
            yield Planned(job_id, "", "", runner, "", PlannedAction.FORGET, 0, RETIRED)


def _uses(views: Mapping[str, JobView], observed: Observed, pools: Pools, rows: list[Planned]) -> Iterator[PoolUse]:
    held = slots_held(views, observed, pools)
    for pool in pools:
        own = [row for row in rows if row.pool == pool.name]
        starting = sum(row.slots for row in own if row.action is PlannedAction.START)
        waiting = sum(row.action is PlannedAction.WAIT and row.state in _STARTABLE for row in own)
        yield PoolUse(pool.name, pool.slots, held[pool.name], starting, waiting)

"""The actions on one job, from its entry and the runner's observation: `decide`. `pools.admit` decides which starts fit.

Level-based: the same entry and observation give the same actions, and every action may be repeated or skipped without
harm. `Knowledge` holds what a reconciler remembers between passes. Source: docs/ARCHITECTURE.md; a model found the rules
about settling (decision 3).
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.core.fold.job import is_runner
from ledger.core.model.facts import IntentDeclared, OnStall, RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Outcome
from ledger.core.plan.runner_report import RunnerReport, covered, disposable, last_started

#: The reason of a Wait if the next start is not due yet.
RESTART_DELAY = "restart delay"


class Wait(NamedTuple):
    """No action: nothing can be done about the job now. reason: for people."""

    job_id: str
    reason: str


class Confirm(NamedTuple):
    """Wait until the entry has reached the present end of the log, because something looks wrong. reason: for
    people."""

    job_id: str
    reason: str


class Stop(NamedTuple):
    """Order attempt n to stop. outcome: of the attempt's end. savepoint: whether to request a savepoint before the
    stop."""

    job_id: str
    n: int
    outcome: Outcome
    reason: str
    savepoint: bool = False


class AskSavepoint(NamedTuple):
    """Request savepoints of attempt n, one for each uuid in `asks`."""

    job_id: str
    n: int
    asks: tuple[str, ...]


class WantSavepoint(NamedTuple):
    """Write a periodic savepoint request to the log. The request then reaches the running attempt as every other one
    does."""

    job_id: str
    n: int
    ask: str
    reason: str


class Dispose(NamedTuple):
    """Delete the files of disposed savepoints, then remove their registers. This action comes before a retirement, or
    whenever no other action is due (`reconcile`)."""

    job_id: str
    points: tuple[RestorePoint, ...]


class StopStalled(NamedTuple):
    """Order attempt n to stop, because it runs without published progress; not if the runner knows of progress that is
    not in the log yet. The end of the attempt counts as a failure."""

    job_id: str
    n: int


class Settle(NamedTuple):
    """Fence the attempts up to n, and relay the runner's events that are not in the log yet."""

    job_id: str
    n: int


class Inherited(NamedTuple):
    """Restore points that a job takes over from the job that it replaces, best first. named: as in
    `RecoveryEntry.restore_from_named`. elsewhere: those made by another instance of the runner than the one that
    answers."""

    points: tuple[RestorePoint, ...]
    named: bool
    elsewhere: tuple[RestorePoint, ...] = ()


class Start(NamedTuple):
    """Choose a restore point for attempt n, record the choice, then start. inherited: None = the job's own restore points
    are offered. together: the region's start, None = no region; its label, if any, decides the restore point."""

    job_id: str
    n: int
    inherited: Inherited | None = None
    together: Together | None = None


class Verify(NamedTuple):
    """Have the runner verify these restore points, so that the region can choose before attempt n."""

    job_id: str
    n: int
    points: tuple[RestorePoint, ...]


class StartAgain(NamedTuple):
    """Attempt n is recorded, but the runner has not reported on it: start it as recorded, without a new record."""

    job_id: str
    n: int


class Lose(NamedTuple):
    """Attempt n is gone: fence it, relay its remaining events, and write an end if none of these events is an end."""

    job_id: str
    n: int
    outcome: Outcome  # lost, or failed if its start crashed
    cause: str


class GiveUp(NamedTuple):
    """Record attempt n as lost without asking its runner, because an operator forced it."""

    job_id: str
    n: int


class Close(NamedTuple):
    """Nothing runs: fence attempt n, which never started, and write its terminal outcome.

    forced: without the fence, because the runner is silent and an operator forced the end.
    """

    job_id: str
    n: int
    outcome: Outcome
    forced: bool = False


class Retire(NamedTuple):
    """The job is over and nothing of it runs: delete its blobs and checkpoints, then write its result and tombstones.

    forced: do not ask the runner, because an operator forced it. An attempt that still runs there is an orphan later.
    """

    job_id: str
    forced: bool = False


class Declare(NamedTuple):
    """Write an intent on this job, because another job replaces it (`core.plan.replacing`)."""

    job_id: str
    rev: int
    id: str
    fact: IntentDeclared


class Refuse(NamedTuple):
    """Record that attempt n can never begin; the job is then quarantined."""

    job_id: str
    n: int
    cause: str


Action = (
    Wait | Confirm | Stop | StopStalled | AskSavepoint | WantSavepoint | Settle | Verify | Start | StartAgain | Lose
    | GiveUp | Close | Dispose | Retire | Declare | Refuse
)  # fmt: skip


class Knowledge(NamedTuple):
    """Facts about a job that the reconciler remembers beside its entry.

    settled: attempts whose fence returned nothing new, if the entry has reached the end that the log had then.
    confirmed: whether the entry has reached the end that the log had when something first looked wrong.
    crashed: attempt -> how its start crashed or timed out.
    fenced: attempts whose fence returned nothing new, if the entry has not reached that end yet.
    asked: (attempt, uuid) of savepoint requests that the runner has received.
    verified: restore point -> valid, invalid or unknown: the runner's last answer for the next start.
    """

    settled: frozenset[int] = frozenset()
    confirmed: bool = False
    crashed: tuple[tuple[int, str], ...] = ()
    asked: frozenset[tuple[int, str]] = frozenset()
    verified: tuple[tuple[RestorePoint, str], ...] = ()
    fenced: frozenset[int] = frozenset()


NOTHING = Knowledge()


def decide(entry: RecoveryEntry, report: RunnerReport, known: Knowledge = NOTHING) -> tuple[Action, ...]:
    """The actions on a job now; () = nothing is to be done."""
    job_id, top, alive = entry.job_id, entry.attempt, report.alive
    if entry.retiring:
        return ()
    given_up = covered(entry)
    silent = alive is None
    if alive is None:
        if not 0 < last_started(entry) <= given_up:
            return _left_over(entry, report, known) or (Wait(job_id, report.why),)
        alive = frozenset()
    running = frozenset(n for n in alive if n > given_up)
    if entry.terminal:
        stops = tuple(Stop(job_id, n, Outcome.STOPPED, f"the job is {entry.state}") for n in sorted(alive))
        here = () if silent else disposable(entry, report)  # `jobledger gc` deletes savepoints of other instances
        if here:
            return stops or (Dispose(job_id, here),)
        return stops or (Retire(job_id, forced=silent),)
    if 0 < top <= given_up and not entry.outcome:
        return (GiveUp(job_id, top),)
    match entry.state:
        case JobState.CANCELLING | JobState.FAILING:
            return _closing(entry, running, known, given_up, silent)
        case JobState.CREATED | JobState.RESTARTING:
            return _starting(entry, running, known, given_up)
        case JobState.SUSPENDED | JobState.QUARANTINED:
            savepoint = entry.intent is not None and entry.intent.savepoint and entry.state is JobState.SUSPENDED
            return tuple(Stop(job_id, n, Outcome.STOPPED, f"the job is {entry.state}", savepoint) for n in sorted(alive))
        case JobState.RUNNING:
            amiss = _superseded(entry, alive, known) or _missing(entry, running, known) or _stalled(entry, known)
            return amiss or _periodic(entry)
        case _:
            return (Wait(job_id, f"state {entry.state} is unknown to this version"),)


def at_rest(entry: RecoveryEntry, alive: frozenset[int] | None, known: Knowledge = NOTHING) -> bool:
    """Whether no attempt of a job runs or can still begin, and all events of its runner are in the log. A silent runner
    has nothing more to report once the end of the last attempt is recorded."""
    given_up = covered(entry)
    if alive is None:
        return last_started(entry) <= given_up or bool(entry.outcome and is_runner(entry.outcome_writer))
    return all(n <= given_up for n in alive) and (entry.terminal or _settled(entry, known, given_up))


def _left_over(entry: RecoveryEntry, report: RunnerReport, known: Knowledge) -> tuple[Action, ...]:
    """Stops attempts that an operator gave up while their instance was silent, and that still run now that it answers."""
    if report.superseded and not known.confirmed:
        return (Confirm(entry.job_id, "an attempt runs that should be over"),)
    return tuple(Stop(entry.job_id, n, Outcome.STOPPED, "superseded") for n in sorted(report.superseded))


def _closing(
    entry: RecoveryEntry, running: frozenset[int], known: Knowledge, given_up: int, silent: bool
) -> tuple[Action, ...]:
    outcome = Outcome.CANCELED if entry.state is JobState.CANCELLING else Outcome.ABANDONED
    if running:
        order = Outcome.CANCELED if entry.state is JobState.CANCELLING else Outcome.STOPPED
        return tuple(Stop(entry.job_id, n, order, f"the job is {entry.state}") for n in sorted(running))
    if not _settled(entry, known, given_up):
        return (_settle(entry, known),)
    return (Close(entry.job_id, entry.next_attempt, outcome, forced=silent),)


def _starting(entry: RecoveryEntry, running: frozenset[int], known: Knowledge, given_up: int) -> tuple[Action, ...]:
    if running:
        if not known.confirmed:
            return (Confirm(entry.job_id, "an attempt runs that should be over"),)
        return tuple(Stop(entry.job_id, n, Outcome.STOPPED, "superseded") for n in sorted(running))
    if not _settled(entry, known, given_up):
        return (_settle(entry, known),)
    if not entry.due and entry.state is not JobState.CREATED:
        return (Wait(entry.job_id, RESTART_DELAY),)
    return (Start(entry.job_id, entry.next_attempt),)


def _superseded(entry: RecoveryEntry, alive: frozenset[int], known: Knowledge) -> tuple[Action, ...]:
    """Stops attempts other than the last one, those that an operator gave up included."""
    others = sorted(alive - {entry.attempt})
    if others and not known.confirmed:
        return (Confirm(entry.job_id, "an attempt runs that should be over"),)
    return tuple(Stop(entry.job_id, n, Outcome.STOPPED, "superseded") for n in others)


def _missing(entry: RecoveryEntry, running: frozenset[int], known: Knowledge) -> tuple[Action, ...]:
    n = entry.attempt
    if n in running:
        asks = tuple(ask for ask in entry.asks if (n, ask) not in known.asked)
        return (AskSavepoint(entry.job_id, n, asks),) if asks else ()
    if not known.confirmed:
        return (Confirm(entry.job_id, f"attempt {n} runs no more; its end is awaited in the log"),)
    crash = dict(known.crashed).get(n)
    if n not in known.settled:  # its end may be on its way: fence, relay, and let the entry catch up with that first
        return (_settle(entry, known),) if entry.known or crash else (StartAgain(entry.job_id, n),)
    return (
        Lose(entry.job_id, n, Outcome.FAILED if crash else Outcome.LOST, crash or "the runner does not know it any more"),
    )


def _stalled(entry: RecoveryEntry, known: Knowledge) -> tuple[Action, ...]:
    """Stops a stalled attempt if its policy says restart. With `mark` the stall is only shown to people."""
    if not (entry.stalled and entry.stall_policy and entry.stall_policy.on_stall is OnStall.RESTART):
        return ()
    if not known.confirmed:
        return (Confirm(entry.job_id, f"attempt {entry.attempt} makes no progress"),)
    return (StopStalled(entry.job_id, entry.attempt),)


def _periodic(entry: RecoveryEntry) -> tuple[Action, ...]:
    """Requests the periodic savepoint that is due. After the request another one is next, which is not due."""
    policy = entry.savepoint_policy
    if policy is None or not entry.savepoint_due or not entry.next_ask:
        return ()
    return (WantSavepoint(entry.job_id, entry.attempt, entry.next_ask, f"every {policy.interval_s:g} s"),)


def _settle(entry: RecoveryEntry, known: Knowledge) -> Action:
    """Fences once. A repeated fence would move the end that the entry must reach, for as long as others write."""
    n = entry.attempt
    if n in known.fenced:
        return Wait(entry.job_id, f"attempt {n} is fenced; its entry is not yet as new as the log was then")
    return Settle(entry.job_id, n)


def _settled(entry: RecoveryEntry, known: Knowledge, given_up: int) -> bool:
    """Whether no more events of attempts up to the last one can come: the runner itself reported the end (after all
    checkpoints), or the fence returned nothing new and the entry has caught up with it."""
    n = entry.attempt
    return n == 0 or n <= given_up or bool(entry.outcome and is_runner(entry.outcome_writer)) or n in known.settled

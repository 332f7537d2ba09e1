"""From an entry and what is observed of its job to actions: `decide`. What starts when is `pools.admit`.

Level-based: the same entry and observation give the same actions, and every action may be repeated or skipped without
harm. What a reconciler has to remember between passes comes in as `Knowledge`. Source: docs/ARCHITECTURE.md; the rules
about settling were found by a model (docs/decisions/0003).
"""

from __future__ import annotations

from typing import NamedTuple

from ledger.core.fold.job import is_runner
from ledger.core.model.facts import IntentDeclared, OnStall, RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.heard import Heard, covered, disposable, last_started

#: Why a job waits whose next start is not due yet.
RESTART_DELAY = "restart delay"


class Wait(NamedTuple):
    """Nothing can be done about the job now; `reason` is shown to people."""

    job_id: str
    reason: str


class Confirm(NamedTuple):
    """Something looks wrong; before acting on it, let the entry catch up with the log as it is now."""

    job_id: str
    reason: str


class Stop(NamedTuple):
    """Order attempt n to stop; its end will have this outcome. savepoint: it is asked for one before it goes."""

    job_id: str
    n: int
    outcome: str
    reason: str
    savepoint: bool = False


class AskSavepoint(NamedTuple):
    """Ask attempt n for a savepoint, once for each of `asks`."""

    job_id: str
    n: int
    asks: tuple[str, ...]


class WantSavepoint(NamedTuple):
    """Put a periodic ask on the log: from then on it is asked of what runs, as every other."""

    job_id: str
    n: int
    ask: str
    reason: str


class Dispose(NamedTuple):
    """Delete the files of savepoints that are given up, then remove their registers. Before a job is retired; else whenever
    nothing else is done about it (`reconcile`)."""

    job_id: str
    points: tuple[RestorePoint, ...]


class StopStalled(NamedTuple):
    """Attempt n runs without progress, by what is published: unless the runner knows of progress that is not in the log
    yet, order it to stop. Its end will be a failure, and count as one."""

    job_id: str
    n: int


class Settle(NamedTuple):
    """Fence attempts up to n and relay what the runner has not yet seen in the log."""

    job_id: str
    n: int


class Inherited(NamedTuple):
    """What a job that replaces another begins from: offered, best first. named: as `RecoveryEntry.restore_from_named`.
    elsewhere: those of them that another instance of the runner made than the one that answers."""

    points: tuple[RestorePoint, ...]
    named: bool
    elsewhere: tuple[RestorePoint, ...] = ()


class Start(NamedTuple):
    """Choose a restore point for attempt n, record the choice, then start. inherited: None = the job's own are offered.
    together: what the record says of its region, None = it has none; its label, if there is one, says where to begin."""

    job_id: str
    n: int
    inherited: Inherited | None = None
    together: Together | None = None


class Verify(NamedTuple):
    """Ask the runner which of these restore points are sound, so that the region of the job can choose before attempt n."""

    job_id: str
    n: int
    points: tuple[RestorePoint, ...]


class StartAgain(NamedTuple):
    """Attempt n is recorded, but the runner gave no sign of it: start it as recorded, without a new record."""

    job_id: str
    n: int


class Lose(NamedTuple):
    """Attempt n is gone: fence it, relay what is left of it, and if that holds no end write one."""

    job_id: str
    n: int
    outcome: str  # lost, or failed if its start crashed
    cause: str


class GiveUp(NamedTuple):
    """An operator forces: attempt n counts as lost without the runner's word."""

    job_id: str
    n: int


class Close(NamedTuple):
    """Nothing runs: fence attempt n, which never started, and write its terminal outcome.

    forced: without the fence, since the runner is silent and an operator gave it up.
    """

    job_id: str
    n: int
    outcome: str
    forced: bool = False


class Retire(NamedTuple):
    """The job is over and nothing of it runs: delete what it leaves, then write its result and tombstones.

    forced: without the runner's word, which an operator gave up; what it still has is an orphan once it answers again.
    """

    job_id: str
    forced: bool = False


class Declare(NamedTuple):
    """Put an intent on the log that follows from another job's: that one replaces this one (`core.replacing`)."""

    job_id: str
    rev: int
    id: str
    fact: IntentDeclared


class Refuse(NamedTuple):
    """Attempt n can't begin, whatever comes: say so as a fact, and quarantine the job."""

    job_id: str
    n: int
    cause: str


Action = (
    Wait | Confirm | Stop | StopStalled | AskSavepoint | WantSavepoint | Settle | Verify | Start | StartAgain | Lose
    | GiveUp | Close | Dispose | Retire | Declare | Refuse
)  # fmt: skip


class Knowledge(NamedTuple):
    """What the reconciler knows of a job beyond its entry.

    settled: attempts whose fence held nothing new, and the entry is at or past the end that the log had after that.
    confirmed: the entry is at or past the end that the log had when something first looked wrong.
    crashed: attempt -> how its start crashed or ran out of time.
    fenced: attempts whose fence held nothing new, and the entry is not there yet.
    asked: (attempt, ask) that the runner was told of.
    verified: restore point -> valid, invalid or unknown, as the runner said it last for the next start.
    """

    settled: frozenset[int] = frozenset()
    confirmed: bool = False
    crashed: tuple[tuple[int, str], ...] = ()
    asked: frozenset[tuple[int, str]] = frozenset()
    verified: tuple[tuple[RestorePoint, str], ...] = ()
    fenced: frozenset[int] = frozenset()


NOTHING = Knowledge()


def decide(entry: RecoveryEntry, heard: Heard, known: Knowledge = NOTHING) -> tuple[Action, ...]:
    """What to do about a job now."""
    job_id, top, alive = entry.job_id, entry.attempt, heard.alive
    if entry.retiring:
        return ()
    given_up = covered(entry)
    silent = alive is None
    if alive is None:
        if not 0 < last_started(entry) <= given_up:
            return _left_over(entry, heard, known) or (Wait(job_id, heard.why),)
        alive = frozenset()
    running = frozenset(n for n in alive if n > given_up)
    if entry.terminal:
        stops = tuple(Stop(job_id, n, "stopped", f"the job is {entry.state}") for n in sorted(alive))
        here = () if silent else disposable(entry, heard)  # what lies elsewhere is left to `jobledger gc`
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
            return tuple(Stop(job_id, n, "stopped", f"the job is {entry.state}", savepoint) for n in sorted(alive))
        case JobState.RUNNING:
            amiss = _superseded(entry, alive, known) or _missing(entry, running, known) or _stalled(entry, known)
            return amiss or _periodic(entry)
        case _:
            return (Wait(job_id, f"state {entry.state} is unknown to this version"),)


def at_rest(entry: RecoveryEntry, alive: frozenset[int] | None, known: Knowledge = NOTHING) -> bool:
    """Whether nothing of the job runs, nothing that was started can begin yet, and all that its runner has to say is in the
    log. A runner that is silent has said it all with the end of the last attempt."""
    given_up = covered(entry)
    if alive is None:
        return last_started(entry) <= given_up or bool(entry.outcome and is_runner(entry.outcome_writer))
    return all(n <= given_up for n in alive) and (entry.terminal or _settled(entry, known, given_up))


def _left_over(entry: RecoveryEntry, heard: Heard, known: Knowledge) -> tuple[Action, ...]:
    """Attempts that were given up by force while nobody could ask their instance, and that run where it answers now."""
    if heard.superseded and not known.confirmed:
        return (Confirm(entry.job_id, "an attempt runs that should be over"),)
    return tuple(Stop(entry.job_id, n, "stopped", "superseded") for n in sorted(heard.superseded))


def _closing(
    entry: RecoveryEntry, running: frozenset[int], known: Knowledge, given_up: int, silent: bool
) -> tuple[Action, ...]:
    outcome = "canceled" if entry.state is JobState.CANCELLING else "abandoned"
    if running:
        order = "canceled" if entry.state is JobState.CANCELLING else "stopped"
        return tuple(Stop(entry.job_id, n, order, f"the job is {entry.state}") for n in sorted(running))
    if not _settled(entry, known, given_up):
        return (_settle(entry, known),)
    return (Close(entry.job_id, entry.next_attempt, outcome, forced=silent),)


def _starting(entry: RecoveryEntry, running: frozenset[int], known: Knowledge, given_up: int) -> tuple[Action, ...]:
    if running:
        if not known.confirmed:
            return (Confirm(entry.job_id, "an attempt runs that should be over"),)
        return tuple(Stop(entry.job_id, n, "stopped", "superseded") for n in sorted(running))
    if not _settled(entry, known, given_up):
        return (_settle(entry, known),)
    if not entry.due and entry.state is not JobState.CREATED:
        return (Wait(entry.job_id, RESTART_DELAY),)
    return (Start(entry.job_id, entry.next_attempt),)


def _superseded(entry: RecoveryEntry, alive: frozenset[int], known: Knowledge) -> tuple[Action, ...]:
    """Also those that an operator gave up by force: nobody waited for them, but if they are there they go."""
    others = sorted(alive - {entry.attempt})
    if others and not known.confirmed:
        return (Confirm(entry.job_id, "an attempt runs that should be over"),)
    return tuple(Stop(entry.job_id, n, "stopped", "superseded") for n in others)


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
    return (Lose(entry.job_id, n, "failed" if crash else "lost", crash or "the runner does not know it any more"),)


def _stalled(entry: RecoveryEntry, known: Knowledge) -> tuple[Action, ...]:
    """What runs and is marked. A mark alone is for people."""
    if not (entry.stalled and entry.stall_policy and entry.stall_policy.on_stall is OnStall.RESTART):
        return ()
    if not known.confirmed:
        return (Confirm(entry.job_id, f"attempt {entry.attempt} makes no progress"),)
    return (StopStalled(entry.job_id, entry.attempt),)


def _periodic(entry: RecoveryEntry) -> tuple[Action, ...]:
    """What runs makes a savepoint now and then. Once the ask stands, another one comes next, and is not due."""
    policy = entry.savepoint_policy
    if policy is None or not entry.savepoint_due or not entry.next_ask:
        return ()
    return (WantSavepoint(entry.job_id, entry.attempt, entry.next_ask, f"every {policy.interval_s:g} s"),)


def _settle(entry: RecoveryEntry, known: Knowledge) -> Action:
    """One fence is enough: what others write meanwhile must not put off for ever that the entry catches up."""
    n = entry.attempt
    if n in known.fenced:
        return Wait(entry.job_id, f"attempt {n} is fenced; its entry is not yet as new as the log was then")
    return Settle(entry.job_id, n)


def _settled(entry: RecoveryEntry, known: Knowledge, given_up: int) -> bool:
    """Whether nothing more can come of attempts up to top: the runner itself reported its end (that fact comes after
    all its checkpoints), or its fence held nothing new and the entry is past that."""
    n = entry.attempt
    return n == 0 or n <= given_up or bool(entry.outcome and is_runner(entry.outcome_writer)) or n in known.settled

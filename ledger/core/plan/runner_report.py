"""The runner's report on a job, and whether the instance that answers can speak for the job at all.

A runner may have several instances, such as one agent per host. Each knows only its own attempts. The record of an
attempt names the instance that holds it. Source: decision 40.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledger.core.fold.job import is_runner
from ledger.core.model.facts import RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Outcome

#: In the reason of a wait for an instance that does not answer.
HELD = "is held by"
#: Stands for every instance of a runner: the log answers, as `ledger.history.historical_runner`.
ANY_INSTANCE = "*"


class RunnerReport(NamedTuple):
    """The runner's report on a job.

    alive: attempts that run; None = no instance that answers can report on the newest attempt. why: the reason, if
    alive is None. instance: the one that answered, "" = the runner has no instances, or none answered. attempts: all
    attempts of the job that this instance remembers. superseded: older attempts that still run here while another
    instance holds the newest.
    """

    alive: frozenset[int] | None
    why: str = ""
    instance: str = ""
    attempts: frozenset[int] = frozenset()
    superseded: frozenset[int] = frozenset()


def held_elsewhere(entry: RecoveryEntry, reached: str, attempts: frozenset[int]) -> str:
    """Why the instance that answers cannot report on the newest attempt of a job; "" = it can.

    reached: the instance that answers, "" = the runner has no instances. attempts: the job's attempts that this
    instance remembers. Once the instance that holds the attempt has reported its end, that instance is needed only when
    the job is over, to delete the job's files.
    """
    over = bool(entry.outcome) and is_runner(entry.outcome_writer)
    if reached == ANY_INSTANCE or (over and not entry.terminal):
        return ""
    n = entry.attempt if entry.outcome_writer == "" or over else last_started(entry)
    if entry.instance:
        holder = entry.instance if entry.instance != reached else ""
    else:  # an older release recorded no instance: the instance that took the attempt remembers it
        signs = entry.known and (over or not entry.outcome)
        holder = "an agent that its record does not name" if reached and signs and n not in attempts else ""
    if not holder:
        return ""
    return f"attempt {n} {HELD} {holder}, which this reconciler can't reach{reached and f' ({reached} answers)'}"


def disposable(entry: RecoveryEntry, report: RunnerReport) -> tuple[RestorePoint, ...]:
    """Disposed savepoints whose files the instance that answers can delete."""
    elsewhere = stored_elsewhere(entry.disposals, entry, report)
    return tuple(point for point in entry.disposals if point not in elsewhere)


def stored_elsewhere(
    points: Iterable[RestorePoint], entry: RecoveryEntry, report: RunnerReport
) -> tuple[RestorePoint, ...]:
    """Restore points that another instance made than the one that answers. If this one cannot read them, they may still be
    valid. Excludes those of attempts that an operator gave up, those from outside the ledger, and those of the newest
    attempt if this instance holds it."""
    if report.instance in ("", ANY_INSTANCE):
        return ()
    own = report.attempts | ({entry.attempt} if entry.instance == report.instance else set())
    given_up = covered(entry)
    return tuple(point for point in points if point.attempt > given_up and point.attempt not in own)


def covered(entry: RecoveryEntry) -> int:
    """The attempt up to which all count as settled without their runner, because an operator forced it; 0 = none."""
    return entry.intent.attempt if entry.intent and entry.intent.force else 0


def given_up(entry: RecoveryEntry) -> bool:
    """Whether an operator gave up every attempt that can have run, so that nothing waits for the runner."""
    return 0 < last_started(entry) <= covered(entry)


def last_started(entry: RecoveryEntry) -> int:
    """The highest attempt that can have run. An attempt that a reconciler closed never ran."""
    closed = entry.outcome in (Outcome.CANCELED, Outcome.ABANDONED) and not is_runner(entry.outcome_writer)
    return entry.attempt - 1 if closed else entry.attempt

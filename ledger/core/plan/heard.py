"""What the runner of a job says about it, and whether the instance that says so can speak for the job at all.

A runner may have several instances, such as an agent per host; each knows its own attempts alone. The record of an attempt
names the instance that holds it. Source: docs/decisions/0040.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledger.core.fold.job import is_runner
from ledger.core.model.facts import RestorePoint
from ledger.core.model.recovery import RecoveryEntry

#: What the reason of a wait says where no instance that answers can speak for an attempt.
HELD = "is held by"
#: What answers for every instance of a runner: the log, where nobody is asked (`ledger.history.historical_runner`).
ANY_INSTANCE = "*"


class Heard(NamedTuple):
    """What the runner of a job says about it.

    alive: the attempts that run by its word in a full answer. None: nobody who answers can speak for the newest attempt,
    and `why` says why not. instance: which instance of the runner answered, "" = it has none, or none did. attempts: those
    of the job that this instance remembers, alive or not. superseded: where another instance holds the newest attempt,
    older ones that still run here.
    """

    alive: frozenset[int] | None
    why: str = ""
    instance: str = ""
    attempts: frozenset[int] = frozenset()
    superseded: frozenset[int] = frozenset()


def held_elsewhere(entry: RecoveryEntry, reached: str, attempts: frozenset[int]) -> str:
    """Why the instance of the runner that answers can't speak for the newest attempt of a job; "" = it can.

    reached: that instance, "" = its runner has none. attempts: those of the job that it remembers. An attempt that the
    holder itself reported as over needs no word of it any more, until the job is over: then it deletes what it keeps.
    """
    over = bool(entry.outcome) and is_runner(entry.outcome_writer)
    if reached == ANY_INSTANCE or (over and not entry.terminal):
        return ""
    n = entry.attempt if entry.outcome_writer == "" or over else last_started(entry)
    if entry.instance:
        holder = entry.instance if entry.instance != reached else ""
    else:  # recorded by a release that named none: who took the attempt remembers it
        signs = entry.known and (over or not entry.outcome)
        holder = "an agent that its record does not name" if reached and signs and n not in attempts else ""
    if not holder:
        return ""
    return f"attempt {n} {HELD} {holder}, which this reconciler can't reach{reached and f' ({reached} answers)'}"


def disposable(entry: RecoveryEntry, heard: Heard) -> tuple[RestorePoint, ...]:
    """Savepoints that are given up, and whose files the instance that answers can delete."""
    elsewhere = lying_elsewhere(entry.disposals, entry, heard)
    return tuple(point for point in entry.disposals if point not in elsewhere)


def lying_elsewhere(points: Iterable[RestorePoint], entry: RecoveryEntry, heard: Heard) -> tuple[RestorePoint, ...]:
    """Restore points of the job that another instance made than the one that answers: if this one can't read them, that
    says nothing. Not those of attempts that an operator gave up by force, and none from outside the ledger. What this one
    made of the newest attempt lies with it, also where it has forgotten that attempt."""
    if heard.instance in ("", ANY_INSTANCE):
        return ()
    own = heard.attempts | ({entry.attempt} if entry.instance == heard.instance else set())
    given_up = covered(entry)
    return tuple(point for point in points if point.attempt > given_up and point.attempt not in own)


def covered(entry: RecoveryEntry) -> int:
    """Attempts up to this one count as settled without the runner's word."""
    return entry.intent.attempt if entry.intent and entry.intent.force else 0


def given_up(entry: RecoveryEntry) -> bool:
    """Whether an operator said that nobody waits for the runner's word about any attempt that can have run."""
    return 0 < last_started(entry) <= covered(entry)


def last_started(entry: RecoveryEntry) -> int:
    """The highest attempt that can have run: one that a reconciler closed never did."""
    closed = entry.outcome in ("canceled", "abandoned") and not is_runner(entry.outcome_writer)
    return entry.attempt - 1 if closed else entry.attempt

"""The next step when one job replaces another, derived in every pass from the entries of the two jobs alone.

The old job is stopped, with a savepoint if one is wanted. The new job begins from the restore points of the old one.
Once the new job is proven (`Side.proven`), the old job is canceled. If the new job fails before that, the old one is
resumed. Each of these steps is an intent on the old job, whose register follows from the new job's id. So a leader that
takes over in between writes the same intent again, or none.

An intent of an operator that came after the replacement is never overruled. The two jobs then wait, show why, and never
run at the same time. Source: decision 21.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from ledger.core.model.facts import CheckpointKind, IntentDeclared, IntentKind, RestorePoint
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.plan import NOTHING, Declare, Inherited, Knowledge, at_rest

STOP, RESUME, CANCEL = "stop", "resume", "cancel"
STARTING = frozenset({JobState.CREATED, JobState.RESTARTING})
_GIVEN_UP = frozenset({JobState.QUARANTINED, JobState.FAILED, JobState.CANCELED})
#: No attempt of a job in these states begins without an operator's doing.
_HELD = frozenset(
    {JobState.SUSPENDED, JobState.CANCELLING, JobState.FAILING, JobState.FINISHED, JobState.CANCELED, JobState.FAILED}
)


class Side(NamedTuple):
    """The old or the new job of a replacement. alive, why: as in `RunnerReport`. elsewhere: as in `plan.Inherited`.
    idle: no action on the job runs, and its entry is new enough to plan from. starting: the attempt that is being
    started, 0 = none. steady: whether the attempt has run long enough to count as running."""

    entry: RecoveryEntry
    alive: frozenset[int] | None
    known: Knowledge = NOTHING
    idle: bool = True
    starting: int = 0
    steady: bool = False
    why: str = ""
    elsewhere: tuple[RestorePoint, ...] = ()

    @property
    def at_rest(self) -> bool:
        return not self.starting and at_rest(self.entry, self.alive, self.known)

    @property
    def proven(self) -> bool:
        """Whether the job has run for a while, has completed a checkpoint of its own, or has finished."""
        if self.entry.state is JobState.FINISHED:
            return True
        own = any(point.attempt for point in self.entry.restore_points)
        return self.entry.state is JobState.RUNNING and self.entry.known and (own or self.steady)


class ReplacementStep(NamedTuple):
    """The next step for both jobs. declare: an intent on the old job. refuse: why the new job can never start. wait:
    why the new job does not start now. settle: the job to settle first. inherited: the restore points that the new job
    takes over, None = it has its own. unfinished: the new job must not be retired yet, since the old job still needs a
    step."""

    declare: Declare | None = None
    refuse: str = ""
    wait: str = ""
    settle: str = ""
    inherited: Inherited | None = None
    unfinished: bool = False


def intent_id(new: str, step: str) -> str:
    """The uuid of the intent that a step writes on the old job. new: id of the job that replaces it."""
    return f"replace-{step}-{sha256(new.encode()).hexdigest()[:32]}"


def is_stop(intent_id_: str) -> bool:
    """Whether an intent suspends a job because another one replaces it."""
    return intent_id_.startswith(f"replace-{STOP}-")


def step(new: Side, old: Side | None, rival: str = "", before: str = "") -> ReplacementStep:
    """The next step of a replacement. old: None = there is no such job, or it is retired.

    rival: another job that replaces the same old job and comes first, "" = none. before: the job that the old job
    itself is still replacing, "" = none.
    """
    if new.entry.state in STARTING:
        return _begin(new, old, rival, before)
    if old is None:
        return ReplacementStep()
    if new.proven:
        return _take_over(new, old)
    return _roll_back(new, old) if new.entry.state in _GIVEN_UP else ReplacementStep()


def _begin(new: Side, old: Side | None, rival: str, before: str) -> ReplacementStep:
    n = new.entry
    if old is None:
        lost = not n.begun and (n.inherits or not n.attempt)
        return ReplacementStep(refuse=f"{n.replaces}, which it replaces, is retired or was never there" if lost else "")
    o = old.entry
    if o.job_id == n.job_id:
        return ReplacementStep(refuse="a job can't replace itself")
    if rival:
        return ReplacementStep(refuse=f"{o.job_id} is being replaced by {rival}")
    if o.state is JobState.FINISHED and (n.inherits or not n.begun) and not _retried(n):
        return ReplacementStep(
            refuse=f"{o.job_id} finished before it could be stopped; retry it if there is something left to do"
        )
    unbegun = o.replaces is not None and not o.begun
    if o.terminal and unbegun and n.inherits:
        return ReplacementStep(
            refuse=f"{o.job_id} was over before it began, so there is nothing to begin from; replace {o.replaces}"
        )
    if before or (unbegun and not o.terminal):
        return ReplacementStep(wait=f"waits for {o.job_id} to take over from {before or o.replaces} first")
    if not old.idle:
        return ReplacementStep(wait=f"waits for {o.job_id} to come to rest")
    if o.state in _HELD:
        return _once_at_rest(new, old)
    if (wanted := _wanted_again(n, o)) is not None:
        return ReplacementStep(
            wait=f"waits: {o.job_id} was {wanted}; to go on, suspend it; to leave it at that, cancel this one"
        )
    return ReplacementStep(declare=_stop(n, o), wait=_stopping(n, o))


def _retried(n: RecoveryEntry) -> bool:
    """Whether an operator has requested exactly the start that is due."""
    return n.intent is not None and n.intent.kind == IntentKind.RETRY and n.intent.attempt == n.attempt


def _once_at_rest(new: Side, old: Side) -> ReplacementStep:
    n, o = new.entry, old.entry
    if old.at_rest:
        if not n.inherits or (n.begun and not o.restore_points):
            return ReplacementStep()
        points, elsewhere = _from_outside(o.restore_points), _from_outside(old.elsewhere)
        return ReplacementStep(inherited=Inherited(points, o.restore_from_named or bool(points), elsewhere))
    if old.alive is None:
        return ReplacementStep(wait=f"waits for {o.job_id}: {old.why or f'the {o.runner} runner does not answer'}")
    unsettled = o.state is JobState.SUSPENDED and not old.alive and not old.starting
    return ReplacementStep(wait=_stopping(n, o), settle=o.job_id if unsettled else "")


def _from_outside(points: tuple[RestorePoint, ...]) -> tuple[RestorePoint, ...]:
    """The restore points as the new job sees them: from outside, as attempt 0."""
    return tuple(replace(point, attempt=0, id=0) for point in points)


def _take_over(new: Side, old: Side) -> ReplacementStep:
    n, o = new.entry, old.entry
    if o.terminal or o.state is JobState.CANCELLING or _wanted_again(n, o) is not None:
        return ReplacementStep()
    if not old.idle:
        return ReplacementStep(unfinished=True)
    rev = max(n.replacement.after_rev, o.intent.rev if o.intent else 0) + 1
    why = f"replaced by {n.job_id}, {began_from(n, o)}"
    return ReplacementStep(declare=_declare(n, o, CANCEL, IntentKind.CANCEL, rev, why), unfinished=True)


def _roll_back(new: Side, old: Side) -> ReplacementStep:
    n, o = new.entry, old.entry
    if o.state is not JobState.SUSPENDED or o.intent is None or o.intent.id != intent_id(n.job_id, STOP):
        return ReplacementStep()
    if not old.idle or not new.idle or new.starting:
        return ReplacementStep(unfinished=True)
    if not new.at_rest:
        return ReplacementStep(settle="" if new.alive or new.alive is None or n.terminal else n.job_id, unfinished=True)
    why = f"{n.job_id}, which was to replace it, is {n.state}"
    return ReplacementStep(declare=_declare(n, o, RESUME, IntentKind.RUN, o.intent.rev + 1, why), unfinished=True)


def _stop(n: RecoveryEntry, o: RecoveryEntry) -> Declare:
    return _declare(n, o, STOP, IntentKind.SUSPEND, n.replacement.after_rev + 1, f"{n.job_id} is to replace it")


def _declare(n: RecoveryEntry, o: RecoveryEntry, name: str, kind: IntentKind, rev: int, why: str) -> Declare:
    reason = f"{why}: {n.replacement.reason}" if n.replacement.reason else why
    savepoint = kind is IntentKind.SUSPEND and n.inherits
    fact = IntentDeclared(kind, reason=reason, actor=f"job {n.job_id}", savepoint=savepoint)
    return Declare(o.job_id, rev, intent_id(n.job_id, name), fact)


def _stopping(n: RecoveryEntry, o: RecoveryEntry) -> str:
    return f"waits for {o.job_id} to stop" + " with a savepoint" * n.inherits


def _wanted_again(n: RecoveryEntry, o: RecoveryEntry) -> str | None:
    """How the old job was brought back since its replacement began, for people; None = it was not."""
    i = o.intent
    if i is None or i.rev <= n.replacement.after_rev or i.kind in (IntentKind.SUSPEND, IntentKind.CANCEL):
        return None
    if i.id == intent_id(n.job_id, RESUME):
        return "resumed when this one could not start"
    return f"brought back by {i.actor or 'an operator'} ({i.kind}, {i.reason or 'without a reason'})"


def began_from(n: RecoveryEntry, o: RecoveryEntry) -> str:
    """The restore point that the new job began from, for people. The entry names only the base of the newest
    attempt."""
    if n.base is None:
        return "which began from scratch"
    own = next((point for point in o.restore_points if point.location == n.base.location), None)
    if own is None:
        return f"which began from {n.base}"
    if own.kind is CheckpointKind.SAVEPOINT:
        return f"which began from its savepoint {own}"
    if n.replacement.from_ not in ("", "latest"):
        return f"which began from its checkpoint {own}"
    saved = next((point for point in o.restore_points if point.kind is CheckpointKind.SAVEPOINT), None)
    why = "since it made no savepoint" if saved is None else f"newer than its savepoint {saved}"
    return f"which began from its checkpoint {own}, {why}"

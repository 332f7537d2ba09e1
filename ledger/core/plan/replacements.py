"""All replacements of one pass: applies `replacing.step` of each pair to the actions of every job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ledger.core.model.facts import IntentKind, RestorePoint
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.plan import Action, Declare, Refuse, Retire, Settle, Start, StartAgain, Wait
from ledger.core.plan.replacing import CANCEL, STARTING, STOP, ReplacementStep, Side, intent_id, step

_AGAIN = frozenset({IntentKind.RUN, IntentKind.RETRY})


class Pair(NamedTuple):
    new: Side
    old: Side | None
    step: ReplacementStep
    rival: str


def apply_replacements(
    wanted: Iterable[Action], sides: Callable[[str], Side | None], new_ones: Collection[str], unread: str,
    unreadable: Collection[str], no_room: Callable[[RecoveryEntry, Side], str],
) -> list[Action]:  # fmt: skip
    """The actions of a pass, changed by the replacements.

    new_ones: jobs that replace others. unread: why not all entries are read yet, "" = they are. unreadable: jobs whose
    entry cannot be decoded. no_room: why the new job would find no slots even without the old one."""
    if unread:
        return [_until_read(action, sides, unread) for action in wanted]
    if not new_ones:
        return list(wanted)
    pairs = _pairs(sides, new_ones)
    by_new = {pair.new.entry.job_id: pair for pair in pairs}
    by_old: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.old is not None:
            by_old.setdefault(pair.old.entry.job_id, []).append(pair)
    taken = {point.location for pair in pairs for point in _taken(pair.new.entry, by_old)}
    out: list[Action] = []
    extra: list[Action] = []
    for action in wanted:
        if action.job_id in by_new:
            action = _of_new(action, by_new[action.job_id], unreadable, no_room, extra)
        action = _of_old(action, by_old.get(action.job_id, ()), extra)
        out.append(_kept(action, sides, taken) if taken else action)
    acted = {action.job_id for action in out}
    for pair in pairs:
        if pair.new.entry.state not in STARTING:  # for those `_of_new` has added it, with their start
            extra += [pair.step.declare] if pair.step.declare else []
            extra += _settling(pair)
        extra += _held(pair, acted)
    declares = [action for action in extra if isinstance(action, Declare)]
    declared = {action.job_id for action in declares}
    rest = [a for a in out if not (a.job_id in declared and isinstance(a, Start | StartAgain | Retire))]
    # If a job has two actions, the first is performed.
    return [*declares, *rest, *(action for action in extra if not isinstance(action, Declare))]


def _until_read(action: Action, sides: Callable[[str], Side | None], unread: str) -> Action:
    """Until all entries are read, these wait: the start of a job that replaces another; the start of a job that an operator
    brought back, since another may run in its place; and every retirement, since another job may begin from that one."""
    if isinstance(action, Retire):
        return Wait(action.job_id, unread)
    side = sides(action.job_id) if isinstance(action, Start | StartAgain) else None
    if side is None:
        return action
    entry, intent = side.entry, side.entry.intent
    linked = entry.replaces is not None or (intent is not None and intent.kind in _AGAIN)
    return Wait(action.job_id, unread) if linked else action


def _pairs(sides: Callable[[str], Side | None], new_ones: Collection[str]) -> list[Pair]:
    found: dict[str, list[Side]] = {}
    for job_id in sorted(new_ones):
        side = sides(job_id)
        if side is not None and side.entry.replaces is not None:
            found.setdefault(side.entry.replaces, []).append(side)
    pairs = []
    for old_id, takers in found.items():
        old = sides(old_id)
        first = _first(takers, old)
        for new in takers:
            rival = first if first != new.entry.job_id else ""
            pairs.append(Pair(new, old, step(new, old, rival, _before(old, sides)), rival))
    return pairs


def _first(takers: Iterable[Side], old: Side | None) -> str:
    """The job that replaces, among several: the one whose intent is on the old job, then one that has begun, then by id."""
    standing = old.entry.intent.id if old is not None and old.entry.intent is not None else ""
    live = [t.entry for t in takers if not t.entry.terminal and t.entry.state is not JobState.QUARANTINED]
    order = sorted(
        live, key=lambda e: (standing not in (intent_id(e.job_id, s) for s in (STOP, CANCEL)), not e.attempt, e.job_id)
    )
    return order[0].job_id if order else ""


def _before(old: Side | None, sides: Callable[[str], Side | None]) -> str:
    """The job that the old one is still taking over from."""
    if old is None or old.entry.terminal or old.entry.replaces is None:
        return ""
    first = sides(old.entry.replaces)
    over = first is None or first.entry.terminal or first.entry.state is JobState.CANCELLING
    return "" if over else old.entry.replaces


def _of_new(
    action: Action, pair: Pair, unreadable: Collection[str], no_room: Callable[[RecoveryEntry, Side], str],
    extra: list[Action],
) -> Action:  # fmt: skip
    entry, follows = pair.new.entry, pair.step
    if isinstance(action, Retire) and follows.unfinished:
        return Wait(action.job_id, f"{entry.replaces} must be told first what became of it")
    if not isinstance(action, Start):
        return action
    if entry.replaces in unreadable:
        return Wait(action.job_id, f"the entry of {entry.replaces}, which it replaces, can't be read by this version")
    if follows.refuse:
        return Refuse(action.job_id, action.n, follows.refuse)
    if follows.declare is not None and pair.old is not None:
        if pair.old.entry.runner == OUTSIDE:
            return Wait(action.job_id, f"{entry.replaces} is run by its own producer: the ledger can't stop it")
        if reason := no_room(entry, pair.old):
            return Wait(action.job_id, reason)
        extra.append(follows.declare)
    if follows.wait:
        extra += _settling(pair)
        return Wait(action.job_id, follows.wait)
    return action._replace(inherited=follows.inherited)


def _settling(pair: Pair) -> list[Action]:
    for side in (pair.new, pair.old):
        if side is not None and side.entry.job_id == pair.step.settle:
            return [Settle(side.entry.job_id, side.entry.attempt)]
    return []


def _of_old(action: Action, pairs: Iterable[Pair], extra: list[Action]) -> Action:
    for pair in pairs:
        new = pair.new.entry
        if isinstance(action, Start | StartAgain) and (new.state is JobState.RUNNING or not pair.new.at_rest):
            if new.state is JobState.RUNNING or pair.new.alive or pair.new.starting:
                return Wait(action.job_id, f"{new.job_id} runs in its place; cancel that one to bring it back")
            if pair.new.idle and pair.new.alive is not None:
                extra.append(Settle(new.job_id, new.attempt))
            return Wait(action.job_id, f"waits until nothing can come of {new.job_id}, which was to replace it")
        if isinstance(action, Retire) and (reason := _why_kept(pair)):
            return Wait(action.job_id, reason)
    return action


def _why_kept(pair: Pair) -> str:
    """Why the old job must not be retired yet; "" if it may be."""
    new = pair.new.entry
    if new.terminal or pair.rival:
        return ""
    if not new.begun:
        return f"{new.job_id} is to take over from it"
    points = pair.old.entry.restore_points if pair.old is not None else ()
    return f"{new.job_id} may begin from its restore points" if new.inherits and points else ""


def _taken(new: RecoveryEntry, by_old: Mapping[str, Sequence[Pair]]) -> Iterable[RestorePoint]:
    """Restore points of other jobs that a job offers: it may begin from them or, once it is over, its replacement may."""
    if new.terminal and not any(map(_why_kept, by_old.get(new.job_id, ()))):
        return ()
    return (point for point in new.restore_points if not point.attempt)


def _kept(action: Action, sides: Callable[[str], Side | None], taken: Collection[str]) -> Action:
    """Keeps a job from retirement while another may begin from its restore points, which a retirement deletes."""
    side = sides(action.job_id) if isinstance(action, Retire) else None
    points = side.entry.restore_points if side is not None else ()
    point = next((point for point in points if point.location in taken), None)
    return action if point is None else Wait(action.job_id, f"the job that replaced it may begin from {point}")


def _held(pair: Pair, acted: Collection[str]) -> list[Action]:
    """A Wait with the reason for an old job that is held, so that people see why."""
    if pair.old is None or pair.old.entry.job_id in acted or pair.step.declare is not None:
        return []
    o, n = pair.old.entry, pair.new.entry
    if o.state is JobState.SUSPENDED and o.intent and o.intent.id == intent_id(n.job_id, STOP):
        return [Wait(o.job_id, f"{n.job_id} replaces it: canceled once that runs, resumed if that is given up")]
    return []

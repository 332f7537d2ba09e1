"""Regions: jobs that are restarted together. `together` turns what is wanted of each member into what its region wants.

Members are the live jobs of one namespace that name the same region. If an attempt of one failed and it is to be brought
back, the attempts of the others that ran beside it are stopped, and all begin again in one pass, from one cut.

Nothing is remembered between passes: the record of each attempt says beside which attempts of the others it began
(`Together.beside`). One that began beside the attempt that failed, or an earlier one, has to go back with it; one that was
started for its successor has gone back already. So whoever leads next goes on where the last one was killed, and no failure
is answered twice. A fold knows nothing of this: it is a matter of the plan. Source: docs/decisions/0022.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledger.core.model.facts import IntentKind, RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.plan import Action, Confirm, Knowledge, Settle, Start, Stop, Verify, Wait

FAILURES = ("failed", "lost", "failed-permanent")
REASON_CHARS_MAX = 300
NOTHING_TO_VERIFY: Mapping[str, RestorePoint] = {}

#: (namespace, region)
Region = tuple[str, str]


class RegionMember(NamedTuple):
    """A job of a region. alive: as for `decide`. wanted: what it wants for itself; None: it is not planned now."""

    entry: RecoveryEntry
    known: Knowledge
    alive: frozenset[int] | None
    wanted: tuple[Action, ...] | None


class Cut(NamedTuple):
    """Where those that start together begin. label: "" = each from its newest. why: what is to be said of that, "" =
    nothing. verify: job id -> restore point to be verified before it can be said. unknown: some can't be verified now."""

    label: str = ""
    why: str = ""
    verify: Mapping[str, RestorePoint] = NOTHING_TO_VERIFY
    unknown: bool = False


def region_of(entry: RecoveryEntry) -> Region | None:
    """None: it is no member of any. What is over is none any more, and what its producer runs never was."""
    if not entry.region or entry.terminal or entry.retiring or entry.runner == OUTSIDE:
        return None
    return entry.namespace, entry.region


def starts_with_region(action: Action, entry: RecoveryEntry) -> Region | None:
    """The region with which a start must be made in one go; a first start waits for nobody."""
    if isinstance(action, Start) and action.together is not None and entry.state is JobState.RESTARTING:
        return region_of(entry)
    return None


def together(region: Region, members: Iterable[RegionMember]) -> Iterator[Action]:
    """What is done about the members of one region now."""
    found = {member.entry.job_id: member for member in sorted(members, key=lambda member: member.entry.job_id)}
    fallen = [m.entry for m in found.values() if m.entry.state is JobState.RESTARTING and m.entry.outcome in FAILURES]
    stopping = {job_id: why for job_id, m in found.items() if (why := _why_stopped(region, m.entry, fallen))}
    coming = [m for m in found.values() if m.entry.state is JobState.RESTARTING]
    waits = "; ".join([f"{_who(found[job_id].entry)} is to stop" for job_id in stopping] + list(_unready(coming)))
    starts = () if waits or not coming else tuple(_starts(region, coming, found, fallen))
    for job_id, member in found.items():
        if member.wanted is None:
            continue
        if job_id in stopping:
            yield from _stops(member, stopping[job_id])
        elif member.entry.state is JobState.CREATED:
            beside = _beside(member.entry, found)
            yield from (a._replace(together=Together(beside)) if isinstance(a, Start) else a for a in member.wanted)
        elif member in coming and _ready(member):
            own = tuple(action for action in starts if action.job_id == job_id)
            yield from own or (Wait(job_id, f"region {region[1]} restarts together: {waits[:REASON_CHARS_MAX]}"),)
        else:
            yield from member.wanted


def points_from(entry: RecoveryEntry, label: str) -> tuple[tuple[RestorePoint, ...], tuple[RestorePoint, ...]]:
    """(what is offered from the label on downwards, what is newer than that); all and nothing without one."""
    points, labels = entry.restore_points, entry.consistency
    at = labels.index(label) if label and label in labels else 0
    return points[at:], points[:at]


def label_of(entry: RecoveryEntry, point: RestorePoint | None) -> str:
    return next((label for p, label in zip(entry.restore_points, entry.consistency, strict=False) if p == point), "")


# -- stopping ----------------------------------------------------------------------------------------------------------


def _why_stopped(region: Region, entry: RecoveryEntry, fallen: list[RecoveryEntry]) -> str:
    """Why what runs of a member must go back with others, "" = it need not."""
    if entry.state is not JobState.RUNNING:
        return ""
    beside = entry.together.beside if entry.together else {}
    causes = [other for other in fallen if beside.get(other.job_id, 0) <= other.attempt]
    return _because(region, causes) if causes else ""


def _stops(member: RegionMember, why: str) -> Iterator[Action]:
    """What runs is stopped; of what does not, what is wanted for itself is right: it ends, or runs and is stopped then."""
    entry, wanted = member.entry, member.wanted or ()
    if member.alive is None or entry.attempt not in member.alive:
        yield from wanted
        return
    for action in wanted:
        if isinstance(action, Confirm) or (isinstance(action, Stop) and action.n != entry.attempt):
            yield action
    yield Stop(entry.job_id, entry.attempt, "stopped", why)


def _because(region: Region, causes: list[RecoveryEntry]) -> str:
    first = causes[0]
    lines = first.reason.splitlines() or [f"attempt {first.attempt} {first.outcome}"]
    others = f" (and {len(causes) - 1} more)" if causes[1:] else ""
    return f"region {region[1]} restarts together: {_who(first)}{others}: {lines[0]}"[:REASON_CHARS_MAX]


def _who(entry: RecoveryEntry) -> str:
    return entry.name if entry.name == entry.job_id else f"{entry.name} ({entry.job_id})"


# -- starting ----------------------------------------------------------------------------------------------------------


def _ready(member: RegionMember) -> bool:
    return any(isinstance(action, Start) for action in member.wanted or ())


def _unready(coming: list[RegionMember]) -> Iterator[str]:
    """Whom those wait for that could start, and why."""
    for member in coming:
        if not _ready(member):
            match next(iter(member.wanted or ()), None):
                case Wait(_, reason) | Confirm(_, reason) | Stop(_, _, _, reason):
                    why = reason
                case Settle():
                    why = "its last attempt is not settled yet"
                case _:
                    why = "what was begun for it is not done yet"
            yield f"{_who(member.entry)}: {why}"


def _starts(
    region: Region, coming: list[RegionMember], found: Mapping[str, RegionMember], fallen: list[RecoveryEntry]
) -> Iterator[Action]:
    """All of them in one pass, once it is known from which cut."""
    partner = _partner(coming, found)
    if partner is not None:  # some of them are started already, and these are the rest
        reason, cut = partner.reason, _cut(coming, [partner.consistency] if partner.consistency else [])
    else:
        alone = len(coming) == 1
        reason = _because(region, fallen) if fallen else "" if alone else f"region {region[1]} restarts together"
        cut = Cut() if alone else _cut(coming, _common(coming))
    if cut.verify:
        told = "can't be verified at the moment" if cut.unknown else "are being verified"
        for member in coming:
            job_id, n = member.entry.job_id, member.entry.next_attempt
            if job_id in cut.verify:
                yield Verify(job_id, n, (cut.verify[job_id],))
            else:
                yield Wait(job_id, f"region {region[1]} restarts together: restore points of others {told}")
        return
    if cut.why not in reason:  # a partner's reason says it already
        reason = "; ".join(part for part in (reason, cut.why) if part)
    for member in coming:
        entry = member.entry
        yield Start(entry.job_id, entry.next_attempt, together=Together(_beside(entry, found), cut.label, reason))


def _partner(coming: list[RegionMember], found: Mapping[str, RegionMember]) -> Together | None:
    """What the record of one says that was started already, together with what is to start now."""
    for member in found.values():
        record = member.entry.together
        if member.entry.state is not JobState.RUNNING or record is None:
            continue
        if any(record.beside.get(m.entry.job_id) == m.entry.next_attempt for m in coming):
            return record
    return None


def _beside(entry: RecoveryEntry, found: Mapping[str, RegionMember]) -> dict[str, int]:
    """Of each other member the attempt that runs, or is to begin; of one that does not come back now its last one."""
    starting = (JobState.CREATED, JobState.RESTARTING)
    others = (member.entry for job_id, member in found.items() if job_id != entry.job_id)
    return {other.job_id: other.next_attempt if other.state in starting else other.attempt for other in others}


# -- from where --------------------------------------------------------------------------------------------------------


def _labelled(entry: RecoveryEntry) -> dict[str, tuple[int, RestorePoint]]:
    """Label -> (how many are newer, restore point). A retry that names where to begin leaves no other choice."""
    intent = entry.intent
    named = intent is not None and intent.kind == IntentKind.RETRY and intent.attempt == entry.attempt
    most = 1 if named and intent is not None and intent.from_ != "latest" else len(entry.restore_points)
    pairs = list(zip(entry.consistency[:most], entry.restore_points[:most], strict=False))
    return {label: (i, pairs[i][1]) for i, (label, _) in reversed(list(enumerate(pairs))) if label}


def _common(coming: list[RegionMember]) -> list[str]:
    """The labels that all of them have, newest first: the one that takes the least from whom it takes the most."""
    labelled = [_labelled(member.entry) for member in coming]
    common = set.intersection(*(set(labels) for labels in labelled))
    newer = {label: [labels[label][0] for labels in labelled] for label in common}
    return sorted(common, key=lambda label: (max(newer[label]), sum(newer[label]), label))


def _cut(coming: list[RegionMember], labels: list[str]) -> Cut:
    """The first of these labels that every member has a verified restore point for."""
    labelled = {member.entry.job_id: _labelled(member.entry) for member in coming}
    labels = [label for label in labels if all(label in own for own in labelled.values())]
    said = {member.entry.job_id: dict(member.known.verified) for member in coming}
    for label in labels:
        points = {job_id: own[label][1] for job_id, own in labelled.items()}
        answers = {job_id: said[job_id].get(point) for job_id, point in points.items()}
        if "invalid" in answers.values():
            continue
        if asked := {job_id: points[job_id] for job_id, answer in answers.items() if answer != "valid"}:
            return Cut(verify=asked, unknown="unknown" in answers.values())
        return Cut(label, f"from consistency label {label}")
    if not labels:
        return Cut(why="no consistency label in common: each from its newest")
    return Cut(why=f"no consistency label is sound in all of them ({', '.join(labels)}): each from its newest")

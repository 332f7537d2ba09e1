"""Regions: jobs that restart together. `together` turns the actions of single members into those of their region.

Members are the live jobs of one namespace that name the same region. If an attempt of one member failed and is to be
restarted, the attempts of the others that ran beside it are stopped. Then all start in one pass, from one cut.

Nothing is remembered between passes: the record of each attempt names the attempts of the others that it began beside
(`Together.beside`). A member that began beside the failed attempt, or beside an earlier one, restarts with it. A member
that began beside its successor has restarted already. So the next leader continues where the last one was killed, and
answers no failure twice. The fold knows nothing of regions. Source: decision 22.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledger.core.model.facts import IntentKind, RestorePoint, Together
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import FAILURES, Outcome
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.plan import Action, Confirm, Knowledge, Settle, Start, Stop, Verify, Wait

REASON_CHARS_MAX = 300
NOTHING_TO_VERIFY: Mapping[str, RestorePoint] = {}

#: (namespace, region)
Region = tuple[str, str]


class RegionMember(NamedTuple):
    """A job of a region. alive: as in `RunnerReport`. wanted: the actions of the job by itself; None = none is planned."""

    entry: RecoveryEntry
    known: Knowledge
    alive: frozenset[int] | None
    wanted: tuple[Action, ...] | None


class Cut(NamedTuple):
    """The restore points that jobs begin from if they start together. label: the consistency label, "" = each job
    begins from its newest restore point. why: the reason, for people. verify: job id -> restore point to verify first.
    unknown: whether some restore points cannot be verified now."""

    label: str = ""
    why: str = ""
    verify: Mapping[str, RestorePoint] = NOTHING_TO_VERIFY
    unknown: bool = False


def region_of(entry: RecoveryEntry) -> Region | None:
    """The region of a job; None = it has none. Terminal jobs and outside jobs have none."""
    if not entry.region or entry.terminal or entry.retiring or entry.runner == OUTSIDE:
        return None
    return entry.namespace, entry.region


def starts_with_region(action: Action, entry: RecoveryEntry) -> Region | None:
    """The region that a start must be made together with; None = it starts alone, as every first start does."""
    if isinstance(action, Start) and action.together is not None and entry.state is JobState.RESTARTING:
        return region_of(entry)
    return None


def together(region: Region, members: Iterable[RegionMember]) -> Iterator[Action]:
    """The actions on the members of one region now."""
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
    """A job's restore points, split at a label: (the first with the label and all below, those above). Without a label:
    (all, none)."""
    points, labels = entry.restore_points, entry.consistency
    at = labels.index(label) if label and label in labels else 0
    return points[at:], points[:at]


def label_of(entry: RecoveryEntry, point: RestorePoint | None) -> str:
    return next((label for p, label in zip(entry.restore_points, entry.consistency, strict=False) if p == point), "")


# -- stopping ----------------------------------------------------------------------------------------------------------


def _why_stopped(region: Region, entry: RecoveryEntry, fallen: list[RecoveryEntry]) -> str:
    """Why the running attempt of a member must stop, to restart with others; "" = it need not."""
    if entry.state is not JobState.RUNNING:
        return ""
    beside = entry.together.beside if entry.together else {}
    causes = [other for other in fallen if beside.get(other.job_id, 0) <= other.attempt]
    return _because(region, causes) if causes else ""


def _stops(member: RegionMember, why: str) -> Iterator[Action]:
    """Stops the attempt of a member if it runs. Otherwise the member's own actions are right: it ends, or is stopped once
    it runs."""
    entry, wanted = member.entry, member.wanted or ()
    if member.alive is None or entry.attempt not in member.alive:
        yield from wanted
        return
    for action in wanted:
        if isinstance(action, Confirm) or (isinstance(action, Stop) and action.n != entry.attempt):
            yield action
    yield Stop(entry.job_id, entry.attempt, Outcome.STOPPED, why)


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
    """Members that keep the region from starting, each with the reason."""
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
    """The starts of all members in one pass, or the verification that must come before."""
    partner = _partner(coming, found)
    if partner is not None:  # others of the region have started already, and these are the rest
        reason, cut = partner.reason, _cut(coming, [partner.consistency] if partner.consistency else [])
    else:
        alone = len(coming) == 1
        reason = _because(region, fallen) if fallen else "" if alone else f"region {region[1]} restarts together"
        cut = Cut() if alone else _cut(coming, _common(coming))
    if cut.verify:
        stage = "can't be verified at the moment" if cut.unknown else "are being verified"
        for member in coming:
            job_id, n = member.entry.job_id, member.entry.next_attempt
            if job_id in cut.verify:
                yield Verify(job_id, n, (cut.verify[job_id],))
            else:
                yield Wait(job_id, f"region {region[1]} restarts together: restore points of others {stage}")
        return
    if cut.why not in reason:  # a partner's reason says it already
        reason = "; ".join(part for part in (reason, cut.why) if part)
    for member in coming:
        entry = member.entry
        yield Start(entry.job_id, entry.next_attempt, together=Together(_beside(entry, found), cut.label, reason))


def _partner(coming: list[RegionMember], found: Mapping[str, RegionMember]) -> Together | None:
    """The region's start in the record of a member that runs already, if the members to start now belong to it."""
    for member in found.values():
        record = member.entry.together
        if member.entry.state is not JobState.RUNNING or record is None:
            continue
        if any(record.beside.get(m.entry.job_id) == m.entry.next_attempt for m in coming):
            return record
    return None


def _beside(entry: RecoveryEntry, found: Mapping[str, RegionMember]) -> dict[str, int]:
    """Maps each other member to the attempt that it runs or will start; to its last attempt if it is not restarting."""
    starting = (JobState.CREATED, JobState.RESTARTING)
    others = (member.entry for job_id, member in found.items() if job_id != entry.job_id)
    return {other.job_id: other.next_attempt if other.state in starting else other.attempt for other in others}


# -- from where --------------------------------------------------------------------------------------------------------


def _labelled(entry: RecoveryEntry) -> dict[str, tuple[int, RestorePoint]]:
    """Label -> (number of newer points, restore point). A retry that names a restore point leaves only that one."""
    intent = entry.intent
    named = intent is not None and intent.kind == IntentKind.RETRY and intent.attempt == entry.attempt
    most = 1 if named and intent is not None and intent.from_ != "latest" else len(entry.restore_points)
    pairs = list(zip(entry.consistency[:most], entry.restore_points[:most], strict=False))
    return {label: (i, pairs[i][1]) for i, (label, _) in reversed(list(enumerate(pairs))) if label}


def _common(coming: list[RegionMember]) -> list[str]:
    """The labels that all members have, best first: the best one sets back the worst-hit member the least."""
    labelled = [_labelled(member.entry) for member in coming]
    common = set.intersection(*(set(labels) for labels in labelled))
    newer = {label: [labels[label][0] for labels in labelled] for label in common}
    return sorted(common, key=lambda label: (max(newer[label]), sum(newer[label]), label))


def _cut(coming: list[RegionMember], labels: list[str]) -> Cut:
    """The first of these labels for which every member has a verified restore point."""
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

"""Checkers with rules of their own, so that an error of the fold is detected: entries, epochs, delays. See `checkers`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

from ledger.core.fold.fold import fold
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import (
    CheckpointCompleted,
    CheckpointKind,
    CheckpointRetention,
    IntentDeclared,
    IntentKind,
    JobResult,
    JobSubmitted,
)
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Attempt, Ended, Intent, Register, parse_key
from tests.laws import oracle
from tests.simulation import codec
from tests.simulation.checkers import CLOCK_S, Findings
from tests.simulation.copies import MAGIC, Copied, by_partition, claim_of, effective, header


def entries_as_the_rules_say(events: Sequence[Copied], recovery: Sequence[Copied]) -> Findings:
    """I7, at every effective entry: it matches the plain rules (`tests.laws.oracle`) applied to the facts below its as_of.
    The rules don't cover unreadable values and intents of an unknown kind, so jobs with such registers are skipped."""
    found: Findings = []
    logs = {place: list(of) for place, of in groupby(sorted(events, key=_place), key=_place)}
    for record in effective(recovery):
        if record.value is None or record.key is None or record.key.startswith(b"~"):
            continue
        entry = codec.decode(RecoveryEntry, record.value)
        facts = _facts(one for one in logs.get((record.partition, entry.job_id), ()) if one.offset < entry.as_of)
        if facts is None:
            continue
        want, got = oracle.opinion(facts, RESTORE_POINTS, entry.job_id), oracle.of_entry(entry)
        if want != got:
            found.append(f"I7 {entry.job_id} at {record.offset}, as of {entry.as_of}: {_apart(got, want)}")
    return found


def _place(record: Copied) -> tuple[int, str]:
    return record.partition, (record.key or b"").partition(b"/")[0].decode("ascii", "replace")


def _facts(records: Iterable[Copied]) -> dict[Register, Any] | None:
    """Register -> the fact of its last value. None: a value is unreadable, or a register or kind is unknown."""
    facts: dict[Register, Any] = {}
    for record in records:
        if (parsed := parse_key(record.key)) is None:
            continue
        if record.value is None:
            facts.pop(parsed[1], None)
            continue
        fact = codec.read(parsed[1], record.value) if record.value.startswith(MAGIC) else None
        if fact is None or isinstance(fact, str) or (isinstance(fact, IntentDeclared) and fact.kind is IntentKind.UNKNOWN):
            return None
        facts[parsed[1]] = fact
    return facts


def _apart(got: oracle.Opinion, want: oracle.Opinion | None) -> str:
    if want is None:
        return f"{got.state}, and by the rules there is none"
    fields = zip(oracle.Opinion._fields, got, want, strict=True)
    return ", ".join(f"{name} is {one!r}, by the rules {other!r}" for name, one, other in fields if one != other)


def epochs_follow(records: Sequence[Copied]) -> Findings:
    """I16: the epoch of a new claim is one above the highest claimed epoch before it in its partition. A copy of a claim
    (the same ce_id) may be repeated at any time."""
    found: Findings = []
    for log in by_partition(records).values():
        highest: dict[str, int] = defaultdict(int)
        ids: set[str] = set()
        for record in log:
            if (claim := claim_of(record)) is None or (id_ := header(record, "ce_id")) in ids:
                continue
            ids.add(id_)
            role, epoch = claim
            if epoch != highest[role] + 1:
                found.append(f"I16 {role} claimed {epoch} after {highest[role]} in {record.topic}[{record.partition}]")
            highest[role] = max(highest[role], epoch)
    return found


def not_before_its_delay(events: Sequence[Copied], unsure: Sequence[float] = ()) -> Findings:
    """By the log's clock, no attempt is recorded before the restart delay after the previous attempt's end is over.

    unsure: if clocks are wrong, the sorted times when a clock was set or a leader took over. A leader inherits a due time
    that another leader stamped by its own clock, so a delay is checked only if no such time falls into it."""
    found: Findings = []
    for (_, job_id), log in groupby(sorted(events, key=lambda one: (_place(one), one.offset)), key=_place):
        registers: dict[bytes, bytes] = {}
        ended_at: dict[int, float] = {}
        seen: set[int] = set()
        said_at = 0.0
        for record in log:
            match parse_key(record.key) if record.value is not None else None:
                case (_, Attempt(n, _)) if n not in seen:
                    seen.add(n)
                    judged = {end: at for end, at in ended_at.items() if at > said_at}
                    found += _too_soon(job_id, n, record.time_s, registers, judged, unsure)
                case (_, Ended(n, _, _)):
                    ended_at.setdefault(n, record.time_s)
                case (_, Intent()):  # the next attempt may come from this intent: earlier ends do not count
                    said_at = record.time_s
            name = (record.key or b"").partition(b"/")[2]
            if record.value is not None and record.value.startswith(MAGIC):
                registers[name] = record.value
            else:
                registers.pop(name, None)
    return found


def _too_soon(
    job_id: str, n: int, at: float, registers: Mapping[bytes, bytes], ended_at: Mapping[int, float],
    unsure: Sequence[float],
) -> Findings:  # fmt: skip
    entry = fold(job_id, registers, codec.read)
    if entry is None or entry.state is not JobState.RESTARTING or entry.next_attempt != n or entry.attempt not in ended_at:
        return []
    earliest = ended_at[entry.attempt] + entry.restart_delay_s
    since = bisect_left(unsure, ended_at[entry.attempt] - CLOCK_S)
    if at >= earliest - CLOCK_S or bisect_right(unsure, at + CLOCK_S) > since:
        return []
    return [f"delay: {job_id}/{n} was recorded {earliest - at:.3f} s too soon, its delay is {entry.restart_delay_s:g} s"]


# -- I9: offered restore points exist ----------------------------------------------------------------------------------


def offered_is_there(jobs: Mapping[str, RecoveryEntry], stored: Set[str], excused: Set[str]) -> Findings:
    """I9 for checkpoints: the restore points that an entry offers, and its attempt's base, exist at their locations. Jobs
    that are over are skipped: their checkpoints are being deleted. An inherited restore point may be deleted once the
    job has a checkpoint of its own. excused: locations that were damaged or disposed of."""
    found: Findings = []
    for job_id, entry in jobs.items():
        if entry.terminal:
            continue
        points = [*entry.restore_points, *([entry.base] if entry.base else [])]
        offered = {point.location for point in points}
        own = {location for location in offered if location.split("/")[2] == job_id}
        gone = sorted((own or offered) - stored - excused)
        found += [f"I9 {job_id} offers {location}, which is gone" for location in gone]
    return found


def over_keeps_what_it_should(
    events: Sequence[Copied], stored: Set[str], excused: Set[str], forced: Set[str]
) -> Findings:  # fmt: skip
    """I9: when a job is over, the checkpoints that the log knew then are deleted, or kept if its spec asks for that. The
    restore point in its result exists. Jobs in `forced` may leave checkpoints at a runner that was not asked. The runner
    deletes a pruned checkpoint, so a late copy of its record is ignored."""
    keeps: set[str] = set()
    known: dict[str, dict[Register, str]] = defaultdict(dict)
    pruned: set[tuple[str, Register]] = set()
    found: Findings = []
    for record in events:
        if (parsed := parse_key(record.key)) is None:
            continue
        job_id, register = parsed
        if record.value is None:
            known[job_id].pop(register, None)
            pruned.add(parsed)
            continue
        match codec.read(register, record.value):
            case JobSubmitted(checkpoint_retention=CheckpointRetention.KEEP):
                keeps.add(job_id)
            case CheckpointCompleted(location, kind=CheckpointKind.CHECKPOINT):
                if parsed not in pruned:
                    known[job_id][register] = location
            case JobResult(restore_point=point):
                if point is not None and point.location not in stored | excused:
                    found.append(f"I9 the result of {job_id} names {point.location}, which is gone")
                there = {*known[job_id].values()} - excused
                if job_id in keeps:
                    found += [f"I9 {one} of {job_id} must be kept, but is deleted" for one in sorted(there - stored)]
                elif job_id not in forced:
                    found += [f"I9 {one} of {job_id} was not deleted" for one in sorted(there & stored)]
    return found

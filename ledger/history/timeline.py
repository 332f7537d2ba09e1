"""The life of a job on one time axis: attempts, checkpoints, leaders and operations.

`timeline` is pure: records to a value; `timeline_svg` draws it. Times are append times in seconds since the epoch: the
brokers' clock orders records of different writers. A writer's own time is kept beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model import facts as f
from ledger.core.model import registers as r
from ledger.core.model.recovery import TERMINAL, RecoveryEntry
from ledger.history.historical_log import picked
from ledger.ports import Record
from ledger.reader.reading import HistoryRecord, JobLog, Source, Tail
from ledger.util.times import shown


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """A checkpoint or savepoint of attempt n. at_s: append time. pruned: no later attempt can start from the
    checkpoint. clock: the time by its writer's clock; "" = it differs from the append time by less than a second."""

    n: int
    id: int
    at_s: float
    savepoint: bool
    location: str
    pruned: bool = False
    clock: str = ""


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt. begin_s: its first record; running_s: when its runner took it, None = no such record; end_s: None = no
    end is known. outcome: "" = none; cause: of the end. base: the (attempt, id) that it began from, (0, 0) = from outside
    the ledger; None = from scratch, or unknown. notes: further lines about it."""

    n: int
    begin_s: float
    running_s: float | None
    end_s: float | None
    outcome: str = ""
    cause: str = ""
    base: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on the job as a whole. what: submit, admit, run, retry, suspend, cancel, savepoint, retire. by_people:
    whether people requested it (a submission, an intent or a savepoint request). clock: as in CheckpointMark."""

    at_s: float
    what: str
    actor: str = ""
    reason: str = ""
    by_people: bool = True
    clock: str = ""


@dataclass(frozen=True, slots=True)
class LeadershipSpan:
    """An epoch of a role, from its claim on. reason: why its writer became leader."""

    role: str
    epoch: int
    begin_s: float
    writer: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which attempt n ran without a checkpoint for longer than its policy allows."""

    n: int
    begin_s: float
    end_s: float
    after_s: float


@dataclass(frozen=True, slots=True)
class WaitSpan:
    """The state of the job since its last attempt ended: QUARANTINED, SUSPENDED, CREATED and so on."""

    state: str
    begin_s: float
    end_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The life of one job on a time axis. All lists are in order of time, runs in order of their numbers. begin_s,
    end_s: of the axis. moment_s: the moment of this timeline; open attempts and live jobs last at least until then.
    wait: None while an attempt is open, and once the job is over."""

    job_id: str
    name: str
    namespace: str
    runner: str
    runs: tuple[AttemptSpan, ...]
    marks: tuple[CheckpointMark, ...]
    acts: tuple[Operation, ...]
    leaderships: tuple[LeadershipSpan, ...]
    begin_s: float
    end_s: float
    moment_s: float
    stalls: tuple[Stall, ...] = ()
    wait: WaitSpan | None = None


def timeline_of(source: Source, job_id: str, moment_s: float | None = None) -> Timeline:
    """The timeline of a job, from its partition of both topics. moment_s: the present time; None = that of the last
    record."""
    log, leaderships, last_s = JobLog(source, job_id), list[LeadershipSpan](), 0.0
    if moment_s is not None:  # else the time of the last record counts
        source = picked(source, (f"{job_id}/".encode(), b"~claim/"))
    with Tail(source, [source.topics.events, source.topics.recovery], log.partition) as tail:
        for records in tail.to_end():
            log.take(records)
            for record in records:
                last_s = max(last_s, record.timestamp()[1] / 1000)
                if (claim := r.parse_claim(record.key())) is not None and record.value() is not None:
                    leaderships.append(_leadership(source, record, *claim))
    return timeline(job_id, log.history(), leaderships, last_s if moment_s is None else moment_s)


def _leadership(source: Source, record: Record, role: str, epoch: int) -> LeadershipSpan:
    """The span of a claim. The key holds role and epoch; a readable value adds writer and reason."""
    at_s = record.timestamp()[1] / 1000
    try:
        said = source.codec.decode(f.LeaderClaimed, record.value() or b"")
    except ValueError:
        return LeadershipSpan(role, epoch, at_s)
    return LeadershipSpan(role, epoch, at_s, said.writer, said.reason)


def timeline(
    job_id: str, records: Iterable[HistoryRecord], leaderships: Sequence[LeadershipSpan], moment_s: float
) -> Timeline:
    """The timeline of a job. records: of the job in log order, with tombstones. The first record of a register counts."""
    first: dict[str, HistoryRecord] = {}
    removed = set[str]()
    for record in records:
        if record.tombstone:
            removed.add(record.register)
        elif record.register and record.fact is not None:
            first.setdefault(record.register, record)
    job = Job(job_id, {name.encode(): one.fact for name, one in first.items()}, lambda _, fact: fact)
    at = {register: first[name.decode()].time_s for register, name in job.names.items()}
    clocks = {register: _clock(first[name.decode()]) for register, name in job.names.items()}
    runs, marks = _runs(job, at, clocks), _marks(job, at, removed, clocks)
    notes = (replace(act, clock=_clock(one)) for one in first.values() if (act := _act(one)) is not None)
    acts = sorted(notes, key=lambda act: act.at_s)
    times = [one.time_s for one in first.values()] or [moment_s]
    begin_s = min(times)
    end_s = max(times)
    entry = fold_job(job)
    if any(run.end_s is None for run in runs[-1:]) or (entry is not None and entry.state not in TERMINAL):
        end_s = max(end_s, moment_s)
    spec = job.spec or next((fact for s in job.specs if (fact := job.fact(s, f.JobSubmitted))), None)
    result = job.fact(job.result, f.JobResult) if job.result else None
    named = spec or result
    return Timeline(
        job_id, named.name if named else "", named.namespace if named else "", named.runner if named else "",
        tuple(runs), tuple(marks), tuple(acts), tuple(_reigns(leaderships, begin_s, end_s)), begin_s, end_s, moment_s,
        tuple(_stalls(spec, runs, marks, end_s)), _wait(job, entry, runs, at, begin_s, end_s),
    )  # fmt: skip


def _stalls(
    spec: f.JobSubmitted | None, runs: Sequence[AttemptSpan], marks: Sequence[CheckpointMark], end_s: float
) -> Iterable[Stall]:
    after_s = spec.stall_policy.stalled_after_s if spec is not None else 0.0
    if after_s <= 0:
        return
    made: dict[int, list[float]] = {}
    for mark in marks:
        made.setdefault(mark.n, []).append(mark.at_s)
    for number, run in enumerate(runs):
        if run.running_s is None:
            continue
        later = runs[number + 1].begin_s if number + 1 < len(runs) else end_s
        times = [run.running_s, *made.get(run.n, ()), later if run.end_s is None else run.end_s]
        for one, other in pairwise(sorted(times)):
            if other - one > after_s:
                yield Stall(run.n, one + after_s, other, after_s)


def _wait(
    job: Job,
    entry: RecoveryEntry | None,
    runs: Sequence[AttemptSpan],
    at: Mapping[Any, float],
    begin_s: float,
    end_s: float,
) -> WaitSpan | None:
    if entry is None or entry.state in TERMINAL or any(run.end_s is None for run in runs[-1:]):
        return None
    since = [begin_s, *(run.end_s for run in runs[-1:] if run.end_s is not None)]
    if job.intent is not None:
        since.append(at[job.intent[0]])
    return WaitSpan(str(entry.state), max(since), end_s, entry.reason)


def _clock(record: HistoryRecord) -> str:
    """The producer's time in words, if it differs from the append time by a second or more."""
    if record.ce_time_s is None or abs(record.ce_time_s - record.time_s) < 1.0:
        return ""
    doubt = f", implausibly {record.skew}" if record.skew else ""
    return f"by its writer's clock {shown(record.ce_time_s).replace('T', ' ')}{doubt}"


def _runs(job: Job, at: Mapping[Any, float], clocks: Mapping[Any, str]) -> list[AttemptSpan]:
    runs = []
    for n in sorted({*job.attempts, *job.runnings, *job.ends}):
        begun = [at[one] for one in job.attempts.get(n, ())]
        running_s = at[job.runnings[n]] if n in job.runnings else None
        end, record = job.end(n), job.attempt(n)
        seen = [*begun, *([running_s] if running_s is not None else []), *([at[end[0]]] if end else [])]
        base = record.base if record else None
        runs.append(AttemptSpan(
            n, min(seen), running_s, at[end[0]] if end else None,
            end[0].outcome if end else "", end[1].cause if end else "",
            base.order if base else None, (*_notes(job, n, record, end), *_doubts(job, n, end, clocks)),
        ))  # fmt: skip
    return runs


def _doubts(
    job: Job, n: int, end: tuple[r.Ended, f.AttemptEnded] | None, clocks: Mapping[Any, str]
) -> Iterable[str]:  # fmt: skip
    registers = [*job.attempts.get(n, ()), *([job.runnings[n]] if n in job.runnings else []), *([end[0]] if end else [])]
    return (f"{r.register_name(one)} {clocks[one]}" for one in registers if clocks[one])


def _notes(
    job: Job, n: int, record: f.AttemptStarted | None, end: tuple[r.Ended, f.AttemptEnded] | None
) -> Iterable[str]:  # fmt: skip
    running = job.running(n)
    if record is not None:
        epochs = ", ".join(str(one.epoch) for one in sorted(job.attempts[n], key=lambda one: one.epoch))
        yield f"recorded in epoch {epochs} of the reconciler, after {record.failures} failures in a row"
        external = job.spec is not None and job.spec.restore is f.RestoreBy.EXTERNAL
        yield "from its own state" if external else f"from {record.base or 'scratch'}"
        yield from (f"refused {one.restore_point}: {one.reason}" for one in record.refused)
        if record.together is not None and record.together.reason:
            yield record.together.reason
    if running is not None and running.engine_id:
        yield f"ran as {running.engine_id}"
    if end is not None:
        yield f"its end was recorded by {end[0].writer}"


def _marks(job: Job, at: Mapping[Any, float], removed: set[str], clocks: Mapping[Any, str]) -> list[CheckpointMark]:
    found = []
    for one in (one for each in job.checkpoints.values() for one in each):
        fact = job.checkpoint(one.n, one.id)
        if fact is not None:
            gone = job.names[one].decode() in removed
            savepoint = fact.kind is f.CheckpointKind.SAVEPOINT
            found.append(CheckpointMark(one.n, one.id, at[one], savepoint, fact.location, gone, clocks[one]))
    return sorted(found, key=lambda mark: (mark.at_s, mark.n, mark.id))


def _act(record: HistoryRecord) -> Operation | None:
    match record.fact:
        case f.JobSubmitted():
            return Operation(record.time_s, "submit", record.actor)
        case f.JobAdmitted():
            return Operation(record.time_s, "admit", record.actor, by_people=False)
        case f.IntentDeclared() as intent:
            forced = " --force" if intent.force else ""
            return Operation(record.time_s, f"{intent.kind.lower()}{forced}", intent.actor or record.actor, intent.reason)
        case f.SavepointAsked() as ask:
            return Operation(record.time_s, "savepoint", ask.actor or record.actor, ask.reason)
        case f.JobResult() as result:
            return Operation(record.time_s, "retire", record.actor, result.reason, by_people=False)
        case _:
            return None


def _reigns(leaderships: Iterable[LeadershipSpan], begin_s: float, end_s: float) -> Iterable[LeadershipSpan]:
    """The spans on the axis: for each role the last one that began before the axis, and all that began on it. An epoch
    counts from its first claim on, and not after a higher one."""
    by_role: dict[str, list[LeadershipSpan]] = {}
    for one in sorted(leaderships, key=lambda one: (one.begin_s, one.epoch)):
        kept = by_role.setdefault(one.role, [])
        if not kept or one.epoch > kept[-1].epoch:
            kept.append(one)
    for kept in by_role.values():
        before = [one for one in kept if one.begin_s <= begin_s]
        yield from (one for one in kept if one in before[-1:] or begin_s < one.begin_s <= end_s)

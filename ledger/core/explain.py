"""Why a job is in its state, and in or out of the recovery set.

State and rule come from the fold itself, so an explanation cannot contradict it. Added are the registers that decide
(without them the state would be another), registers without effect and why, the origin of each restore point, and what
the job waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ledger.core.failures import Failure, last_failures
from ledger.core.fold.fold import decide
from ledger.core.fold.job import OUTCOME_RANK, Job, is_runner
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.fold.savepoints import open_asks
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    OnStall,
    RestoreBy,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
)  # fmt: skip
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.redaction import is_redacted
from ledger.core.model.registers import (
    TERMINAL_OUTCOMES,
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Disposed,
    Ended,
    Intent,
    Register,
    Result,
    Running,
    Spec,
    register_name,
)  # fmt: skip
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.regions import label_of
from ledger.core.plan.replacing import is_stop


class Origin(NamedTuple):
    """A restore point that is offered for the next start. origin: where the restore point comes from, for people."""

    restore_point: RestorePoint
    origin: str


class Remark(NamedTuple):
    """A remark on a register, for people. without_effect: the register does not change the job's state. ordinary: False =
    the register is an anomaly."""

    register: str
    text: str
    without_effect: bool
    ordinary: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is in its state. state: "" = the job has no admitted spec. rule, rule_text: as in `core.fold.rules`.
    because: names of the registers that decide the state, the strongest first. waits_for: what the job waits for, "" =
    nothing. failures: newest first."""

    job_id: str
    state: str
    in_recovery_set: bool
    rule: int
    rule_text: str
    because: tuple[str, ...]
    reason: str
    restore_points: tuple[Origin, ...]
    remarks: tuple[Remark, ...]
    waits_for: str
    failures: tuple[Failure, ...]


def explain(
    job: Job, keep: int = RESTORE_POINTS, due_at: str = "", due: bool = False, stalled_since: str = ""
) -> Explanation:
    """Explains a job. due_at, due, stalled_since: the leader's stamps on the published entry, as text, since the fold knows
    no time."""
    rule, entry = decide(job, keep)
    return Explanation(
        job.job_id,
        str(entry.state) if entry else job.result.state if job.result else "",
        entry is not None and entry.in_recovery_set,
        rule.number,
        rule.text,
        tuple(register_name(register) for register in _EVIDENCE[rule.number](job) if register in job.names),
        entry.reason if entry else _last_reason(job),
        tuple(_origins(job, entry)) if entry else (),
        tuple(_remarks(job)),
        _waits_for(job, entry, due_at, due, stalled_since),
        last_failures(job),
    )


# -- what decides ------------------------------------------------------------------------------------------------------


def _results(job: Job) -> list[Register]:
    return [r for r in job.results if job.fact(r, JobResult) is not None]


def _intent(job: Job) -> list[Register]:
    return [job.intent[0]] if job.intent else []


def _ends(job: Job) -> list[Register]:
    """Readable ends of the last attempt, strongest first."""
    ends = [e for e in job.ends.get(job.top, ()) if job.fact(e, AttemptEnded) is not None]
    return [*sorted(ends, key=lambda e: (OUTCOME_RANK[e.outcome], is_runner(e.writer), e.writer), reverse=True)]


def _spec(job: Job) -> list[Register]:
    return [Spec(job.admitted.digest)] if job.admitted else []


def _last_reason(job: Job) -> str:
    """The reason in the result of a job that has no other register left."""
    fact = job.fact(job.result, JobResult) if job.result else None
    return fact.reason if fact else ""


def _terminal_ends(job: Job) -> list[Register]:
    ends = [e for ends in job.ends.values() for e in ends if e.outcome in TERMINAL_OUTCOMES]
    ends = [e for e in ends if job.fact(e, AttemptEnded) is not None]
    ends.sort(key=lambda e: (OUTCOME_RANK[e.outcome], e.n), reverse=True)
    return [*ends]


def _effective_retry(job: Job) -> list[Register]:
    if job.intent is None:
        return []
    register, fact = job.intent
    return [register] if fact.kind is IntentKind.RETRY and fact.attempt == job.top and job.end(job.top) else []


def _signs_of_life(job: Job) -> list[Register]:
    """The registers that name the last attempt; for a job that never ran, its admission."""
    if not job.top:
        return [Admitted()]
    attempts = sorted(job.attempts.get(job.top, ()), key=lambda a: a.epoch, reverse=True)
    running = [job.runnings[job.top]] if job.top in job.runnings else []
    return [*running, *attempts]


#: For each rule the registers that decide, strongest first.
_EVIDENCE: dict[int, Callable[[Job], list[Register]]] = {
    0: lambda _: [],
    1: _results,
    2: lambda job: [Admitted(), *job.specs],
    3: _terminal_ends,
    4: _intent,
    5: _intent,
    6: _intent,
    7: _signs_of_life,
    8: lambda job: [*_ends(job), *_intent(job), *_spec(job)],
    9: _signs_of_life,
    10: lambda job: [*_ends(job), *_intent(job), *_spec(job)],
    11: lambda job: [*_ends(job), *_intent(job), *_spec(job)],
    12: lambda job: [*_ends(job), *_effective_retry(job)],
}


# -- where restore points come from ------------------------------------------------------------------------------------


def _origins(job: Job, entry: RecoveryEntry) -> Iterator[Origin]:
    chosen = next((job.intent[1].from_ for _ in _effective_retry(job) if job.intent), "latest")
    below = 0  # the attempt whose base led here
    for point in entry.restore_points:
        if point.attempt == 0:
            named = job.spec is None or job.spec.restore_from is not None
            origin = "restore_from of the spec" if named else f"left by {entry.replaces}, which this job replaces"
        elif below == 0 and chosen != "latest":
            origin = f"completed by attempt {point.attempt}, chosen by retry --from"
        elif point.attempt == below:
            origin = f"completed by attempt {point.attempt}"
        elif below or job.recorded > job.checkpointed:
            origin = f"completed by attempt {point.attempt}, base of attempt {below or job.recorded}"
        else:
            origin = f"completed by attempt {point.attempt}, the highest that has one"
        below = point.attempt
        label = label_of(entry, point)
        yield Origin(point, f"{origin}, consistency label {label}" if label else origin)


# -- registers without effect, or without the intended one -------------------------------------------------------------

_UNREADABLE = "its value can't be read, or is not the fact that it holds: it counts as absent"
_REDACTED = "its value is redacted: that it was there is known, what it said is not; it counts as absent"
_KINDS: dict[type[Register], type] = {
    Spec: JobSubmitted, Admitted: JobAdmitted, Attempt: AttemptStarted, Running: AttemptRunning,
    Checkpoint: CheckpointCompleted, Ended: AttemptEnded, Ask: SavepointAsked, Disposed: SavepointDisposed,
    Result: JobResult,
}  # fmt: skip


def _remarks(job: Job) -> Iterator[Remark]:
    _read_all(job)
    for register in sorted(job.names, key=job.names.__getitem__):
        name = register_name(register)
        if register in job.unreadable:
            yield Remark(name, _REDACTED if _is_redacted(job, register) else _UNREADABLE, True, False)
        elif isinstance(register, Disposed):
            gone = register.n, register.id
            left = Checkpoint(*gone) in job.names and job.result is None
            state = "its files are to be deleted" if left else "its files are gone, or left to jobledger gc"
            yield Remark(name, f"savepoint {gone[0]}/{gone[1]} is given up: nothing begins from it, {state}", False, True)
        elif job.result is not None and register != job.result:
            yield Remark(name, "the job is retired: it will be removed", True, True)
        elif job.result is None and (remark := _remark(job, register, name)):
            yield remark


def _is_redacted(job: Job, register: Register) -> bool:
    raw = job.raw(register)
    return isinstance(raw, tuple) and is_redacted(raw[0])


def _read_all(job: Job) -> None:
    """Decodes the registers that the fold did not need, so that unreadable ones are noticed."""
    _ = job.intent
    for register in list(job.names):
        if not isinstance(register, Intent):
            job.fact(register, _KINDS[type(register)])


def _remark(job: Job, register: Register, name: str) -> Remark | None:
    """About a readable register of a job that has no result."""
    match register:
        case Admitted() if job.spec is None:
            return Remark(name, "the spec that it admits is not here", True, False)
        case Spec(digest) if job.admitted is not None and digest != job.admitted.digest:
            return Remark(name, "another spec is admitted", True, False)
        case Spec() if job.spec is not None and job.spec.restore is RestoreBy.EXTERNAL:
            remark = (
                "the job restores by itself (restore: external): its checkpoints show how far it is, and none is offered"
            )
            return Remark(name, remark, False, True)
        case Intent():
            return _intent_remark(job, register, name)
        case Attempt(n, epoch):
            newest = max(a.epoch for a in job.attempts[n] if a not in job.unreadable)
            if epoch < newest:
                return Remark(name, f"attempt {n} was recorded again in epoch {newest}", True, True)
            return _attempt_remark(job, n, name)
        case Ask():
            if register in open_asks(job):
                return Remark(name, "no savepoint answers it yet", False, True)
            return Remark(name, "it is answered: it will be removed", True, True)
        case Ended(n, outcome):
            end = job.end(n)
            if end is not None and end[0] != register and not (job.terminal_end and outcome in TERMINAL_OUTCOMES):
                return Remark(name, f"{register_name(end[0])} counts", True, end[0].outcome == outcome)
    over = job.terminal_end[0] if job.terminal_end else None
    if over is not None and getattr(register, "n", 0) > over.n:
        return Remark(name, f"the job was over with {register_name(over)}", False, isinstance(register, Ended))
    return None


def _attempt_remark(job: Job, n: int, name: str) -> Remark | None:
    """The restore points that an attempt did not use, and why it was started with its region."""
    record = job.attempt(n)
    if record is None:
        return None
    remark = [f"restore point {one.restore_point} was refused: {one.reason}" for one in record.refused]
    if n == job.top and record.together is not None and record.together.reason:
        remark.append(record.together.reason)
    cut = record.together is not None and bool(record.together.consistency)  # then newer ones are passed over
    return Remark(name, "; ".join(remark), False, cut or not record.refused) if remark else None


def _intent_remark(job: Job, register: Intent, name: str) -> Remark | None:
    assert job.intent is not None  # it is readable, so one of them wins
    winner, fact = job.intent
    if register != winner:
        return Remark(name, f"{register_name(winner)} ({fact.kind}) wins over it", True, True)
    if job.terminal_end is not None:
        return Remark(name, "the job is over", True, fact.kind is IntentKind.CANCEL)
    if fact.kind is IntentKind.RETRY and not _effective_retry(job):
        why = f"attempt {job.top} is the last" if fact.attempt != job.top else "no end of it is known"
        return Remark(name, f"it asks to retry attempt {fact.attempt}, but {why}: it counts as run", False, True)
    return None


# -- what the job waits for --------------------------------------------------------------------------------------------


def _waits_for(job: Job, entry: RecoveryEntry | None, due_at: str, due: bool, stalled_since: str) -> str:
    if entry is None:
        return "the projector to admit a spec" if job.specs and job.result is None else ""
    if entry.retiring:
        return "the projector to remove its last registers"
    if entry.terminal:
        return "the reconciler to retire it"
    if entry.runner == OUTSIDE and (remark := _waits_for_producer(entry)):
        return remark
    match entry.state:
        case JobState.CREATED if entry.replaces is not None:
            stops = "to stop with a savepoint" if entry.inherits else "to stop"
            return f"{entry.replaces}, which it replaces, {stops}; then the reconciler to start attempt 1"
        case JobState.CREATED:
            return "the reconciler to start attempt 1"
        case JobState.RESTARTING:
            if due or not due_at:
                region = f", together with region {entry.region}" if entry.region else ""
                return f"the reconciler to start attempt {entry.next_attempt}{region}"
            return f"its restart delay of {entry.restart_delay_s:g} s, until {due_at}"
        case JobState.CANCELLING | JobState.FAILING:
            return f"the reconciler to stop what runs and to close attempt {entry.next_attempt}"
        case JobState.SUSPENDED if entry.intent is not None and is_stop(entry.intent.id):
            return "the job that replaces it: canceled once that runs, resumed if that is given up"
        case JobState.SUSPENDED:
            return "an operator: resume or cancel"
        case JobState.QUARANTINED:
            return "an operator: retry or cancel"
        case JobState.RUNNING if stalled_since and entry.stall_policy:
            policy = entry.stall_policy
            remark = f"a checkpoint: {policy.stalled_after_s:g} s without a new one, stalled since {stalled_since}"
            return remark + "; it is stopped and restarted" * (policy.on_stall is OnStall.RESTART)
        case _:
            return "" if entry.known else f"a sign of life of attempt {entry.attempt}"


def _waits_for_producer(entry: RecoveryEntry) -> str:
    """The wait of an outside job. Only its producer can report its end, unless an operator gives the producer up."""
    if entry.state is JobState.CREATED:
        return "its producer to report that it runs"
    given_up = entry.intent is not None and entry.intent.force and entry.attempt <= entry.intent.attempt
    running = entry.state in (JobState.RUNNING, JobState.CANCELLING) and entry.attempt and not entry.outcome
    if not running or given_up:
        return ""
    return f"its producer to report the end; if the producer died: jobledger cancel {entry.job_id} --force --reason TEXT"

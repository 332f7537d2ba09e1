"""The whole meaning of the ledger: the registers of one job -> its recovery entry.

`fold` is pure and total. It reads no clock and no record timestamp, and it never raises on what arrives: state is a
function of the *set* of registers, so redelivery, order, splits and compaction change nothing (tests/laws).
`offered` says from where the next attempt may begin; `prunable` which registers no later fact can give effect again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from ledger.core.fold import restart, savepoints
from ledger.core.fold.job import TERMINAL_OUTCOMES, Job, Read
from ledger.core.fold.savepoints import open_asks
from ledger.core.model.facts import (
    AttemptEnded,
    CheckpointCompleted,
    CheckpointKind,
    CheckpointRetention,
    IntentDeclared,
    IntentKind,
    JobResult,
    JobSubmitted,
    OnExhausted,
    RestartKind,
    RestoreBy,
    RestorePoint,
    SavepointDisposed,
)  # fmt: skip
from ledger.core.model.recovery import JobState, RecoveryEntry, WinningIntent
from ledger.core.model.registers import (
    CHECKPOINT_ID_MAX,
    NUMBER_MAX,
    Checkpoint,
    Disposed,
    Ended,
    Register,
    Result,
    parse_register,
    register_name,
)

#: Restore points kept and offered, attempts kept as history, and registers that an entry lists.
RESTORE_POINTS = 3
HISTORY = 10
LISTED_MAX = 1000
ASKS_MAX = 10

#: What stays of a job that is retired. A savepoint that is given up then may still have to be deleted.
LASTING = (Result, Disposed)
_TERMINAL_STATE = {
    "finished": JobState.FINISHED, "canceled": JobState.CANCELED, "abandoned": JobState.FAILED,
}  # fmt: skip


def fold(job_id: str, registers: Mapping[bytes, Any], read: Read, keep: int = RESTORE_POINTS) -> RecoveryEntry | None:
    """The entry of a job; None if it is unknown or retired."""
    return fold_job(Job(job_id, registers, read), keep)


def fold_job(job: Job, keep: int = RESTORE_POINTS) -> RecoveryEntry | None:
    """The first rule that applies decides."""
    if job.result is not None:
        return _retiring(job, job.result)
    spec = job.spec
    if spec is None:
        return None
    external = spec.restore is RestoreBy.EXTERNAL
    points = () if external else _first(job, _way(job), keep)
    if job.terminal_end is not None:
        state, reason = _TERMINAL_STATE[job.terminal_end[0].outcome], _cause(*job.terminal_end)
        return _entry(
            job, spec, state, restore_points=points, reason=reason, registers=_left(job), disposals=_disposals(job, keep)
        )

    top, end, record = job.top, job.end(job.top), job.attempt(job.top)
    outcome = end[0].outcome if end else ""
    wants = job.intent[1] if job.intent else None
    retried = _retry_of_end(job) is not None
    policy = spec.restart_policy
    asking = spec.savepoint_policy
    policy_problem = restart.problem(policy) or restart.stall_problem(spec.stall_policy) or savepoints.problem(asking)
    periodic = asking.interval_s > 0 and top > 0 and not policy_problem
    failed = end[1] if end and outcome in ("failed", "lost") and not retried and not policy_problem else None
    past = restart.past(record if not retried else None)  # a retry forgives what failed before it
    verdict = restart.judge(policy, past, failed.ran_for_s if failed else None, job.job_id, top + 1)
    watched = spec.stall_policy.stalled_after_s > 0 and job.known(top)
    following = min(top + 1, NUMBER_MAX)
    planned = following if end or not top else 0

    def entry(state: JobState, reason: str = "", next_attempt: int = planned) -> RecoveryEntry:
        return _entry(
            job, spec, state, next_attempt=next_attempt, failures=verdict.failures, restart_delay_s=verdict.delay_s,
            reason=reason, graph=spec.graph, restore_points=points,
            restore_from_named=not external and _restore_from_named(job),
            failure_times=past.times, failed_at=verdict.failed_at, failure_rules=policy.failure_rules,
            failure_rate_interval_s=policy.failure_rate_interval_s if policy.kind is RestartKind.FAILURE_RATE else 0.0,
            stall_policy=spec.stall_policy if watched and state is JobState.RUNNING else None,
            asks=tuple(ask.uuid for ask in open_asks(job)[:ASKS_MAX]), consistency=_labels(job, points),
            savepoint_policy=asking if periodic else None, next_ask=savepoints.next_ask(job) if periodic else "",
            disposals=_disposals(job, keep),
        )  # fmt: skip

    if wants and wants.kind is IntentKind.CANCEL:
        return entry(JobState.CANCELLING, wants.reason, following)
    if wants and wants.kind is IntentKind.UNKNOWN:
        return entry(JobState.QUARANTINED, "the winning intent is of a kind that this version does not know")
    if wants and wants.kind is IntentKind.SUSPEND:
        return entry(JobState.SUSPENDED, wants.reason)
    if top and not end:
        return entry(JobState.RUNNING)
    if reason := policy_problem or _why_not_startable(job, spec, points):
        return entry(JobState.QUARANTINED, reason)
    if end is None:
        return entry(JobState.CREATED)
    if outcome == "failed-permanent" and not retried:
        return entry(JobState.QUARANTINED, _cause(*end))
    if verdict.exhausted:
        fails = policy.on_exhausted is OnExhausted.FAIL
        reason = f"{_cause(*end)}; {restart.used_up(policy, verdict.failures)}"
        return entry(JobState.FAILING if fails else JobState.QUARANTINED, reason)
    return entry(JobState.RESTARTING, _cause(*end))


def offered(job: Job) -> Iterator[RestorePoint]:
    """Restore points for the next start, best first.

    Begins with the checkpoints of the highest attempt that has a record or a checkpoint, else with the base of its
    record, and goes down from base to base, past one that is gone to the newest checkpoint below; the oldest end is the
    spec's restore_from. A retry that still counts may name another place to begin. What is given up is not among them.
    A job that restores by itself is offered nothing.
    """
    if job.spec is not None and job.spec.restore is RestoreBy.EXTERNAL:
        return iter(())
    return (point for point in _way(job) if job.disposal(*point.order) is None)


def prunable(job: Job, keep: int = RESTORE_POINTS, history: int = HISTORY) -> list[Register]:
    """Registers that no set of later facts could give effect again; the leader tombstones them.

    Never the newest attempt record, a terminal end, a savepoint (it goes with its files, by the reconciler), that one is
    given up, or a restore point that is offered or would be.
    """
    if job.result is not None:
        return [register for register in job.names if not isinstance(register, LASTING)]
    if job.spec is None:
        return []
    kept = _kept_restore_points(job, keep)
    attempts = sorted({*job.attempts, *job.runnings, *job.ends}, reverse=True)
    beyond = set(attempts[history:]) - {job.top}
    out: list[Register] = [s for s in job.specs if job.admitted and s.digest != job.admitted.digest]
    if job.intent is not None:
        out += [i for i in job.intents if i != job.intent[0] and i not in job.unreadable]
    open_ = set(open_asks(job))
    out += [ask for ask in job.asks if ask not in open_ and ask not in job.unreadable]
    for n, checkpoints in job.checkpoints.items():
        for c in checkpoints:
            if (n, c.id) in kept:
                continue
            fact = job.fact(c, CheckpointCompleted)
            if fact is not None and fact.kind is CheckpointKind.CHECKPOINT:
                out.append(c)
    for n in beyond:
        out += [a for a in job.attempts.get(n, ()) if n != job.recorded]
        out += [job.runnings[n]] if n in job.runnings else []
        out += [e for e in job.ends.get(n, ()) if e.outcome not in TERMINAL_OUTCOMES]
    return out


# -- restore points --------------------------------------------------------------------------------------------------


def _way(job: Job) -> Iterator[RestorePoint]:
    """The way that the next start goes down; what is given up has its place on it still."""
    retry = _retry_of_end(job)
    return _offer(job, retry.from_ if retry else "latest")


def _offer(job: Job, chosen: str) -> Iterator[RestorePoint]:
    """The way of a start that asks for `chosen`: "latest", "scratch" or "<attempt>/<id>"."""
    if chosen == "latest":
        highest = max(job.recorded, job.checkpointed)
        record = job.attempt(highest)
        if highest == 0:
            yield from _outside(job)
        elif highest == job.checkpointed:
            yield from _downwards(job, _newest_of(highest))
        elif record is not None and record.base is not None:
            yield from _downwards(job, record.base, highest)
    elif chosen != "scratch":
        place = parse_register(f"checkpoint/{chosen}")
        point = job.restore_point(place) if isinstance(place, Checkpoint) else None
        if point is not None and job.disposal(*point.order) is None:
            yield from _downwards(job, point)


def _downwards(job: Job, place: RestorePoint, began: int = 0) -> Iterator[RestorePoint]:
    """From a restore point to those before it: the older ones of its attempt, then from that attempt's base on.

    began: the attempt that began at `place`, 0 = none did. Where nothing is left there (a start that was recorded from an
    old entry names a place that is pruned by then), the way goes on at the newest checkpoint of the attempts below `began`:
    the newest ones are never pruned. A base that does not lead to a lower attempt is nobody's word: there the way ends.
    """
    while place.attempt > 0:
        newest: CheckpointCompleted | SavepointDisposed | None = None
        for id_ in job.places(place.attempt):
            if id_ > place.id:
                continue
            fact, gone = job.checkpoint(place.attempt, id_), job.disposal(place.attempt, id_)
            newest = newest or fact or gone
            if fact is not None:
                yield RestorePoint(place.attempt, id_, fact.location, fact.size, fact.digest, fact.kind)
            elif gone is not None:
                yield RestorePoint(place.attempt, id_, gone.location, kind=CheckpointKind.SAVEPOINT)
        if newest is None:
            below = job.checkpointed_below(began) if 0 < place.attempt < began and place.id >= 0 else 0
            if not below:
                return
            place, began = _newest_of(below), below
        elif newest.base is None or newest.base.attempt >= place.attempt:
            return
        else:
            place, began = newest.base, place.attempt
    if place.attempt == 0:
        yield from _outside(job, place)


def _kept_restore_points(job: Job, keep: int) -> set[tuple[int, int]]:
    """Those that are offered, or would be once a pending retry counts or is withdrawn, and the newest that there are."""
    ways = [_offer(job, "latest")]
    if pending := _pending_retry(job):
        ways.append(_offer(job, pending.from_))
    if job.checkpointed:
        ways.append(_downwards(job, _newest_of(job.checkpointed)))
    return {point.order for way in ways for point in _first(job, way, keep)}


def _disposals(job: Job, keep: int) -> tuple[RestorePoint, ...]:
    if not job.disposed and (job.spec is None or not job.spec.savepoint_policy.keep_max):
        return ()
    return savepoints.disposals(job, _kept_restore_points(job, keep))


def _outside(job: Job, recorded: RestorePoint | None = None) -> Iterator[RestorePoint]:
    """The spec's restore_from; of a job that replaces another, what an attempt was recorded to begin from, which no spec
    could know. It has no place among this job's own attempts, whatever numbers it bears elsewhere."""
    if job.spec is None:
        return
    point = recorded if recorded is not None and job.spec.replaces is not None else job.spec.restore_from
    if point is not None:
        yield replace(point, attempt=0, id=0)


def _newest_of(n: int) -> RestorePoint:
    return RestorePoint(n, CHECKPOINT_ID_MAX, "")


def _labels(job: Job, points: tuple[RestorePoint, ...]) -> tuple[str, ...]:
    """Of each the label of the cut that it belongs to; () if none belongs to one."""
    facts = [job.checkpoint(*point.order) for point in points]
    labels = tuple(fact.consistency if fact else "" for fact in facts)
    return labels if any(labels) else ()


def _first(job: Job, way: Iterator[RestorePoint], keep: int) -> tuple[RestorePoint, ...]:
    """What is given up has a place among the first, and nothing from further down takes it: that may be pruned, and then a
    copy of it that comes late would be offered."""
    return tuple(point for point in islice(way, keep) if job.disposal(*point.order) is None)


def _restore_from_named(job: Job) -> bool:
    """Whether the next start has something to begin from; if then nothing is offered, it must not begin at all."""
    retry = _retry_of_end(job)
    if retry and retry.from_ != "latest":
        return retry.from_ != "scratch"
    highest = max(job.recorded, job.checkpointed)
    if highest == 0:
        return job.spec is not None and job.spec.restore_from is not None
    record = job.attempt(highest)
    return highest == job.checkpointed or (record is not None and record.base is not None)


def _inherits(job: Job, spec: JobSubmitted) -> bool:
    """Whether the next start begins from what the job that this one replaces has by then (it may have been resumed
    meanwhile): this one has no checkpoint of its own yet, and nobody has said another place."""
    own = spec.restore is RestoreBy.EXTERNAL or spec.restore_from is not None
    if spec.replaces is None or own or spec.replacement.from_ not in ("", "latest"):
        return False
    retry = _retry_of_end(job)
    return not job.checkpointed and (retry is None or retry.from_ == "latest")


# -- other parts -----------------------------------------------------------------------------------------------------


def _pending_retry(job: Job) -> IntentDeclared | None:
    """The winning intent if it is a retry that an attempt above the one it names has not spent."""
    wants = job.intent[1] if job.intent else None
    return wants if wants and wants.kind is IntentKind.RETRY and wants.attempt >= job.top else None


def _retry_of_end(job: Job) -> IntentDeclared | None:
    """The retry that counts now: it names top, and top has ended. Of a job that is over none does."""
    pending = _pending_retry(job) if job.terminal_end is None else None
    return pending if pending and pending.attempt == job.top and job.end(job.top) else None


def _why_not_startable(job: Job, spec: JobSubmitted, points: tuple[RestorePoint, ...]) -> str:
    """Why this version can't start the next attempt; "" if it can. What runs is left alone."""
    if job.top >= NUMBER_MAX:
        return f"attempt {job.top} has the highest number that there is"
    if spec.checkpoint_retention is CheckpointRetention.UNKNOWN:
        return "the checkpoint retention is of a kind that this version does not know"
    if spec.restore is RestoreBy.UNKNOWN:
        return "what the job restores from is of a kind that this version does not know"
    if any(p.kind is CheckpointKind.UNKNOWN for p in points):
        return "a restore point is of a kind that this version does not know"
    return ""


def _cause(register: Ended, fact: AttemptEnded) -> str:
    return f"attempt {register.n} {register.outcome}" + (f": {fact.cause}" if fact.cause else "")


def _left(job: Job) -> tuple[str, ...]:
    """What is to be tombstoned with the result; never what lasts. What the bound cuts off, the projector takes."""
    names = sorted(register_name(register) for register in job.names if not isinstance(register, LASTING))
    return tuple(names[:LISTED_MAX])


def _entry(job: Job, spec: JobSubmitted, state: JobState, **rest: Any) -> RecoveryEntry:
    top, end = job.top, job.end(job.top)
    record, newest = job.attempt(top), job.attempt(job.recorded)
    intent = None
    if job.intent is not None:
        register, fact = job.intent
        intent = WinningIntent(
            str(fact.kind),
            register.rev,
            register.uuid,
            fact.attempt,
            fact.from_,
            fact.force,
            fact.reason,
            fact.actor,
            fact.savepoint,
        )
    assert job.admitted is not None
    return RecoveryEntry(
        job_id=job.job_id, name=spec.name, namespace=spec.namespace, runner=spec.runner, state=state,
        digest=job.admitted.digest, attempt=top,
        outcome=end[0].outcome if end else "", outcome_writer=end[0].writer if end else "",
        known=job.known(top), base=record.base if record else None, together=record.together if record else None,
        intent=intent, slots=spec.slots, priority=spec.priority, region=spec.region, labels=dict(spec.labels),
        replaces=spec.replaces, replacement=spec.replacement, inherits=_inherits(job, spec),
        begun=spec.replaces is not None and job.recorded > 0,
        checkpoint_retention=spec.checkpoint_retention, instance=newest.instance if newest else "", restore=spec.restore,
        marker=next(_way(job), None) if spec.restore is RestoreBy.EXTERNAL else None, **rest,
    )  # fmt: skip


def _retiring(job: Job, result: Result) -> RecoveryEntry | None:
    left = _left(job)
    if not left:
        return None
    fact = job.fact(result, JobResult)
    assert fact is not None
    return RecoveryEntry(
        job_id=job.job_id, name=fact.name, namespace=fact.namespace, runner=fact.runner, state=JobState(result.state),
        digest=fact.digest, attempt=fact.attempts, reason=fact.reason, labels=dict(fact.labels), retiring=True,
        registers=left,
    )  # fmt: skip

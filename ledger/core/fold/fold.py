"""The fold of one job, from its registers to its recovery entry: the whole meaning of the ledger.

`fold` is pure and total. It reads no clock and no record timestamp, and never raises on what arrives. The state is a
function of the *set* of registers, so redelivery, order, splits and compaction change nothing (tests/laws). `RULES`
decides the state, `restore_points.first` where the next attempt may begin, `prunable` which registers no later fact
can give effect again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.core.fold import restore_points, savepoints
from ledger.core.fold.job import Job, Read
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.fold.rules import Rule, Situation, deciding_rule
from ledger.core.fold.savepoints import open_asks
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, JobResult, RestartKind, RestoreBy, RestorePoint
from ledger.core.model.policies import policy_problem
from ledger.core.model.recovery import TERMINAL, JobState, RecoveryEntry, WinningIntent
from ledger.core.model.registers import NUMBER_MAX, TERMINAL_OUTCOMES, Disposed, Register, Result, register_name

#: Attempts kept as history, and registers and savepoint requests that an entry lists.
HISTORY = 10
LISTED_MAX = 1000
ASKS_MAX = 10

#: Registers that stay when a job is retired. Files of a disposed savepoint may still have to be deleted.
LASTING = (Result, Disposed)


def fold(job_id: str, registers: Mapping[bytes, Any], read: Read, keep: int = RESTORE_POINTS) -> RecoveryEntry | None:
    """The entry of a job; None if the job is unknown or retired. keep: how many restore points it offers at most."""
    return fold_job(Job(job_id, registers, read), keep)


def fold_job(job: Job, keep: int = RESTORE_POINTS) -> RecoveryEntry | None:
    """The entry of a job; None if the job is unknown or retired. keep: as in `fold`."""
    return decide(job, keep)[1]


def decide(job: Job, keep: int = RESTORE_POINTS) -> tuple[Rule, RecoveryEntry | None]:
    """The rule that decides the state of a job, and the job's entry; None if the job is unknown or retired."""
    situation = Situation(job, keep)
    rule = deciding_rule(situation)
    state = rule.state_of(situation)
    if state is None:
        return rule, None
    if job.result is not None:
        return rule, _retiring(job, job.result, state)
    build = _over if state in TERMINAL else _living
    return rule, build(situation, state, rule.reason(situation))


def prunable(job: Job, keep: int = RESTORE_POINTS, history: int = HISTORY) -> list[Register]:
    """Registers that no set of later facts could give effect again; the leader tombstones them.

    Never the newest attempt record, a terminal end, a savepoint (the reconciler removes it with its files), the disposal
    of a savepoint, or a restore point that is offered or could be.
    """
    if job.result is not None:
        return [register for register in job.names if not isinstance(register, LASTING)]
    if job.spec is None:
        return []
    kept = restore_points.kept(job, keep)
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


# -- entries ---------------------------------------------------------------------------------------------------------


def _living(s: Situation, state: JobState, reason: str) -> RecoveryEntry:
    """The entry of a job that is not over."""
    job, spec, policy, asking = s.job, s.spec, s.spec.restart_policy, s.spec.savepoint_policy
    starts = state is JobState.CANCELLING or s.end is not None or not job.top
    watched = state is JobState.RUNNING and spec.stall_policy.stalled_after_s > 0 and job.known(job.top)
    periodic = asking.interval_s > 0 and job.top > 0 and not policy_problem(spec)
    return _entry(
        s, state, reason,
        next_attempt=min(job.top + 1, NUMBER_MAX) if starts else 0, graph=spec.graph,
        failures=s.decision.failures, restart_delay_s=s.decision.delay_s,
        restore_from_named=spec.restore is not RestoreBy.EXTERNAL and restore_points.named(job),
        failure_times=s.past.times, failed_at=s.decision.failed_at, failure_rules=policy.failure_rules,
        failure_rate_interval_s=policy.failure_rate_interval_s if policy.kind is RestartKind.FAILURE_RATE else 0.0,
        stall_policy=spec.stall_policy if watched else None,
        asks=tuple(ask.uuid for ask in open_asks(job)[:ASKS_MAX]), consistency=restore_points.labels(job, s.points),
        savepoint_policy=asking if periodic else None, next_ask=savepoints.next_ask(job) if periodic else "",
    )  # fmt: skip


def _over(s: Situation, state: JobState, reason: str) -> RecoveryEntry:
    """The entry of a terminal job, whose result is not recorded yet."""
    return _entry(s, state, reason, registers=_left(s.job))


def _retiring(job: Job, result: Result, state: JobState) -> RecoveryEntry | None:
    """The entry of a job with a result, as long as other registers are left."""
    left = _left(job)
    if not left:
        return None
    fact = job.fact(result, JobResult)
    assert fact is not None
    return RecoveryEntry(
        job_id=job.job_id, name=fact.name, namespace=fact.namespace, runner=fact.runner, state=state,
        digest=fact.digest, attempt=fact.attempts, reason=fact.reason, labels=dict(fact.labels), retiring=True,
        registers=left,
    )  # fmt: skip


def _entry(s: Situation, state: JobState, reason: str, **rest: Any) -> RecoveryEntry:
    """The fields that every entry of an admitted job has."""
    job, spec, top, end = s.job, s.spec, s.job.top, s.end
    record, newest = job.attempt(top), job.attempt(job.recorded)
    assert job.admitted is not None
    return RecoveryEntry(
        job_id=job.job_id, name=spec.name, namespace=spec.namespace, runner=spec.runner, state=state, reason=reason,
        digest=job.admitted.digest, attempt=top, restore_points=s.points, disposals=_disposals(job, s.keep),
        outcome=end[0].outcome if end else "", outcome_writer=end[0].writer if end else "",
        known=job.known(top), base=record.base if record else None, together=record.together if record else None,
        intent=WinningIntent.of(*job.intent) if job.intent else None, slots=spec.slots, priority=spec.priority,
        region=spec.region, labels=dict(spec.labels), replaces=spec.replaces, replacement=spec.replacement,
        inherits=restore_points.inherits(job, spec), begun=spec.replaces is not None and job.recorded > 0,
        checkpoint_retention=spec.checkpoint_retention, instance=newest.instance if newest else "", restore=spec.restore,
        marker=next(restore_points.path(job), None) if spec.restore is RestoreBy.EXTERNAL else None, **rest,
    )  # fmt: skip


def _disposals(job: Job, keep: int) -> tuple[RestorePoint, ...]:
    if not job.disposed and (job.spec is None or not job.spec.savepoint_policy.keep_max):
        return ()
    return savepoints.disposals(job, restore_points.kept(job, keep))


def _left(job: Job) -> tuple[str, ...]:
    """Names of the registers to tombstone with the result, at most LISTED_MAX. The projector removes any others."""
    names = sorted(register_name(register) for register in job.names if not isinstance(register, LASTING))
    return tuple(names[:LISTED_MAX])

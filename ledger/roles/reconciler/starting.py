"""Flows that bring a job back: verify restore points, prepare, record the attempt, start it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from ledger.core.model.facts import AttemptStarted, RefusedRestorePoint, RestorePoint, Together
from ledger.core.model.policies import FAILURE_TIMES_MAX
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Attempt, Intent, Outcome
from ledger.core.plan.plan import Declare, Inherited
from ledger.core.plan.regions import label_of, points_from
from ledger.core.plan.runner_report import stored_elsewhere
from ledger.ports import (
    Prepared,
    PrepareTask,
    StartAnswer,
    StartTask,
    TaskOutcome,
    TaskStatus,
    Verification,
    VerifyTask,
)
from ledger.roles.reconciler.flow_steps import Flow, JobFlow, perform
from ledger.util import failpoints

log = structlog.get_logger("reconciler")


def verify(flow: JobFlow, n: int, points: tuple[RestorePoint, ...]) -> Flow:
    """Asks the runner to verify restore points for a region's start. The answers count for the next start alone."""
    entry, memory = flow.entry, flow.memory
    elsewhere = stored_elsewhere(points, entry, memory.report)
    outcome = yield from perform(VerifyTask(**flow.target, n=n, restore_points=points, elsewhere=elsewhere))
    answers = outcome.answer if outcome.answer is not None else (Verification.UNKNOWN,) * len(points)
    memory.verified.update(zip(points, map(str, answers), strict=True))
    unknown = Verification.UNKNOWN in answers
    memory.backoff = "its restore points can't be verified at the moment" if unknown else ""
    memory.backoff_at = flow.context.clock.monotonic()


def start(flow: JobFlow, n: int, inherited: Inherited | None, together: Together | None) -> Flow:
    """Prepares attempt n, records it, and starts it. inherited: what the replaced job offers. together: the start of the
    region that this attempt is part of."""
    entry, memory = flow.entry, flow.memory
    memory.verified.clear()
    points, newer = points_from(entry, together.consistency if together else "")
    own = points + newer
    offered = inherited or Inherited(own, entry.restore_from_named, stored_elsewhere(own, entry, memory.report))
    outcome = yield from perform(_prepare_task(flow, n, *offered))
    _note_backoff(flow, outcome)
    if outcome.refused:
        yield from _unstartable(flow, n, outcome)
        return
    prepared = outcome.answer
    if prepared is None:
        log.warning("not_prepared", job=entry.job_id, attempt=n, reason=outcome.reason)
        return
    if prepared.unknown or not flow.context.still_planned(entry):
        log.info("start_waits", job=entry.job_id, attempt=n, reason=prepared.unknown or "the entry has changed")
        return
    if together is not None:
        together = _kept_to(together, entry, prepared.base)
    passed_over = tuple(RefusedRestorePoint(p, "newer than the cut of its region") for p in newer if p != prepared.base)
    record = _record(flow, prepared.base, passed_over + prepared.refused, together)
    yield from flow.write((Attempt(n, flow.context.factory.epoch), record))
    memory.recorded = n
    failpoints.hit("start.recorded")
    started = yield from perform(_start_task(flow, n, prepared.base))
    failpoints.hit("start.answered")
    yield from _started(flow, n, started)


def start_again(flow: JobFlow, n: int) -> Flow:
    """Starts a recorded attempt that its runner does not know, from the restore point in its record."""
    entry = flow.entry
    points = (entry.base,) if entry.base else ()
    elsewhere = stored_elsewhere(points, entry, flow.memory.report)
    outcome = yield from perform(_prepare_task(flow, n, points, entry.base is not None, elsewhere))
    if outcome.refused:
        yield from flow.fenced_end(n, Outcome.STOPPED, f"not started again: {outcome.reason}")
        return
    if outcome.answer is None or outcome.answer.unknown:
        return
    started = yield from perform(_start_task(flow, n, entry.base))
    if started.answer is StartAnswer.ALREADY:
        yield from flow.settle(n)
        return
    yield from _started(flow, n, started)


def declare(flow: JobFlow, order: Declare) -> Flow:
    """Declares an intent in the name of the ledger. Its revision decides between it and later intents of people."""
    log.info("declare", job=flow.entry.job_id, kind=order.fact.kind, rev=order.rev, reason=order.fact.reason)
    failpoints.hit("replace.undeclared")
    yield from flow.write((Intent(order.rev, order.id), order.fact))
    failpoints.hit("replace.declared")


def _prepare_task(
    flow: JobFlow, n: int, points: tuple[RestorePoint, ...], named: bool, elsewhere: tuple[RestorePoint, ...]
) -> PrepareTask:
    return PrepareTask(
        **flow.target, n=n, graph=flow.entry.graph, restore_points=points, restore_from_named=named, elsewhere=elsewhere
    )


def _start_task(flow: JobFlow, n: int, base: RestorePoint | None) -> StartTask:
    return StartTask(**flow.target, n=n, graph=flow.entry.graph, base=base, failure_rules=flow.entry.failure_rules)


def _note_backoff(flow: JobFlow, outcome: TaskOutcome[Prepared]) -> None:
    """Notes why a start cannot be made now: other jobs of its pool may start first, and people read the reason."""
    memory = flow.memory
    memory.backoff = ""
    if outcome.answer is not None:
        memory.backoff = outcome.answer.unknown
    elif not outcome.refused:
        memory.backoff = f"its start could not be prepared: {outcome.reason}"
    memory.backoff_at = flow.context.clock.monotonic()


def _started(flow: JobFlow, n: int, outcome: TaskOutcome[StartAnswer]) -> Flow:
    log.info(
        "start", job=flow.entry.job_id, attempt=n, answer=outcome.answer or outcome.status, reason=outcome.reason
    )  # fmt: skip
    if outcome.refused:
        yield from _unstartable(flow, n, outcome)
    elif outcome.status is TaskStatus.CRASHED:
        flow.memory.crashed[n] = f"the start crashed: {outcome.reason}"
    elif outcome.answer is StartAnswer.FENCED:
        yield from flow.fenced_end(n, Outcome.STOPPED, "its start was refused: it had been fenced")


def _unstartable(flow: JobFlow, n: int, outcome: TaskOutcome[Any]) -> Flow:
    """Records that the job cannot be started. The attempt is fenced first, unless there is no runner to fence it."""
    if outcome.status is TaskStatus.NO_RUNNER:
        yield from flow.write(flow.end(n, Outcome.FAILED_PERMANENT, outcome.reason))
    else:
        yield from flow.fenced_end(n, Outcome.FAILED_PERMANENT, outcome.reason)


def _record(
    flow: JobFlow, base: RestorePoint | None, refused: tuple[RefusedRestorePoint, ...], together: Together | None
) -> AttemptStarted:
    entry = flow.entry
    times, now = entry.failure_times, flow.context.clock.time()
    if entry.outcome in (Outcome.FAILED, Outcome.LOST) and entry.failures:  # 0: a retry forgave it
        times = (*times, now if entry.failed_at is None else entry.failed_at)[-FAILURE_TIMES_MAX:]
    recorded_at = now if entry.failure_rate_interval_s else None
    return AttemptStarted(
        entry.digest, base, refused, entry.failures, times, recorded_at, together, flow.memory.report.instance
    )


def _kept_to(together: Together, entry: RecoveryEntry, base: RestorePoint | None) -> Together:
    """The region's start as it is recorded: with a label only if the chosen restore point has that label."""
    label = together.consistency
    if not label or label_of(entry, base) == label:
        return together
    reason = f"{together.reason}; but its own restore point there is not sound any more"
    return replace(together, consistency="", reason=reason)

"""Flows that end an attempt, a disposed savepoint, or a job that is over. Each is a function of a `JobFlow`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from ledger.core.model.facts import CheckpointRetention, IntentKind, JobResult, RestorePoint, SavepointAsked
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Ask, Checkpoint, Outcome, Register, Result, parse_register
from ledger.core.plan.plan import Stop, WantSavepoint
from ledger.core.plan.runner_report import given_up
from ledger.ports import CleanTask, DisposeTask, SavepointTask, StopTask, TaskStatus
from ledger.roles.reconciler.flow_steps import Flow, JobFlow, perform
from ledger.util import failpoints

log = structlog.get_logger("reconciler")


def stop(flow: JobFlow, order: Stop) -> Flow:
    entry = flow.entry
    log.info("stop", job=entry.job_id, attempt=order.n, outcome=order.outcome, reason=order.reason)
    # The entry of any other state holds the reason already: that the job is suspended, say.
    reason = order.reason if entry.state is JobState.RUNNING else ""
    task = StopTask(**flow.target, n=order.n, outcome=order.outcome, savepoint=order.savepoint, reason=reason)
    outcome = yield from perform(task)
    flow.note_trouble(order.n, "stopped", outcome)
    # If several attempts cannot be stopped, the last one decides, since a job is retired once.
    last = order.n == max(flow.memory.report.alive or (order.n,))
    if entry.terminal and given_up(entry) and last and not outcome.done:
        yield from retire(flow, forced=True)


def request_savepoints(flow: JobFlow, n: int, asks: tuple[str, ...]) -> Flow:
    entry, memory = flow.entry, flow.memory
    outcome = yield from perform(SavepointTask(**flow.target, n=n, asks=asks))
    log.info("savepoint_asked", job=entry.job_id, attempt=n, asks=asks, status=outcome.status, reason=outcome.reason)
    if outcome.status is not TaskStatus.UNREACHABLE:  # a runner that cannot do it is not asked for ever
        memory.asked = {known for known in memory.asked if known[1] in entry.asks} | {(n, ask) for ask in asks}


def want_savepoint(flow: JobFlow, order: WantSavepoint) -> Flow:
    """Writes a periodic savepoint request to the log. Every leader writes the same register and value for one order."""
    log.info("savepoint_wanted", job=flow.entry.job_id, attempt=order.n, ask=order.ask)
    failpoints.hit("savepoint.unasked")
    yield from flow.write((Ask(order.ask), SavepointAsked(order.reason, "the ledger")))
    failpoints.hit("savepoint.asked")


def dispose(flow: JobFlow, points: tuple[RestorePoint, ...]) -> Flow:
    """Deletes disposed savepoints. Their disposal is in the log already, so the next pass repeats a flow that ends
    early."""
    entry, memory = flow.entry, flow.memory
    outcome = yield from perform(DisposeTask(**flow.target, savepoints=points))
    memory.trouble = ""
    if not outcome.done:
        memory.trouble = f"savepoint {points[0]} can't be deleted: {outcome.reason}"
        log.warning("not_disposed", job=entry.job_id, status=outcome.status, reason=outcome.reason)
        return
    log.info("disposed", job=entry.job_id, savepoints=[str(point) for point in points])
    failpoints.hit("dispose.deleted")
    gone: list[tuple[Register, Any]] = [(Checkpoint(*point.order), None) for point in points]
    yield from flow.write(*gone)
    failpoints.hit("dispose.written")


def stop_stalled(flow: JobFlow, n: int) -> Flow:
    """Stops an attempt that makes no progress, unless the runner holds events of the attempt that are not in the log
    yet: after an outage of the log, a healthy job must not be stopped. A fence does not harm an attempt that runs."""
    entry = flow.entry
    new = yield from flow.fence(n)
    if new:
        yield from flow.relay(new)
    if new is None or new or not flow.context.still_planned(entry):
        return
    log.warning("stop_stalled", job=entry.job_id, attempt=n, since=entry.stalls_at)
    outcome = yield from perform(StopTask(**flow.target, n=n, outcome=Outcome.FAILED))
    if not outcome.done:
        log.warning("not_stopped", job=entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)


def give_up(flow: JobFlow, n: int) -> Flow:
    """Records an attempt as lost, because an operator forced it."""
    reason = flow.entry.intent.reason if flow.entry.intent else ""
    yield from flow.write(flow.end(n, Outcome.LOST, f"given up by force: {reason}"))


def close(flow: JobFlow, n: int, outcome: Outcome, forced: bool) -> Flow:
    """Ends an attempt that must not start any more. forced: without asking its runner."""
    new = [] if forced else (yield from flow.fence(n))
    if new is None and given_up(flow.entry):
        new, flow.memory.trouble = [], ""
    if new:
        yield from flow.relay(new)
    elif new is not None:
        yield from flow.write(flow.end(n, outcome, flow.entry.reason))


def retire(flow: JobFlow, forced: bool) -> Flow:
    """Retires a job without running attempts: deletes blobs and checkpoints, then writes `result` and all tombstones in
    one transaction. Savepoints stay until somebody disposes of them. forced: without asking the job's runner."""
    entry = flow.entry
    dispose = entry.checkpoint_retention is CheckpointRetention.DELETE
    going = entry.checkpoints if dispose else ()
    task = CleanTask(**flow.target, checkpoints=going, dispose=dispose, forced=forced)
    failpoints.hit("clean.unasked")
    outcome = yield from perform(task)
    if not outcome.done and not forced and given_up(entry):
        log.warning("retired_without_the_runner", job=entry.job_id, status=outcome.status, reason=outcome.reason)
        outcome = yield from perform(replace(task, forced=True))
    failpoints.hit("clean.answered")
    if outcome.answer is None or outcome.answer.alive:
        log.warning("not_retired", job=entry.job_id, status=outcome.status, reason=outcome.reason)
        return
    left = [p for p in entry.restore_points if not dispose or (p.attempt and p not in going and not forced)]
    point = next(iter(left), None)
    result = JobResult(
        entry.name, entry.namespace, entry.runner, entry.digest, _reason(entry), flow.context.clock.time(),
        _attempts(entry), dict(entry.labels), point,
    )  # fmt: skip
    registers = [r for name in entry.registers if (r := parse_register(name)) is not None]
    facts: list[tuple[Register, Any]] = [(register, None) for register in registers]
    failpoints.hit("retire.unwritten")
    yield from flow.write((Result(str(entry.state)), result), *facts)
    failpoints.hit("retire.written")
    log.info("retired", job=entry.job_id, state=entry.state, blobs=outcome.answer.blobs)


def _reason(entry: RecoveryEntry) -> str:
    """Why the job is over. The result outlives the intent, so it keeps the reason and the actor of a cancel."""
    wins = entry.intent
    if entry.state is not JobState.CANCELED or wins is None or wins.kind != IntentKind.CANCEL or not wins.reason:
        return entry.reason
    if entry.reason.endswith(f": {wins.reason}"):  # the cause of an attempt that the reconciler closed
        return entry.reason
    by = f" by {wins.actor}" if wins.actor else ""
    return f"canceled{by}: {wins.reason} ({entry.reason})"


def _attempts(entry: RecoveryEntry) -> int:
    """The highest attempt that was started. An attempt that a reconciler closed before its start does not count."""
    closed = entry.outcome in (Outcome.CANCELED, Outcome.ABANDONED) and entry.outcome_writer.startswith("reconciler-")
    return entry.attempt - 1 if closed else entry.attempt

"""Flows that end something: an attempt, a savepoint that is given up, a job that is over."""

from __future__ import annotations

from typing import Any

import structlog

from ledger.core.model.facts import CheckpointRetention, IntentKind, JobResult, RestorePoint, SavepointAsked
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Ask, Checkpoint, Register, Result, parse_register
from ledger.core.plan.heard import given_up
from ledger.core.plan.plan import Stop, WantSavepoint
from ledger.ports import TaskOutcome, TaskStatus
from ledger.roles.reconciler.flow_steps import Flow, FlowSteps, JobMemory
from ledger.tasks import Cleaned
from ledger.util import failpoints

log = structlog.get_logger("reconciler")


class Ending(FlowSteps):
    """`flows.Flows` picks among them."""

    def _stop(self, entry: RecoveryEntry, memory: JobMemory, order: Stop) -> Flow:
        log.info("stop", job=entry.job_id, attempt=order.n, outcome=order.outcome, reason=order.reason)
        # What is in the entry need not be said again: that the job is suspended, say.
        reason = order.reason if entry.state is JobState.RUNNING else ""
        outcome: TaskOutcome = yield self._task(
            "stop", entry, memory, order.n, outcome=order.outcome, savepoint=order.savepoint, reason=reason
        )
        self._troubled(memory, order.n, "stopped", outcome)
        # Of several that can't be stopped the last one decides, since a job is retired once.
        last = order.n == max(memory.heard.alive or (order.n,))
        if entry.terminal and given_up(entry) and last and outcome.status is not TaskStatus.DONE:
            yield from self._retire(entry, memory, forced=True)

    def _ask_savepoint(self, entry: RecoveryEntry, memory: JobMemory, n: int, asks: tuple[str, ...]) -> Flow:
        outcome: TaskOutcome = yield self._task("savepoint", entry, memory, n, asks=asks)
        log.info("savepoint_asked", job=entry.job_id, attempt=n, asks=asks, status=outcome.status, reason=outcome.reason)
        if outcome.status is not TaskStatus.UNREACHABLE:  # a runner that can't is not asked for ever
            memory.asked = {known for known in memory.asked if known[1] in entry.asks} | {(n, ask) for ask in asks}

    def _want_savepoint(self, entry: RecoveryEntry, memory: JobMemory, order: WantSavepoint) -> Flow:
        """The same order is the same register with the same value, whoever leads."""
        log.info("savepoint_wanted", job=entry.job_id, attempt=order.n, ask=order.ask)
        failpoints.hit("savepoint.unasked")
        yield from self._write(entry, memory, (Ask(order.ask), SavepointAsked(order.reason, "the ledger")))
        failpoints.hit("savepoint.asked")

    def _dispose(self, entry: RecoveryEntry, memory: JobMemory, points: tuple[RestorePoint, ...]) -> Flow:
        """That they are given up is in the log already: a flow that ends early is begun anew from that."""
        outcome: TaskOutcome = yield self._task("dispose", entry, memory, 0, restore_points=points)
        memory.trouble = ""
        if outcome.status is not TaskStatus.DONE:
            memory.trouble = f"savepoint {points[0]} can't be deleted: {outcome.reason}"
            log.warning("not_disposed", job=entry.job_id, status=outcome.status, reason=outcome.reason)
            return
        log.info("disposed", job=entry.job_id, savepoints=[str(point) for point in points])
        failpoints.hit("dispose.deleted")
        gone: list[tuple[Register, Any]] = [(Checkpoint(*point.order), None) for point in points]
        yield from self._write(entry, memory, *gone)
        failpoints.hit("dispose.written")

    def _stop_stalled(self, entry: RecoveryEntry, memory: JobMemory, n: int) -> Flow:
        """A fence takes nothing from what runs, and its answer holds what the runner could not send yet: after an outage
        of the log a job that is well must not be stopped for silence that is not its own."""
        new = yield from self._fence(entry, memory, n)
        if new:
            yield from self._relay(entry, memory, new)
        if new is None or new or not self._around.still_planned(entry):
            return
        log.warning("stop_stalled", job=entry.job_id, attempt=n, since=entry.stalls_at)
        outcome: TaskOutcome = yield self._task("stop", entry, memory, n, outcome="failed")
        if outcome.status is not TaskStatus.DONE:
            log.warning("not_stopped", job=entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)

    def _give_up(self, entry: RecoveryEntry, memory: JobMemory, n: int) -> Flow:
        reason = entry.intent.reason if entry.intent else ""
        yield from self._write(entry, memory, self._end(n, "lost", f"given up by force: {reason}"))

    def _close(self, entry: RecoveryEntry, memory: JobMemory, n: int, outcome: str, forced: bool) -> Flow:
        new = [] if forced else (yield from self._fence(entry, memory, n))
        if new is None and given_up(entry):
            new, memory.trouble = [], ""
        if new:
            yield from self._relay(entry, memory, new)
        elif new is not None:
            yield from self._write(entry, memory, self._end(n, outcome, entry.reason))

    def _retire(self, entry: RecoveryEntry, memory: JobMemory, forced: bool) -> Flow:
        """Nothing runs any more: blobs and checkpoints go, then `result` and all tombstones in one transaction. Savepoints
        stay: who asked for one decides when it goes."""
        dispose = entry.checkpoint_retention is CheckpointRetention.DELETE
        going = entry.checkpoints if dispose else ()
        task = self._task("clean", entry, memory, 0, restore_points=going, dispose=dispose, forced=forced)
        failpoints.hit("clean.unasked")
        outcome: TaskOutcome = yield task
        if outcome.status is not TaskStatus.DONE and not forced and given_up(entry):
            log.warning("retired_without_the_runner", job=entry.job_id, status=outcome.status, reason=outcome.reason)
            outcome = yield self._task("clean", entry, memory, 0, restore_points=going, dispose=dispose, forced=True)
        failpoints.hit("clean.answered")
        if outcome.status is not TaskStatus.DONE or not isinstance(outcome.answer, Cleaned) or outcome.answer.alive:
            log.warning("not_retired", job=entry.job_id, status=outcome.status, reason=outcome.reason)
            return
        left = [p for p in entry.restore_points if not dispose or (p.attempt and p not in going and not forced)]
        point = next(iter(left), None)
        result = JobResult(
            entry.name, entry.namespace, entry.runner, entry.digest, _reason(entry), self._around.clock.time(),
            _attempts(entry), dict(entry.labels), point,
        )  # fmt: skip
        registers = [r for name in entry.registers if (r := parse_register(name)) is not None]
        facts: list[tuple[Register, Any]] = [(register, None) for register in registers]
        failpoints.hit("retire.unwritten")
        yield from self._write(entry, memory, (Result(str(entry.state)), result), *facts)
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
    """The highest attempt that was started: not the one that a reconciler closed so that it never starts."""
    closed = entry.outcome in ("canceled", "abandoned") and entry.outcome_writer.startswith("reconciler-")
    return entry.attempt - 1 if closed else entry.attempt

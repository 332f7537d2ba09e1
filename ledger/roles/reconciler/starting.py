"""Flows that bring a job back: verify what it may begin from, prepare, record the attempt, start it."""

from __future__ import annotations

from dataclasses import replace

import structlog

from ledger.core.model.facts import AttemptStarted, RefusedRestorePoint, RestorePoint, Together
from ledger.core.model.policies import FAILURE_TIMES_MAX
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Attempt, Intent
from ledger.core.plan.heard import lying_elsewhere
from ledger.core.plan.plan import Declare, Inherited
from ledger.core.plan.regions import label_of, points_from
from ledger.ports import StartAnswer, TaskOutcome, TaskStatus
from ledger.roles.reconciler.flow_steps import Flow, FlowSteps, JobMemory
from ledger.tasks import Prepared
from ledger.util import failpoints

log = structlog.get_logger("reconciler")


class Starting(FlowSteps):
    """`flows.Flows` picks among them."""

    def _verify(self, entry: RecoveryEntry, memory: JobMemory, n: int, points: tuple[RestorePoint, ...]) -> Flow:
        """What the runner says is for this start alone: it is forgotten with the next one that is tried."""
        elsewhere = lying_elsewhere(points, entry, memory.heard)
        outcome: TaskOutcome = yield self._task("verify", entry, memory, n, restore_points=points, elsewhere=elsewhere)
        done = outcome.status is TaskStatus.DONE
        answers = [str(answer) for answer in outcome.answer] if done else ["unknown"] * len(points)
        memory.verified.update(zip(points, answers, strict=True))
        memory.put_off = "its restore points can't be verified at the moment" if "unknown" in answers else ""
        memory.put_off_at = self._around.clock.monotonic()

    def _start(
        self, entry: RecoveryEntry, memory: JobMemory, n: int, inherited: Inherited | None, together: Together | None
    ) -> Flow:
        memory.verified.clear()
        points, newer = points_from(entry, together.consistency if together else "")
        own = points + newer
        offered = inherited or Inherited(own, entry.restore_from_named, lying_elsewhere(own, entry, memory.heard))
        outcome: TaskOutcome = yield self._prepare(entry, memory, n, *offered)
        self._put_off(memory, outcome)
        if outcome.refused:
            yield from self._unstartable(entry, memory, n, outcome)
            return
        if outcome.status is not TaskStatus.DONE or not isinstance(prepared := outcome.answer, Prepared):
            log.warning("not_prepared", job=entry.job_id, attempt=n, reason=outcome.reason)
            return
        if prepared.unknown or not self._around.still_planned(entry):
            log.info("start_waits", job=entry.job_id, attempt=n, reason=prepared.unknown or "the entry has changed")
            return
        if together is not None:
            together = _kept_to(together, entry, prepared.base)
        passed_over = tuple(RefusedRestorePoint(p, "newer than the cut of its region") for p in newer if p != prepared.base)
        record = self._record(entry, memory, prepared.base, passed_over + prepared.refused, together)
        yield from self._write(entry, memory, (Attempt(n, self._factory.epoch), record))
        memory.recorded = n
        base = (prepared.base,) if prepared.base else ()
        failpoints.hit("start.recorded")
        outcome = yield self._start_task(entry, memory, n, base)
        failpoints.hit("start.answered")
        yield from self._started(entry, memory, n, outcome)

    def _put_off(self, memory: JobMemory, outcome: TaskOutcome) -> None:
        """Whether a start can't be made just now: others of its pool may go first for a while, and people are told."""
        memory.put_off = ""
        if outcome.status is TaskStatus.DONE:
            memory.put_off = outcome.answer.unknown
        elif not outcome.refused:
            memory.put_off = f"its start could not be prepared: {outcome.reason}"
        memory.put_off_at = self._around.clock.monotonic()

    def _start_again(self, entry: RecoveryEntry, memory: JobMemory, n: int) -> Flow:
        points = (entry.base,) if entry.base else ()
        elsewhere = lying_elsewhere(points, entry, memory.heard)
        outcome: TaskOutcome = yield self._prepare(entry, memory, n, points, entry.base is not None, elsewhere)
        if outcome.refused:
            yield from self._fenced_end(entry, memory, n, "stopped", f"not started again: {outcome.reason}")
            return
        if outcome.status is not TaskStatus.DONE or outcome.answer.unknown:
            return
        outcome = yield self._start_task(entry, memory, n, points)
        if outcome.status is TaskStatus.DONE and outcome.answer is StartAnswer.ALREADY:
            yield from self._settle(entry, memory, n)
            return
        yield from self._started(entry, memory, n, outcome)

    def _started(self, entry: RecoveryEntry, memory: JobMemory, n: int, outcome: TaskOutcome) -> Flow:
        log.info("start", job=entry.job_id, attempt=n, answer=outcome.answer or outcome.status, reason=outcome.reason)
        if outcome.refused:
            yield from self._unstartable(entry, memory, n, outcome)
        elif outcome.status is TaskStatus.CRASHED:
            memory.crashed[n] = f"the start crashed: {outcome.reason}"
        elif outcome.status is TaskStatus.DONE and outcome.answer is StartAnswer.FENCED:
            yield from self._fenced_end(entry, memory, n, "stopped", "its start was refused: it had been fenced")

    def _unstartable(self, entry: RecoveryEntry, memory: JobMemory, n: int, outcome: TaskOutcome) -> Flow:
        """Records that the job cannot be started. The attempt is fenced first, unless there is no runner to fence it."""
        if outcome.status is TaskStatus.NO_RUNNER:
            yield from self._write(entry, memory, self._end(n, "failed-permanent", outcome.reason))
        else:
            yield from self._fenced_end(entry, memory, n, "failed-permanent", outcome.reason)

    def _record(
        self, entry: RecoveryEntry, memory: JobMemory, base: RestorePoint | None,
        refused: tuple[RefusedRestorePoint, ...], together: Together | None,
    ) -> AttemptStarted:  # fmt: skip
        times, now = entry.failure_times, self._around.clock.time()
        if entry.outcome in ("failed", "lost") and entry.failures:  # 0: a retry forgave it
            times = (*times, now if entry.failed_at is None else entry.failed_at)[-FAILURE_TIMES_MAX:]
        recorded_at = now if entry.failure_rate_interval_s else None
        return AttemptStarted(
            entry.digest, base, refused, entry.failures, times, recorded_at, together, memory.heard.instance
        )

    def _declare(self, entry: RecoveryEntry, memory: JobMemory, order: Declare) -> Flow:
        """The entry that the order was judged by may be older than what people said since: the revision decides."""
        log.info("declare", job=entry.job_id, kind=order.fact.kind, rev=order.rev, reason=order.fact.reason)
        failpoints.hit("replace.undeclared")
        yield from self._write(entry, memory, (Intent(order.rev, order.id), order.fact))
        failpoints.hit("replace.declared")


def _kept_to(together: Together, entry: RecoveryEntry, base: RestorePoint | None) -> Together:
    """As it is recorded: a label only of the restore point that was taken in the end."""
    label = together.consistency
    if not label or label_of(entry, base) == label:
        return together
    reason = f"{together.reason}; but its own restore point there is not sound any more"
    return replace(together, consistency="", reason=reason)

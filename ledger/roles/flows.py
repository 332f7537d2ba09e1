"""What a reconciler does about one job, as generators: each yields what it needs next and goes on with the answer.

A flow yields a `Task` (performed elsewhere; it goes on with the TaskOutcome) or a list of `Event`s (committed in the next
transaction; it goes on with their offsets). A flow that ends early, or dies with its process, leaves nothing behind that
the next pass can't judge: facts are in the log, fences and starts are durable at the runner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from ledger import failpoints
from ledger.core.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointRetention,
    JobResult,
    RefusedRestorePoint,
    RestorePoint,
    SavepointAsked,
    Together,
)  # fmt: skip
from ledger.core.plan import (
    Action,
    AskSavepoint,
    Close,
    Declare,
    Dispose,
    GiveUp,
    Inherited,
    Lose,
    Refuse,
    Retire,
    Settle,
    Start,
    StartAgain,
    Stop,
    StopStalled,
    Verify,
    WantSavepoint,
)  # fmt: skip
from ledger.core.recovery import JobState, RecoveryEntry
from ledger.core.regions import label_of, points_from
from ledger.core.registers import (
    Ask,
    Attempt,
    Checkpoint,
    Ended,
    Intent,
    Register,
    Result,
    parse_key,
    parse_register,
    partition_of,
)
from ledger.core.restart import FAILURE_TIMES_MAX
from ledger.ports import Clock, Event, RunnerEvent, StartAnswer, Task, TaskOutcome, TaskStatus
from ledger.roles.events import EventFactory
from ledger.tasks import Cleaned, Prepared

CAUSE_MAX = 2_000
log = structlog.get_logger("reconciler")

Flow = Generator[Task | list[Event], Any, None]


@dataclass(slots=True)
class Memory:
    """What the reconciler of this epoch remembers of a job between passes.

    relayed: keys of runner events that it has already put on the log. settled: attempt -> the end of the log after its
    fence held nothing new. confirm: the end of the log after something first looked wrong. crashed: attempt -> how its
    start crashed. asked: (attempt, ask) that the runner was told of. last_fact: offset of its own last fact on the job;
    nothing is planned from an entry older than that.
    trouble: what kept the last order or question from its runner, "" = nothing. recorded: the highest attempt that it has
    recorded. put_off: why the last start could not be made, "" = it could, or
    there was none; put_off_at: when, by the monotonic clock. verified: what the runner said of restore points, for the
    next start alone.
    runs_since: the attempt that runs, and since when this reconciler sees that, by the monotonic clock; only of jobs that
    replace others.
    """

    relayed: set[bytes] = field(default_factory=set)
    settled: dict[int, int] = field(default_factory=dict)
    confirm: int | None = None
    crashed: dict[int, str] = field(default_factory=dict)
    asked: set[tuple[int, str]] = field(default_factory=set)
    last_fact: int = -1
    trouble: str = ""
    recorded: int = 0
    put_off: str = ""
    put_off_at: float = 0.0
    runs_since: tuple[int, float] = (0, 0.0)
    verified: dict[RestorePoint, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What flows need of the reconciler. end_of_log: partition -> high watermark of ledger.events, asked now.
    still_planned: whether an entry is still what it was."""

    topic: str
    partitions: int
    factory: EventFactory
    clock: Clock
    end_of_log: Callable[[int], int]
    still_planned: Callable[[RecoveryEntry], bool]


class Flows:
    """Makes the flow of an action on a job."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._factory = around.factory

    def of(self, action: Action, entry: RecoveryEntry, memory: Memory) -> Flow | None:
        match action:
            case Stop():
                return self._stop(entry, memory, action)
            case StopStalled(_, n):
                return self._stop_stalled(entry, memory, n)
            case AskSavepoint(_, n, asks):
                return self._ask_savepoint(entry, memory, n, asks)
            case WantSavepoint():
                return self._want_savepoint(entry, memory, action)
            case Dispose(_, points):
                return self._dispose(entry, memory, points)
            case Settle(_, n):
                return self._settle(entry, memory, n)
            case Verify(_, n, points):
                return self._verify(entry, memory, n, points)
            case Start(_, n, inherited, together):
                return self._start(entry, memory, n, inherited, together)
            case StartAgain(_, n):
                return self._start_again(entry, memory, n)
            case Lose(_, n, outcome, cause):
                return self._lose(entry, memory, n, outcome, cause)
            case GiveUp(_, n):
                return self._give_up(entry, memory, n)
            case Close(_, n, outcome, forced):
                return self._close(entry, memory, n, outcome, forced)
            case Retire(_, forced):
                return self._retire(entry, memory, forced)
            case Declare():
                return self._declare(entry, memory, action)
            case Refuse(_, n, cause):
                return self._verdict(entry, memory, n, cause)
            case _:
                return None

    # -- starting ------------------------------------------------------------------------------------------------------

    def _verify(self, entry: RecoveryEntry, memory: Memory, n: int, points: tuple[RestorePoint, ...]) -> Flow:
        """What the runner says is for this start alone: it is forgotten with the next one that is tried."""
        outcome: TaskOutcome = yield self._task("verify", entry, n, restore_points=points)
        done = outcome.status is TaskStatus.DONE
        answers = [str(answer) for answer in outcome.answer] if done else ["unknown"] * len(points)
        memory.verified.update(zip(points, answers, strict=True))
        memory.put_off = "its restore points can't be verified at the moment" if "unknown" in answers else ""
        memory.put_off_at = self._around.clock.monotonic()

    def _start(
        self, entry: RecoveryEntry, memory: Memory, n: int, inherited: Inherited | None, together: Together | None
    ) -> Flow:
        memory.verified.clear()
        points, newer = points_from(entry, together.consistency if together else "")
        offered = inherited or Inherited(points + newer, entry.restore_from_named)
        outcome: TaskOutcome = yield self._prepare(entry, n, offered.points, offered.named)
        self._put_off(memory, outcome)
        if outcome.status is TaskStatus.REFUSED:
            yield from self._verdict(entry, memory, n, outcome.reason)
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
        record = self._record(entry, prepared.base, passed_over + prepared.refused, together)
        yield from self._write(entry, memory, (Attempt(n, self._factory.epoch), record))
        memory.recorded = n
        base = (prepared.base,) if prepared.base else ()
        failpoints.hit("start.recorded")
        outcome = yield self._start_task(entry, n, base)
        failpoints.hit("start.answered")
        yield from self._started(entry, memory, n, outcome)

    def _put_off(self, memory: Memory, outcome: TaskOutcome) -> None:
        """Whether a start can't be made just now: others of its pool may go first for a while, and people are told."""
        memory.put_off = ""
        if outcome.status is TaskStatus.DONE:
            memory.put_off = outcome.answer.unknown
        elif outcome.status is not TaskStatus.REFUSED:
            memory.put_off = f"its start could not be prepared: {outcome.reason}"
        memory.put_off_at = self._around.clock.monotonic()

    def _start_again(self, entry: RecoveryEntry, memory: Memory, n: int) -> Flow:
        points = (entry.base,) if entry.base else ()
        outcome: TaskOutcome = yield self._prepare(entry, n, points, entry.base is not None)
        if outcome.status is TaskStatus.REFUSED:
            yield from self._fenced_end(entry, memory, n, "stopped", f"not started again: {outcome.reason}")
            return
        if outcome.status is not TaskStatus.DONE or outcome.answer.unknown:
            return
        outcome = yield self._start_task(entry, n, points)
        if outcome.status is TaskStatus.DONE and outcome.answer is StartAnswer.ALREADY:
            yield from self._settle(entry, memory, n)
            return
        yield from self._started(entry, memory, n, outcome)

    def _started(self, entry: RecoveryEntry, memory: Memory, n: int, outcome: TaskOutcome) -> Flow:
        log.info("start", job=entry.job_id, attempt=n, answer=outcome.answer or outcome.status, reason=outcome.reason)
        if outcome.status is TaskStatus.REFUSED:
            yield from self._verdict(entry, memory, n, outcome.reason)
        elif outcome.status is TaskStatus.CRASHED:
            memory.crashed[n] = f"the start crashed: {outcome.reason}"
        elif outcome.status is TaskStatus.DONE and outcome.answer is StartAnswer.FENCED:
            yield from self._fenced_end(entry, memory, n, "stopped", "its start was refused: it had been fenced")

    def _verdict(self, entry: RecoveryEntry, memory: Memory, n: int, cause: str) -> Flow:
        """The job can't be started at all: said as a fact, once the attempt can't begin any more."""
        if cause.startswith("there is no runner"):
            yield from self._write(entry, memory, self._end(n, "failed-permanent", cause))
        else:
            yield from self._fenced_end(entry, memory, n, "failed-permanent", cause)

    def _record(
        self, entry: RecoveryEntry, base: RestorePoint | None, refused: tuple[RefusedRestorePoint, ...],
        together: Together | None,
    ) -> AttemptStarted:  # fmt: skip
        times, now = entry.failure_times, self._around.clock.time()
        if entry.outcome in ("failed", "lost") and entry.failures:  # 0: a retry forgave it
            times = (*times, now if entry.failed_at is None else entry.failed_at)[-FAILURE_TIMES_MAX:]
        recorded_at = now if entry.failure_rate_interval_s else None
        return AttemptStarted(entry.digest, base, refused, entry.failures, times, recorded_at, together)

    def _declare(self, entry: RecoveryEntry, memory: Memory, order: Declare) -> Flow:
        """The entry that the order was judged by may be older than what people said since: the revision decides."""
        log.info("declare", job=entry.job_id, kind=order.fact.kind, rev=order.rev, reason=order.fact.reason)
        failpoints.hit("replace.undeclared")
        yield from self._write(entry, memory, (Intent(order.rev, order.id), order.fact))
        failpoints.hit("replace.declared")

    # -- ending --------------------------------------------------------------------------------------------------------

    def _stop(self, entry: RecoveryEntry, memory: Memory, order: Stop) -> Flow:
        log.info("stop", job=entry.job_id, attempt=order.n, outcome=order.outcome, reason=order.reason)
        # What is in the entry need not be said again: that the job is suspended, say.
        reason = order.reason if entry.state is JobState.RUNNING else ""
        outcome: TaskOutcome = yield self._task(
            "stop", entry, order.n, outcome=order.outcome, savepoint=order.savepoint, reason=reason
        )
        self._troubled(memory, order.n, "stopped", outcome)

    def _ask_savepoint(self, entry: RecoveryEntry, memory: Memory, n: int, asks: tuple[str, ...]) -> Flow:
        outcome: TaskOutcome = yield self._task("savepoint", entry, n, asks=asks)
        log.info("savepoint_asked", job=entry.job_id, attempt=n, asks=asks, status=outcome.status, reason=outcome.reason)
        if outcome.status is not TaskStatus.UNREACHABLE:  # a runner that can't is not asked for ever
            memory.asked = {known for known in memory.asked if known[1] in entry.asks} | {(n, ask) for ask in asks}

    def _want_savepoint(self, entry: RecoveryEntry, memory: Memory, order: WantSavepoint) -> Flow:
        """The same order is the same register with the same value, whoever leads."""
        log.info("savepoint_wanted", job=entry.job_id, attempt=order.n, ask=order.ask)
        failpoints.hit("savepoint.unasked")
        yield from self._write(entry, memory, (Ask(order.ask), SavepointAsked(order.reason, "the ledger")))
        failpoints.hit("savepoint.asked")

    def _dispose(self, entry: RecoveryEntry, memory: Memory, points: tuple[RestorePoint, ...]) -> Flow:
        """That they are given up is in the log already: a flow that ends early is begun anew from that."""
        outcome: TaskOutcome = yield self._task("dispose", entry, 0, restore_points=points)
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

    def _stop_stalled(self, entry: RecoveryEntry, memory: Memory, n: int) -> Flow:
        """A fence takes nothing from what runs, and its answer holds what the runner could not send yet: after an outage
        of the log a job that is well must not be stopped for silence that is not its own."""
        new = yield from self._fence(entry, memory, n)
        if new:
            yield from self._relay(entry, memory, new)
        if new is None or new or not self._around.still_planned(entry):
            return
        log.warning("stop_stalled", job=entry.job_id, attempt=n, since=entry.stalls_at)
        outcome: TaskOutcome = yield self._task("stop", entry, n, outcome="failed")
        if outcome.status is not TaskStatus.DONE:
            log.warning("not_stopped", job=entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)

    def _settle(self, entry: RecoveryEntry, memory: Memory, n: int) -> Flow:
        new = yield from self._fence(entry, memory, n)
        if new is None:
            return
        if new:
            yield from self._relay(entry, memory, new)
        else:
            memory.settled[n] = self._around.end_of_log(entry.partition)

    def _lose(self, entry: RecoveryEntry, memory: Memory, n: int, outcome: str, cause: str) -> Flow:
        new = yield from self._fence(entry, memory, n)
        if new is None:
            return
        yield from self._relay(entry, memory, new)
        if not any(_ends(event, n) for event in new):
            log.warning("lost", job=entry.job_id, attempt=n, outcome=outcome, cause=cause)
            yield from self._write(entry, memory, self._end(n, outcome, cause))

    def _fenced_end(self, entry: RecoveryEntry, memory: Memory, n: int, outcome: str, cause: str) -> Flow:
        """Fence n, relay what is left, and write the end that n has because it never ran."""
        new = yield from self._fence(entry, memory, n)
        if new is None:
            return
        yield from self._relay(entry, memory, new)
        if not any(_ends(event, n) for event in new):
            log.info("ends_unstarted", job=entry.job_id, attempt=n, outcome=outcome, cause=cause)
            yield from self._write(entry, memory, self._end(n, outcome, cause))

    def _give_up(self, entry: RecoveryEntry, memory: Memory, n: int) -> Flow:
        reason = entry.intent.reason if entry.intent else ""
        yield from self._write(entry, memory, self._end(n, "lost", f"given up by force: {reason}"))

    def _close(self, entry: RecoveryEntry, memory: Memory, n: int, outcome: str, forced: bool) -> Flow:
        new = [] if forced else (yield from self._fence(entry, memory, n))
        if new:
            yield from self._relay(entry, memory, new)
        elif new is not None:
            yield from self._write(entry, memory, self._end(n, outcome, entry.reason))

    def _retire(self, entry: RecoveryEntry, memory: Memory, forced: bool) -> Flow:
        """Nothing runs any more: blobs and checkpoints go, then `result` and all tombstones in one transaction. Savepoints
        stay: who asked for one decides when it goes."""
        dispose = entry.checkpoint_retention is CheckpointRetention.DELETE
        going = entry.checkpoints if dispose else ()
        task = self._task("clean", entry, 0, restore_points=going, dispose=dispose, forced=forced)
        failpoints.hit("clean.unasked")
        outcome: TaskOutcome = yield task
        failpoints.hit("clean.answered")
        if outcome.status is not TaskStatus.DONE or not isinstance(outcome.answer, Cleaned) or outcome.answer.alive:
            log.warning("not_retired", job=entry.job_id, status=outcome.status, reason=outcome.reason)
            return
        left = [p for p in entry.restore_points if not dispose or (p.attempt and p not in going and not forced)]
        point = next(iter(left), None)
        result = JobResult(
            entry.name, entry.namespace, entry.runner, entry.digest, entry.reason, self._around.clock.time(),
            entry.attempt, dict(entry.labels), point,
        )  # fmt: skip
        registers = [r for name in entry.registers if (r := parse_register(name)) is not None]
        facts: list[tuple[Register, Any]] = [(register, None) for register in registers]
        failpoints.hit("retire.unwritten")
        yield from self._write(entry, memory, (Result(str(entry.state)), result), *facts)
        failpoints.hit("retire.written")
        log.info("retired", job=entry.job_id, state=entry.state, blobs=outcome.answer.blobs)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _fence(self, entry: RecoveryEntry, memory: Memory, n: int) -> Generator[Task, TaskOutcome, Any]:
        """The runner's events that this reconciler has not yet relayed; None if the runner did not answer."""
        outcome = yield self._task("fence", entry, n)
        self._troubled(memory, n, "fenced", outcome)
        if outcome.status is not TaskStatus.DONE:
            log.warning("not_fenced", job=entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)
            return None
        return [event for event in outcome.answer if event.key not in memory.relayed and _is_of(event, entry.job_id)]

    def _troubled(self, memory: Memory, n: int, what: str, outcome: TaskOutcome) -> None:
        """People are told of a job that its runner keeps waiting, whatever the job's state."""
        well = outcome.status is TaskStatus.DONE
        memory.trouble = "" if well else f"attempt {n} can't be {what}: {outcome.reason}"

    def _relay(self, entry: RecoveryEntry, memory: Memory, new: Sequence[RunnerEvent]) -> Flow:
        """Byte for byte, and acknowledged to the runner once committed."""
        if not new:
            return
        partition = partition_of(entry.job_id, self._around.partitions)
        offsets = yield [Event(self._around.topic, partition, e.key, e.value, e.headers) for e in new]
        memory.last_fact = max(memory.last_fact, *offsets)
        memory.relayed.update(event.key for event in new)
        outcome: TaskOutcome = yield self._task("acknowledge", entry, 0, keys=tuple(event.key for event in new))
        if outcome.status is not TaskStatus.DONE:  # it will give them again, and they are known then
            log.info("not_acknowledged", job=entry.job_id, reason=outcome.reason)

    def _write(self, entry: RecoveryEntry, memory: Memory, *facts: tuple[Register, Any]) -> Flow:
        topic = self._around.topic
        offsets = yield [self._factory.register(topic, entry.job_id, register, fact) for register, fact in facts]
        memory.last_fact = max(memory.last_fact, *offsets)

    def _end(self, n: int, outcome: str, cause: str) -> tuple[Register, AttemptEnded]:
        return Ended(n, outcome, self._factory.writer), AttemptEnded(cause[:CAUSE_MAX])

    def _prepare(self, entry: RecoveryEntry, n: int, points: tuple[RestorePoint, ...], named: bool) -> Task:
        return self._task(
            "prepare", entry, n, graph=entry.graph, restore_points=points, restore_from_named=named
        )

    def _start_task(self, entry: RecoveryEntry, n: int, base: tuple[RestorePoint, ...]) -> Task:
        return self._task(
            "start", entry, n, graph=entry.graph, restore_points=base, failure_rules=entry.failure_rules
        )

    def _task(self, verb: str, entry: RecoveryEntry, n: int, **rest: Any) -> Task:
        return Task(verb, entry.runner, entry.job_id, n, **rest)


def _kept_to(together: Together, entry: RecoveryEntry, base: RestorePoint | None) -> Together:
    """As it is recorded: a label only of the restore point that was taken in the end."""
    label = together.consistency
    if not label or label_of(entry, base) == label:
        return together
    reason = f"{together.reason}; but its own restore point there is not sound any more"
    return replace(together, consistency="", reason=reason)


def _is_of(event: RunnerEvent, job_id: str) -> bool:
    """A runner speaks for the job that it was asked about, and for no other."""
    parsed = parse_key(event.key)
    return parsed is not None and parsed[0] == job_id


def _ends(event: RunnerEvent, n: int) -> bool:
    match parse_key(event.key):
        case (_, Ended(m, _, _)):
            return m == n
    return False

"""What flows are made of: the steps that several of them take, and what they know.

A flow yields a `Task` (performed elsewhere; it goes on with the TaskOutcome) or a list of `Event`s (committed in the next
transaction; it goes on with their offsets). A flow that ends early, or dies with its process, leaves nothing behind that
the next pass can't judge: facts are in the log, fences and starts are durable at the runner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from ledger.core.model.facts import AttemptEnded, RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Ended, Register, parse_key, partition_of
from ledger.core.plan.heard import Heard
from ledger.ports import Clock, Event, RunnerEvent, Task, TaskOutcome, TaskStatus
from ledger.roles.common.events import EventFactory

CAUSE_MAX = 2_000
log = structlog.get_logger("reconciler")

Flow = Generator[Task | list[Event], Any, None]


@dataclass(slots=True)
class JobMemory:
    """What the reconciler of this epoch remembers of a job between passes.

    relayed: keys of runner events that it has already put on the log. settled: attempt -> the end of the log after its
    fence held nothing new. confirm: the end of the log after something first looked wrong. crashed: attempt -> how its
    start crashed. asked: (attempt, ask) that the runner was told of. last_fact: offset of its own last fact on the job;
    nothing is planned from an entry older than that.
    trouble: what kept the last order or question from its runner, "" = nothing. recorded: the highest attempt that it has
    recorded. put_off: why the last start could not be made, "" = it could, or
    there was none; put_off_at: when, by the monotonic clock. verified: what the runner said of restore points, for the
    next start alone. heard: what its runner said when the flow under way began: from then on only that instance is asked.
    doing: what people are told while the flow is under way, "" = nothing.
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
    heard: Heard = field(default_factory=lambda: Heard(None))
    doing: str = ""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """What flows need of the reconciler. end_of_log: partition -> high watermark of ledger.events, asked now.
    still_planned: whether an entry is still what it was."""

    topic: str
    partitions: int
    factory: EventFactory
    clock: Clock
    end_of_log: Callable[[int], int]
    still_planned: Callable[[RecoveryEntry], bool]


class FlowSteps:
    """Each method is a step of a flow, or makes the task of one."""

    def __init__(self, around: FlowContext) -> None:
        self._around = around
        self._factory = around.factory

    def _settle(self, entry: RecoveryEntry, memory: JobMemory, n: int) -> Flow:
        new = yield from self._fence(entry, memory, n)
        if new is None:
            return
        log.info("settles", job=entry.job_id, attempt=n, new=len(new))
        if new:
            memory.settled.pop(n, None)
            yield from self._relay(entry, memory, new)
        else:  # the first end counts: the entry would never come to one that moves on with whatever others write
            memory.settled.setdefault(n, self._around.end_of_log(entry.partition))

    def _fenced_end(
        self, entry: RecoveryEntry, memory: JobMemory, n: int, outcome: str, cause: str, lost: bool = False
    ) -> Flow:
        """Fence n, relay what is left, and write the end that n has because it never ran, or nobody saw it end (lost)."""
        new = yield from self._fence(entry, memory, n)
        if new is None:
            return
        yield from self._relay(entry, memory, new)
        if not any(ends(event, n) for event in new):
            say, event = (log.warning, "lost") if lost else (log.info, "ends_unstarted")
            say(event, job=entry.job_id, attempt=n, outcome=outcome, cause=cause)
            yield from self._write(entry, memory, self._end(n, outcome, cause))

    def _fence(self, entry: RecoveryEntry, memory: JobMemory, n: int) -> Generator[Task, TaskOutcome, Any]:
        """The runner's events that this reconciler has not yet relayed; None if the runner did not answer."""
        outcome = yield self._task("fence", entry, memory, n)
        self._troubled(memory, n, "fenced", outcome)
        if outcome.status is not TaskStatus.DONE:
            log.warning("not_fenced", job=entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)
            return None
        return [event for event in outcome.answer if event.key not in memory.relayed and _is_of(event, entry.job_id)]

    def _troubled(self, memory: JobMemory, n: int, what: str, outcome: TaskOutcome) -> None:
        """People are told of a job that its runner keeps waiting, whatever the job's state."""
        well = outcome.status is TaskStatus.DONE
        memory.trouble = "" if well else f"attempt {n} can't be {what}: {outcome.reason}"

    def _relay(self, entry: RecoveryEntry, memory: JobMemory, new: Sequence[RunnerEvent]) -> Flow:
        """Byte for byte, and acknowledged to the runner once committed."""
        if not new:
            return
        partition = partition_of(entry.job_id, self._around.partitions)
        offsets = yield [Event(self._around.topic, partition, e.key, e.value, e.headers) for e in new]
        memory.last_fact = max(memory.last_fact, *offsets)
        memory.relayed.update(event.key for event in new)
        outcome: TaskOutcome = yield self._task("acknowledge", entry, memory, 0, keys=tuple(event.key for event in new))
        if outcome.status is not TaskStatus.DONE:  # it will give them again, and they are known then
            log.info("not_acknowledged", job=entry.job_id, reason=outcome.reason)

    def _write(self, entry: RecoveryEntry, memory: JobMemory, *facts: tuple[Register, Any]) -> Flow:
        topic = self._around.topic
        offsets = yield [self._factory.register(topic, entry.job_id, register, fact) for register, fact in facts]
        memory.last_fact = max(memory.last_fact, *offsets)

    def _end(self, n: int, outcome: str, cause: str) -> tuple[Register, AttemptEnded]:
        return Ended(n, outcome, self._factory.writer), AttemptEnded(cause[:CAUSE_MAX])

    def _prepare(
        self, entry: RecoveryEntry, memory: JobMemory, n: int, points: tuple[RestorePoint, ...], named: bool,
        elsewhere: tuple[RestorePoint, ...],
    ) -> Task:  # fmt: skip
        return self._task(
            "prepare", entry, memory, n, graph=entry.graph, restore_points=points, restore_from_named=named,
            elsewhere=elsewhere,
        )  # fmt: skip

    def _start_task(self, entry: RecoveryEntry, memory: JobMemory, n: int, base: tuple[RestorePoint, ...]) -> Task:
        return self._task(
            "start", entry, memory, n, graph=entry.graph, restore_points=base, failure_rules=entry.failure_rules
        )

    def _task(self, verb: str, entry: RecoveryEntry, memory: JobMemory, n: int, **rest: Any) -> Task:
        """For the instance that was heard when the flow began, whichever answers by then."""
        return Task(verb, entry.runner, entry.job_id, n, instance=memory.heard.instance, **rest)


def _is_of(event: RunnerEvent, job_id: str) -> bool:
    """A runner speaks for the job that it was asked about, and for no other."""
    parsed = parse_key(event.key)
    return parsed is not None and parsed[0] == job_id


def ends(event: RunnerEvent, n: int) -> bool:
    match parse_key(event.key):
        case (_, Ended(m, _, _)):
            return m == n
    return False

"""The steps that several flows share, and the memory of a flow's job.

A flow yields a `Task` (performed elsewhere; the flow continues with the TaskOutcome) or a list of `Event`s (committed
in the next transaction; the flow continues with their offsets). A flow that ends early, or dies with its process,
leaves nothing that the next pass cannot judge: facts are in the log, fences and starts are durable at the runner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from ledger.core.model.facts import AttemptEnded, RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Ended, Outcome, Register, parse_key, partition_of
from ledger.core.plan.runner_report import RunnerReport
from ledger.ports import AcknowledgeTask, Clock, Event, FenceTask, RunnerEvent, Task, TaskOutcome, TaskTarget
from ledger.roles.common.events import EventFactory

CAUSE_MAX = 2_000
log = structlog.get_logger("reconciler")

A = TypeVar("A")
Flow = Generator[Task[Any] | list[Event], Any, None]


@dataclass(slots=True)
class JobMemory:
    """The memory of one job between the passes of one term. Times are monotonic seconds."""

    #: Keys of runner events that it has already put on the log.
    relayed: set[bytes] = field(default_factory=set)
    #: Attempt -> the end of the log after its fence held nothing new.
    settled: dict[int, int] = field(default_factory=dict)
    #: The end of the log when something first looked wrong; None = nothing does.
    confirm: int | None = None
    #: Attempt -> how its start crashed.
    crashed: dict[int, str] = field(default_factory=dict)
    #: (attempt, uuid) of savepoint requests that the runner has received.
    asked: set[tuple[int, str]] = field(default_factory=set)
    #: Offset of this reconciler's last fact on the job. Nothing is planned from an entry older than that.
    last_fact: int = -1
    #: Why the last order or question did not get through to the runner, "" = it did.
    trouble: str = ""
    #: The highest attempt that this reconciler has recorded.
    recorded: int = 0
    #: Why the last start could not be made, "" = it could, or there was none; and since when.
    backoff: str = ""
    backoff_at: float = 0.0
    #: The attempt that runs, and since when this reconciler sees that; only for a job that replaces another.
    runs_since: tuple[int, float] = (0, 0.0)
    #: The runner's verification of restore points, for the next start alone.
    verified: dict[RestorePoint, str] = field(default_factory=dict)
    #: The runner's report when the running flow began. The flow speaks to that instance only.
    report: RunnerReport = field(default_factory=lambda: RunnerReport(None))
    #: What people read while the flow runs, "" = nothing.
    doing: str = ""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """The parts of a reconciler that flows use. topic: of the facts. partitions: number of partitions of the topic.
    end_of_log: partition -> its present high watermark. still_planned: whether an entry is still the published one."""

    topic: str
    partitions: int
    factory: EventFactory
    clock: Clock
    end_of_log: Callable[[int], int]
    still_planned: Callable[[RecoveryEntry], bool]


@dataclass(frozen=True, slots=True)
class JobFlow:
    """One job in a flow, with the steps that several flows share. Each flow is a function of a JobFlow (`starting`,
    `ending`)."""

    context: FlowContext
    entry: RecoveryEntry
    memory: JobMemory

    @property
    def target(self) -> TaskTarget:
        """The fields of a task that name the job and the instance that reported when the flow began."""
        return {"runner": self.entry.runner, "job_id": self.entry.job_id, "instance": self.memory.report.instance}

    def settle(self, n: int) -> Flow:
        """Fences attempt n and relays the runner's events. If there are none, notes the end of the log: the attempt is
        settled once the entry reaches that end."""
        new = yield from self.fence(n)
        if new is None:
            return
        log.info("settles", job=self.entry.job_id, attempt=n, new=len(new))
        if new:
            self.memory.settled.pop(n, None)
            yield from self.relay(new)
        else:  # the first end counts: with a later one, the entry would never catch up while others write
            self.memory.settled.setdefault(n, self.context.end_of_log(self.entry.partition))

    def fenced_end(self, n: int, outcome: Outcome, cause: str, lost: bool = False) -> Flow:
        """Fences n, relays the runner's events, and records the end of an attempt that never ran, or whose end is
        lost."""
        new = yield from self.fence(n)
        if new is None:
            return
        yield from self.relay(new)
        if not any(ends(event, n) for event in new):
            say, event = (log.warning, "lost") if lost else (log.info, "ends_unstarted")
            say(event, job=self.entry.job_id, attempt=n, outcome=outcome, cause=cause)
            yield from self.write(self.end(n, outcome, cause))

    def fence(self, n: int) -> Generator[Task[Any], Any, list[RunnerEvent] | None]:
        """Fences the attempts up to n. Returns the runner's events that this reconciler has not relayed yet; None if
        the runner did not answer."""
        outcome = yield from perform(FenceTask(**self.target, n=n))
        self.note_trouble(n, "fenced", outcome)
        if outcome.answer is None:
            log.warning("not_fenced", job=self.entry.job_id, attempt=n, status=outcome.status, reason=outcome.reason)
            return None
        known = self.memory.relayed
        return [event for event in outcome.answer if event.key not in known and _is_of(event, self.entry.job_id)]

    def note_trouble(self, n: int, what: str, outcome: TaskOutcome[Any]) -> None:
        """Notes, for people, that the runner keeps the job waiting, whatever the job's state."""
        self.memory.trouble = "" if outcome.done else f"attempt {n} can't be {what}: {outcome.reason}"

    def relay(self, new: Sequence[RunnerEvent]) -> Flow:
        """Commits events byte for byte, then acknowledges them to the runner."""
        if not new:
            return
        partition = partition_of(self.entry.job_id, self.context.partitions)
        offsets = yield [Event(self.context.topic, partition, e.key, e.value, e.headers) for e in new]
        self.memory.last_fact = max(self.memory.last_fact, *offsets)
        self.memory.relayed.update(event.key for event in new)
        outcome = yield from perform(AcknowledgeTask(**self.target, keys=tuple(event.key for event in new)))
        if not outcome.done:  # the runner will give them again, and they are known then
            log.info("not_acknowledged", job=self.entry.job_id, reason=outcome.reason)

    def write(self, *facts: tuple[Register, Any]) -> Flow:
        """Commits facts; None is a tombstone."""
        topic, factory = self.context.topic, self.context.factory
        offsets = yield [factory.register(topic, self.entry.job_id, register, fact) for register, fact in facts]
        self.memory.last_fact = max(self.memory.last_fact, *offsets)

    def end(self, n: int, outcome: Outcome, cause: str) -> tuple[Register, AttemptEnded]:
        return Ended(n, outcome, self.context.factory.writer), AttemptEnded(cause[:CAUSE_MAX])


def perform(task: Task[A]) -> Generator[Task[A], TaskOutcome[A], TaskOutcome[A]]:
    """Yields a task and returns its outcome, with the type of its answer."""
    return (yield task)


def _is_of(event: RunnerEvent, job_id: str) -> bool:
    """Whether an event is of this job; a runner's events of any other job are ignored."""
    parsed = parse_key(event.key)
    return parsed is not None and parsed[0] == job_id


def ends(event: RunnerEvent, n: int) -> bool:
    """Whether an event is an end of attempt n."""
    match parse_key(event.key):
        case (_, Ended(m, _, _)):
            return m == n
    return False

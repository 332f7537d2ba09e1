"""A runner in memory, for tests and simulations of code that uses runners. This module is also the shortest example of
a runner.

The test plays the engine: it calls `checkpoint`, `end` and `kill` to make attempts act. Nothing happens without a call,
and nothing depends on chance or time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.adapters import avro, cloudevents
from ledger.adapters.runners.one_instance import OneInstance
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    CheckpointCompleted,
    CheckpointKind,
    Fact,
    FailureRule,
    GraphRef,
    RestorePoint,
)
from ledger.core.model.registers import (
    NUMBER_MAX,
    STOP_OUTCOMES,
    Checkpoint,
    Ended,
    Outcome,
    Register,
    Running,
    is_job_id,
    is_writer,
    key_of,
    partition_of,
)
from ledger.errors import PermanentError, TemporaryError, Unreachable
from ledger.ports import Clock, ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification


@dataclass
class MemoryAttempt:
    """One attempt of a job in memory. outcome: the outcome of its end; "" while the attempt is alive. starting: the
    start was accepted, but the attempt does not run yet."""

    n: int
    graph: GraphRef
    base: RestorePoint | None
    environment: Mapping[str, str]
    failure_rules: Sequence[FailureRule] = ()
    starting: bool = False
    order: str = ""
    savepoint_ordered: bool = False
    reason: str = ""
    asks: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    newest: int | None = None
    outcome: str = ""


@dataclass
class _Job:
    fence: int = 0
    attempts: dict[int, MemoryAttempt] = field(default_factory=dict)
    orders: dict[int, str] = field(default_factory=dict)  # attempt -> outcome of a stop order before its start
    unacknowledged: dict[bytes, RunnerEvent] = field(default_factory=dict)


class MemoryRunner:
    """Implements `ports.Runner` in memory.

    up: if False, every call raises Unreachable. slow_starts: a start is accepted and recorded, but raises Unreachable,
    and the attempt runs only after `finish_starts`. obedient: an attempt ends as soon as it is ordered to stop; if
    False, it lives until `end` or `kill`. refusals: job id -> why its graph can't be started. unknown_storage: verify
    returns UNKNOWN. stored: location -> size of every existing checkpoint; tests may damage it. reasons: location ->
    why the restore point at that location is refused. starts: every (job, n, base) that ran, in order; no (job, n) may
    occur twice."""

    def __init__(
        self, clock: Clock, *, writer: str = "agent-memory", partitions: int = 4,
        new_id: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        self.up, self.slow_starts, self.obedient, self.unknown_storage = True, False, True, False
        self.refusals: dict[str, str] = {}
        self.stored: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.starts: list[tuple[str, int, RestorePoint | None]] = []
        self.writer, self._partitions, self._clock = writer, partitions, clock
        self._jobs: dict[str, _Job] = {}
        self._sequence: Counter[int] = Counter()
        self._changed_at: dict[str, float] = {}
        self._events = 0
        self._new_id = new_id or self._next_id

    def _next_id(self) -> str:
        self._events += 1
        return f"{self.writer}-{self._events}"

    # -- the port ----------------------------------------------------------------------------------------------------

    def instance(self) -> str:
        self._must_be_up()
        return self.writer

    def only(self, instance: str) -> Runner:
        return OneInstance(self, instance) if instance else self

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        job = self._job(job_id, n)
        if n in job.attempts:
            return StartAnswer.ALREADY
        if n <= job.fence:
            return StartAnswer.FENCED
        if why := self.refusals.get(job_id):
            raise PermanentError(why)
        attempt = MemoryAttempt(n, graph, restore_point, dict(environment), failure_rules, starting=True)
        attempt.order = job.orders.pop(n, "")
        job.attempts[n] = attempt
        if self.slow_starts:
            raise Unreachable(f"attempt {n} of {job_id} is being started; no answer came in time")
        self._run(job_id, attempt)
        return StartAnswer.STARTED

    def observe(self) -> list[ObservedAttempt]:
        self._must_be_up()
        return [
            ObservedAttempt(job_id, n, not a.outcome, "" if a.starting else f"memory-{job_id}-{n}")
            for job_id, job in sorted(self._jobs.items())
            for n, a in sorted(job.attempts.items())
        ]

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        job = self._job(job_id, n)
        if outcome not in STOP_OUTCOMES:
            raise PermanentError(f"a stop order's outcome is stopped, canceled or failed, not {outcome!r}")
        attempt = job.attempts.get(n)
        if attempt is None:
            job.orders.setdefault(n, outcome)
        elif not attempt.outcome and not attempt.order:
            attempt.order, attempt.savepoint_ordered, attempt.reason = outcome, savepoint, reason
            if self.obedient and not attempt.starting:
                self.end(job_id, n)

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Requests a savepoint of attempt n, once per ask. The next savepoint that `checkpoint` completes names the
        oldest ask."""
        job = self._job(job_id, n)
        if not is_writer(ask):
            raise PermanentError(f"not the id of an ask: {ask!r}")
        attempt = job.attempts.get(n)
        if attempt is not None and not attempt.outcome and ask not in attempt.asked:
            attempt.asked.add(ask)
            attempt.asks.append(ask)

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        job = self._job(job_id, n)
        job.fence = max(job.fence, n)
        return list(job.unacknowledged.values())

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        self._must_be_up()
        if job_id in self._jobs:
            for key in keys:
                self._jobs[job_id].unacknowledged.pop(key, None)

    def verify(self, restore_point: RestorePoint) -> Verification:
        self._must_be_up()
        if self.unknown_storage:
            return Verification.UNKNOWN
        size = self.stored.get(restore_point.location)
        good = size is not None and restore_point.size in (0, size)
        return Verification.VALID if good else Verification.INVALID

    def why_refused(self, restore_point: RestorePoint) -> str:
        return self.reasons.get(restore_point.location, "")

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        self._job(job_id, 0)
        for point in restore_points:
            if point.location.startswith(_folder(job_id)):  # other locations do not belong to the job
                self.stored.pop(point.location, None)

    def forget(self, job_id: str) -> None:
        job = self._job(job_id, 0)
        if alive := [a.n for a in job.attempts.values() if not a.outcome]:
            raise TemporaryError(f"attempt {alive[0]} of {job_id} is alive", hint="Stop it and ask again.")
        del self._jobs[job_id]

    def kept(self) -> list[RunnerStorage]:
        self._must_be_up()
        found = []
        for job_id in sorted({*self._jobs, *(location.split("/")[2] for location in self.stored)}):
            job = self._jobs.get(job_id)
            alive = tuple(n for n, attempt in sorted(job.attempts.items()) if not attempt.outcome) if job else ()
            points = tuple(_points(job_id, self.stored, "chk", CheckpointKind.CHECKPOINT))
            saved = tuple(_points(job_id, self.stored, "sav", CheckpointKind.SAVEPOINT))
            size = sum(self.stored[point.location] for point in points)
            age_s = self._clock.time() - self._changed_at.get(job_id, 0.0)
            found.append(RunnerStorage(job_id, _folder(job_id), age_s, job is not None, 0, alive, points, size, saved))
        return found

    # -- the engine's side -------------------------------------------------------------------------------------------

    def finish_starts(self) -> None:
        """Completes all pending starts: their attempts run."""
        for job_id, job in self._jobs.items():
            for attempt in job.attempts.values():
                if attempt.starting:
                    self._run(job_id, attempt)

    def checkpoint(
        self, job_id: str, n: int, id_: int, *, size: int = 1, kind: CheckpointKind = CheckpointKind.CHECKPOINT,
        consistency: str = "",
    ) -> RestorePoint:  # fmt: skip
        """Lets an attempt complete a checkpoint, and returns it as a restore point. An id that is not above the
        attempt's newest is not reported again, as with any runner."""
        attempt = self._jobs[job_id].attempts[n]
        location = f"{_folder(job_id)}{n}/{'sav' if kind is CheckpointKind.SAVEPOINT else 'chk'}-{id_}"
        self.stored[location] = size
        if attempt.newest is None or id_ > attempt.newest:
            attempt.newest = id_
            ask = attempt.asks.pop(0) if kind is CheckpointKind.SAVEPOINT and attempt.asks else None
            completed = CheckpointCompleted(location, size, "", attempt.base, kind, ask, consistency)
            self._report(job_id, Checkpoint(n, id_), completed)
        return RestorePoint(n, id_, location, size, "", kind)

    def end(
        self, job_id: str, n: int, outcome: str = "finished", cause: str = "", ran_for_s: float = 0.0,
        exit_code: int | None = None,
    ) -> None:  # fmt: skip
        """Ends an attempt. After a stop order, its outcome is the order's. The attempt's failure rules classify a
        failure."""
        attempt = self._jobs[job_id].attempts[n]
        if attempt.outcome:
            return
        if attempt.order:
            why = attempt.reason or ("stopped because it made no progress" if attempt.order == "failed" else "")
            cause = f"{why}: {cause or 'as ordered'}" if why else cause
        if outcome == "failed" and not attempt.order:
            for rule in attempt.failure_rules:
                if rule.exit_code in (None, exit_code) and re.search(rule.pattern, cause):
                    outcome, cause = "failed-permanent" if rule.permanent else "failed", f"{rule.label}: {cause}"
                    break
        attempt.starting, attempt.outcome = False, attempt.order or outcome
        ended = AttemptEnded(cause, attempt.newest, ran_for_s)
        self._report(job_id, Ended(n, Outcome(attempt.outcome), self.writer), ended)

    def kill(self, job_id: str, n: int) -> None:
        """Ends an attempt as if its process was killed by SIGKILL."""
        self.end(job_id, n, "failed", "killed by SIGKILL", exit_code=137)

    def attempt(self, job_id: str, n: int) -> MemoryAttempt:
        return self._jobs[job_id].attempts[n]

    def pending(self) -> list[RunnerEvent]:
        """The events that are not acknowledged, in order for each job. Call `acknowledge` for each event that is in the
        log."""
        return [event for job in self._jobs.values() for event in job.unacknowledged.values()]

    # -- parts -------------------------------------------------------------------------------------------------------

    def _run(self, job_id: str, attempt: MemoryAttempt) -> None:
        attempt.starting = False
        if attempt.order:  # the stop order came before the start
            self.end(job_id, attempt.n)
            return
        self.starts.append((job_id, attempt.n, attempt.base))
        self._report(job_id, Running(attempt.n), AttemptRunning(f"memory-{job_id}-{attempt.n}"))

    def _report(self, job_id: str, register: Register, fact: Fact) -> None:
        partition, key = partition_of(job_id, self._partitions), key_of(job_id, register)
        self._changed_at[job_id] = self._clock.time()
        self._sequence[partition] += 1
        headers = cloudevents.headers(
            type(fact).__name__, event_id=self._new_id(), source=f"/ledger/agent/{self.writer}", subject=job_id,
            key=key, time_s=self._clock.time(), sequence=self._sequence[partition], actor=self.writer,
        )  # fmt: skip
        event = RunnerEvent(key.encode(), headers, avro.encode(fact))
        self._jobs[job_id].unacknowledged[event.key] = event

    def _job(self, job_id: str, n: int) -> _Job:
        self._must_be_up()
        if not is_job_id(job_id):
            raise PermanentError(f"not a job id: {job_id!r}")
        if not 0 <= n <= NUMBER_MAX:
            raise PermanentError(f"not the number of an attempt: {n!r}")
        self._changed_at[job_id] = self._clock.time()
        return self._jobs.setdefault(job_id, _Job())

    def _must_be_up(self) -> None:
        if not self.up:
            raise Unreachable("the runner in memory does not answer")


def _points(job_id: str, stored: Mapping[str, int], word: str, kind: CheckpointKind) -> Iterator[RestorePoint]:
    for location, size in sorted(stored.items()):
        if found := re.fullmatch(rf"{re.escape(_folder(job_id))}(\d+)/{word}-(\d+)", location):
            yield RestorePoint(int(found[1]), int(found[2]), location, size, kind=kind)


def _folder(job_id: str) -> str:
    return f"/memory/{job_id}/"

"""The evidence that a simulation records for the checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.runner import MemoryAttempt, MemoryRunner
from ledger.core.model.facts import CheckpointKind, GraphRef, RestorePoint
from ledger.errors import PermanentError
from ledger.ports import BlobStore, Clock, Event, StartAnswer, Verification
from tests.simulation.copies import Copied, Delivery, Leased, Ran, Taken


class Evidence:
    """Collects the evidence of one simulation.

    copies: topic -> every record that was ever committed. stale: batches of writers that were fenced or got no answer.
    The other sets hold locations. saved: savepoints that were made. given_up: savepoints that somebody disposed of.
    damaged: checkpoints that the walk removed or altered. sound: restore points that a runner found valid. unverified:
    restore points that an attempt started from although no runner found them valid."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.told_by: list[Delivery] = []
        self.ran: list[Ran] = []
        self.leases: list[Leased] = []
        self.taken: list[Taken] = []
        self.stale: list[list[Event]] = []
        self.saved: set[str] = set()
        self.given_up: set[str] = set()
        self.damaged: set[str] = set()
        self.sound: set[str] = set()
        self.unverified: list[str] = []
        self.copies: dict[str, list[Copied]] = {}
        self._holds: dict[tuple[str, str], float] = {}

    def told(
        self, kind: Literal["ok", "fail", "info"], who: str, events: Sequence[Event], offsets: Sequence[int] = ()
    ) -> None:
        at = [*offsets] or [None] * len(events)
        for event, offset in zip(events, at, strict=True):
            self.told_by.append(
                Delivery(kind, who, event.topic, event.partition, event.key, event.value, event.headers, offset)
            )
        if kind == "info":
            self.stale.append(list(events))

    def lease(self, role: str, who: str, holds: bool) -> None:
        if holds:
            self._holds.setdefault((role, who), self._clock.time())
        elif (since := self._holds.pop((role, who), None)) is not None:
            self.leases.append(Leased(role, who, since, self._clock.time()))

    def all_leases(self) -> list[Leased]:
        return self.leases + [Leased(role, who, since, float("inf")) for (role, who), since in self._holds.items()]

    def copy(self, log: MemoryLog, topics: Sequence[str]) -> None:
        """Copies new records. Must be called before every compaction, and at the end."""
        for topic in topics:
            if topic not in self.copies:
                self.copies[topic] = []
                self._readers[topic] = log.reader([topic])
            self.copies[topic] += [Copied.of(record) for record in self._readers[topic].poll(1_000_000, 0)]

    @property
    def _readers(self) -> dict:
        return self.__dict__.setdefault("_readers_", {})


class LoggedRunner(MemoryRunner):
    """A runner that needs the job's graph to start an attempt, and records starts, ends and checkpoints."""

    def __init__(
        self, clock: Clock, partitions: int, blobs: BlobStore, evidence: Evidence, writer: str = "agent-memory"
    ) -> None:
        super().__init__(clock, writer=writer, partitions=partitions)
        self._blobs, self._evidence, self._time = blobs, evidence, clock
        self.crashes: dict[str, bool] = {}  # job -> whether its next start crashes before (True) or after (False) it begins

    def start(
        self, job_id: str, n: int, graph: GraphRef, restore_point: RestorePoint | None, environment: dict, failure_rules=()
    ) -> StartAnswer:
        if n not in self._job(job_id, n).attempts and not self._blobs.exists(graph):
            raise PermanentError(f"the graph of {job_id} is missing")
        crash = self.crashes.pop(job_id, None)
        if crash:
            raise RuntimeError("the start crashed before it began")
        answer = super().start(job_id, n, graph, restore_point, environment, failure_rules)
        if crash is not None:
            raise RuntimeError("the start crashed after it began")
        return answer

    def verify(self, restore_point: RestorePoint) -> Verification:
        answer = super().verify(restore_point)
        if answer is Verification.VALID:
            self._evidence.sound.add(restore_point.location)
        return answer

    def checkpoint(
        self, job_id: str, n: int, id_: int, *, size: int = 1, kind=CheckpointKind.CHECKPOINT, consistency: str = ""
    ) -> RestorePoint:
        self._evidence.ran.append(Ran("checkpoint", job_id, n, self._time.time(), (n, id_)))
        point = super().checkpoint(job_id, n, id_, size=size, kind=kind, consistency=consistency)
        if kind is CheckpointKind.SAVEPOINT:
            self._evidence.saved.add(point.location)
        return point

    def knows(self, job_id: str, n: int) -> bool:
        return job_id in self._jobs and n in self._jobs[job_id].attempts

    def end(
        self, job_id: str, n: int, outcome: str = "finished", cause: str = "", ran_for_s: float = 0.0, exit_code=None
    ) -> None:
        if not self.attempt(job_id, n).outcome:
            self._evidence.ran.append(Ran("end", job_id, n, self._time.time()))
        super().end(job_id, n, outcome, cause, ran_for_s, exit_code)

    def _run(self, job_id: str, attempt: MemoryAttempt) -> None:
        if not attempt.order:
            if attempt.base is not None and attempt.base.location not in self._evidence.sound:
                self._evidence.unverified.append(attempt.base.location)
            owner, place = _place(attempt.base.location) if attempt.base else ("", None)
            self._evidence.ran.append(Ran("start", job_id, attempt.n, self._time.time(), place, owner))
        super()._run(job_id, attempt)

    def alive(self) -> list[tuple[str, int]]:
        return [(a.job_id, a.n) for a in self.observe() if a.alive]


def _place(location: str) -> tuple[str, tuple[int, int]]:
    """(job, (attempt, id)) of the checkpoint at a location."""
    job_id, n, name = location.split("/")[-3:]
    return job_id, (int(n), int(name.partition("-")[2]))

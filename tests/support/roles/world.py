"""A whole ledger on memory adapters: one log, one clock, and any number of instances of the roles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.executor import QueuedExecutor
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.stream import MemoryRecoveryStream
from ledger.core.model.facts import GraphRef, JobSubmitted, RestartKind, RestartPolicy
from ledger.core.model.published import Published
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Register, Spec, key_of, partition_of
from ledger.ports import Event, Record, Standing, Task
from ledger.roles.common.role_parts import Parts, ProjectorSettings, RoleTopics
from ledger.roles.projector.projector import Projector
from ledger.roles.reconciler.reconciler import Reconciler
from ledger.roles.reconciler.term import ReconcilerSettings

EVENTS, RECOVERY, REJECTS = "ledger.events", "ledger.recovery", "ledger.rejects"
PARTITIONS = 2
GRAPH = GraphRef("graphs/x", "0" * 64, 1)
SPEC = JobSubmitted("name", "default", "memory", GRAPH, RestartPolicy(RestartKind.FIXED_DELAY, 3, 1.0))


class Election:
    """An election whose leader the test chooses."""

    def __init__(self) -> None:
        self.holder: object | None = None


class Lease:
    """A Leadership whose lease the test grants and revokes. force: it leads regardless of the election."""

    def __init__(self, election: Election, force: bool = False) -> None:
        self.election, self.force = election, force

    def acquire(self) -> bool:
        if self.election.holder is None:
            self.election.holder = self
        return self.valid()

    def valid(self) -> bool:
        return self.force or self.election.holder is self

    def release(self) -> None:
        self.force = False
        if self.election.holder is self:
            self.election.holder = None

    def standing(self) -> Standing:
        return Standing(self.valid())

    def close(self) -> None:
        self.release()


class PlainRejects:
    """A codec that encodes rejects as short texts."""

    def record(self, record: Record, reason: str) -> Event:
        return self.held(record.partition(), record.key() or b"", record.value() or b"", record.offset(), reason)

    def held(self, partition: int, key: bytes, value: bytes, offset: int, reason: str) -> Event:
        return Event(REJECTS, 0, f"{EVENTS}/{partition}/{offset}".encode(), reason.encode())


class Executor(QueuedExecutor):
    """Performs tasks as soon as they are submitted. Tasks of held verbs wait until the test performs them."""

    def __init__(self, runners: dict[str, Any], blobs: Any) -> None:
        super().__init__(runners, blobs)
        self.held: frozenset[str] = frozenset()

    def submit(self, tasks: Sequence[Task[Any]]) -> None:
        super().submit(tasks)
        for task in tasks:
            if task.verb not in self.held:
                self.perform(task)


class World:
    def __init__(self, settings: ProjectorSettings | None = None) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({EVENTS: PARTITIONS, RECOVERY: PARTITIONS, REJECTS: 1}, self.clock)
        self.elections = {"projector": Election(), "reconciler": Election()}
        self.settings = settings or ProjectorSettings(commit_interval_s=0.0)
        self.executors: list[Executor] = []
        self._ids = itertools.count(1)

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    def parts(self, role: str, name: str, force: bool = False, wrap: Callable[[Any], Any] = lambda log: log) -> Parts:
        return Parts(
            wrap(self.log), Lease(self.elections[role], force), self.clock, avro, cloudevents, self.new_id,
            RoleTopics(EVENTS, RECOVERY, REJECTS), name, "tester", force,
        )  # fmt: skip

    def projector(self, name: str = "p1", force: bool = False, wrap: Callable[[Any], Any] = lambda log: log) -> Projector:
        """A new projector. wrap: makes the log that the projector sees."""
        return Projector(self.parts("projector", name, force, wrap), PlainRejects(), self.settings)

    def reconciler(
        self, runners: dict[str, Any], blobs: Any, name: str = "r1", wrap: Callable[[Any], Any] = lambda log: log,
        **settings: Any,
    ) -> Reconciler:  # fmt: skip
        """A new reconciler. wrap: makes the log that the reconciler sees."""
        executor = Executor(runners, blobs)
        self.executors.append(executor)
        return Reconciler(
            self.parts("reconciler", name, wrap=wrap), runners, MemoryRecoveryStream(self.log, RECOVERY), executor,
            ReconcilerSettings(tick_s=0.0, observe_interval_s=0.0, **settings),
        )  # fmt: skip

    # -- producers

    def record(self, job_id: str, register: Register, fact: Any) -> int:
        return self.raw(key_of(job_id, register).encode(), avro.encode(fact), partition_of(job_id, PARTITIONS))

    def raw(self, key: bytes, value: bytes | None, partition: int, topic: str = EVENTS, headers: Any = ()) -> int:
        return self.log.append([Event(topic, partition, key, value, headers)])[0]

    def submit(self, job_id: str, spec: JobSubmitted = SPEC) -> JobSubmitted:
        self.record(job_id, Spec(avro.spec_digest(spec)), spec)
        return spec

    # -- readers

    def published(self) -> Published:
        published = Published(avro.decode)
        for partition in range(PARTITIONS):
            for record in self.log.records(RECOVERY, partition):
                published.apply(record)
        return published

    def entry(self, job_id: str) -> RecoveryEntry | None:
        return self.published().entries.get(job_id)

    def meaning(self) -> dict[str, RecoveryEntry]:
        return {j: replace(e, as_of=0, epoch=0) for j, e in self.published().entries.items()}

    def values(self, topic: str = EVENTS) -> dict[bytes, bytes]:
        """Key -> last value."""
        out: dict[bytes, bytes] = {}
        for partition in range(self.log.partitions(topic)):
            for record in self.log.records(topic, partition):
                value, key = record.value(), record.key()
                assert key is not None
                if value is None:
                    out.pop(key, None)
                else:
                    out[key] = value
        return out


def run(*roles: Any, steps: int = 12) -> None:
    for _ in range(steps):
        for role in roles:
            role.step()


class Killed(BaseException):
    """Ends a role as the end of its process does. The role does not catch it."""


#: The failpoints of a reconciler.
RECONCILER = ("start.recorded", "start.answered", "clean.unasked", "clean.answered", "retire.unwritten", "retire.written")

"""A ledger on memory adapters that runs jobs: roles, a runner and its agent's outgoing facts, and blobs.

`go` is the simple way: in each round, projector, reconciler and agent complete a step. For other interleavings, a test
chooses the next one with `hold`, `until`, `perform` and `step`, or `draw` chooses by a seed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core.model.facts import IntentDeclared, IntentKind, JobSubmitted
from ledger.core.model.registers import Intent, partition_of
from ledger.ports import Event, RunnerEvent, Task
from tests.support.roles.world import EVENTS, PARTITIONS, SPEC, World

#: Verbs of tasks.
VERBS = (
    "prepare", "verify", "start", "fence", "stop", "savepoint", "acknowledge", "clean", "dispose", "forget",
)  # fmt: skip


class Cluster(World):
    """A projector, a reconciler, a runner with its agent's outgoing facts, and blobs."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        """settings: settings of the reconcilers."""
        super().__init__()
        self.reconciler_settings = settings
        self.tmp_path = tmp_path
        self.runner = MemoryRunner(self.clock, partitions=PARTITIONS)
        self.blobs = MemoryBlobs()
        self.mute = False
        self._held: frozenset[str] = frozenset()
        self.p = self.projector()
        self.r = self.new_reconciler()

    def new_reconciler(self, **more: Any) -> Any:
        """A new reconciler, which gets the lease as soon as it asks. Its predecessor's tasks still run."""
        self.elections["reconciler"].holder = None
        reconciler = self.reconciler({"memory": self.runner}, self.blobs, **self.reconciler_settings, **more)
        self.executors[-1].held = self._held
        return reconciler

    def job(self, job_id: str, spec: JobSubmitted = SPEC) -> JobSubmitted:
        source = self.tmp_path / job_id
        source.write_text(job_id)
        return self.submit(job_id, replace(spec, graph=self.blobs.put(job_id, source)))

    def deliver(self) -> None:
        """The agent sends its pending facts, unless it is mute."""
        if self.mute:
            return
        for event in self.runner.pending():
            self.raw_event(event)
            self.runner.acknowledge(event.key.partition(b"/")[0].decode(), [event.key])

    def raw_event(self, event: RunnerEvent) -> None:
        job_id = event.key.partition(b"/")[0].decode()
        self.log.append([Event(EVENTS, partition_of(job_id, PARTITIONS), event.key, event.value, event.headers)])

    def go(self, rounds: int = 12, seconds: float = 0.6) -> None:
        for _ in range(rounds):
            self.p.step()
            self.r.step()
            self.deliver()
            self.clock.advance(seconds)

    # -- step by step

    def step(self, who: str, times: int = 1) -> None:
        """Runs steps of one part. who: projector, reconciler or agent."""
        for _ in range(times):
            {"projector": self.p.step, "reconciler": self.r.step, "agent": self.deliver}[who]()
            self.clock.advance(0.1)

    def hold(self, *verbs: str) -> None:
        """From now on, tasks of these verbs wait for `perform`, whichever reconciler submits them."""
        self._held = frozenset(verbs)
        for executor in self.executors:
            executor.held = self._held

    def let_go(self) -> None:
        """Performs all waiting tasks, and holds no more tasks."""
        self.hold()
        for task in self.waiting():
            self.perform(task)

    def waiting(self, *verbs: str) -> list[Task[Any]]:
        """Submitted tasks that are not performed yet, the oldest first. verbs: only tasks of these verbs; none = all."""
        every = [task for executor in self.executors for task in executor.waiting]
        return [task for task in every if not verbs or task.verb in verbs]

    def until(self, verb: str, *who: str) -> Task[Any]:
        """Runs each of `who` (default: the reconciler) in turn until a task of this verb waits, and returns the task."""
        for _ in range(60):
            if found := self.waiting(verb):
                return found[0]
            for one in who or ("reconciler",):
                self.step(one)
        raise AssertionError(f"no task {verb} was submitted; waiting tasks: {self.waiting()}")

    def perform(self, task: Task[Any]) -> None:
        """Performs a task. The reconciler that submitted it gets the outcome in its next step."""
        (executor,) = (one for one in self.executors if any(task is other for other in one.waiting))
        executor.perform(task)

    def draw(self, random: Random, steps: int) -> None:
        """Runs random steps: each is one of the projector, reconciler or agent, or performs a waiting task."""
        self.hold(*VERBS)
        for _ in range(steps):
            who = random.choice(("projector", "reconciler", "agent", "task", "task"))
            if who != "task":
                self.step(who)
            elif tasks := self.waiting():
                self.perform(random.choice(tasks))

    # -- outcomes

    def state(self, job_id: str) -> str:
        entry = self.entry(job_id)
        return str(entry.state) if entry else "none"

    def intend(self, job_id: str, kind: IntentKind, rev: int = 1, **rest: Any) -> None:
        self.record(job_id, Intent(rev, f"i{rev}"), IntentDeclared(kind, reason="test", **rest))

    def registers(self, job_id: str) -> set[str]:
        prefix = f"{job_id}/"
        return {k.decode().removeprefix(prefix) for k in self.values() if k.decode().startswith(prefix)}

    def starts(self, job_id: str = "job") -> list[tuple[int, str | None]]:
        """(attempt, restore point) of the attempts that ran."""
        return [(n, str(base) if base else None) for j, n, base in self.runner.starts if j == job_id]

    def alive(self) -> set[tuple[str, int]]:
        return {(a.job_id, a.n) for a in self.runner.observe() if a.alive}


def starts(cluster: Cluster, job_id: str = "job") -> list[tuple[int, str | None]]:
    return cluster.starts(job_id)

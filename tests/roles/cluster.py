"""A ledger on memory adapters that runs jobs: roles, a runner with its agent's mail, and blobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core.facts import IntentDeclared, IntentKind, JobSubmitted
from ledger.core.registers import Intent, partition_of
from ledger.ports import Event, RunnerEvent
from tests.roles.world import EVENTS, PARTITIONS, SPEC, World


class Cluster(World):
    """A projector, a reconciler, a runner with its agent's mail, and blobs."""

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        """settings: of the reconcilers."""
        super().__init__()
        self.reconciler_settings = settings
        self.tmp_path = tmp_path
        self.runner = MemoryRunner(self.clock, partitions=PARTITIONS)
        self.blobs = MemoryBlobs()
        self.mute = False
        self.p = self.projector()
        self.r = self.new_reconciler()

    def new_reconciler(self) -> Any:
        self.elections["reconciler"].holder = None
        return self.reconciler({"memory": self.runner}, self.blobs, **self.reconciler_settings)

    def job(self, job_id: str, spec: JobSubmitted = SPEC) -> JobSubmitted:
        source = self.tmp_path / job_id
        source.write_text(job_id)
        return self.submit(job_id, replace(spec, graph=self.blobs.put(job_id, source)))

    def deliver(self) -> None:
        """The agent sends what is due, unless it is mute."""
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

    def state(self, job_id: str) -> str:
        entry = self.entry(job_id)
        return str(entry.state) if entry else "none"

    def intend(self, job_id: str, kind: IntentKind, rev: int = 1, **rest: Any) -> None:
        self.record(job_id, Intent(rev, f"i{rev}"), IntentDeclared(kind, reason="test", **rest))

    def registers(self, job_id: str) -> set[str]:
        prefix = f"{job_id}/"
        return {k.decode().removeprefix(prefix) for k in self.values() if k.decode().startswith(prefix)}

    def starts(self, job_id: str = "job") -> list[tuple[int, str | None]]:
        """(attempt, restore point) of what did run."""
        return [(n, str(base) if base else None) for j, n, base in self.runner.starts if j == job_id]

    def alive(self) -> set[tuple[str, int]]:
        return {(a.job_id, a.n) for a in self.runner.observe() if a.alive}


def starts(cluster: Cluster, job_id: str = "job") -> list[tuple[int, str | None]]:
    return cluster.starts(job_id)

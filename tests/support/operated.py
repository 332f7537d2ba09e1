"""A ledger on the log in memory: a client, and a projector that works whenever somebody waits."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.memory.sender import MemorySender
from ledger.config.config import load_config
from ledger.core.model.facts import GraphRef, JobSubmitted, RestartKind, RestartPolicy
from ledger.core.model.recovery import RecoveryEntry
from ledger.operations.client import Client, Records
from ledger.producer.recorder import Recorder
from ledger.reader.reading import Source
from ledger.reader.rejects import RejectsTopic
from ledger.roles.projector.projector import Projector
from tests.support.roles.world import EVENTS, RECOVERY, REJECTS, World

NO_GRAPH = GraphRef("", "", 0)


def spec(name: str = "etl", **fields: Any) -> JobSubmitted:
    """A spec before its graph is stored."""
    given = {"namespace": "prod", "runner": "memory", "graph": NO_GRAPH, **fields}
    return JobSubmitted(name, **{"restart_policy": RestartPolicy(RestartKind.NONE), **given})


class Operated(World):
    """A World whose projector makes a step whenever somebody waits, while `working` is true."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.leader = Projector(self.parts("projector", "p1"), RejectsTopic(REJECTS, EVENTS), self.settings)
        self.working, self._stepping = True, False
        self.folder = folder
        move, self.clock.sleep = self.clock.sleep, lambda seconds: (move(seconds), self.step())  # type: ignore
        self.blobs = FileBlobs(folder / "blobs")
        self.sender = MemorySender(self.log)
        self.recorder = Recorder(
            "cli", config=load_config(folder), sender=self.sender, clock=self.clock, actor="ann@here", new_id=self.new_id
        )
        self.step()

    def step(self) -> None:
        if self.working and not self._stepping:
            self._stepping = True
            self.leader.step()
            self.leader.step()
            self._stepping = False

    def source(self) -> Source:
        return Source(self.log, self.leader._parts.topics, avro, cloudevents, self.clock)

    def client(self) -> Client:
        def recorder() -> AbstractContextManager[Records]:
            return nullcontext(self.recorder)

        return Client(self.source(), recorder, self.blobs, digest=avro.spec_digest, new_id=self.new_id, actor="ann@here")

    def graph(self, content: str = "a graph") -> Path:
        path = self.folder / f"graph-{abs(hash(content))}"
        path.write_text(content)
        return path

    def started(self, name: str = "etl", job_id: str | None = None, **fields: Any) -> str:
        """Submits a job, waits for its admission, and returns its id."""
        return self.client().submit(spec(name, **fields), self.graph(), job_id=job_id)

    def now(self, job_id: str) -> RecoveryEntry:
        """Lets the projector finish its work, and returns the published entry."""
        for _ in range(6):
            self.step()
        entry = self.entry(job_id)
        assert entry is not None, f"{job_id} has no entry"
        return entry


__all__ = ["EVENTS", "RECOVERY", "REJECTS", "Operated", "spec"]

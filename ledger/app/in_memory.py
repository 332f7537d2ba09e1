"""The adapters of a ledger in memory, for `Ledger.in_memory`."""

from __future__ import annotations

from pathlib import Path

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.leadership import MemoryElection, MemoryLeadership
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.memory.runner import MemoryRunner
from ledger.adapters.memory.sender import MemorySender
from ledger.config.config import Config
from ledger.config.settings import TopicsSection
from ledger.ports import Candidate, Runner
from ledger.util.identity import instance

PARTITIONS = 2
#: The name of the runner in memory: the `runner` of a spec.
RUNNER = "memory"


class MemoryAdapters:
    """Implements `ledger.Adapters`. Every adapter is an attribute, so that a test can inspect it and make it fail."""

    def __init__(self, topics: TopicsSection, clock: ManualClock | None = None, partitions: int = PARTITIONS) -> None:
        self.clock = clock if clock is not None else ManualClock()
        shape = {topics.events: partitions, topics.recovery: partitions, topics.rejects: 1, topics.anchors: 1}
        self.log = MemoryLog(shape, self.clock)
        self.store, self.archived = MemoryBlobs(self.clock.time), MemoryObjects()
        self.runner = MemoryRunner(self.clock, partitions=partitions)
        self.elections = {"projector": MemoryElection(), "reconciler": MemoryElection()}

    def event_log(self) -> MemoryLog:
        return self.log

    def sender(self, timeout_s: float = 30.0) -> MemorySender:  # noqa: ARG002
        return MemorySender(self.log)

    def leadership(self, role: str) -> MemoryLeadership:
        return MemoryLeadership(self.elections[role], who=instance(role))

    def candidates(self, role: str) -> list[Candidate]:
        """The leader, if there is one: the election in memory knows no other candidates."""
        holder = self.elections[role].holder
        leader = "" if holder is None else holder.standing().leader
        return [Candidate(leader, 0, 0.0, leads=True)] if leader else []

    def blobs(self) -> MemoryBlobs:
        return self.store

    def objects(self) -> MemoryObjects:
        return self.archived

    def runners(self) -> dict[str, Runner]:
        return {RUNNER: self.runner}


def default_config() -> Config:
    """The default settings, without environment and files. `dir` is only a name: no file is stored there."""
    return Config.model_construct(dir=Path("in-memory"))

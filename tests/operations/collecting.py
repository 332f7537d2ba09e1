"""A cluster for tests of garbage collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.operations.collecting import GRACE_S, DeletionLog, Found, collect, look
from ledger.reader.reading import Source
from ledger.roles.common.role_parts import RoleTopics
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, RECOVERY, REJECTS

DAY_S = 86_400.0


class Collecting(Cluster):
    """A cluster where the age of stored data is by the cluster's clock."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.blobs = MemoryBlobs(self.clock.time)
        self.r = self.new_reconciler()
        self.file = folder / "collected.jsonl"
        self.go(4)

    def source(self) -> Source:
        return Source(self.log, RoleTopics(EVENTS, RECOVERY, REJECTS), avro, cloudevents, self.clock, patience_s=5.0)

    def look(self, grace_s: float = GRACE_S) -> Found:
        before = dict(self.blobs.stored), dict(self.runner.stored), dict(self.runner._jobs)
        found = look(self.source(), {"memory": self.runner}, self.blobs, grace_s)
        assert (dict(self.blobs.stored), dict(self.runner.stored), dict(self.runner._jobs)) == before
        return found

    def collect(self, grace_s: float = GRACE_S) -> Found:
        evidence = DeletionLog(self.file, "ann@here", self.clock.time)
        return collect(self.source(), {"memory": self.runner}, self.blobs, evidence, grace_s)

    def put(self, job_id: str, text: str = "") -> str:
        """Stores a graph that nothing references. Returns its uri."""
        path = self.tmp_path / "graph"
        path.write_text(text or job_id)
        return self.blobs.put(job_id, path).uri

    def recorded(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []


def wheres(orphans: Any) -> list[str]:
    return [orphan.item.where for orphan in orphans]

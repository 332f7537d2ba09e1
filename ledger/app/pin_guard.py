"""Wrappers of the blob store and the runners that stop the reconciler from deleting files of pinned jobs.

A retirement deletes the graph and the checkpoints of its job; a disposal deletes a savepoint. For a pinned job the
files stay, but the retirement or disposal goes on. By the log the files are then garbage, and `jobledger gc` deletes
them once the pin is removed. If the pins can't be read, the files stay too. Source: docs/decisions/0036.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ledger.core.model.facts import GraphRef, RestorePoint
from ledger.errors import LedgerError
from ledger.ports import BlobStore, Runner, StoredBlob
from ledger.util.loggers import Logger

#: job id -> the pin that protects the job, "" if none does. Raises: LedgerError if the pins can't be read.
HeldBy = Callable[[str], str]
log = Logger("sparing")


class PinGuardedBlobStore:
    """A blob store whose `delete_all` keeps the graphs of pinned jobs. Implements `ports.BlobStore`."""

    def __init__(self, blobs: BlobStore, held_by: HeldBy) -> None:
        self._blobs, self._held_by = blobs, held_by

    def put(self, job_id: str, source: Path) -> GraphRef:
        return self._blobs.put(job_id, source)

    def fetch(self, ref: GraphRef, target: Path) -> None:
        self._blobs.fetch(ref, target)

    def exists(self, ref: GraphRef) -> bool:
        return self._blobs.exists(ref)

    def delete_all(self, job_id: str) -> int:
        """The number of deleted graphs; 0, without deleting any, if the job is pinned."""
        return 0 if _spared(job_id, "graphs", self._held_by) else self._blobs.delete_all(job_id)

    def listing(self) -> list[StoredBlob]:
        return self._blobs.listing()

    def delete(self, blob: StoredBlob) -> bool:
        return self._blobs.delete(blob)


class PinGuardedRunner:
    """A runner whose `dispose` keeps the restore points of pinned jobs. Implements `ports.Runner`: every other
    attribute is the wrapped runner's, including attributes that not every runner has."""

    def __init__(self, runner: Runner, held_by: HeldBy) -> None:
        self._runner, self._held_by = runner, held_by

    def only(self, instance: str) -> Runner:
        return PinGuardedRunner(self._runner.only(instance), self._held_by)

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Disposes the restore points, unless the job is pinned."""
        if not _spared(job_id, "restore points", self._held_by):
            self._runner.dispose(job_id, restore_points)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def _spared(job_id: str, what: str, held_by: HeldBy) -> bool:
    try:
        pin = held_by(job_id)
    except LedgerError as error:
        log.warning("spared", job_id=job_id, what=what, reason=f"the pins can't be read: {error}")
        return True
    if pin:
        log.info("spared", job_id=job_id, what=what, pin=pin)
    return bool(pin)

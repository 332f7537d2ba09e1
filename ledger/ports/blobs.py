"""The port to the store of job graphs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from ledger.core.model.facts import GraphRef


class StoredBlob(NamedTuple):
    """A stored blob, or the remains of an unfinished put.

    put_at: the time of the last put, in seconds of the store's own clock; it distinguishes one put from another. age_s:
    seconds since that put, by the same clock. It may be ten minutes too high, because a store need not refresh a young
    blob at a second put. unfinished: "" for a blob, else the store's name for the remains of an unfinished put. size:
    in bytes, 0 if the store does not report it."""

    job_id: str
    sha256: str
    size: int
    age_s: float
    put_at: float
    unfinished: str = ""

    @property
    def uri(self) -> str:
        return f"graphs/{self.job_id}/{self.unfinished or self.sha256}"


class BlobStore(Protocol):
    """Stores graphs under `graphs/<job_id>/<sha256>`. A graph is stored before the log refers to it, and its digest is
    checked at every read.

    Raises: Unreachable if the store did not answer. ConfigError if it denies access or differs from the settings.
    Neither error means that a graph is missing.
    """

    def put(self, job_id: str, source: Path) -> GraphRef:
        """Stores the file and returns its reference. A second put of the same bytes changes only the age of the
        blob."""

    def fetch(self, ref: GraphRef, target: Path) -> None:
        """Writes the blob to `target`. Raises: PermanentError if the blob is missing or its digest differs; then there
        is no target."""

    def exists(self, ref: GraphRef) -> bool: ...

    def delete_all(self, job_id: str) -> int:
        """Deletes all blobs of the job and returns how many there were. Idempotent."""

    def listing(self) -> list[StoredBlob]:
        """All blobs of all jobs, and the remains of unfinished puts. Raises rather than return an incomplete list."""

    def delete(self, blob: StoredBlob) -> bool:
        """Deletes the blob and returns True, also if it was already gone. Returns False, without deleting, if it was
        put again since it was listed."""

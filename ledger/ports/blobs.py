"""Where graphs of jobs lie."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from ledger.core.model.facts import GraphRef


class StoredBlob(NamedTuple):
    """What lies in a blob store. put_at: when it was put last, in seconds of the store's own clock: what tells one put from
    another. age_s: since then, by the same clock; it may be ten minutes too much, as a put of what is young need not count.
    unfinished: "" = a blob; else the store's name for what is left of a put that did not come to its end. size: in bytes,
    0 where the store does not tell."""

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
    """Graphs under `graphs/<job_id>/<sha256>`. Put before the reference is written, checked at every read.

    Raises: Unreachable: the store did not answer. ConfigError: it does not let us, or is not what the settings say. Neither
    says anything about a graph.
    """

    def put(self, job_id: str, source: Path) -> GraphRef:
        """Stores the file once: a second put of the same bytes is no error and changes nothing but the age of the blob."""

    def fetch(self, ref: GraphRef, target: Path) -> None:
        """Raises: PermanentError if the blob is missing or its digest differs (target is then not there)."""

    def exists(self, ref: GraphRef) -> bool: ...

    def delete_all(self, job_id: str) -> int:
        """Deletes every blob under the job's prefix; the number deleted. Idempotent."""

    def listing(self) -> list[StoredBlob]:
        """All that lies in the store on behalf of jobs, what puts have left included. All or an exception."""

    def delete(self, blob: StoredBlob) -> bool:
        """Deletes this one, but only as it was listed: False if somebody has put it since. One that is gone already is
        deleted."""

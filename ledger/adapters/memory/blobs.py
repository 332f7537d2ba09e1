"""A blob store in memory."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from ledger.adapters.blobs import BlobName, check_job_id, checked, is_digest, name_of
from ledger.core.model.facts import GraphRef
from ledger.errors import PermanentError, Unreachable, UsageError
from ledger.ports import StoredBlob
from ledger.util.files import write_atomic


class MemoryBlobs:
    """Implements `ports.BlobStore`. stored: uri -> content; tests may tamper with it. up: if False, the store does not
    answer. now: returns the time by the store's clock, in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.stored: dict[str, bytes] = {}
        self.put_at: dict[str, float] = {}
        self.up, self._now = True, now

    def put(self, job_id: str, source: Path) -> GraphRef:
        check_job_id(job_id)
        self._must_be_up()
        if not source.is_file():
            raise UsageError(f"There is no file {source} to store.")
        data = source.read_bytes()
        name = BlobName(job_id, hashlib.sha256(data).hexdigest())
        self.stored[name.uri], self.put_at[name.uri] = data, self._now()
        return GraphRef(name.uri, name.sha256, len(data))

    def fetch(self, ref: GraphRef, target: Path) -> None:
        name = name_of(ref)
        self._must_be_up()
        data = self.stored.get(name.uri)
        if data is None:
            raise PermanentError(f"Graph {ref.uri} is missing.")
        write_atomic(target, b"".join(checked([data], ref)))

    def exists(self, ref: GraphRef) -> bool:
        self._must_be_up()
        return len(self.stored.get(name_of(ref).uri, b"")) == ref.size and ref.uri in self.stored

    def delete_all(self, job_id: str) -> int:
        check_job_id(job_id)
        self._must_be_up()
        gone = [uri for uri in self.stored if uri.startswith(f"graphs/{job_id}/")]
        for uri in gone:
            del self.stored[uri]
        return len(gone)

    def listing(self) -> list[StoredBlob]:
        self._must_be_up()
        found = []
        for uri, data in sorted(self.stored.items()):
            _, job_id, sha256 = uri.split("/")
            put_at = self.put_at.get(uri, 0.0)
            found.append(StoredBlob(job_id, sha256, len(data), max(0.0, self._now() - put_at), put_at))
        return found

    def delete(self, blob: StoredBlob) -> bool:
        check_job_id(blob.job_id)
        if not is_digest(blob.sha256):
            raise UsageError(f"Not a blob of this store: {blob.uri[:300]!r}.")
        self._must_be_up()
        if blob.uri in self.stored and self.put_at.get(blob.uri, 0.0) != blob.put_at:
            return False
        self.stored.pop(blob.uri, None)
        return True

    def _must_be_up(self) -> None:
        if not self.up:
            raise Unreachable("The blob store in memory is down.")

"""Blobs in memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ledger.adapters.blobs import BlobName, check_job_id, checked, name_of
from ledger.adapters.local.files import write_atomic
from ledger.core.facts import GraphRef
from ledger.errors import PermanentError, Unreachable, UsageError


class MemoryBlobs:
    """Implements `ports.BlobStore`. `stored` may be tampered with; `up` = False and the store does not answer."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.up = True

    def put(self, job_id: str, source: Path) -> GraphRef:
        check_job_id(job_id)
        self._must_be_up()
        if not source.is_file():
            raise UsageError(f"There is no file {source} to store.")
        data = source.read_bytes()
        name = BlobName(job_id, hashlib.sha256(data).hexdigest())
        self.stored[name.uri] = data
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

    def _must_be_up(self) -> None:
        if not self.up:
            raise Unreachable("The blob store in memory is down.")

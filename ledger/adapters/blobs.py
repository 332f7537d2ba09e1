"""Code that all blob stores share: parsing of uris, and the digest check on reading.

A uri is `graphs/<job_id>/<sha256>`, relative to the store, so a store can be moved as a whole. A uri comes from the
log, so it is checked before use: no uri and no job id can lead out of the store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ledger.core.model.facts import GraphRef
from ledger.core.model.registers import is_job_id
from ledger.errors import PermanentError, UsageError

CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class BlobName(NamedTuple):
    job_id: str
    sha256: str

    @property
    def uri(self) -> str:
        return f"graphs/{self.job_id}/{self.sha256}"


def is_digest(name: str) -> bool:
    """Whether a text has the form of a blob's name: a SHA-256 in lower-case hex."""
    return _DIGEST.match(name) is not None


def check_job_id(job_id: str) -> str:
    """The same job id, checked. Raises: UsageError if the text is not a job id."""
    if not is_job_id(job_id):
        raise UsageError(f"Not a job id, so it has no blobs: {job_id[:200]!r}.")
    return job_id


def name_of(ref: GraphRef) -> BlobName:
    """The job id and digest in a reference. Raises: PermanentError if the reference is not to a blob of this kind of
    store."""
    match ref.uri.split("/"):
        case ["graphs", job_id, sha256] if is_job_id(job_id) and _DIGEST.match(sha256) and sha256 == ref.sha256:
            return BlobName(job_id, sha256)
    raise PermanentError(f"Not a graph of this store: uri {ref.uri[:300]!r} with digest {ref.sha256[:64]!r}.")


def chunks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def checked(chunks: Iterable[bytes], ref: GraphRef) -> Iterator[bytes]:
    """The same chunks, checked against the size and SHA-256 in `ref`.

    Raises: PermanentError if size or SHA-256 differ. The error comes after the last chunk, or as soon as the chunks
    hold more bytes than `ref` states."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if size > ref.size:
            break
        yield chunk
    if size != ref.size:
        raise PermanentError(f"Graph {ref.uri} is damaged: {'more than ' if size > ref.size else ''}"
                             f"{min(size, ref.size)} bytes instead of {ref.size}.")  # fmt: skip
    if digest.hexdigest() != ref.sha256:
        raise PermanentError(f"Graph {ref.uri} is damaged: its SHA-256 is {digest.hexdigest()}.")


def intact(chunks: Iterable[bytes], ref: GraphRef) -> bool:
    """Whether the chunks have the size and SHA-256 in `ref`. Errors from reading the chunks pass through."""
    try:
        for _ in checked(chunks, ref):
            pass
    except PermanentError:
        return False
    return True

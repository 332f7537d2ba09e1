"""A blob store in a folder: `<root>/graphs/<job_id>/<sha256>`."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ledger.adapters.blobs import BlobName, check_job_id, checked, chunks_of, intact, is_digest, name_of
from ledger.adapters.local.disk_space import what_to_do
from ledger.core.model.facts import GraphRef
from ledger.core.model.registers import is_job_id
from ledger.errors import PermanentError, Unreachable, UsageError
from ledger.ports import StoredBlob
from ledger.util.files import make_folder, spool, sync_folder

_TEMPORARY = ".put-"
_TRIES = 5


class FileBlobs:
    """Implements `ports.BlobStore` in the folder `root`. A uri is relative to `root`, so the folder can be moved.

    A root without a folder `graphs` counts as a disk that is not mounted: Unreachable, so jobs wait instead of failing.
    now: returns the time by the clock that sets the files' modification times, in seconds since the epoch. That is this
    machine's clock, unless the folder is on another machine."""

    def __init__(self, root: Path, now: Callable[[], float] = time.time) -> None:
        self._root, self._now = root, now
        with self._translate_errors("make the blob store"):
            make_folder(root)

    def put(self, job_id: str, source: Path) -> GraphRef:
        """Stores a file, and returns the reference to it. Raises: UsageError if job_id is not a job id, or `source`
        does not exist; Unreachable."""
        folder = self._folder(check_job_id(job_id))
        for _ in range(_TRIES):
            if not source.is_file():
                raise UsageError(f"There is no file {source} to store.")
            with self._translate_errors(f"put a graph of {job_id}"):
                make_folder(folder)
                try:
                    return self._put(job_id, folder, source)
                except FileNotFoundError:
                    continue  # delete_all has removed the folder
        raise Unreachable(f"{folder} is deleted again and again while a graph is put there.")

    def fetch(self, ref: GraphRef, target: Path) -> None:
        path = self._path(name_of(ref))
        with self._translate_errors(f"fetch {ref.uri}"):
            if not path.is_file():
                raise self._missing(ref)
            temporary, _, _ = spool(checked(chunks_of(path), ref), target.parent, f".{target.name}.")
            temporary.replace(target)
            sync_folder(target.parent)

    def exists(self, ref: GraphRef) -> bool:
        path = self._path(name_of(ref))
        with self._translate_errors(f"look for {ref.uri}"):
            try:
                return path.stat().st_size == ref.size
            except (FileNotFoundError, NotADirectoryError):
                self._must_be_mounted()
                return False

    def delete_all(self, job_id: str) -> int:
        folder = self._folder(check_job_id(job_id))
        deleted = 0
        with self._translate_errors(f"delete the graphs of {job_id}"):
            try:
                for path in list(folder.iterdir()):
                    path.unlink(missing_ok=True)
                    deleted += not path.name.startswith(_TEMPORARY)
                folder.rmdir()
            except FileNotFoundError:
                return deleted
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:  # another process is putting a graph there
                    raise
                return deleted
            sync_folder(folder.parent)
        return deleted

    def listing(self) -> list[StoredBlob]:
        with self._translate_errors("list the graphs"):
            self._must_be_mounted()
            return [blob for folder in sorted((self._root / "graphs").iterdir()) for blob in self._stored_in(folder)]

    def delete(self, blob: StoredBlob) -> bool:
        folder = self._folder(check_job_id(blob.job_id))
        ours = blob.unfinished.startswith(_TEMPORARY) and "/" not in blob.unfinished
        if not (ours if blob.unfinished else is_digest(blob.sha256)):
            raise UsageError(f"Not a blob of this store: {blob.uri[:300]!r}.")
        path = folder / (blob.unfinished or blob.sha256)
        with self._translate_errors(f"delete {blob.uri}"):
            self._must_be_mounted()
            with suppress(FileNotFoundError):
                if path.stat().st_mtime != blob.put_at:
                    return False
                path.unlink()
            with suppress(OSError):  # the folder is not empty, or another process is putting a graph there
                folder.rmdir()
            sync_folder(folder if folder.is_dir() else folder.parent)
        return True

    def _stored_in(self, folder: Path) -> Iterator[StoredBlob]:
        """The blobs in a job's folder. Folders and files with other names are ignored: they do not belong to the
        store."""
        if not is_job_id(folder.name) or not folder.is_dir():
            return
        try:
            paths = sorted(folder.iterdir())
        except FileNotFoundError:  # the job was retired meanwhile
            return
        for path in paths:
            unfinished = path.name if path.name.startswith(_TEMPORARY) else ""
            if unfinished or is_digest(path.name):
                with suppress(FileNotFoundError):
                    found = path.stat()
                    sha256, age_s = "" if unfinished else path.name, max(0.0, self._now() - found.st_mtime)
                    yield StoredBlob(folder.name, sha256, found.st_size, age_s, found.st_mtime, unfinished)

    def _put(self, job_id: str, folder: Path, source: Path) -> GraphRef:
        temporary, sha256, size = spool(chunks_of(source), folder, _TEMPORARY)
        try:
            name = BlobName(job_id, sha256)
            ref, path = GraphRef(name.uri, sha256, size), self._path(name)
            try:
                os.link(temporary, path)
            except FileExistsError:
                if intact(chunks_of(path), ref):
                    os.utime(path)  # resets its age, so that garbage collection keeps it
                else:
                    temporary.replace(path)  # repairs a file that the disk damaged: its name is its digest
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(folder)
        return ref

    def _missing(self, ref: GraphRef) -> PermanentError:
        self._must_be_mounted()
        return PermanentError(f"Graph {ref.uri} is missing in {self._root}.")

    def _must_be_mounted(self) -> None:
        if not (self._root / "graphs").is_dir():
            raise Unreachable(f"The blob store {self._root} is not there.", hint="Mount its disk, or restore it.")

    def _folder(self, job_id: str) -> Path:
        return self._root / "graphs" / job_id

    def _path(self, name: BlobName) -> Path:
        return self._folder(name.job_id) / name.sha256

    @contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        """Raises: Unreachable for an error of the disk: it proves nothing about the blob, so callers wait."""
        try:
            yield
        except OSError as error:
            raise Unreachable(f"Can't {doing} in {self._root}: {error}", hint=what_to_do(self._root, error)) from error

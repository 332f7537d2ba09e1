"""An object store in a folder, with one file per object."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.adapters.local.disk_space import what_to_do
from ledger.archive.format.objects import ObjectStat, Unfit, check_name, check_prefix, check_size, is_name
from ledger.errors import Unreachable
from ledger.util.files import make_folder, spool, sync_folder

_TEMPORARY = ".create-"  # no object name begins with a dot, so a crash's leftover is never taken for an object
MARKER = ".ledger-archive"


class FolderObjects:
    """Implements `archive.format.objects.ObjectStore` in a folder. If the root did not exist at first, the first
    `create` makes it; reading never does. A root without its marker, or one that has disappeared, counts as a disk that
    is not mounted: Unreachable, so that no second archive is begun beside the first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        with self._translate_errors("find the archive"):
            self._begun = root.exists()

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / check_name(name)
        with self._translate_errors(f"create {name}"):
            self._begin()
            self._must_be_mounted()
            make_folder(path.parent)
            temporary, _, _ = spool([data], path.parent, _TEMPORARY)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(path.parent)
        return True

    def read(self, name: str) -> bytes | None:
        path = self._root / check_name(name)
        with self._translate_errors(f"read {name}"):
            try:
                return _read(name, path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._must_be_mounted()
                return None

    def stat(self, name: str) -> ObjectStat | None:
        path = self._root / check_name(name)
        with self._translate_errors(f"look at {name}"):
            try:
                found = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                self._must_be_mounted()
                return None
        return ObjectStat(found.st_size, time.time() - found.st_mtime) if stat.S_ISREG(found.st_mode) else None

    def delete(self, name: str) -> None:
        path = self._root / check_name(name)
        with self._translate_errors(f"delete {name}"):
            self._must_be_mounted()
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return
            sync_folder(path.parent)

    def names(self, prefix: str) -> list[str]:
        folder = self._root / check_prefix(prefix)
        with self._translate_errors(f"list {prefix or 'all'}"):
            self._must_be_mounted()
            found = (path.relative_to(self._root).as_posix() for path in folder.rglob("*") if path.is_file())
            return sorted(filter(is_name, found))

    def _begin(self) -> None:
        """Creates the root together with its marker, by a rename: another process must never see a root without it."""
        if not self._begun and not self._root.exists():
            make_folder(self._root.parent)
            made = self._root.with_name(f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}")
            made.mkdir(exist_ok=True)
            (made / MARKER).touch()
            sync_folder(made)
            try:
                made.rename(self._root)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:  # these two: another process was first
                    raise
                shutil.rmtree(made)
            sync_folder(self._root.parent)
        self._begun = True

    def _must_be_mounted(self) -> None:
        if (self._begun or self._root.exists()) and not (self._root / MARKER).exists():
            hint = f"Mount its disk, or restore it with its file {MARKER}."
            raise Unreachable(f"The archive {self._root} is not there.", hint=hint)

    @contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unreachable(f"Can't {doing}: {error}", hint=what_to_do(self._root, error)) from error


def _read(name: str, path: Path) -> bytes:
    """The content of an object's file.

    Raises: Unfit if it is too large, or a FIFO or a device: anyone who can write to the archive can put one there, and
    reading it may never end. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise Unfit(f"{name} is not a file: {path} is a FIFO or a device, and is not read.")
        check_size(name, found.st_size)
        return file.read()

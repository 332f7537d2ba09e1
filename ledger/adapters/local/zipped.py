"""An object store in a zip file, for bundles. One process writes the file once; then any process may read it."""

from __future__ import annotations

import os
import struct
import threading
import zipfile
import zlib
from lzma import LZMAError
from pathlib import Path

from ledger.archive.format.objects import BYTES_MAX, ObjectStat, Unfit, check_name, check_prefix, check_size, is_name
from ledger.errors import UsageError

OBJECT_BYTES_MAX = 256 << 20  # of an object in a chain: bundles contain no joined days
_WHEN = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same records give the same bytes
#: The errors that reading a damaged zip may raise: zipfile has no single class for them.
_DAMAGED = (
    OSError, EOFError, OverflowError, RuntimeError, ValueError, struct.error, zlib.error, LZMAError, zipfile.BadZipFile,
)  # fmt: skip


class ZipObjects:
    """Implements `archive.format.objects.ObjectStore` on a zip file without other writers. new: create the file; else
    read an existing file.

    A new file is complete only after `close`. Raises: UsageError if a new file exists already or can't be created, or
    an existing file can't be read as a zip."""

    def __init__(self, path: Path, new: bool = False) -> None:
        try:
            if new:  # a bundle quotes the output of jobs: its owner decides who may read it
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            self._zip = zipfile.ZipFile(path, "w" if new else "r", zipfile.ZIP_DEFLATED)
        except FileExistsError as error:
            raise UsageError(f"{path} is there already.", hint="Name another file.") from error
        except _DAMAGED as error:
            raise UsageError(f"{path} can't be {'made' if new else 'read'}: {_why(error)}.") from error
        self._path, self._names = path, set(self._zip.namelist())
        self._creating = threading.Lock()

    def create(self, name: str, data: bytes) -> bool:
        info = zipfile.ZipInfo(check_name(name), _WHEN)
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._creating:
            if name in self._names:
                return False
            self._zip.writestr(info, data)
            self._names.add(name)
        return True

    def read(self, name: str) -> bytes | None:
        """The content of an object; None if the object does not exist. Raises: Unfit if it is damaged, or larger than
        any object that a bundle contains."""
        if check_name(name) not in self._names:
            return None
        # The zip's directory states the size before anything is unpacked, and zipfile unpacks no more than that.
        check_size(name, self._zip.getinfo(name).file_size, BYTES_MAX if name.startswith("logs/") else OBJECT_BYTES_MAX)
        try:
            return self._zip.read(name)
        except _DAMAGED as error:
            raise Unfit(f"{name} in {self._path} is damaged: {_why(error)}.") from error

    def stat(self, name: str) -> ObjectStat | None:
        return ObjectStat(self._zip.getinfo(name).file_size, None) if check_name(name) in self._names else None

    def delete(self, name: str) -> None:
        """Always refuses: a bundle is never changed. Raises: UsageError."""
        raise UsageError(f"{check_name(name)} can't be deleted: {self._path} is a bundle, and never changed.")

    def names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return sorted(name for name in self._names if name.startswith(prefix) and is_name(name))

    def close(self) -> None:
        self._zip.close()


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__

"""An object store in a zip file: what a bundle carries. Written once, by one; then read by anybody."""

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

OBJECT_BYTES_MAX = 256 << 20  # of one that lies in a chain: a bundle joins no days
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same records make the same bytes
#: What reading a damaged zip may raise: the module has no error for that of its own.
_DAMAGED = (
    OSError, EOFError, OverflowError, RuntimeError, ValueError, struct.error, zlib.error, LZMAError, zipfile.BadZipFile,
)  # fmt: skip


class ZipObjects:
    """Implements `archive.objects.ObjectStore` for a file that nobody else writes. new: makes the file; else it is read.

    Close it: only then is a new one whole. Raises: UsageError: the file is there already, or is not to be read as a zip."""

    def __init__(self, path: Path, new: bool = False) -> None:
        try:
            if new:  # it quotes what jobs printed: its owner decides who else reads it
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
        """Raises: Unfit if it is damaged, or larger than anything that we put there."""
        if check_name(name) not in self._names:
            return None
        # It is said before anything is unpacked, and no more than that is unpacked.
        check_size(name, self._zip.getinfo(name).file_size, BYTES_MAX if name.startswith("logs/") else OBJECT_BYTES_MAX)
        try:
            return self._zip.read(name)
        except _DAMAGED as error:
            raise Unfit(f"{name} in {self._path} is damaged: {_why(error)}.") from error

    def stat(self, name: str) -> ObjectStat | None:
        return ObjectStat(self._zip.getinfo(name).file_size, None) if check_name(name) in self._names else None

    def delete(self, name: str) -> None:
        """Raises: UsageError: nothing is taken out of a bundle."""
        raise UsageError(f"{check_name(name)} can't be deleted: {self._path} is a bundle, and never changed.")

    def names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return sorted(name for name in self._names if name.startswith(prefix) and is_name(name))

    def close(self) -> None:
        self._zip.close()


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__

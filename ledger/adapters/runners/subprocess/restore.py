"""Restore points as files and folders of this host: do they hold what was reported, and how they go."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

from ledger.adapters.runners.subprocess.supervisor.checkpoints import size_of
from ledger.core.facts import RestorePoint
from ledger.ports import Verification

#: What the file system says of a name under which nothing can ever lie.
_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def path_of(restore_point: RestorePoint) -> Path | None:
    """Where it lies on this host; None if its location is no absolute path."""
    path = Path(restore_point.location.removeprefix("file://"))
    return path if path.is_absolute() and "\0" not in restore_point.location else None


def verify(restore_point: RestorePoint) -> Verification:
    """VALID: it is there, can be read, and has the recorded size and digest, as far as they were recorded. A pipe or
    a device is no restore point: to open one may take for ever.

    A size of 0 and an empty digest say nothing; only a file has a digest. UNKNOWN: the file system gave no answer."""
    path = path_of(restore_point)
    if path is None:
        return Verification.INVALID
    try:
        if restore_point.size and size_of(str(path)) != restore_point.size:
            return Verification.INVALID
        return Verification.VALID if _readable(path, restore_point.digest) else Verification.INVALID
    except (FileNotFoundError, NotADirectoryError):
        return Verification.INVALID
    except OSError as error:
        return Verification.INVALID if error.errno in _NO_NAME else Verification.UNKNOWN


def _readable(path: Path, digest: str) -> bool:
    """Whether the digest matches. Raises: OSError if anything in it can't be read."""
    if path.is_dir():
        for folder, _, names in os.walk(path, onerror=_raise):
            for name in names:
                file = Path(folder, name)
                if file.is_symlink():
                    continue
                if not _regular(file):
                    return False
                _read_a_byte(file)
        return not digest
    if not _regular(path):
        return False
    if not digest:
        _read_a_byte(path)
        return True
    found = sha256()
    with path.open("rb") as content:
        while data := content.read(1 << 20):
            found.update(data)
    return found.hexdigest() == digest


def _regular(path: Path) -> bool:
    """Raises: OSError, where Path.is_file would say no."""
    return stat.S_ISREG(path.stat().st_mode)


def _read_a_byte(path: Path) -> None:
    with path.open("rb") as file:
        file.read(1)


def _raise(error: OSError) -> None:
    raise error


def remove(path: Path) -> None:
    """Deletes a file or a folder; gone already is no error. Raises: OSError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass

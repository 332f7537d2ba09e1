"""Verifies and deletes restore points that are files and folders of this host."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from ledger.adapters.runners.subprocess import content
from ledger.adapters.runners.subprocess.content import ContentManifest, Unsteady
from ledger.adapters.runners.subprocess.supervisor import checkpoints
from ledger.adapters.runners.subprocess.supervisor.checkpoints import size_of
from ledger.core.model.facts import RestorePoint
from ledger.ports import Verification


class RestoreCheck(NamedTuple):
    """The result of a verification. reason: why the restore point is not valid, for people; "" if it is valid."""

    verification: Verification
    reason: str = ""


VALID = RestoreCheck(Verification.VALID)
#: Errors of the file system for a name that no file can ever have.
_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def path_of(restore_point: RestorePoint) -> Path | None:
    """The path of the restore point on this host; None if its location is not an absolute path."""
    path = Path(restore_point.location.removeprefix("file://"))
    return path if path.is_absolute() and "\0" not in restore_point.location else None


def verify(restore_point: RestorePoint, jobs: Path | None = None) -> RestoreCheck:
    """Verifies a restore point. VALID: its files exist, can be read, and have the recorded size and content, as far as
    these were recorded. A pipe or a device is never valid, because opening one may block for ever.

    A recorded size of 0 or an empty digest means unknown. If the record has no content digest, the manifest counts that
    the agent stored later. jobs: the agent's folder of jobs, where such manifests are; None: no manifests are used.
    UNKNOWN: the file system gave no answer, or this release does not know the kind of digest."""
    path = path_of(restore_point)
    if path is None:
        return RestoreCheck(Verification.INVALID, f"its location is not a path on this host: {restore_point.location!a}")
    try:
        return _judged(path, restore_point, _stored(path, jobs))
    except (FileNotFoundError, NotADirectoryError):
        return RestoreCheck(Verification.INVALID, f"missing: there is nothing at {path}")
    except Unsteady as error:
        return RestoreCheck(Verification.INVALID, f"damaged: {error}")
    except OSError as error:
        if error.errno in _NO_NAME:
            return RestoreCheck(Verification.INVALID, f"missing: no file can exist at its location: {error.strerror}")
        return RestoreCheck(Verification.UNKNOWN, f"it can't be read: {error}")


def _stored(path: Path, jobs: Path | None) -> ContentManifest | None:
    if jobs is None or checkpoints.parse(path.name) is None or not path.is_relative_to(jobs):
        return None
    return content.load(path)


def _judged(path: Path, point: RestorePoint, stored: ContentManifest | None) -> RestoreCheck:
    """Raises: OSError, Unsteady."""
    if point.size and (size := size_of(str(path))) != point.size:
        which = f"; {sizes}" if stored and (sizes := content.different_size(path, stored)) else ""
        return RestoreCheck(Verification.INVALID, f"damaged: {path} has {size} bytes, {point.size} were recorded{which}")
    if why := _unreadable(path):
        return RestoreCheck(Verification.INVALID, f"damaged: {why}")
    recorded = point.digest
    kind, tagged, _ = recorded.partition(":")
    if tagged and f"{kind}:" != content.TAG:
        return RestoreCheck(Verification.UNKNOWN, f"its digest is of the kind {kind!a}, which this release does not know")
    if recorded and not tagged:
        matches = not path.is_dir() and _sha256(path) == recorded
        return (
            VALID if matches else RestoreCheck(Verification.INVALID, f"damaged: {path} is not what was recorded (SHA-256)")
        )
    if not recorded and stored is None:
        return VALID
    if recorded and stored is not None and stored.digest != recorded:
        stored = None  # not the recorded manifest, so it can't show which file differs
    found = content.read(path)
    if found.digest == (recorded or (stored.digest if stored else "")):
        return VALID
    which = content.difference(stored, found) if stored else "some file of it is not what was recorded"
    return RestoreCheck(Verification.INVALID, f"damaged: {which} ({path}, SHA-256 over its files)")


def _unreadable(path: Path) -> str:
    """Why this is no restore point; "" if a byte of each file can be read. Raises: OSError."""
    if not path.is_dir():
        if not _regular(path):
            return f"{path} is not a regular file"
        _read_a_byte(path)
        return ""
    for folder, _, names in os.walk(path, onerror=_raise):
        for name in names:
            file = Path(folder, name)
            if file.is_symlink():
                continue
            if not _regular(file):
                return f"{file} is not a regular file"
            _read_a_byte(file)
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _regular(path: Path) -> bool:
    """Whether it is a regular file. Raises: OSError, where Path.is_file would return False."""
    return stat.S_ISREG(path.stat().st_mode)


def _read_a_byte(path: Path) -> None:
    with path.open("rb") as file:
        file.read(1)


def _raise(error: OSError) -> None:
    raise error


def remove(path: Path) -> None:
    """Deletes a file or a folder; a missing one is no error. Raises: OSError."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        pass

"""Files that are there whole or not at all. The one place that does it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces `path` by `data`, durably: after a crash at any moment it holds all of the old or all of the new."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes durable that names were added to the folder or taken from it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Makes it, and those above it that are missing, durably: what is durable in a folder is lost with its name.
    mode: of the folder itself. One that is there is left as it is."""
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def spool(chunks: Iterable[bytes], folder: Path, prefix: str) -> tuple[Path, str, int]:
    """Writes the chunks durably to a temporary file in `folder`: path, digest and size. Nothing is left on error."""
    handle, temporary = tempfile.mkstemp(prefix=prefix, dir=folder)
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return Path(temporary), digest.hexdigest(), size

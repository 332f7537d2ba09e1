"""Atomic and durable writes of files. No other module of the package does them."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces the content of `path` durably: after a crash at any moment the file holds all of the old or all of the
    new."""
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
    """Makes the creation or removal of names in the folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Creates the folder and its missing parents durably, because the loss of a folder's name loses its content.

    mode: the permissions of the folder itself, not of its parents. An existing folder is not changed.
    """
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def spool(chunks: Iterable[bytes], folder: Path, prefix: str) -> tuple[Path, str, int]:
    """The path, SHA-256 and size in bytes of a new temporary file in `folder` with these chunks, written durably. On
    error no file is left."""
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

"""A folder for all that one Spark driver writes beside its checkpoints: jars, blocks, artifacts, native libraries.

Spark removes these when it stops. A driver that is killed leaves some 10 MB, so the next one to start removes the folders
of those that are gone. A lock on a file tells who is there: the kernel releases it with the process, also across containers
that share the folder, where process numbers mean nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

LOCK = "lock"


def claim_scratch(folder: Path) -> Path:
    """A new folder below, which is this process's own until it ends. Folders of processes that are gone are removed.

    Raises: OSError if the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    gate = _open(folder / LOCK)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)  # else another one could sweep ours before it is locked
        for path in folder.iterdir():
            if path.is_dir() and not _held(path):
                shutil.rmtree(path, ignore_errors=True)
        own = Path(tempfile.mkdtemp(prefix="driver-", dir=folder))
        fcntl.flock(_open(own / LOCK), fcntl.LOCK_EX)  # never closed: it is held as long as the process lives
    finally:
        os.close(gate)
    return own


def _held(path: Path) -> bool:
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

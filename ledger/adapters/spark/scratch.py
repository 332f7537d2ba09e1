"""The scratch folder of a Spark driver: jars, blocks, artifacts, native libraries; everything except its checkpoints.

Spark removes these files when it stops. A killed driver leaves some 10 MB, so the next driver to start removes the
folders of dead drivers. A driver holds a lock on a file while it lives, and the kernel releases the lock with the
process. Locks also work across containers that share the folder, where pids mean nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

LOCK = "lock"


def claim_scratch(folder: Path) -> Path:
    """A new subfolder of `folder` that belongs to this process until it ends. Removes the subfolders of dead processes.

    Raises: OSError if the folder can't be written."""
    folder.mkdir(parents=True, exist_ok=True)
    gate = _open(folder / LOCK)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)  # else another driver could remove ours before it is locked
        for path in folder.iterdir():
            if path.is_dir() and not _held(path):
                shutil.rmtree(path, ignore_errors=True)
        own = Path(tempfile.mkdtemp(prefix="driver-", dir=folder))
        fcntl.flock(_open(own / LOCK), fcntl.LOCK_EX)  # never closed, so the lock is held as long as the process lives
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

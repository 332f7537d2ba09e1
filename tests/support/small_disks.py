"""Disks of a few megabytes that a test can fill. Each is a tmpfs, if the test may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BALLAST = ".ballast"


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mounts a small disk on the folder. Skips the test if mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted: {done.stderr.strip() if done else 'not root'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Fills the disk to its last page."""
    handle = os.open(disk / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 20, 1 << 16, 1 << 12, 1):
            while True:
                try:
                    os.write(handle, bytes(size))
                except OSError:
                    break
    finally:
        os.close(handle)


def make_room(disk: Path) -> None:
    (disk / BALLAST).unlink()

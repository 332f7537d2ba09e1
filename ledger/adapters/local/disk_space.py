"""Distinguishes full disks from failing disks, with a hint for each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: With less free space a broker can't begin a segment: it needs two indexes of 10 MiB each.
ROOM_BYTES = 20 << 20


def is_full(error: OSError) -> bool:
    """Whether the error means that the disk or the quota is full."""
    return error.errno in FULL


def what_to_do(root: Path, error: OSError) -> str:
    """The hint for a read or write that failed in a folder. Without this hint, commands would suggest to start the
    ledger."""
    if is_full(error):
        return f"Make room on the disk of {root}, then try again: nothing was stored."
    return f"Check {root}: its owner, its mode, its disk."


def without_room(folders: Iterable[Path], room_bytes: int = ROOM_BYTES) -> list[Path]:
    """The folders whose disk has less free space than room_bytes, or no free inode. A folder that can't be examined is
    left out."""
    out = []
    for folder in folders:
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        if disk.f_bavail * disk.f_frsize < room_bytes or (disk.f_files and not disk.f_favail):
            out.append(folder)
    return out

"""Disks that are full, told from disks that fail, and what to do of either."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Below this a broker can't begin a segment: two indexes of 10 MiB each.
ROOM_BYTES = 20 << 20


def is_full(error: OSError) -> bool:
    """Whether that is why something could not be written."""
    return error.errno in FULL


def what_to_do(root: Path, error: OSError) -> str:
    """What to do when nothing could be read or written in the folder: it is no server that could be started."""
    if is_full(error):
        return f"Make room on the disk of {root}, then do it again: nothing was stored."
    return f"Check {root}: its owner, its mode, its disk."


def without_room(folders: Iterable[Path], room_bytes: int = ROOM_BYTES) -> list[Path]:
    """Those of the folders whose disk has less room than this, or no file can be made on; one that is not there has none
    of its own."""
    out = []
    for folder in folders:
        try:
            disk = os.statvfs(folder)
        except OSError:
            continue
        if disk.f_bavail * disk.f_frsize < room_bytes or (disk.f_files and not disk.f_favail):
            out.append(folder)
    return out

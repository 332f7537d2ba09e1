"""Folders that only their owner may enter.

Whoever may open a lock file, if only to read it, may hold the lock (flock(2)): any user of the host could keep the ledger
without a leader. And logs, facts and causes quote what jobs printed, passwords included.
"""

from __future__ import annotations

import logging
from pathlib import Path

OWNER_ALONE = 0o700
log = logging.getLogger(__name__)


def private_folder(path: Path) -> None:
    """Makes the folder for its owner alone; takes the rights of others from one that exists.

    A folder of another owner stays as it is, with a warning: its owner decides."""
    path.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
    open_to_others = path.stat().st_mode & 0o077
    if not open_to_others:
        return
    try:
        path.chmod(OWNER_ALONE)
    except PermissionError:
        log.warning("other users may enter %s, and hold the locks of this ledger; its owner can: chmod 700 %s", path, path)

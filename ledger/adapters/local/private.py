"""Folders that only their owner can access.

A user who can open a lock file, even only for reading, can hold its lock (flock(2)): any user of the host could then
keep the ledger without a leader. Also, logs, facts and causes quote the output of jobs, which may contain passwords.
"""

from __future__ import annotations

import logging
from pathlib import Path

OWNER_ALONE = 0o700
log = logging.getLogger(__name__)


def private_folder(path: Path) -> None:
    """Creates the folder with mode 0700, or sets that mode on an existing folder.

    A folder of another owner stays unchanged, and a warning is logged: its owner must decide."""
    path.mkdir(mode=OWNER_ALONE, parents=True, exist_ok=True)
    open_to_others = path.stat().st_mode & 0o077
    if not open_to_others:
        return
    try:
        path.chmod(OWNER_ALONE)
    except PermissionError:
        hint = f"other users can hold its locks; as its owner run: chmod 700 {path}"
        log.warning("folder_open_to_others", extra={"path": str(path), "hint": hint})

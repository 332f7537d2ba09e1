"""The reasons for which jobs wait, as the reconciler of this host writes them: a file for people, no part of the log.

Nothing is decided by it. It is as old as the last change, and empty while no reconciler of this host leads.
"""

from __future__ import annotations

import json
from pathlib import Path

from ledger.util.files import write_atomic


def tell(path: Path, waits: dict[str, str]) -> None:
    """waits: job id -> reason. A disk that is full is no reason to stop."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(waits, sort_keys=True).encode())
    except OSError:
        return


def read(path: Path) -> dict[str, str]:
    """{} if there is no such file, or it can't be read."""
    try:
        waits = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(job): str(reason) for job, reason in waits.items()} if isinstance(waits, dict) else {}

"""The file in which the reconciler of this host records why jobs wait. The file is for people, and not part of the log.

No decision depends on the file. It is written at each change, and is empty while no reconciler of this host leads."""

from __future__ import annotations

import json
from pathlib import Path

from ledger.util.files import write_atomic


def tell(path: Path, waits: dict[str, str]) -> None:
    """Writes the file. waits: job id -> reason. Errors are ignored: the reconciler must not stop because of a full
    disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(waits, sort_keys=True).encode())
    except OSError:
        return


def read(path: Path) -> dict[str, str]:
    """The reasons in the file: job id -> reason; {} if the file does not exist or can't be read."""
    try:
        waits = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(job): str(reason) for job, reason in waits.items()} if isinstance(waits, dict) else {}

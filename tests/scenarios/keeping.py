"""What a scenario leaves, kept as a bundle: `BUNDLES=DIR pytest tests/scenarios` makes those of docs/incidents anew."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.acceptance.folder import JOBLEDGER

VARIABLE = "BUNDLES"


def keep(number: str, reason: str, environment: Mapping[str, str]) -> None:
    """number: of the incident. environment: names the ledger. Does nothing unless it is asked to."""
    if not (folder := os.environ.get(VARIABLE)):
        return
    file = Path(folder) / f"{number}.zip"
    file.unlink(missing_ok=True)
    command = [JOBLEDGER, "audit", "bundle", "--to", str(file), "--reason", reason]
    subprocess.run(command, check=True, env={**os.environ, **environment}, timeout=120)

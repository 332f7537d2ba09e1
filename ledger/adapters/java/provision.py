"""Runs the steps of the programs behind `make setup`, with progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ledger.adapters.java.jars import Progress
from ledger.errors import LedgerError


def bring(*steps: Callable[[Progress], object]) -> int:
    """Runs the steps in order. Returns 0, or the exit code of the first step that failed; later steps do not run. Each
    step gets a function that prints its progress."""
    try:
        for step in steps:
            step(_say)
    except LedgerError as error:
        _say(f"{error} {error.hint}".rstrip())
        return error.exit_code
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")

"""What the programs of `make setup` share: one step after another, told on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ledger.adapters.java.jars import Progress
from ledger.errors import LedgerError


def bring(*steps: Callable[[Progress], object]) -> int:
    """0, or the exit code of the first step that failed; those behind it are not begun. Each is given where to say how
    far it is."""
    try:
        for step in steps:
            step(_say)
    except LedgerError as error:
        _say(f"{error} {error.hint}".rstrip())
        return error.exit_code
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")

"""The seed of a run of the tests: what is drawn is drawn anew with each commit, and by its seed it is drawn again.

    LEDGER_TEST_SEED=<number> .venv/bin/python -m pytest …

pytest prints the number in its first lines, and beneath each failure of a test that asks for a seed here.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path

VARIABLE = "LEDGER_TEST_SEED"
WITHOUT_GIT = 1
_SEEDS = 2**32  # few enough digits to copy by hand


def of_run() -> int:
    """The number that the variable holds, else one from the commit's hash, else 1. Raises: ValueError if the variable
    holds no number."""
    given = os.environ.get(VARIABLE)
    return int(given) if given else of_commit(commit())


def of(name: str) -> int:
    """The seed of one thing that is drawn: two names have different ones in the same run."""
    return int(sha256(f"{of_run()} {name}".encode()).hexdigest(), 16) % _SEEDS


def of_commit(commit: str) -> int:
    """1 … 2**32, the same for the same commit; "" = there is none."""
    return int(sha256(commit.encode()).hexdigest(), 16) % _SEEDS + 1 if commit else WITHOUT_GIT


@cache
def commit(folder: Path = Path(__file__).parent) -> str:
    """The hash of the commit that is checked out; "" without git, or outside a repository."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=30, check=False
        )  # fmt: skip
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def said() -> str:
    """How to have the same run again."""
    return f"{VARIABLE}={of_run()}"


@contextmanager
def told() -> Iterator[None]:
    """What fails inside says how to have it again."""
    try:
        yield
    except Exception as error:
        error.add_note(f"again: {said()}")
        raise

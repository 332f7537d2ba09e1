"""The seed of a test run. Each commit has another seed, and a given seed repeats a run's random choices.

    LEDGER_TEST_SEED=<number> .venv/bin/python -m pytest …

pytest prints the seed in its first lines, and below each failure of a test that uses a seed of this module.
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
    """The seed: from the variable, else from the commit's hash, else 1. Raises: ValueError if the variable holds no
    number."""
    given = os.environ.get(VARIABLE)
    return int(given) if given else of_commit(commit())


def of(name: str) -> int:
    """The seed of one test. Two names have different seeds in the same run."""
    return int(sha256(f"{of_run()} {name}".encode()).hexdigest(), 16) % _SEEDS


def of_commit(commit: str) -> int:
    """A seed in 1 … 2**32, the same for the same commit. commit: "" = there is none."""
    return int(sha256(commit.encode()).hexdigest(), 16) % _SEEDS + 1 if commit else WITHOUT_GIT


@cache
def commit(folder: Path = Path(__file__).parent) -> str:
    """The hash of the current commit; "" without git, or outside a repository."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=30, check=False
        )  # fmt: skip
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def said() -> str:
    """The instruction for repeating this run."""
    return f"{VARIABLE}={of_run()}"


@contextmanager
def told() -> Iterator[None]:
    """Adds the instruction for repeating the run to any failure inside the block."""
    try:
        yield
    except Exception as error:
        error.add_note(f"again: {said()}")
        raise

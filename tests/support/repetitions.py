"""The number of cases that a test draws, and their seeds: few in `make test`, many in the acceptance program.

REPETITIONS is the number of cases, SEED the first seed. The acceptance program sets both (`tests/acceptance/program.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

DEEP = "REPETITIONS" in os.environ
FIRST = int(os.environ.get("SEED", "0"))


def count(few: int) -> int:
    """The number of cases. few: the default."""
    return int(os.environ.get("REPETITIONS", few))


def seeds(few: int) -> range:
    """`count(few)` seeds, beginning with SEED."""
    return range(FIRST, FIRST + count(few))


def one_fast(cases: Iterable[Any]) -> list[Any]:
    """The cases of a search, for `parametrize`. `make check` runs the first; all others are marked `slow`.

    A case is one value, or a tuple of values for several parameters."""
    first, *others = cases
    return [first, *(pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.slow) for one in others)]

"""How many cases a test draws, and from which seeds: few in `make test`, many in the acceptance program.

REPETITIONS is the number of cases, SEED the first seed. The acceptance program sets both (`tests/acceptance/program.py`).
"""

from __future__ import annotations

import os

DEEP = "REPETITIONS" in os.environ
FIRST = int(os.environ.get("SEED", "0"))


def count(few: int) -> int:
    """few: the number of cases if nobody asks for more."""
    return int(os.environ.get("REPETITIONS", few))


def seeds(few: int) -> range:
    """As many seeds as `count`, beginning with SEED."""
    return range(FIRST, FIRST + count(few))

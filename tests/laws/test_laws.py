"""The laws hold for histories that differ with each commit (`tests.support.seeds`), and on request for 20,000:

LEDGER_LAWS_EXAMPLES=20000 .venv/bin/python -m pytest tests/laws -q
"""

from __future__ import annotations

import pytest

from tests.laws import book, directed
from tests.support import seeds


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", book.LAWS)
def test_the_law_holds(name):
    book.hold(name, book.examples())


@pytest.mark.parametrize("name", book.LAWS)
def test_the_law_holds_for_some(name):
    """For `make check`. It draws other histories than `test_the_law_holds`."""
    book.hold(name, book.examples() // 6, seeds.of(f"{name}, some"))


@pytest.mark.parametrize("name", directed.HISTORIES)
def test_the_history_written_by_hand(name):
    directed.HISTORIES[name]()

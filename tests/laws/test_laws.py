"""The laws hold: for histories drawn anew with each commit (`tests.support.seeds`), and for 20,000 where one asks for it:

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
    """In `make check`: with other histories than `test_the_law_holds` draws."""
    book.hold(name, book.examples() // 6, seeds.of(f"{name}, some"))


@pytest.mark.parametrize("name", directed.HISTORIES)
def test_the_history_written_by_hand(name):
    directed.HISTORIES[name]()

"""Weaker variants of the fold must not pass: each is killed by every law that is said to see it.

A law that no mutant breaks would be no evidence. What random histories don't reach is written by hand in `directed`.
"""

from __future__ import annotations

import pytest

from tests.laws import book, directed, more_mutants
from tests.laws.mutants import MUTANTS

assert more_mutants.MUTANTS is MUTANTS
CASES = [(name, law) for name, mutant in MUTANTS.items() for law in mutant.killers]


@pytest.mark.parametrize(("name", "law"), CASES, ids=[f"{name}-by-{law}" for name, law in CASES])
def test_the_mutant_is_killed(name, law, monkeypatch):
    MUTANTS[name].patch(monkeypatch)
    with pytest.raises(MUTANTS[name].error):
        book.hold(law, MUTANTS[name].examples, shrink=False)


def test_every_law_and_every_history_written_by_hand_kills_a_mutant():
    assert {law for _, law in CASES} == {*book.LAWS, *directed.HISTORIES}

"""Weaker variants of the fold must not pass: each is killed by every law listed as its killer.

A law that no mutant breaks would be no evidence. Situations that random histories don't reach are written by hand in
`directed`.
"""

from __future__ import annotations

import pytest

from tests.laws import book, directed, intent_mutants, more_mutants, savepoint_mutants
from tests.laws.mutants import MUTANTS

pytestmark = pytest.mark.slow

assert more_mutants.MUTANTS is MUTANTS is savepoint_mutants.MUTANTS is intent_mutants.MUTANTS
#: (mutant, law) -> the seed that kills the mutant soonest, at the time of writing. For all others seed 1 is quick enough.
SOONEST = {
    ("a_rate_leaves_out_the_newest_failure", "oracle"): 15,
    ("pruning_takes_what_a_pending_retry_names", "restore"): 9,
    ("permanent_is_a_flag_in_the_value", "order"): 4,
    ("failures_are_counted_from_the_ends_that_are_there", "set"): 10,
}
CASES = [(name, law) for name, mutant in MUTANTS.items() for law in mutant.killers]


@pytest.mark.parametrize(("name", "law"), CASES, ids=[f"{name}-by-{law}" for name, law in CASES])
def test_the_mutant_is_killed(name, law, monkeypatch):
    MUTANTS[name].patch(monkeypatch)
    with pytest.raises(MUTANTS[name].error):
        book.hold(law, MUTANTS[name].examples, SOONEST.get((name, law), 1), shrink=False)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_dies_where_the_laws_run_as_often_as_in_every_run(name, monkeypatch):
    """It uses the same histories as `test_laws` for this commit. It does not fail by chance: a mutant that random histories
    may miss has a history written by hand. Each of the others died with each of 100 seeds."""
    MUTANTS[name].patch(monkeypatch)
    by_hand_first = sorted(MUTANTS[name].killers, key=lambda law: law not in directed.HISTORIES)
    assert any(dies(law, MUTANTS[name].error) for law in by_hand_first)


def dies(law: str, error: type[Exception]) -> bool:
    try:
        book.hold(law, book.examples(), shrink=False)
    except error:
        return True
    return False


def test_every_law_and_every_history_written_by_hand_kills_a_mutant():
    assert {law for _, law in CASES} == {*book.LAWS, *directed.HISTORIES}
    assert SOONEST.keys() <= {*CASES}

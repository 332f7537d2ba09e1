"""The causes of a job's state: the newest failure and, behind a verdict, the newest failure that the runner reported."""

from __future__ import annotations

import pytest

from ledger.core.failures import Failure, last_failures
from ledger.core.model.facts import AttemptEnded
from tests.support.registers import UNREADABLE, given

FACTS = {
    "ended/1/failed/agent-a": AttemptEnded("one", None, 1.5),
    "ended/2/failed/agent-a": AttemptEnded("two", None, 2.5),
    "ended/3/lost/reconciler-4": AttemptEnded("gone"),
    "ended/4/failed-permanent/reconciler-4": AttemptEnded("no graph"),
}
ONE = Failure(1, "failed", True, "one", 1.5)
TWO = Failure(2, "failed", True, "two", 2.5)
LOST = Failure(3, "lost", False, "gone", 0.0)
VERDICT = Failure(4, "failed-permanent", False, "no graph", 0.0)


@pytest.mark.parametrize(
    ("upto", "more", "expected"),
    [
        (0, {}, ()),
        (1, {}, (ONE,)),
        (2, {}, (TWO,)),
        (3, {}, (LOST, TWO)),
        (4, {}, (VERDICT, TWO)),
        (4, {"running/5": None}, (VERDICT, TWO)),
        (2, {"ended/3/stopped/agent-a": AttemptEnded("ordered")}, (TWO,)),
        (2, {"ended/2/finished/agent-a": AttemptEnded("well after all")}, (ONE,)),
        (2, {"ended/3/failed/agent-a": UNREADABLE}, (TWO,)),
        (1, {"ended/1/lost/reconciler-1": AttemptEnded("gone")}, (ONE,)),
    ],
)
def test_the_newest_failure_and_behind_a_verdict_the_newest_of_the_runner(upto, more, expected):
    names = [name for name, fact in more.items() if fact is None]
    facts = dict(list(FACTS.items())[:upto]) | {name: fact for name, fact in more.items() if fact is not None}
    assert last_failures(given(*names, facts=facts)) == expected

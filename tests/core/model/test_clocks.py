"""Contradictions between the two times of one record."""

from __future__ import annotations

import pytest

from ledger.core.model.clocks import AHEAD_MAX_S, BEHIND_MAX_S, skew

APPENDED_S = 1_700_000_000.0


@pytest.mark.parametrize(("ahead_s", "told"), [
    (0.0, ""), (AHEAD_MAX_S, ""), (AHEAD_MAX_S + 0.1, "ahead"), (1e9, "ahead"),
    (-3600.0, ""), (-BEHIND_MAX_S, ""), (-BEHIND_MAX_S - 1, "behind"), (-1e9, "behind"),
])  # fmt: skip
def test_nothing_is_appended_before_it_happened_and_little_waits_for_a_day(ahead_s: float, told: str) -> None:
    assert skew(APPENDED_S, APPENDED_S + ahead_s) == told


def test_who_does_not_say_is_not_doubted() -> None:
    assert skew(APPENDED_S, None) == ""

"""The forms in which a user may give a moment."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.history.moment import Moment, parse, vector

NOW_S = 1_769_868_300.0  # 2026-01-31T14:05:00Z


@pytest.mark.parametrize("text", [
    "2026-01-31T14:05:00Z", "2026-01-31t14:05:00z", "2026-01-31T15:05:00+01:00", "2026-01-31 14:05",
    "2026-01-31T14:05:00.000",
])  # fmt: skip
def test_a_time_is_of_utc_unless_it_says_otherwise(text: str) -> None:
    assert parse(text, 0.0) == Moment(time_s=NOW_S)


@pytest.mark.parametrize(("text", "ago_s"), [("0s", 0), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("2d", 172_800)])
def test_so_long_ago(text: str, ago_s: float) -> None:
    assert parse(text, NOW_S) == Moment(time_s=NOW_S - ago_s)


def test_the_last_records_that_count() -> None:
    assert parse("events[0]@12", 0) == Moment(last={("events", 0): 12})
    assert parse("events[0]@12, recovery[30]@-1", 0) == Moment(last={("events", 0): 12, ("recovery", 30): -1})


def test_anything_else_is_the_id_of_an_event() -> None:
    assert parse("0199-abc", 0) == Moment(event_id="0199-abc")


@pytest.mark.parametrize("text", [
    "", "a b", "\x00", "x" * 201, "events[0]@", "events[0]@01", "jobs[0]@1", "events[0]@1,events[0]@2", "@", "2026-13-01",
    "2026-01-31T25:00", "events[0]@-2", "15x", "15min", "1.5hours", "3w",
])  # fmt: skip
def test_what_is_none_of_them_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text, 0.0)


@given(st.text(max_size=40))
def test_nothing_but_a_value_error_comes_of_it(text: str) -> None:
    with suppress(ValueError):
        parse(text, NOW_S)


PLACES = st.tuples(st.sampled_from(["events", "recovery"]), st.integers(0, 99))


@given(st.dictionaries(PLACES, st.integers(0, 2**53), min_size=1))
def test_the_vector_of_an_answer_asks_for_the_same(cut: dict[tuple[str, int], int]) -> None:
    assert parse(vector(cut), 0.0).last == {place: end - 1 for place, end in cut.items()}

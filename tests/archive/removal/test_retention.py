"""Durations by namespace, in the notations that people use."""

from __future__ import annotations

import pytest

from ledger.archive.removal.retention import parse

DAY_S = 86_400.0


@pytest.mark.parametrize(("given", "wanted"), [
    ("prod=365d,*=90d", {"prod": 365 * DAY_S, "*": 90 * DAY_S}),
    (" prod = 1.5h , test=30 ", {"prod": 5400.0, "test": 30.0}),
    ({"prod": "forever", "*": 3600, "test": 0.5}, {"prod": None, "*": 3600.0, "test": 0.5}),
    ({"prod": None}, {"prod": None}),
    ("", {}), ({}, {}),
])  # fmt: skip
def test_as_a_text_or_as_a_table(given: object, wanted: dict[str, float | None]) -> None:
    assert parse(given) == wanted
    assert parse(parse(given)) == wanted


@pytest.mark.parametrize(("given", "told"), [
    ("prod", "'prod' is not NAMESPACE=DURATION"), ("a=1d,a=2d", "a is named twice"), ("a b=1d", "neither a namespace"),
    ({"": "1d"}, "neither a namespace"), ({1: "1d"}, "neither a namespace"), ("a=", "no duration"), ("a=0d", "no duration"),
    ("a=1w", "no duration"),
    ("a=-1d", "no duration"), ({"a": True}, "a duration is"), ({"a": []}, "a duration is"), ({"a": 1e300}, "no duration"),
    ({"a": float("nan")}, "no duration"), (7, "must be a table"), ("*a=1d", "neither a namespace"),
])  # fmt: skip
def test_what_is_none_is_told(given: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse(given)

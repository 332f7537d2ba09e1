"""The description inside a bundle: opening a bundle refuses a field of a wrong type or value."""

from __future__ import annotations

import json

import pytest

from ledger.errors import UsageError
from ledger.history.bundle_about import About, decode

ABOUT = About(
    "2026-01-31T14:05:00Z", "ann@host", "an incident", ("job-1",), "ledger.events", "ledger.recovery", "ledger.rejects",
    {"events": 2, "recovery": 1}, 3, "events[0]@4,events[1]@-1,recovery[0]@2", {"events[0]": 1.5, "recovery[0]": 7},
)  # fmt: skip
TEXTS = ("made_at", "made_by", "reason", "events", "recovery", "rejects", "cut")
OTHERS = [None, 5, "x", [1], {"a": 1}, {"events": -1, "recovery": "x"}]
#: More values that are wrong although their type is right, by field.
WRONG = {
    "keep": [0, -1, True, 1.5], "made_at": ["0001-01-01T00:00:00"],
    "partitions": [{"events": 1, "recovery": 1}, {"events": 10**12, "recovery": 1}, {"events": 2}],
    "cut": ["events[0]@4,events[2]@4,recovery[0]@2"],
    "sure_from_s": [{"events[0]": "x"}, {"events[0]": None}],
}  # fmt: skip
FITTING = {
    "keep": [5],
    "jobs": [["x"]],
    "config": [{"a": 1}],
    "versions": [{"a": 1}],
    "sure_from_s": [{"a": 1}],
}


def others() -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for field in json.loads(ABOUT.encode()):
        own = [*OTHERS, *WRONG.get(field, []), 10**400]
        if field in ("config", "versions"):
            own = [other for other in own if not isinstance(other, dict)]
        if field in TEXTS and field not in ("made_at", "cut"):
            own = [other for other in own if not isinstance(other, str)]
        found += [(field, other) for other in own if other not in FITTING.get(field, [])]
    return found


def encoded(field: str, value: object) -> bytes:
    return json.dumps({**json.loads(ABOUT.encode()), field: value}).encode()


def test_what_is_right_is_read() -> None:
    assert decode(ABOUT.encode()) == ABOUT
    for field, values in FITTING.items():
        for value in values:
            decode(encoded(field, value))


@pytest.mark.parametrize(("field", "other"), others(), ids=lambda part: str(part)[:40])
def test_a_field_of_another_kind_is_refused(field: str, other: object) -> None:
    with pytest.raises(UsageError, match="bundle"):
        decode(encoded(field, other))


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="can't be read"):
        decode(b"[" * 100_000)

"""Times as text: the precision of each form, and times that no calendar holds."""

from __future__ import annotations

import pytest

from ledger.util import times


@pytest.mark.parametrize(
    ("time_s", "timespec", "text"),
    [
        (0.0, "seconds", "1970-01-01T00:00:00Z"),
        (1_738_324_800.9999994, "microseconds", "2025-01-31T12:00:00.999999Z"),
        (1_738_324_800.9999, "milliseconds", "2025-01-31T12:00:00.999Z"),
        (1_738_324_800.9999, "seconds", "2025-01-31T12:00:00Z"),
        (-0.5, "milliseconds", "1969-12-31T23:59:59.500Z"),
    ],
)
def test_a_time_is_cut_off_at_its_unit(time_s: float, timespec: str, text: str) -> None:
    assert times.rfc3339(time_s, timespec) == times.shown(time_s, timespec) == text
    assert timespec != "seconds" or times.utc(time_s) == text


@pytest.mark.parametrize(("time_s", "text"), [(1e20, "1e+20s"), (-1e12, "-1e+12s"), (float("inf"), "infs")])
def test_a_time_beyond_the_calendar_is_shown_in_seconds(time_s: float, text: str) -> None:
    assert times.shown(time_s) == text
    with pytest.raises((OverflowError, ValueError)):
        times.rfc3339(time_s)

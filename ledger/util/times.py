"""Times as text and back: RFC 3339, always in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


def rfc3339(time_s: float, timespec: str = "microseconds") -> str:
    """The time as RFC 3339 in UTC: 2025-01-31T12:00:00.250000Z. time_s: seconds since the epoch. timespec: seconds,
    milliseconds or microseconds; smaller units are cut off.

    Raises: OverflowError if the time is not between the years 1 and 9999.
    """
    return (_EPOCH_START + timedelta(seconds=time_s)).isoformat(timespec=timespec).removesuffix("+00:00") + "Z"


def utc(time_s: float) -> str:
    """The time in UTC, in whole seconds: 2025-01-31T12:00:00Z. Raises: as `rfc3339`."""
    return rfc3339(time_s, "seconds")


def shown(time_s: float, timespec: str = "seconds") -> str:
    """The time for people, as `rfc3339` writes it. A time that no calendar holds becomes seconds since the epoch, such
    as 1e+20s."""
    try:
        return rfc3339(time_s, timespec)
    except (ValueError, OverflowError):
        return f"{time_s:g}s"


def parse_rfc3339(text: str) -> float | None:
    """Seconds since the epoch; None if the text is not an RFC 3339 time."""
    match = _RFC3339.match(text)
    if match is None:
        return None
    day, clock, fraction, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if offset in 'Zz' else offset}")
    except ValueError:
        return None
    microseconds = int((fraction or "0")[:6].ljust(6, "0"))
    return (moment - _EPOCH_START + timedelta(microseconds=microseconds)).total_seconds()

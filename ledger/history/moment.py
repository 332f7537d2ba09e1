"""A moment of the past, as users write it: a time, offsets, or an event.

`2026-01-31T14:05:00Z` is an append time, `15m` a time ago. `events[0]@812,recovery[3]@77` are the offsets of the last
records that count; the other partitions are cut at the latest time of those records. The id of an event is the moment of
its record. Every answer prints the complete vector of offsets, so that others can repeat the question exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)\Z")
_SPAN = re.compile(r"[0-9]+(?:\.[0-9]+)?[^\W\d_]{1,7}\Z")  # no event id looks like this, so it is a mistyped time
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_OFFSET = re.compile(r"(events|recovery)\[(0|[1-9][0-9]{0,8})\]@(-1|0|[1-9][0-9]{0,17})\Z")
_EVENT_ID = re.compile(r"[!-~]{1,200}\Z")
FORMS = "a time (2026-01-31T14:05:00Z), 15m ago, events[P]@OFFSET[,…], or the id of an event"

#: ("events" or "recovery", partition) -> an offset.
Cut = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of the past; one of three fields is set. time_s: seconds since the epoch. last: the offset of the last
    record that counts in each named partition, -1 = none. event_id: the event whose record is the moment."""

    time_s: float | None = None
    last: Cut | None = None
    event_id: str = ""


#: Later than any record by any clock.
EVERYTHING = Moment(time_s=253_402_214_400.0)


def parse(text: str, now_s: float) -> Moment:
    """The moment that a text names. Raises: ValueError if it has none of the forms."""
    if ago := _AGO.match(text):
        return Moment(time_s=now_s - float(ago[1]) * _UNIT_S[ago[2]])
    if "@" in text:
        return Moment(last=_parse_cut(text))
    if re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ]|\Z)", text):
        moment = datetime.fromisoformat(text.upper())
        return Moment(time_s=(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    if _SPAN.match(text):
        raise ValueError(
            "a past time is a number with s, m, h or d, such as 15m (to name an event with this id, give its offset)"
        )
    if _EVENT_ID.match(text):
        return Moment(event_id=text)
    raise ValueError(f"not {FORMS}")


def _parse_cut(text: str) -> Cut:
    tps: dict[tuple[str, int], int] = {}
    for part in text.split(","):
        match = _OFFSET.match(part.strip())
        if match is None:
            raise ValueError(f"{part.strip()!r} is not events[P]@OFFSET or recovery[P]@OFFSET")
        tp = match[1], int(match[2])
        if tp in tps:
            raise ValueError(f"{match[1]}[{match[2]}] is named twice")
        tps[tp] = int(match[3])
    return tps


def vector(cut: Cut) -> str:
    """A cut as a text that `parse` reads. cut: the first offset that does not count in each partition."""
    return ",".join(f"{topic}[{partition}]@{end - 1}" for (topic, partition), end in sorted(cut.items()))

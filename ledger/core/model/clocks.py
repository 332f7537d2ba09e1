"""The two times of a record: the append time by the broker's clock, and the event time by the producer's clock.

The two times need not agree, and the ledger makes no decision by them. A fact may wait on a producer's disk before it
is sent, and a repeated send appends the fact again. But no fact is appended before it happened, and few facts wait for
a day.
"""

from __future__ import annotations

AHEAD_MAX_S = 5.0  # clocks that are kept in step differ by milliseconds
BEHIND_MAX_S = 86_400.0


def skew(time_s: float, ce_time_s: float | None) -> str:
    """How the two times of a record contradict each other; "" if they do not. "ahead": the event time is more than
    AHEAD_MAX_S after the append time. "behind": it is more than BEHIND_MAX_S before the append time, so the producer's
    clock is wrong or the fact was sent very late.

    time_s: append time. ce_time_s: event time, None = not given. Both are seconds since the epoch.
    """
    if ce_time_s is None:
        return ""
    if ce_time_s - time_s > AHEAD_MAX_S:
        return "ahead"
    return "behind" if time_s - ce_time_s > BEHIND_MAX_S else ""

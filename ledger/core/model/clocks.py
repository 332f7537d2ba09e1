"""Two clocks stand on every record: the brokers', when it was appended, and its producer's, when it happened by its word.

They need not agree, and the ledger decides nothing by either. A fact may wait on a producer's disk before it is sent, and
is appended anew when it is sent again; but nothing is appended before it happened, and little waits for a day.
"""

from __future__ import annotations

AHEAD_MAX_S = 5.0  # clocks that are kept in step differ by milliseconds
BEHIND_MAX_S = 86_400.0


def skew(time_s: float, ce_time_s: float | None) -> str:
    """Whether two times of one record are implausible: "ahead": the producer's clock is later than the append by more than
    AHEAD_MAX_S; "behind": earlier by more than BEHIND_MAX_S, so its clock is wrong or it was sent very late; else "".
    time_s: append time, ce_time_s: the producer's, None = it does not say; seconds since the epoch."""
    if ce_time_s is None:
        return ""
    if ce_time_s - time_s > AHEAD_MAX_S:
        return "ahead"
    return "behind" if time_s - ce_time_s > BEHIND_MAX_S else ""

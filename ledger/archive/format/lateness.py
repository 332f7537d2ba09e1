"""Whether an archiver read records in time: before log compaction may have removed some of them.

Compaction removes only records that are older than the lag. For each key, it keeps the last of these, so the age of the
sealed records shows whether any may be missing. A tombstone is an exception, because it is removed in the end. A
removed tombstone between two records is younger than the first of them. A removed tombstone in front of the first
remaining record is younger than the records sealed before, and leaves a hole there. It was written in a transaction, so
the hole has two offsets at least. A hole of one offset is the end of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from ledger.archive.format.chain import Manifest
from ledger.archive.format.segments import Leaf

#: Returns the leaves that a manifest seals, as `Archive.leaves` does.
Leaves = Callable[[Manifest], Sequence[Leaf]]


def sealed_s(manifest: Manifest) -> float:
    """When the manifest was sealed, in seconds since the epoch by the archiver's clock; infinity if the manifest does
    not contain the time, so that it counts as late."""
    try:
        return datetime.fromisoformat(manifest.written_at).timestamp()
    except ValueError:
        return float("inf")


def came_late(manifest: Manifest, newest_s: float, away_max_s: float, leaves: Leaves) -> bool:
    """Whether records may have been removed before the manifest sealed them. newest_s: append time of the newest record
    that was sealed before, 0 = none. away_max_s: how long an appended record is sure to stay."""
    at_s = sealed_s(manifest)
    if at_s - manifest.least_timestamp_ms / 1000 > away_max_s:
        return True
    if at_s - newest_s <= away_max_s or manifest.missing < 2:
        return False
    return leaves(manifest)[0].offset > manifest.first + 1


def sure_from_s(manifests: Iterable[Manifest], lag_s: float, leaves: Leaves) -> float:
    """The oldest moment, in seconds since the epoch, from which on an archive is sure to hold everything. Compaction
    keeps records that are younger than the lag. Records that were sealed later than that may have had gaps already.
    lag_s: the topic's min.compaction.lag. Raises: as `leaves`."""
    sure, newest_s = 0.0, 0.0
    for one in manifests:
        if not one.is_note:
            if came_late(one, newest_s, lag_s, leaves):
                sure = max(sure, sealed_s(one) - lag_s)
            newest_s = max(newest_s, one.greatest_timestamp_ms / 1000)
    return sure

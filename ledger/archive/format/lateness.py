"""Whether an archiver came to records in time: before anything that lay there may have been removed.

Of each key the cleaner leaves the last record that is older than the lag, so age tells; but for a tombstone, which goes in
the end. A missed one that lay between two records is younger than the first of them; one that lay in front of the first
that is left is younger than what was sealed before, and leaves a hole there. It was written in a transaction, so the hole
is of two offsets at least: one alone is the end of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from ledger.archive.format.chain import Manifest
from ledger.archive.format.segments import Leaf

#: The leaves that a manifest seals, as `Archive.leaves`.
Leaves = Callable[[Manifest], Sequence[Leaf]]


def sealed_s(manifest: Manifest) -> float:
    """When it was sealed, by the archiver's clock; one that does not say was sealed too late."""
    try:
        return datetime.fromisoformat(manifest.written_at).timestamp()
    except ValueError:
        return float("inf")


def came_late(manifest: Manifest, newest_s: float, away_max_s: float, leaves: Leaves) -> bool:
    """newest_s: append time of the newest record that was sealed before, 0 = none was. away_max_s: for how long what is
    appended is sure to stay."""
    at_s = sealed_s(manifest)
    if at_s - manifest.least_timestamp_ms / 1000 > away_max_s:
        return True
    if at_s - newest_s <= away_max_s or manifest.missing < 2:
        return False
    return leaves(manifest)[0].offset > manifest.first + 1


def sure_from_s(manifests: Iterable[Manifest], lag_s: float, leaves: Leaves) -> float:
    """The oldest moment, in seconds since the epoch, of which an archive is sure to hold everything: compaction spares what
    is younger than the lag, so what was sealed later than that may have had gaps already. lag_s: the topic's
    min.compaction.lag. Raises: as `leaves`."""
    sure, newest_s = 0.0, 0.0
    for one in manifests:
        if not one.is_note:
            if came_late(one, newest_s, lag_s, leaves):
                sure = max(sure, sealed_s(one) - lag_s)
            newest_s = max(newest_s, one.greatest_timestamp_ms / 1000)
    return sure

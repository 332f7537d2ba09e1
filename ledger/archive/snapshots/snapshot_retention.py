"""The choice of snapshots to keep: all of the last day, the newest of each day of the last month, and the newest of
each month before that.

So the number of snapshots grows with the ledger's age in months only, and a recent moment always has one close by. A
deleted snapshot can be made again, and no answer depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from ledger.archive.snapshots.snapshots import Listed, listed
from ledger.archive.store.archive import Archive

DAY_S = 86_400.0
MONTH_S = 31 * DAY_S


def thin_out(archive: Archive, topic: str, partition: int, now_s: float) -> int:
    """Deletes the snapshots that are not kept. Returns their number. Snapshots of another chain are not touched: this
    chain may be the damaged one.

    Raises: LedgerError if a manifest can't be read; as the store."""
    times = _times(archive, topic, partition)
    ours = {one: times[one.next, one.head] for one in listed(archive, topic, partition) if one[:2] in times}
    kept = to_keep(ours.items(), now_s)
    gone = [one for one in ours if one not in kept]
    for one in gone:
        archive.store.delete(one.name)
    return len(gone)


def to_keep(snapshots: Iterable[tuple[Listed, float]], now_s: float) -> set[Listed]:
    """The snapshots to keep. snapshots: each with the append time of the newest record up to its offset, in seconds
    since the epoch. If two snapshots cover the same offsets, the one with fewer `steps` is kept."""
    newest: dict[object, tuple[float, int, int, Listed]] = {}
    for one, time_s in snapshots:
        kept_by, rank = _kept_by(one, time_s, now_s - time_s), (time_s, one.next, -one.steps, one)
        newest[kept_by] = max(newest.get(kept_by, rank), rank)
    return {one for *_, one in newest.values()}


def _kept_by(one: Listed, time_s: float, age_s: float) -> object:
    """The group of a snapshot: of the snapshots with an equal value, one is kept."""
    if age_s <= DAY_S:
        return one
    day = datetime.fromtimestamp(time_s, UTC).date()
    return day if age_s <= MONTH_S else (day.year, day.month)


def _times(archive: Archive, topic: str, partition: int) -> dict[tuple[int, str], float]:
    """(next, head) of every manifest -> append time of the newest record up to there, in seconds since the epoch."""
    found, newest_ms = {}, 0
    for one in archive.manifests(topic, partition):
        newest_ms = max(newest_ms, one.greatest_timestamp_ms)
        found[one.next, one.sha256[:16]] = newest_ms / 1000
    return found

"""How far the archive is, and how long until compaction might take what it has not got."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ledger.archive.format.anchor import AnchorRecord
from ledger.archive.format.chain import Head
from ledger.archive.store.archiving import PartitionShape
from ledger.ports import TopicPartition


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """Of one partition. sealed: the first offset that is not in the archive; end: of the log, beyond its last record.
    oldest_s: the age of the oldest record that is not in it, None: there is none. headroom_s: how much longer the cleaner
    lets that record alone, by the topic's min.compaction.lag (lag_s); None: nothing is waiting. anchored: the number of the
    manifest that the topic of anchors names last, and how long that has stood there; None: none, or it was not asked."""

    topic: str
    partition: int
    manifests: int
    sealed: int
    end: int
    oldest_s: float | None
    headroom_s: float | None
    lag_s: float
    anchored: int | None = None
    anchored_age_s: float | None = None

    def scarce(self, least: float) -> bool:
        """least: as `archive.headroom_min`."""
        return self.headroom_s is not None and self.headroom_s <= least * self.lag_s

    @property
    def over(self) -> bool:
        return self.headroom_s is not None and self.headroom_s <= 0


def progress(
    heads: Mapping[TopicPartition, Head], shapes: Mapping[TopicPartition, PartitionShape],
    oldest: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]], lag_s: Mapping[str, float],
    now_s: float,
) -> list[ArchiveProgress]:  # fmt: skip
    """heads: of these partitions. oldest: partition and offset -> append time (seconds since the epoch) of the
    first record from there on, of those partitions that have one. lag_s: topic -> min.compaction.lag."""
    waiting = oldest({place: head.next for place, head in heads.items() if shapes[place].end > head.next})
    return [_progress(place, heads[place].sequence + 1, heads[place].next, shape, waiting, lag_s, now_s)
            for place, shape in shapes.items()]  # fmt: skip


def with_anchors(found: Iterable[ArchiveProgress], kept: Iterable[AnchorRecord], now_s: float) -> list[ArchiveProgress]:
    """kept: of the topic of anchors. now_s: by the clock of who asks; the anchors' times are the broker's."""
    newest: dict[TopicPartition, AnchorRecord] = {}
    for one in kept:
        place = one.anchor.head.topic, one.anchor.head.partition
        if place not in newest or one.anchor.head.sequence >= newest[place].anchor.head.sequence:
            newest[place] = one
    return [_anchored(one, newest.get((one.topic, one.partition)), now_s) for one in found]


def _anchored(one: ArchiveProgress, kept: AnchorRecord | None, now_s: float) -> ArchiveProgress:
    if kept is None:
        return one
    return replace(one, anchored=kept.anchor.head.sequence, anchored_age_s=max(0.0, now_s - kept.time_s))


def _progress(
    place: TopicPartition, manifests: int, sealed: int, shape: PartitionShape, waiting: Mapping[TopicPartition, float],
    lag_s: Mapping[str, float], now_s: float,
) -> ArchiveProgress:  # fmt: skip
    age_s = max(0.0, now_s - waiting[place]) if place in waiting else None
    headroom_s = None if age_s is None else lag_s[place[0]] - age_s
    return ArchiveProgress(*place, manifests, sealed, shape.end, age_s, headroom_s, lag_s[place[0]])

"""The archive's progress, and how long until log compaction may remove unarchived records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from ledger.archive.format.anchor import AnchorRecord
from ledger.archive.format.chain import Head
from ledger.archive.store.archiving import PartitionShape
from ledger.ports import TopicPartition


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """The archive's progress in one partition.

    sealed: the first offset that is not archived. end: the offset behind the last record of the log. oldest_s: the age
    of the oldest unarchived record; None = there is none. headroom_s: how long until log compaction may remove that
    record, by the topic's min.compaction.lag (lag_s); None = there is none. anchored, anchored_age_s: the number of the
    last manifest that the anchors topic names, and the age of that anchor; None = there is none, or the topic was not
    read."""

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
        """Whether the time until log compaction may remove unarchived records (headroom_s) is too short: at most
        `least` * lag_s. least: as `archive.headroom_min`."""
        return self.headroom_s is not None and self.headroom_s <= least * self.lag_s

    @property
    def over(self) -> bool:
        return self.headroom_s is not None and self.headroom_s <= 0


def progress(
    heads: Mapping[TopicPartition, Head], shapes: Mapping[TopicPartition, PartitionShape],
    oldest: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]], lag_s: Mapping[str, float],
    now_s: float,
) -> list[ArchiveProgress]:  # fmt: skip
    """The archive's progress in each partition. heads: the heads of the chains of these partitions. oldest: takes
    partition -> offset; returns partition -> append time of the first record from that offset on (seconds since the
    epoch), if there is one. lag_s: topic -> min.compaction.lag in seconds. now_s: seconds since the epoch."""
    waiting = oldest({tp: head.next for tp, head in heads.items() if shapes[tp].end > head.next})
    return [_progress(tp, heads[tp].sequence + 1, heads[tp].next, shape, waiting, lag_s, now_s)
            for tp, shape in shapes.items()]  # fmt: skip


def with_anchors(found: Iterable[ArchiveProgress], kept: Iterable[AnchorRecord], now_s: float) -> list[ArchiveProgress]:
    """The progress of each partition, with the last anchor of its chain. kept: the records of the anchors topic. now_s:
    by the caller's clock; the times of the anchors are the broker's."""
    newest: dict[TopicPartition, AnchorRecord] = {}
    for one in kept:
        tp = one.anchor.head.topic, one.anchor.head.partition
        if tp not in newest or one.anchor.head.sequence >= newest[tp].anchor.head.sequence:
            newest[tp] = one
    return [_anchored(one, newest.get((one.topic, one.partition)), now_s) for one in found]


def _anchored(one: ArchiveProgress, kept: AnchorRecord | None, now_s: float) -> ArchiveProgress:
    if kept is None:
        return one
    return replace(one, anchored=kept.anchor.head.sequence, anchored_age_s=max(0.0, now_s - kept.time_s))


def _progress(
    tp: TopicPartition, manifests: int, sealed: int, shape: PartitionShape, waiting: Mapping[TopicPartition, float],
    lag_s: Mapping[str, float], now_s: float,
) -> ArchiveProgress:  # fmt: skip
    age_s = max(0.0, now_s - waiting[tp]) if tp in waiting else None
    headroom_s = None if age_s is None else lag_s[tp[0]] - age_s
    return ArchiveProgress(*tp, manifests, sealed, shape.end, age_s, headroom_s, lag_s[tp[0]])

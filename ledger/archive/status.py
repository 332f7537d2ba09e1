"""How far the archive is, and how long until compaction might take what it has not got."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ledger.archive.archive import Archive
from ledger.archive.archiving import PartitionShape
from ledger.core.chain import Manifest
from ledger.ports import TopicPartition


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one partition. sealed: the first offset that is not in the archive; end: of the log, beyond its last record.
    oldest_s: the age of the oldest record that is not in it, None: there is none. headroom_s: how much longer the cleaner
    lets that record alone, by the topic's min.compaction.lag (lag_s); None: nothing is waiting."""

    topic: str
    partition: int
    manifests: int
    sealed: int
    end: int
    oldest_s: float | None
    headroom_s: float | None
    lag_s: float

    def scarce(self, least: float) -> bool:
        """least: as `archive.headroom_min`."""
        return self.headroom_s is not None and self.headroom_s <= least * self.lag_s

    @property
    def over(self) -> bool:
        return self.headroom_s is not None and self.headroom_s <= 0


def progress(
    archive: Archive, shapes: Mapping[TopicPartition, PartitionShape],
    oldest: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, float]], lag_s: Mapping[str, float],
    now_s: float,
) -> list[Progress]:  # fmt: skip
    """oldest: partition and offset -> append time (seconds since the epoch) of the first record from there on, of those
    partitions that have one. lag_s: topic -> min.compaction.lag."""
    heads = {place: archive.head(*place) for place in shapes}
    waiting = oldest({place: head.next for place, head in heads.items() if shapes[place].end > head.next})
    return [_progress(place, heads[place].sequence + 1, heads[place].next, shape, waiting, lag_s, now_s)
            for place, shape in shapes.items()]  # fmt: skip


def sure_from_s(manifests: Iterable[Manifest], lag_s: float) -> float:
    """The oldest moment, in seconds since the epoch, of which an archive is sure to hold everything: compaction spares what
    is younger than the lag, so what was sealed later than that may have had gaps already. lag_s: the topic's
    min.compaction.lag."""
    times = [(_time_s(one), one.least_timestamp_ms / 1000) for one in manifests if not one.is_note]
    late = [sealed - lag_s for sealed, oldest in times if sealed - oldest > lag_s]
    return max(late, default=0.0)


def _time_s(manifest: Manifest) -> float:
    """When it was sealed, by the archiver's clock; one that does not say was sealed too late."""
    try:
        return datetime.fromisoformat(manifest.written_at).timestamp()
    except ValueError:
        return float("inf")


def _progress(
    place: TopicPartition, manifests: int, sealed: int, shape: PartitionShape, waiting: Mapping[TopicPartition, float],
    lag_s: Mapping[str, float], now_s: float,
) -> Progress:  # fmt: skip
    age_s = max(0.0, now_s - waiting[place]) if place in waiting else None
    headroom_s = None if age_s is None else lag_s[place[0]] - age_s
    return Progress(*place, manifests, sealed, shape.end, age_s, headroom_s, lag_s[place[0]])

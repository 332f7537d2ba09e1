"""The snapshots that a projector may start from: they are of the same topics, and their archive missed no tombstone.

Kafka removes a tombstone delete.retention.ms after log compaction first saw it. A reader that has read a register, and
continues only after its tombstone was removed, keeps the register forever: a job that was over would come back. This
applies to the archiver, and to a reader that starts behind a snapshot. The reader decides how old a snapshot may be
(`newest_s`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ledger.archive.format.chain import Manifest
from ledger.archive.format.lateness import came_late, sealed_s
from ledger.archive.snapshots.snapshots import Snapshot, latest
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import PartitionShape
from ledger.errors import LedgerError
from ledger.ports import TopicPartition
from ledger.util.loggers import Logger

log = Logger("ledger.archive")


class Usable(NamedTuple):
    """A snapshot to start from. newest_s: append time of the newest record that it covers, seconds since the epoch."""

    topic: str
    partition: int
    snapshot: Snapshot
    newest_s: float


def usable(archive: Archive, shapes: Mapping[TopicPartition, PartitionShape], away_max_s: float) -> Iterator[Usable]:
    """Yields the newest usable snapshot of each partition. If a partition has none, the reason is logged. shapes: the
    topics as they are now. away_max_s: how long the archiver may have been down; well below delete.retention.ms."""
    for (topic, partition), shape in shapes.items():
        try:
            manifests = list(archive.manifests(topic, partition))
            found = latest(archive, topic, partition, shape.end)
            why = _why_not(archive, manifests, found, shape, away_max_s)
        except LedgerError as error:
            found, why = None, str(error)
        if found is None or why:
            log.info("no_snapshot", topic=topic, partition=partition, why=why)
            continue
        below = [one for one in manifests if not one.is_note and one.next <= found.next]
        yield Usable(topic, partition, found, max(one.greatest_timestamp_ms for one in below) / 1000)


def _why_not(
    archive: Archive, manifests: Sequence[Manifest], found: Snapshot | None, shape: PartitionShape, away_max_s: float
) -> str:
    """The reason why a projector may not start from the snapshot; "" = it may."""
    if manifests and manifests[-1].next > shape.end:
        return f"the topic ends at {shape.end}, but is archived up to {manifests[-1].next}"
    if found is None:
        return "there is none"
    below = [one for one in manifests if one.next <= found.next]
    if ids := {one.topic_id for one in below} - {shape.topic_id}:
        return f"{found.name} is of another topic with the same name (id {min(ids)}, now {shape.topic_id})"
    late = _late(archive, [one for one in below if not one.is_note], away_max_s)
    if late is not None:
        return f"the archiver read offset {late} so late that a tombstone may have been removed by then"
    return ""


def _late(archive: Archive, manifests: Sequence[Manifest], away_max_s: float) -> int | None:
    """The first offset that the archiver read too late; None = there is none. Segments sealed within away_max_s after
    the first one are never late: the archiver then read the existing records in one go."""
    newest_s, begun_s = 0.0, sealed_s(manifests[0]) if manifests else 0.0
    for one in manifests:
        if not sealed_s(one) - begun_s <= away_max_s and came_late(one, newest_s, away_max_s, archive.leaves):
            return one.first
        newest_s = max(newest_s, one.greatest_timestamp_ms / 1000)
    return None

"""Which snapshots a projector may begin from: those of the very topics that it reads, out of an archive that can't have
missed a tombstone.

Kafka drops a tombstone delete.retention.ms after the cleaner first saw it. Whoever has read a register, and reads on only
when its tombstone is gone, keeps the register for ever: a job that was over would come back. So it is with the archiver,
and so with a reader that begins behind a snapshot (how old that may be is for the reader to say: `newest_s`).
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
    """newest_s: append time of the newest record that the snapshot covers, seconds since the epoch."""

    topic: str
    partition: int
    snapshot: Snapshot
    newest_s: float


def usable(archive: Archive, shapes: Mapping[TopicPartition, PartitionShape], away_max_s: float) -> Iterator[Usable]:
    """The newest of each partition that has one; why another one has none is logged. shapes: the topics as they are now.
    away_max_s: for how long the archiver may have been away, well below delete.retention."""
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
    """ "" if it may be begun from."""
    if manifests and manifests[-1].next > shape.end:
        return f"the topic ends at {shape.end}, but is archived up to {manifests[-1].next}"
    if found is None:
        return "there is none"
    below = [one for one in manifests if one.next <= found.next]
    if ids := {one.topic_id for one in below} - {shape.topic_id}:
        return f"{found.name} is of another topic of that name (id {min(ids)}, now {shape.topic_id})"
    late = _late(archive, [one for one in below if not one.is_note], away_max_s)
    if late is not None:
        return f"the archiver came so late to offset {late} that a tombstone may have been gone by then"
    return ""


def _late(archive: Archive, manifests: Sequence[Manifest], away_max_s: float) -> int | None:
    """Where first, if anywhere. In a run that follows upon the beginning all was read in one go."""
    newest_s, begun_s = 0.0, sealed_s(manifests[0]) if manifests else 0.0
    for one in manifests:
        if not sealed_s(one) - begun_s <= away_max_s and came_late(one, newest_s, away_max_s, archive.leaves):
            return one.first
        newest_s = max(newest_s, one.greatest_timestamp_ms / 1000)
    return None

"""The archived records of a ledger as the log of the past reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ledger.archive.format.lateness import sure_from_s
from ledger.archive.format.removals import expired_of
from ledger.archive.query.key_scan import picked
from ledger.archive.snapshots.snapshots import latest
from ledger.archive.store.archive import Archive
from ledger.history.historical_log import Archived, SealedRecords, Span
from ledger.ports import Record, TopicPartition


def archived_records(archive: Archive, lags_s: Mapping[str, float]) -> Archived:
    """The archived records by (topic, partition), for each partition with at least one segment. lags_s: topic ->
    min.compaction.lag of the topic, in seconds; other topics are left out.

    Raises: LedgerError if a chain can't be read; as the object store.
    """
    found: dict[TopicPartition, SealedRecords] = {}
    for topic, partition in archive.partitions():
        if topic in lags_s and (manifests := list(archive.manifests(topic, partition))):
            found[topic, partition] = SealedRecords(
                manifests[-1].next,
                sure_from_s(manifests, lags_s[topic], archive.leaves),
                partial(archive.records, topic, partition),
                [Span(one.next, one.greatest_timestamp_ms / 1000) for one in manifests],
                partial(_snapshot, archive, topic, partition),
                partial(picked, archive, topic, partition),
                expired_of(archive.expired(topic, partition)),
                manifests[-1].topic_id,
            )
    return found


def _snapshot(archive: Archive, topic: str, partition: int, end: int) -> tuple[int, Callable[[], Iterator[Record]]] | None:
    found = latest(archive, topic, partition, end)
    return None if found is None else (found.next, found.records)

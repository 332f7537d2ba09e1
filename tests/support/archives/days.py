"""An archive of four days: records in two partitions, sealed ten at a time."""

from __future__ import annotations

from dataclasses import replace

from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.chain import Head
from ledger.archive.format.objects import ObjectStore
from ledger.archive.format.segments import store_segment
from ledger.archive.store.archive import Archive
from ledger.ports import MemoryRecord
from tests.support.archives.given import TOPIC, TOPIC_ID, read_out, records

DAY_MS = 86_400_000
BEGIN_MS = 1_700_006_400_000 // DAY_MS * DAY_MS  # a midnight
DAYS = 4
PER_DAY = 40
LATER_S = BEGIN_MS / 1000 + 10 * DAY_MS / 1000


def spread(partition: int) -> list[MemoryRecord]:
    """The records of a partition: some days, forty records a day."""
    found = records(DAYS * PER_DAY, partition, partition)
    step = DAY_MS // PER_DAY
    return [replace(one, _timestamp_ms=BEGIN_MS + i * step) for i, one in enumerate(found)]


def an_archive() -> tuple[Archive, MemoryObjects, list[Head]]:
    store = MemoryObjects()
    archive, anchors = sealed_days(store)
    return archive, store, anchors


def sealed_days(store: ObjectStore) -> tuple[Archive, list[Head]]:
    """An archive of two partitions, sealed ten records at a time, and all its heads in order, for use as anchors."""
    archive, anchors = Archive(store, "test", lambda: "2026-01-01T00:00:00Z"), []
    for partition in (0, 1):
        head, found = Head(TOPIC, partition), spread(partition)
        for i in range(0, len(found), 10):
            head = archive.seal(head, TOPIC_ID, store_segment(store, head.next, found[i : i + 10], read_out))
            anchors.append(head)
    return archive, anchors

"""Snapshots and retention: a snapshot that stays must not be judged wrong because records have expired."""

from __future__ import annotations

import random
from functools import partial

import pytest
import structlog

from ledger.adapters import avro
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.segments import store_segment
from ledger.archive.snapshots import snapshots
from ledger.archive.store.archive import Archive
from ledger.ports import MemoryRecord
from tests.support.archives.given import TOPIC_ID, read_out
from tests.support.archives.lives import DAY_S, EVENTS, NOW_S, RECOVERY, SEEDS, Life, run
from tests.support.repetitions import one_fast


def make(archive: Archive, topic: str, whole: bool) -> None:
    thin, same = snapshots.thin_events, snapshots.same_registers
    if topic == RECOVERY:
        thin = partial(snapshots.thin_recovery, decode=avro.decode)
        same = partial(snapshots.same_entries, decode=avro.decode)
    snapshots.make(archive, topic, 0, thin, read_out, same, whole)


def claimed_once(records: list[MemoryRecord]) -> list[MemoryRecord]:
    """The records with only the first of each claim. A repeated claim prevents snapshots: compaction keeps the last one
    only."""
    first = {one.key(): one for one in reversed(records)}
    return [one for one in records if not (one.key() or b"").startswith(b"~claim/") or one is first[one.key()]]


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_none_that_stays_is_called_wrong_by_the_next_that_is_compared_with_the_whole(seed: int) -> None:
    life, drawn, stayed = Life(seed), random.Random(seed), 0
    archive = Archive(MemoryObjects(), "test", lambda: "2023-11-15T00:00:00Z")
    with structlog.testing.capture_logs() as logs:
        for topic, records in ((EVENTS, life.events), (RECOVERY, claimed_once(life.recovery))):
            head = archive.head(topic, 0)
            for i in range(0, len(records), 20):
                head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, records[i : i + 20], read_out))
                make(archive, topic, whole=not i)
        for days in sorted(drawn.sample(range(2, 10), 3)):
            run(archive, NOW_S - days * DAY_S)
        run(archive)
        for place in archive.partitions():
            stayed += len(snapshots.listed(archive, *place))
            make(archive, place[0], whole=True)
    assert stayed > 2
    assert not [entry for entry in logs if entry["event"].startswith("snapshot")]

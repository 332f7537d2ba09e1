"""An archiver with its chores and its monitoring, on a real broker, without Spark."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.topics import create_topics
from ledger.app import anchors, archives
from ledger.app.ledger import Ledger
from ledger.archive.anchors.anchor_topic import standing
from ledger.archive.store.archiving import Archiver, ReaderSegments
from ledger.archive.store.verifying import verify
from ledger.config.config import load_config
from ledger.embedded.ports import free_ports
from ledger.operations import archive_upkeep
from ledger.ports import Event
from tests.support.archives.scraping import scraped
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)
RECORDS = 20


def test_what_it_archives_is_anchored_and_measured(bootstrap: str, prefix: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    config = load_config(
        tmp_path, kafka={"bootstrap.servers": bootstrap},
        topics={"prefix": prefix, "partitions": 1, "replication_factor": 1, "min_insync_replicas": 1},
        archive={"adapter": "file", "anchor_interval_s": 0.2, "headroom_interval_s": 0.2, "metrics_port": port},
    )  # fmt: skip
    create_topics(config.client(), config.topic_settings())
    with closing(Ledger.open(config).sender()) as sender:
        for n in range(RECORDS):
            sender.send(Event(config.topics.events, 0, b"job/running/%d" % (n + 1), None))
    archive, stop = Ledger.open(config).archive, threading.Event()
    stream = ReaderSegments(Ledger.open(config).event_log, archive, archives.archiving(config)[1])
    place = f'{{partition="0",topic="{config.topics.events}"}}'

    def come_to_rest() -> dict[str, float] | None:
        """The metrics once all of them include the last record; None before that, as one may be ahead of another."""
        told, last = scraped(port), archive.head(config.topics.events, 0)
        rest = {"sealed_offset": RECORDS, "sealed_records_total": RECORDS, "anchor_sequence": last.sequence}
        well = told.get('ledger_archive_chore_failures{chore="anchor"}') == 0
        return told if well and all(told.get(f"ledger_archive_{name}{place}") == n for name, n in rest.items()) else None

    with closing(anchors.anchoring(Ledger.open(config), archive)) as anchoring:
        chores = archive_upkeep.chores(config, archive, SystemClock(), anchoring)
        archiver = Archiver(
            archive, stream, lambda: archives.archived_partitions(Ledger.open(config)), Ledger.open(config).clock, chores
        )
        with anchors.watched(Ledger.open(config), archiver, anchoring):
            thread = threading.Thread(target=archiver.run, args=(stop.is_set,))
            thread.start()
            try:
                found = until(
                    come_to_rest, "all records are sealed, counted and anchored", story=lambda: str(scraped(port))
                )
            finally:
                stop.set()
                thread.join(60)
    assert not thread.is_alive()
    assert found[f"ledger_archive_sealed_records_total{place}"] == found[f"ledger_archive_end_offset{place}"] == RECORDS
    assert abs(found[f"ledger_archive_last_timestamp_seconds{place}"] - time.time()) < 600
    assert found[f"ledger_archive_headroom_seconds{place}"] == config.topics.min_compaction_lag_s
    assert found['ledger_archive_chore_failures{chore="anchor"}'] == 0
    with closing(anchors.anchor_topic(Ledger.open(config))) as topic:
        heads = [kept.anchor.head for kept in standing(topic.read()).kept]
    assert [(one.topic, one.proved) for one in verify(archive, heads)] == [(config.topics.events, RECORDS)]
    progress = {(one.topic, one.partition): one for one in anchors.anchored_progress(Ledger.open(config))}
    assert progress[config.topics.events, 0].anchored == archive.head(config.topics.events, 0).sequence

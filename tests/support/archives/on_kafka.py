"""A ledger on a real broker, projected and archived."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ledger.app import archives
from ledger.app.ledger import Ledger
from ledger.app.roles_main import run_projector
from ledger.archive.store.archiving import Archiver, ReaderSegments
from ledger.config.config import Config
from ledger.core.model.facts import JobSubmitted, RestartKind, RestartPolicy
from ledger.ports import TopicPartition
from ledger.producer.outside import NO_GRAPH
from tests.support.waiting import in_time

PARTITIONS = 2
PATIENCE_S = 100.0
CompletedCommand = subprocess.CompletedProcess[str]
SPEC = JobSubmitted("etl", "prod", "subprocess", NO_GRAPH, RestartPolicy(RestartKind.NONE))


def settings(bootstrap: str, prefix: str, partitions: int) -> dict[str, Any]:
    topics = {"prefix": prefix, "partitions": partitions, "replication_factor": 1, "min_insync_replicas": 1}
    return {"kafka": {"bootstrap.servers": bootstrap}, "topics": topics, "archive": {"adapter": "file"}}


@contextmanager
def projecting(config: Config) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=run_projector, args=(Ledger.open(config),), kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def seal(config: Config) -> None:
    """Seals all records that are in the topics now. Empty polls do not end it."""
    archive = Ledger.open(config).archive
    stream = ReaderSegments(Ledger.open(config).event_log, archive, archives.archiving(config)[1])
    archiver = Archiver(
        archive, stream, lambda: archives.archived_partitions(Ledger.open(config)), Ledger.open(config).clock
    )
    archiver.begin()
    reader = Ledger.open(config).event_log.reader([config.topics.events, config.topics.recovery])
    last: dict[TopicPartition, int] = {}  # the last record; control records after it are never read
    ends, begun = reader.high_watermarks(), time.monotonic()
    while any(reader.position()[place] < end for place, end in ends.items()):
        last |= {(one.topic(), one.partition()): one.offset() for one in reader.poll(1000, 0.2)}
        in_time(time.monotonic() < begun + PATIENCE_S, f"not within {PATIENCE_S:g} s: read up to {ends}")
    reader.close()
    while any(archive.head(*place).next <= offset for place, offset in last.items()):
        archiver.step()
        in_time(time.monotonic() < begun + PATIENCE_S, f"not within {PATIENCE_S:g} s: sealed up to {last}")
    stream.close()
    assert all(archive.head(*place).next <= end for place, end in ends.items())

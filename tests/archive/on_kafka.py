"""A ledger on a real broker, projected and archived."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ledger import wiring, wiring_archive
from ledger.archive.archiving import Archiver, ReaderSegments
from ledger.config import Config
from ledger.core.facts import JobSubmitted, RestartKind, RestartPolicy
from ledger.outside import NO_GRAPH
from ledger.roles_main import run_projector

PARTITIONS = 2
Told = subprocess.CompletedProcess[str]
SPEC = JobSubmitted("etl", "prod", "subprocess", NO_GRAPH, RestartPolicy(RestartKind.NONE))


def settings(bootstrap: str, prefix: str, partitions: int) -> dict[str, Any]:
    topics = {"prefix": prefix, "partitions": partitions, "replication_factor": 1, "min_insync_replicas": 1}
    return {"kafka": {"bootstrap.servers": bootstrap}, "topics": topics, "archive": {"adapter": "file"}}


@contextmanager
def projecting(config: Config) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=run_projector, args=(config,), kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def seal(config: Config) -> None:
    """All that there is now."""
    archive = wiring_archive.archive(config)
    stream = ReaderSegments(wiring.event_log(config), archive, wiring_archive.archiving(config)[1])
    archiver = Archiver(archive, stream, lambda: wiring_archive.archived_partitions(config), wiring.clock())
    archiver.begin()
    reader = wiring.event_log(config).reader([config.topics.events, config.topics.recovery])
    ends, idle = reader.high_watermarks(), 0
    reader.close()
    while idle < 4:  # the last offsets hold ends of transactions, which nobody reads
        idle = 0 if archiver.step() else idle + 1
    stream.close()
    assert all(archive.head(*place).next <= end for place, end in ends.items())

"""A ledger on a real broker, projected and archived."""

from __future__ import annotations

import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ledger import connect, wiring, wiring_archive
from ledger.adapters.kafka.topics import create_topics
from ledger.archive.archiving import Archiver, ReaderSegments
from ledger.config import Config, load_config
from ledger.core.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    IntentKind,
    JobSubmitted,
    RestartKind,
    RestartPolicy,
)  # fmt: skip
from ledger.core.registers import Attempt, Ended, Running
from ledger.outside import NO_GRAPH
from ledger.recorder import Recorder
from ledger.replaying import replay
from ledger.roles_main import run_projector
from tests.servers import RunningBroker

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


@pytest.fixture(scope="module")
def archived(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A history with jobs that run, are finished and quarantined, in an archive."""
    tmp_path = tmp_path_factory.mktemp("archived")
    config = load_config(tmp_path, **settings(broker.bootstrap, f"t{uuid.uuid4().hex[:10]}.", PARTITIONS))
    create_topics(config.client(), config.topic_settings())
    (tmp_path / "graph").write_text("a graph")
    with projecting(config):
        client = connect(config)
        jobs = [client.submit(SPEC, tmp_path / "graph", job_id=f"job-{n}") for n in range(6)]
        with Recorder("runner", config=config) as runner:
            for job in jobs[:5]:
                runner.record(job, Attempt(1, 1), AttemptStarted("0" * 64))
                runner.record(job, Running(1), AttemptRunning("pid 1"))
            runner.record(jobs[0], Ended(1, "finished", "agent-a"), AttemptEnded())
            runner.record(jobs[1], Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
        client.wait(jobs[1], timeout_s=60)
        client.declare(jobs[5], IntentKind.SUSPEND, reason="night")
        replay(wiring.source(config))  # waits until all is published
    seal(config)
    return config


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

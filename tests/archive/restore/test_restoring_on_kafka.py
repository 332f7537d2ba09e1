"""A ledger on a real broker, archived and then restored under another prefix, which is as empty as a new cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import closing
from typing import Any

import pytest

from ledger import connect
from ledger.adapters.kafka.cluster import Cluster
from ledger.adapters.kafka.topics import check_topics, create_topics, require_topics
from ledger.app import anchors
from ledger.app.ledger import Ledger
from ledger.archive.format.anchor import Anchor
from ledger.config.config import Config, load_config
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, IntentKind  # fmt: skip
from ledger.core.model.registers import Attempt, Ended, Running
from ledger.errors import ConfigError
from ledger.producer.recorder import Recorder
from ledger.reader.reading import entries_of
from ledger.reader.replaying import replay
from tests.support.archives.on_kafka import PARTITIONS, SPEC, CompletedCommand, projecting, seal, settings
from tests.support.servers import RunningBroker
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def archived(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """An archived history with jobs that are running, finished, quarantined and suspended."""
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
        assert replay(Ledger.open(config).source(), timeout_s=100).behind == ()  # all entries are published
    seal(config)
    return config


def run(config: Config, *arguments: str, **environment: str) -> CompletedCommand:
    variables = {"LEDGER_DIR": str(config.dir), "LEDGER_ARCHIVE__ADAPTER": "file", **environment}
    command = [sys.executable, "-m", "ledger", *arguments]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120, check=False
    )


def restore(config: Config, to: str, partitions: int, *options: str, **environment: str) -> CompletedCommand:
    variables = {
        "LEDGER_KAFKA__BOOTSTRAP_SERVERS": config.bootstrap,
        "LEDGER_TOPICS__PREFIX": to, "LEDGER_TOPICS__PARTITIONS": str(partitions),
        "LEDGER_TOPICS__REPLICATION_FACTOR": "1", "LEDGER_TOPICS__MIN_INSYNC_REPLICAS": "1",
    }  # fmt: skip
    prefix = config.topics.prefix
    return run(config, "archive", "restore", "--archived-prefix", prefix, *options, **variables, **environment)


def meaning(config: Config) -> dict[str, tuple]:
    found = entries_of(Ledger.open(config).source())
    return {job: (one.state, one.attempt, one.outcome, one.reason, one.restore_points) for job, one in found.items()}


@pytest.mark.parametrize("partitions", [PARTITIONS, 3])
def test_a_ledger_goes_on_from_what_was_restored(archived: Config, prefix: str, partitions: int) -> None:
    heads = archived.dir / f"{prefix}anchors"
    assert run(archived, "audit", "anchor", "--to", str(heads)).returncode == 0
    told = restore(archived, prefix, partitions, "--anchors", str(heads), "-o", "json")
    assert told.returncode == 0, told.stderr
    assert "6 jobs fold to the same as in the archive" in told.stderr
    rows = json.loads(told.stdout)
    assert len(rows) == 2 * partitions
    config = load_config(archived.dir, **settings(archived.bootstrap, prefix, partitions))
    require_topics(config.client(), config.topic_settings())
    with projecting(config):
        connect(config).declare("job-5", IntentKind.RUN, reason="morning")
        connect(config).declare("job-5", IntentKind.SUSPEND, reason="night")
        found = replay(Ledger.open(config).source())
        assert (found.differences, found.behind, found.compared) == ((), (), 6)
        assert meaning(config) == meaning(archived)
    assert raw(archived) <= raw(config)  # append times included
    again = restore(archived, prefix, partitions)
    assert again.returncode == 1 and "holds records already" in again.stderr


def test_the_topic_of_anchors_is_believed_too_and_nothing_is_restored_against_it(archived: Config, prefix: str) -> None:
    kafka = {"LEDGER_KAFKA__BOOTSTRAP_SERVERS": archived.bootstrap, "LEDGER_TOPICS__PREFIX": archived.topics.prefix}
    assert run(archived, "audit", "anchor", **kafka).returncode == 0
    checked = run(archived, "audit", "verify", "-o", "json", **kafka)
    assert checked.returncode == 0 and all(row["proved"] == row["sealed"] for row in json.loads(checked.stdout))
    head = Ledger.open(archived).archive.head(archived.topics.events, 0)
    with closing(anchors.anchor_topic(Ledger.open(archived))) as topic:
        topic.write(Anchor(head._replace(sequence=head.sequence + 1)))
        refused = restore(archived, prefix, PARTITIONS)
        assert refused.returncode == 1 and "Nothing was restored" in refused.stderr
        topic.write(Anchor(head._replace(sha256="0" * 64)))
        refused = restore(archived, prefix, PARTITIONS)
        assert refused.returncode == 1 and "Two anchors can't both be true" in refused.stderr
    assert set(Cluster(archived.client()).shapes([f"{prefix}ledger.events"]).values()) == {None}
    assert run(archived, "audit", "anchor", "--anew", "a false one", **kafka).returncode == 0
    again = run(archived, "audit", "verify", **kafka)
    assert again.returncode == 0 and "a false one" in again.stderr


def raw(config: Config) -> set[tuple]:
    found = (record for record in records(config) if record.key() != b"~noop")
    return {(r.key(), r.value(), tuple(r.headers() or ()), r.timestamp()[1]) for r in found}


def records(config: Config) -> list[Any]:
    reader, found = Ledger.open(config).event_log.reader([config.topics.events]), []
    ends = reader.high_watermarks()
    while any(reader.position().get(place, 0) < end for place, end in ends.items()):
        found += reader.poll(1000, 0.2)
    reader.close()
    return found


@pytest.mark.parametrize("point", ["restore.writing:kill@9", "restore.written:kill", "restore.read:kill"])
def test_killed_no_role_starts_on_it_and_the_next_one_goes_on(archived: Config, prefix: str, point: str) -> None:
    killed = restore(archived, prefix, PARTITIONS, LEDGER_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    config = load_config(archived.dir, **settings(archived.bootstrap, prefix, PARTITIONS))
    with pytest.raises(ConfigError, match="jobledger archive restore"):
        require_topics(config.client(), config.topic_settings())
    told = restore(archived, prefix, PARTITIONS, "-o", "json")
    assert told.returncode == 0, told.stderr
    assert check_topics(config.client(), config.topic_settings()) == []
    if "writing" not in point:  # records produced before the kill may not have been written yet
        assert sum(row["resumed"] for row in json.loads(told.stdout)) > 0


def test_a_cluster_that_lost_its_topics_goes_on_and_so_does_its_archive(archived: Config) -> None:
    """The last test of this module: it deletes the shared topics."""
    admin = Cluster(archived.client()).admin
    before = raw(archived)
    anchors = archived.dir / "before"
    assert run(archived, "audit", "anchor", "--to", str(anchors)).returncode == 0
    topics = [archived.topics.events, archived.topics.recovery]
    for future in admin.delete_topics(topics, operation_timeout=30).values():
        future.result(60)
    until(lambda: not set(topics) & set(admin.list_topics(timeout=60).topics), "the topics are gone")
    told = restore(archived, archived.topics.prefix, PARTITIONS, "--anchors", str(anchors), "--adopt")
    assert told.returncode == 0, told.stderr
    assert before <= raw(archived)
    with projecting(archived):
        connect(archived).declare("job-5", IntentKind.CANCEL, reason="enough")
        assert replay(Ledger.open(archived).source()).differences == ()
    seal(archived)
    assert before < archived_raw(archived)
    assert "there is nothing to join" in run(archived, "archive", "compact").stderr  # no day is over yet
    checked = run(archived, "audit", "verify", "--anchors", str(anchors))
    assert checked.returncode == 0, checked.stderr


def archived_raw(config: Config) -> set[tuple]:
    archive, topic = Ledger.open(config).archive, config.topics.events
    found = (record for p in range(PARTITIONS) for record in archive.records(topic, p))
    return {(r.key(), r.value(), tuple(r.headers() or ()), r.timestamp()[1]) for r in found}

"""A projector that starts from snapshots on a real broker: it leads, and publishes the same as after reading
everything."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ledger import connect
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.topics import create_topics
from ledger.app.ledger import Ledger
from ledger.config.config import load_config
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, IntentKind
from ledger.core.model.registers import Attempt, Ended, Running
from ledger.operations import archive_upkeep
from ledger.ports import NOWHERE, Marks
from ledger.producer.recorder import Recorder
from ledger.reader.reading import entries_of
from ledger.reader.replaying import replay
from tests.support.archives.on_kafka import PARTITIONS, SPEC, projecting, seal, settings
from tests.support.servers import RunningBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


def test_it_leads_from_a_snapshot_and_publishes_the_same(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(broker.bootstrap, f"t{uuid.uuid4().hex[:10]}.", PARTITIONS)
    config = load_config(tmp_path, **given)
    create_topics(config.client(), config.topic_settings())
    (tmp_path / "graph").write_text("a graph")
    with projecting(config), Recorder("runner", config=config) as runner:
        client = connect(config)
        jobs = [client.submit(SPEC, tmp_path / "graph", job_id=f"job-{n}") for n in range(6)]
        for job in jobs[:4]:
            runner.record(job, Attempt(1, 1), AttemptStarted("0" * 64))
            runner.record(job, Running(1), AttemptRunning("pid 1"))
        assert replay(Ledger.open(config).source(), timeout_s=100).behind == ()  # all entries are published
    seal(config)
    made = {
        (topic, partition): next_
        for topic, partition, next_ in archive_upkeep.make_snapshots(config, Ledger.open(config).archive)
    }
    assert len(made) == 2 * PARTITIONS

    begun: list[Marks] = []
    reader = KafkaLog.reader

    def seen(log: KafkaLog, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> Any:
        begun.append(begin)
        return reader(log, topics, partition, begin)

    monkeypatch.setattr(KafkaLog, "reader", seen)
    before = entries_of(Ledger.open(config).source())
    cold = load_config(tmp_path, **given, projector={"cold_start": "snapshot"})
    with projecting(cold), Recorder("runner", config=config) as runner:
        client = connect(cold)
        runner.record(jobs[0], Ended(1, "finished", "agent-a"), AttemptEnded())
        runner.record(jobs[1], Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
        client.declare(jobs[5], IntentKind.SUSPEND, reason="night")
        found = replay(Ledger.open(config).source(), timeout_s=100)
        assert (found.differences, found.behind) == ((), ())
        after = entries_of(Ledger.open(config).source())
    assert made in [dict(begin) for begin in begun], "the projector started from the snapshots"
    assert after.keys() == before.keys() == set(jobs)
    states = {job: str(entry.state) for job, entry in after.items()}
    assert states == {
        jobs[0]: "FINISHED", jobs[1]: "QUARANTINED", jobs[2]: "RUNNING", jobs[3]: "RUNNING", jobs[4]: "CREATED",
        jobs[5]: "SUSPENDED",
    }  # fmt: skip
    assert all(after[job] == before[job] for job in jobs[2:5]), "unchanged entries were not published again"

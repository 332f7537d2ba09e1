"""The client on a real broker, with a real projector, and while the projector is down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger import connect
from ledger.adapters.kafka.topics import create_topics
from ledger.config.config import Config, load_config
from ledger.core.model.facts import AttemptEnded, IntentKind
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Ended
from ledger.errors import OutcomeUnknown, Refused
from ledger.producer.recorder import Recorder
from ledger.reader.explaining import explained
from ledger.reader.reading import history
from ledger.reader.replaying import replay
from tests.support.pages import example
from tests.support.projecting import SPEC, Projecting
from tests.support.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def config(bootstrap: str, prefix: str, tmp_path) -> Config:
    topics = {"prefix": prefix, "partitions": 4, "replication_factor": 1, "min_insync_replicas": 1}
    made = load_config(tmp_path, kafka={"bootstrap.servers": bootstrap}, topics=topics)
    create_topics(made.client(), made.topic_settings())
    return made


@pytest.fixture
def projector(config: Config) -> Iterator[Projecting]:
    made = Projecting(config)
    yield made
    made.stop()


def test_a_job_by_the_client_from_submission_to_quarantine_and_back(config, projector, tmp_path):
    client = connect(config)
    (tmp_path / "graph").write_text("a graph")
    job_id = client.submit(SPEC, tmp_path / "graph")
    assert client.submit(SPEC, tmp_path / "graph", job_id=job_id) == job_id
    with pytest.raises(Refused):
        client.submit(SPEC, tmp_path / "graph", unique=True)
    assert client.resolve("prod/etl") == client.resolve(job_id[:13]) == job_id
    assert client.declare(job_id, IntentKind.SUSPEND, reason="night").state is JobState.SUSPENDED
    assert client.declare(job_id, IntentKind.RUN, reason="morning").state is JobState.CREATED
    with Recorder("runner", config=config) as runner:
        runner.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    ended = client.wait(job_id, timeout_s=60)
    assert ended.state == JobState.QUARANTINED
    assert client.declare(job_id, IntentKind.RETRY, reason="fixed").state is JobState.RESTARTING
    told = explained(client.source, job_id)
    assert (told.state, told.rule, told.in_recovery_set) == ("RESTARTING", 12, True)
    registers = [record.register.partition("/")[0] for record in history(client.source, job_id)]
    assert registers[:5] == ["spec", "admitted", "intent", "intent", "intent"]  # the last: the loser's tombstone
    found = replay(client.source)
    assert (found.differences, found.compared, found.behind) == ((), 1, ())


def test_while_the_projector_is_away_outcomes_are_unknown_and_replay_catches_up_with_it(config, projector, tmp_path):
    client = connect(config)
    (tmp_path / "graph").write_text("a graph")
    job_id = client.submit(SPEC, tmp_path / "graph")
    projector.stop()
    with pytest.raises(OutcomeUnknown):
        client.declare(job_id, IntentKind.SUSPEND, reason="night", timeout_s=1)
    assert replay(client.source, timeout_s=1).behind == (job_id,)
    projector.start()
    until(lambda: replay(client.source).behind == (), "the projector has caught up")
    assert replay(client.source).differences == ()
    assert client.entries()[job_id].state is JobState.SUSPENDED
    assert client.entries().recovery_set() == {}


def test_the_example_for_producers_runs_on_a_broker(config, projector, monkeypatch, tmp_path):
    monkeypatch.setattr("ledger.producer.recorder.load_config", lambda: config)
    exec(compile(example(), "RECORDER.md", "exec"), names := {})
    client = connect(config)
    ended = client.wait(names["job"].job_id, timeout_s=60)
    assert ended.state == JobState.FINISHED
    assert [r.register for r in history(client.source, "job-7")] == ["checkpoint/2/31"]

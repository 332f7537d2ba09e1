"""The promises of a Recorder, on the log in memory: a returned write is durable, a resend has the same bytes, and an
unknown outcome is reported as unknown."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.sender import MemorySender
from ledger.config.config import load_config
from ledger.core.model.facts import AttemptRunning, CheckpointCompleted, GraphRef, JobSubmitted
from ledger.core.model.registers import Checkpoint, Running, Spec, partition_of
from ledger.errors import ConfigError, Refused, Unreachable, UsageError
from ledger.producer.recorder import Recorder, Unacknowledged

EVENTS = "ledger.events"
PARTITIONS = 4
FACT = AttemptRunning("application_17")


class World:
    def __init__(self, tmp_path) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog({EVENTS: PARTITIONS}, self.clock, max_message_bytes=4096)
        self.sender = MemorySender(self.log)
        self.tmp_path = tmp_path
        self._ids = iter(range(10_000))

    def recorder(self, **settings) -> Recorder:
        return Recorder(
            "launcher", namespace="prod", config=load_config(self.tmp_path), sender=self.sender, actor="ann@here",
            clock=self.clock, new_id=lambda: f"id-{next(self._ids):05}", **settings,
        )  # fmt: skip

    def stored(self) -> list:
        return [record for p in range(PARTITIONS) for record in self.log.records(EVENTS, p)]


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_a_recorded_fact_lies_under_its_key_in_its_partition_with_its_headers(world):
    recorded = world.recorder().record("job-1", Running(2), FACT)
    (record,) = world.stored()
    assert record.key() == b"job-1/running/2"
    assert (record.partition(), record.offset()) == (partition_of("job-1", PARTITIONS), 0)
    assert (recorded.partition, recorded.offset) == (record.partition(), 0)
    assert avro.read(Running(2), record.value()) == FACT
    said = cloudevents.parse(record.headers())
    assert said.id == recorded.event_id
    assert said.type == "io.jobledger.AttemptRunning.v1"
    assert (said.subject, said.actor, said.epoch) == ("job-1", "ann@here", None)
    assert said.time_s == world.clock.time()


def test_a_spec_lies_under_its_own_digest(world):
    spec = JobSubmitted("etl", "prod", "subprocess", GraphRef("file:///g", "a" * 64, 1))
    world.recorder().submit("job-1", spec)
    assert world.stored()[0].key() == f"job-1/spec/{avro.spec_digest(spec)}".encode()


def test_sequences_count_from_1_per_source_and_partition(world):
    first, second = world.recorder(), world.recorder()
    assert first.source != second.source
    for n in range(1, 30):
        first.record(f"job-{n}", Running(1), FACT)
        second.record(f"job-{n}", Running(2), FACT)
    seen = defaultdict(list)
    for record in world.stored():
        said = cloudevents.parse(record.headers())
        seen[said.source, record.partition()].append(said.sequence)
    assert len(seen) == 2 * PARTITIONS
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())
    assert first.source == f"/ns/prod/producer/launcher/{first.instance}"


def test_many_threads_record_at_once(world):
    recorder, threads, each = world.recorder(), 8, 40
    recorded: list = [[] for _ in range(threads)]
    start = threading.Barrier(threads)

    def work(t: int) -> None:
        start.wait()
        for n in range(1, each + 1):
            recorded[t].append(recorder.record(f"job-{t}-{n}", Running(n), FACT))

    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    records = world.stored()
    assert {r.key() for r in records} == {
        f"job-{t}-{n}/running/{n}".encode() for t in range(threads) for n in range(1, each + 1)
    }
    assert len({r.event_id for rs in recorded for r in rs}) == threads * each
    numbers = Counter((r.partition(), cloudevents.parse(r.headers()).sequence) for r in records)
    assert set(numbers.values()) == {1}
    for p in range(PARTITIONS):
        assert {n for q, n in numbers if q == p} == set(range(1, len(world.log.records(EVENTS, p)) + 1))


# -- unknown outcomes --------------------------------------------------------------------------------------------------


def test_an_unheard_acknowledgement_is_told_apart_and_sending_again_sends_the_same_bytes(world):
    recorder = world.recorder()
    world.sender.lost_acks = 1
    with pytest.raises(Unacknowledged) as raised:
        recorder.record("job-1", Running(1), FACT)
    assert raised.value.exit_code == 4
    world.clock.advance(100)
    again = recorder.send_again(raised.value.event)
    first, second = world.stored()
    assert (first.key(), first.value(), first.headers()) == (second.key(), second.value(), second.headers())
    assert again.offset == second.offset()
    assert again.event_id == cloudevents.parse(first.headers()).id


def test_when_kafka_is_away_nothing_is_sent_and_no_sequence_number_is_lost(world):
    recorder = world.recorder()
    recorder.record("job-1", Running(1), FACT)
    world.log.up = False
    with pytest.raises(Unreachable):
        recorder.record("job-1", Running(2), FACT)
    world.log.up = True
    recorder.record("job-1", Running(3), FACT)
    assert [r.key() for r in world.stored()] == [b"job-1/running/1", b"job-1/running/3"]
    assert [cloudevents.parse(r.headers()).sequence for r in world.stored()] == [1, 2]


def test_away_when_sent_again_is_no_certainty(world):
    recorder = world.recorder()
    world.sender.lost_events = 1
    with pytest.raises(Unacknowledged) as raised:
        recorder.record("job-1", Running(1), FACT)
    world.log.up = False
    with pytest.raises(Unacknowledged):
        recorder.send_again(raised.value.event)


def test_a_recorder_that_blocks_waits_until_kafka_is_back(world):
    recorder = world.recorder(when_away="block")
    world.log.up = False
    asked = []

    def back_after_three(seconds: float) -> None:
        asked.append(seconds)
        world.log.up = len(asked) == 3

    world.clock.sleep = back_after_three
    assert recorder.record("job-1", Running(1), FACT).offset == 0
    assert len(asked) == 3


def test_a_recorder_that_blocks_sends_until_it_is_acknowledged_always_the_same_bytes(world):
    world.sender.lost_acks = 2
    assert world.recorder(when_away="block").record("job-1", Running(1), FACT).offset == 2
    assert len({(r.key(), r.value(), tuple(r.headers())) for r in world.stored()}) == 1


def test_closing_ends_a_block(world):
    recorder = world.recorder(when_away="block")
    world.log.up = False
    world.clock.sleep = lambda seconds: recorder.close()
    with pytest.raises(UsageError, match="closed"):
        recorder.record("job-1", Running(1), FACT)
    assert world.sender.closed


def test_a_record_that_is_too_large_is_refused(world):
    with pytest.raises(Refused):
        world.recorder(outbox=world.tmp_path / "outbox").record("job-1", Running(1), AttemptRunning("x" * 5000))
    assert not world.stored()
    assert not list((world.tmp_path / "outbox").iterdir())


@pytest.mark.parametrize(
    "job_id, register, fact",
    [
        ("no/slash", Running(1), FACT),
        ("..", Running(1), FACT),
        ("job", Running(0), FACT),
        ("job", Checkpoint(1, -1), CheckpointCompleted("l")),
        ("job", Running(1), CheckpointCompleted("l")),
        ("job", Spec("a" * 64), JobSubmitted("n", "ns", "r", GraphRef("u", "a" * 64, 1))),
    ],
)
def test_what_is_not_of_the_grammar_is_refused_before_anything_is_asked(world, job_id, register, fact):
    recorder = world.recorder()
    world.log.up = False
    with pytest.raises(UsageError):
        recorder.record(job_id, register, fact)


@pytest.mark.parametrize("settings", [{"when_away": "drop"}, {"outbox": None, "when_away": ""}])
def test_settings_that_mean_nothing_are_refused(world, settings):
    with pytest.raises(UsageError):
        world.recorder(**settings)


def test_a_recorder_is_not_used_across_a_fork(world, monkeypatch):
    recorder = world.recorder()
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(UsageError, match="fork"):
        recorder.record("job-1", Running(1), FACT)


# -- outbox --------------------------------------------------------------------------------------------------------------


def test_with_an_outbox_an_event_is_on_disk_before_it_is_sent_and_gone_after_the_acknowledgement(world):
    folder = world.tmp_path / "outbox"
    recorder = world.recorder(outbox=folder)
    seen = []
    send = world.sender.send
    world.sender.send = lambda event: seen.append(len(list(folder.glob("*.event")))) or send(event)
    recorder.record("job-1", Running(1), FACT)
    assert seen == [1]
    assert not list(folder.iterdir())


def test_what_an_earlier_process_left_in_the_outbox_is_sent_as_it_was(world):
    folder = world.tmp_path / "outbox"
    first = world.recorder(outbox=folder)
    first.record("job-1", Running(1), FACT)
    world.log.up = False
    with pytest.raises(Unacknowledged) as raised:
        first.record("job-1", Running(2), FACT)
    assert str(folder) in str(raised.value)
    with pytest.raises(Unacknowledged):
        world.recorder(outbox=folder)
    world.log.up = True
    world.clock.advance(1000)
    world.recorder(outbox=folder)
    event, record = raised.value.event, world.stored()[-1]
    assert (record.key(), record.value()) == (event.key, event.value)
    assert tuple(record.headers()) == event.headers
    assert not list(folder.iterdir())


def test_a_damaged_file_in_the_outbox_is_set_aside_and_the_rest_is_sent(world, caplog):
    folder = world.tmp_path / "outbox"
    first = world.recorder(outbox=folder)
    first.record("job-1", Running(1), FACT)
    world.log.up = False
    for n in (2, 3):
        with pytest.raises(Unacknowledged):
            first.record("job-1", Running(n), FACT)
    world.log.up = True
    torn = min(folder.glob("*.event"))
    torn.write_bytes(torn.read_bytes()[:-20])
    world.recorder(outbox=folder)
    assert [r.key() for r in world.stored()] == [b"job-1/running/1", b"job-1/running/3"]
    assert [p.name for p in folder.iterdir()] == [torn.with_suffix(".unreadable").name]
    assert torn.name in caplog.text


def test_an_event_that_kafka_will_never_take_does_not_stop_the_rest_of_the_outbox(world):
    folder = world.tmp_path / "outbox"
    first = world.recorder(outbox=folder)
    first.record("job-1", Running(1), FACT)
    world.log.up = False
    for fact in (AttemptRunning("x" * 5000), FACT):
        with pytest.raises(Unacknowledged):
            first.record("job-1", Running(2), fact)
    world.log.up = True
    world.recorder(outbox=folder)
    assert [r.key() for r in world.stored()] == [b"job-1/running/1", b"job-1/running/2"]
    assert [p.suffix for p in folder.iterdir()] == [".refused"]


def test_an_outbox_that_cannot_be_made_is_told(world):
    (world.tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="outbox"):
        world.recorder(outbox=world.tmp_path / "file" / "outbox")

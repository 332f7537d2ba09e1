"""The recorder on a real broker: acknowledged records are durable, also if the broker dies, hangs or comes back.

The module has its own broker, because its tests kill and pause it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.log import KafkaLog
from ledger.config.config import load_config
from ledger.core.model.facts import AttemptRunning, CheckpointCompleted
from ledger.core.model.registers import Checkpoint, Running, partition_of
from ledger.embedded.broker import Broker
from ledger.errors import ConfigError, Refused, Unreachable
from ledger.producer.recorder import Recorded, Recorder, Unacknowledged
from tests.support.servers import RunningBroker, create_topic
from tests.support.waiting import in_time, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]
PARTITIONS = 3
FACT = AttemptRunning("17")


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(Broker.at(tmp_path_factory.mktemp("own-broker")))
    running.start()
    yield running
    if running.process is not None:
        os.kill(running.process.pid, signal.SIGCONT)
    running.stop()


def _state(task: Path) -> str:
    """The state letter of a thread, from /proc."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


class World:
    def __init__(self, broker: RunningBroker, prefix: str, folder) -> None:
        self.broker, self.folder = broker, folder
        self.config = load_config(folder, kafka={"bootstrap.servers": broker.bootstrap}, topics={"prefix": prefix})
        self.topic = self.config.topics.events
        create_topic(broker.bootstrap, self.topic, PARTITIONS, {"max.message.bytes": "20000"})
        self.open: list[Recorder] = []

    def recorder(self, **settings) -> Recorder:
        """A new recorder. If the broker runs, the recorder has reached it already, so its timeouts may be short."""
        made = Recorder("launcher", config=self.config, **settings)
        self.open.append(made)
        if self.broker.process is not None:
            until(lambda: made._sender.ready(self.topic) is None, "the recorder reaches the broker")
        return made

    def pause(self) -> None:
        pid = self.broker.process.pid
        os.kill(pid, signal.SIGSTOP)
        threads = Path(f"/proc/{pid}/task").glob
        # A thread that answers a request at this moment finishes it first.
        until(lambda: all(_state(task) in "Tt" for task in threads("*")), "all threads of the broker are stopped")

    def go_on(self) -> None:
        os.kill(self.broker.process.pid, signal.SIGCONT)

    def stored(self) -> list:
        """All records of the topic. After a pause, the broker's controller takes a while to answer."""
        log = KafkaLog({"bootstrap.servers": self.broker.bootstrap}, SystemClock())
        deadline = time.monotonic() + 120
        while True:
            try:
                reader = log.reader([self.topic])
                marks = reader.high_watermarks()
                break
            except Unreachable:
                in_time(time.monotonic() < deadline, "not within 120 s: an answer of the controller")
        records = []
        while any(reader.position()[place] < end for place, end in marks.items()):
            in_time(time.monotonic() < deadline, f"not within 120 s: all; {len(records)} records came")
            records += reader.poll(1000, 0.2)
        reader.close()
        return records


@pytest.fixture
def world(own_broker: RunningBroker, prefix: str, tmp_path) -> Iterator[World]:
    if own_broker.process is None:
        own_broker.start()
    made = World(own_broker, prefix, tmp_path)
    yield made
    if own_broker.process is None:
        own_broker.start()
    else:
        made.go_on()
    for recorder in made.open:
        recorder.close()


def test_acknowledged_is_durable_whatever_becomes_of_the_broker(world):
    recorder = world.recorder()
    recorded = [recorder.record(f"job-{n}", Running(1), FACT) for n in range(20)]
    world.broker.kill()
    world.broker.start()
    found = {(r.partition(), r.offset()): r for r in world.stored()}
    for n, (partition, offset, event_id) in enumerate(recorded):
        record = found[partition, offset]
        assert record.key() == f"job-{n}/running/1".encode()
        assert partition == partition_of(f"job-{n}", PARTITIONS)
        assert avro.read(Running(1), record.value()) == FACT
        assert cloudevents.parse(record.headers()).id == event_id


def test_many_threads_at_once_leave_no_hole_in_the_sequences(world):
    recorder, threads, each = world.recorder(), 12, 100
    failed: list[BaseException] = []

    def work(t: int) -> None:
        try:
            for n in range(1, each + 1):
                recorder.record(f"job-{t}-{n}", Checkpoint(1, n), CheckpointCompleted("/c"))
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not failed
    seen = defaultdict(list)
    for record in world.stored():
        seen[record.partition()].append(cloudevents.parse(record.headers()).sequence)
    assert sum(map(len, seen.values())) == threads * each
    assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in seen.values())


def test_a_dead_broker_is_unreachable_in_time_and_nothing_was_sent(world):
    recorder = world.recorder(timeout_s=5)
    recorder.record("job-1", Running(1), FACT)
    world.broker.kill()
    until(lambda: recorder._sender._proved_at is None, "the client has noticed the broken connection")
    began = time.monotonic()
    with pytest.raises(Unreachable):
        recorder.record("job-1", Running(2), FACT)
    in_time(time.monotonic() - began < 20, "not within 20 s")  # far below librdkafka's own limits, far above five seconds
    world.broker.start()
    until(lambda: recorder._sender.ready(world.topic) is None, "the recorder reaches the broker again")
    recorder.record("job-1", Running(3), FACT)
    assert [r.key() for r in world.stored()] == [b"job-1/running/1", b"job-1/running/3"]
    assert [cloudevents.parse(r.headers()).sequence for r in world.stored()] == [1, 2]


def test_a_recorder_made_while_there_is_no_broker_says_so(world):
    world.broker.kill()
    with pytest.raises(Unreachable):
        world.recorder(timeout_s=1).record("job-1", Running(1), FACT)


def test_a_hanging_broker_leaves_the_outcome_unknown_and_sending_again_is_harmless(world):
    recorder, sent = world.recorder(timeout_s=5), 2
    recorder.record("job-1", Running(1), FACT)
    world.pause()
    with pytest.raises(Unacknowledged) as raised:
        recorder.record("job-1", Running(2), FACT)
    assert raised.value.exit_code == 4
    with pytest.raises(Unacknowledged):
        recorder.send_again(raised.value.event)
    world.go_on()

    def again() -> Recorded:
        nonlocal sent
        sent += 1
        return recorder.send_again(raised.value.event)

    until(again, "the resumed broker accepts the record")
    copies = [r for r in world.stored() if r.key() == b"job-1/running/2"]
    assert 1 <= len(copies) <= sent
    event = raised.value.event
    assert {(r.value(), tuple(r.headers())) for r in copies} == {(event.value, event.headers)}


def test_a_recorder_that_blocks_goes_on_when_the_broker_is_back(world):
    recorder = world.recorder(timeout_s=1, when_away="block")
    recorder.record("job-1", Running(1), FACT)
    world.broker.kill()
    done = threading.Event()

    def record() -> None:
        recorder.record("job-1", Running(2), FACT)
        done.set()

    threading.Thread(target=record, daemon=True).start()
    assert not done.wait(3)
    world.broker.start()
    in_time(done.wait(60), "not within 60 s: the acknowledgement")
    assert b"job-1/running/2" in {r.key() for r in world.stored()}


def test_an_outbox_brings_over_what_was_made_while_the_broker_was_away(world):
    folder = world.folder / "outbox"
    first = world.recorder(timeout_s=5, outbox=folder)
    first.record("job-1", Running(1), FACT)
    world.broker.kill()
    for n in (2, 3):
        with pytest.raises(Unacknowledged):
            first.record("job-1", Running(n), FACT)
    assert len(list(folder.iterdir())) == 2
    world.broker.start()
    world.recorder(outbox=folder)
    assert not list(folder.iterdir())
    records = world.stored()
    assert {r.key() for r in records} == {b"job-1/running/%d" % n for n in (1, 2, 3)}
    assert {cloudevents.parse(r.headers()).sequence for r in records} == {1, 2, 3}
    assert len({cloudevents.parse(r.headers()).source for r in records}) == 1


def test_what_the_broker_will_never_take_is_refused_and_the_recorder_goes_on(world):
    recorder = world.recorder(timeout_s=20)
    noise = "".join(os.urandom(30_000).hex())
    with pytest.raises(Refused, match="MSG_SIZE_TOO_LARGE"):
        recorder.record("job-1", Running(1), AttemptRunning(noise))
    assert recorder.record("job-1", Running(2), FACT).offset is not None


def test_a_topic_that_is_not_there_is_a_matter_of_configuration(world):
    config = load_config(world.folder, kafka={"bootstrap.servers": world.broker.bootstrap}, topics={"prefix": "nowhere."})
    with Recorder("launcher", config=config, timeout_s=20) as recorder, pytest.raises(ConfigError, match="nowhere"):
        recorder.record("job-1", Running(1), FACT)

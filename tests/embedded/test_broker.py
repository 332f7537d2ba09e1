"""The embedded broker keeps its address and its data, however its process ended."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from ledger.embedded import ports
from ledger.embedded.broker import Broker
from ledger.embedded.hold import HELD
from ledger.embedded.java_configs import properties, unescaped
from ledger.errors import ConfigError, Unreachable
from tests.support.servers import COMPACT_NOW, RunningBroker, create_topic
from tests.support.waiting import in_time, until


def produce(bootstrap: str, topic: str, key: str, value: str | None) -> None:
    """Writes one record and waits until all replicas have acknowledged it. Raises on an error."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    producer.produce(topic, key=key, value=value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(20) == 0
    assert not failed, failed


def read(bootstrap: str, topic: str) -> list[Message]:
    """All records of partition 0 up to the high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_uncommitted"})
    try:
        here = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(here, timeout=15)
        consumer.assign([here])
        records: list[Message] = []
        deadline = time.monotonic() + 20
        while consumer.position([here])[0].offset < end:
            in_time(time.monotonic() < deadline, f"not within 20 s: up to {end}; {len(records)} records")
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                records.append(message)
        return records
    finally:
        consumer.close()


def setting(bootstrap: str, name: str) -> str:
    """The value of a broker setting, as the broker reports it (DescribeConfigs)."""
    asked = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = admin.describe_configs([asked])[asked].result(20)
    return str(settings[name].value)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker that a test may kill. The name of its folder needs escaping in a properties file."""
    running = RunningBroker(Broker.at(tmp_path / "ledger é: #1"))
    try:
        yield running
    finally:
        running.kill()


# Without a JVM


def test_the_ports_are_chosen_once(tmp_path):
    first = Broker.at(tmp_path / "one")
    assert Broker.at(tmp_path / "one") == first
    assert first.port != first.controller_port
    assert first.bootstrap == f"127.0.0.1:{first.port}"
    assert json.loads((tmp_path / "one" / "ports.json").read_text()) == {
        "port": first.port,
        "controller_port": first.controller_port,
    }


def test_the_ports_are_not_those_of_outgoing_connections(tmp_path):
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = Broker.at(tmp_path)
    assert max(first.port, first.controller_port) < lowest_outgoing


def test_ports_that_someone_holds_are_not_chosen(monkeypatch):
    with ports.socket.create_server((ports.HOST, 0)) as listening:
        held = listening.getsockname()[1]
        # Other processes of this machine may hold some of the other ports.
        monkeypatch.setattr(ports.random, "sample", lambda *_: [held, *range(20_000, 20_200)])
        assert held not in ports.free_ports(2)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"port": 1}', '{"port": "x", "controller_port": 2}'])
def test_damaged_ports_are_an_error_that_names_the_file(tmp_path, content):
    (tmp_path / "ports.json").write_text(content)
    with pytest.raises(ConfigError, match=r"ports\.json"):
        Broker.at(tmp_path)


def test_extra_settings_win(tmp_path):
    one = Broker.at(tmp_path, extra={"offsets.topic.num.partitions": "7", "log.cleaner.backoff.ms": "200"})
    assert one.settings()["offsets.topic.num.partitions"] == "7"
    assert one.settings()["log.cleaner.backoff.ms"] == "200"


def test_it_listens_on_the_loopback_interface_only(tmp_path):
    listeners = Broker.at(tmp_path).settings()["listeners"]
    assert [one.split("//")[1].split(":")[0] for one in listeners.split(",")] == ["127.0.0.1", "127.0.0.1"]


def test_a_folder_that_kafka_would_take_for_two_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="comma"):
        Broker.at(tmp_path / "a,b").prepare()


def test_properties_are_escaped_as_java_reads_them():
    assert properties({"a b": "c:\\é=#\U0001f600\n"}) == "a\\ b=c\\:\\\\\\u00e9\\=\\#\\ud83d\\ude00\\n\n"

    assert unescaped(properties({"k": "c:\\é=#\U0001f600"}).strip().partition("=")[2]) == "c:\\é=#\U0001f600"


def test_a_broker_that_does_not_come_is_not_waited_for_longer(tmp_path):
    one = Broker.at(tmp_path)
    started = time.monotonic()
    with pytest.raises(Unreachable, match=r"not ready within 0\.3 s") as raised:
        one.ready(0.3)
    in_time(time.monotonic() - started < 5, "not within 5 s")
    assert str(one.log) in raised.value.hint
    with pytest.raises(Unreachable, match="ended before"):
        one.ready(60, alive=lambda: False)


# With one


@pytest.mark.kafka
@pytest.mark.timeout(300)  # three starts
def test_what_was_acknowledged_survives_kill_9_and_the_address_too(own: RunningBroker):
    own.start()
    before = own.bootstrap
    # After a kill, the session of the old incarnation must not delay the new one by Kafka's nine seconds.
    assert int(setting(own.bootstrap, "broker.session.timeout.ms")) <= 2_000
    topic = create_topic(own.bootstrap, "kept", config={"cleanup.policy": "compact"})
    for number in range(10):
        produce(own.bootstrap, topic, f"k{number}", f"v{number}")
        if number % 5 == 4:
            own.kill()
            own.start()
    assert own.bootstrap == before
    assert [(record.key(), record.value()) for record in read(own.bootstrap, topic)] == [
        (f"k{number}".encode(), f"v{number}".encode()) for number in range(10)
    ]


@pytest.mark.kafka
def test_it_formats_once_logs_to_its_file_and_prints_nothing(own: RunningBroker, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # Java prints a line about it
    own.broker.prepare()
    formatted = (own.broker.data / "meta.properties").read_text()
    own.broker.prepare()
    own.start()
    assert (own.broker.data / "meta.properties").read_text() == formatted
    assert (own.broker.folder / "cluster_id").read_text().strip() in formatted.replace("\\", "")
    # It answers requests shortly before its log says that it has started.
    until(lambda: "Kafka Server started" in own.broker.log.read_text(), "the broker's log reports its start")
    assert own.printed.read_text() == ""
    assert own.process is not None
    own.process.terminate()
    assert own.process.wait(60) == 143  # the JVM's exit code after SIGTERM
    assert "[BrokerServer id=1] shut down completed" in own.broker.log.read_text()


@pytest.mark.kafka
def test_a_format_that_was_cut_short_is_done_again(own: RunningBroker):
    own.broker.prepare()
    (own.broker.data / "meta.properties").unlink()
    own.broker.prepare()
    own.start()


@pytest.mark.kafka
def test_another_cluster_on_its_port_is_not_taken_for_it(broker: RunningBroker, tmp_path: Path):
    stranger = Broker(folder=tmp_path, port=broker.broker.port, controller_port=broker.broker.controller_port)
    (tmp_path / "cluster_id").write_text("AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(Unreachable, match="answers on"):
        stranger.ready(20)


@pytest.mark.kafka
def test_a_second_process_on_the_same_folder_ends_at_once_and_touches_nothing(own: RunningBroker):
    """Kafka's own lock comes too late: the second process becomes the controller, and the first can't shut down."""
    own.start()
    logged = own.broker.log.read_text()
    second = subprocess.run(own.broker.command(), capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == HELD
    assert "lock is held by another process" in second.stderr
    assert "activation" not in own.broker.log.read_text().removeprefix(logged)
    own.broker.ready(60)
    own.stop()


@pytest.mark.kafka
def test_a_topic_that_nobody_created_is_an_error(broker: RunningBroker, prefix: str):
    failed: list[str] = []
    settings = {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 60_000, "topic.metadata.propagation.max.ms": 0}
    producer = Producer(settings)
    producer.produce(f"{prefix}mistyped", b"x", on_delivery=lambda error, _: failed.append(error.name()))
    producer.flush(60)
    assert failed in (["_UNKNOWN_TOPIC"], ["UNKNOWN_TOPIC_OR_PART"])


@pytest.mark.kafka
def test_the_shared_broker_compacts_on_demand(broker: RunningBroker, prefix: str):
    """Log compaction must remove both within seconds: the superseded value, and then the tombstone itself."""
    topic = create_topic(broker.bootstrap, f"{prefix}compacted", config=COMPACT_NOW)
    produce(broker.bootstrap, topic, "job", "old")
    produce(broker.bootstrap, topic, "job", None)
    deadline = time.monotonic() + 60
    nudges = 0
    while any(record.key() == b"job" for record in read(broker.bootstrap, topic)):
        in_time(time.monotonic() < deadline, "not within 60 s: log compaction")
        nudges += 1
        produce(broker.bootstrap, topic, f"nudge-{nudges}", "x")
        time.sleep(1.1)


@pytest.mark.kafka
@pytest.mark.spark
def test_the_real_caches_are_there_and_need_nothing_more(monkeypatch: pytest.MonkeyPatch):
    """After `make setup`, the jars and the class archive are there without running Java or using the network."""
    from ledger.adapters.java import jars

    monkeypatch.setattr(jars, "_run_java", lambda *_, what: pytest.fail(f"{what} had to be made first"))
    assert all(os.path.isfile(jar) for jar in jars.broker_classpath().split(os.pathsep))
    assert all(jar.is_file() for jar in jars.spark_connector())

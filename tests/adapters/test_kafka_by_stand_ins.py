"""How a reader, a writer and the check of topics treat Kafka's answers, with stand-ins for client and cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ledger.adapters.kafka import reader as reading
from ledger.adapters.kafka import topics, writer
from ledger.adapters.kafka.cluster import Cluster, Shape
from ledger.adapters.kafka.reader import KafkaReader
from ledger.adapters.kafka.topics import RESTORING, TopicSettings, check_topics, specs
from ledger.adapters.kafka.writer import KafkaWriter
from ledger.adapters.memory.clock import ManualClock
from ledger.errors import ConfigError, Fenced, LedgerError
from ledger.ports import Event

PLACE = ("t", 0)


class StandIn:
    """Stands in for a cluster. shapes_of: topic -> its shape. end: of every partition. configs: topic -> settings."""

    bootstrap = "nowhere:1"

    def __init__(self, shapes_of: Mapping[str, Shape], configs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.shapes_of, self.configs, self.end = dict(shapes_of), configs or {}, 7

    def shapes(self, names: Iterable[str]) -> dict[str, Shape | None]:
        return {name: self.shapes_of.get(name) for name in names}

    def shape(self, names: Iterable[str]) -> dict[str, Shape]:
        return {name: self.shapes_of[name] for name in names}

    def ends(self, places: Iterable[tuple[str, int]], spec: object = None) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.end if spec is None else 0)

    def config(self, topic: str) -> Mapping[str, str]:
        return self.configs[topic]


class Consumer:
    """Stands in for a consumer: hands out `messages`, never more at a time than requested."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.at = 0
        self.assigned: dict[tuple[str, int], int] = {}

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = {(place.topic, place.partition): place.offset for place in places}

    def consume(self, most: int, _timeout_s: float) -> list[Message]:
        some, self.messages = self.messages[:most], self.messages[most:]
        self.at += sum(message.error() is None for message in some)
        return some

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, self.at) for place in places]


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer()
    monkeypatch.setattr(reading, "made", lambda *_: made)
    return made


def a_reader(begin: Mapping[tuple[str, int], int] | None = None) -> tuple[KafkaReader, StandIn]:
    cluster: Any = StandIn({"t": Shape("first", 1, 1)})
    return KafkaReader({}, cluster, ["t"], "g", begin=begin or {}), cluster


def told(code: int, offset: int = 9) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=KafkaError(code))


def test_a_reader_begins_where_it_is_told_to(consumer: Consumer) -> None:
    read, _ = a_reader({PLACE: 5})
    assert consumer.assigned == read.position() == {PLACE: 5}


def test_an_end_that_is_told_moves_the_position_past_control_records(consumer: Consumer) -> None:
    read, _ = a_reader()
    consumer.messages = [told(KafkaError._PARTITION_EOF)]
    assert read.poll(10, 0) == []
    assert read.position() == {PLACE: 9}


def test_a_poll_hands_out_no_more_than_was_asked_for(consumer: Consumer) -> None:
    read, _ = a_reader()
    consumer.messages = [Message("t", 0, n, b"k", b"v") for n in range(5)]
    assert [len(read.poll(most, 0)) for most in (1, 3, 3)] == [1, 3, 1]


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_a_place_that_is_lost_breaks_the_reader_for_good(consumer: Consumer, code: int) -> None:
    read, _ = a_reader()
    consumer.messages = [told(code)]
    for call in (lambda: read.poll(10, 0), lambda: read.poll(10, 0), read.high_watermarks, read.high_watermarks):
        with pytest.raises(LedgerError, match=r"t\[0\] can't be read from offset 0 on"):
            call()


def test_a_topic_made_anew_or_cut_off_breaks_the_reader_for_good(consumer: Consumer) -> None:
    read, cluster = a_reader({PLACE: 7})
    assert read.high_watermarks() == {PLACE: 7}
    cluster.shapes_of["t"] = Shape("second", 1, 1)
    for _ in range(2):
        with pytest.raises(LedgerError, match="deleted and created again"):
            read.high_watermarks()
    read, cluster = a_reader({PLACE: 7})
    cluster.end = 6
    with pytest.raises(LedgerError, match="it was truncated"):
        read.high_watermarks()


# -- the writer --------------------------------------------------------------------------------------------------------


class Producer:
    """Stands in for a producer: accepts everything, and reports each record as stored, or with `error`."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error, self.committed, self.aborted = error, 0, 0
        self._reports = list[Any]()

    def produce(self, *_args: object, on_delivery: Any, **_kwargs: object) -> None:
        self._reports.append(on_delivery)

    def flush(self, _timeout_s: float = 0) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report(self.error, Message("t", 0, 3, b"k", b"v"))
        return 0

    def commit_transaction(self, _timeout_s: float) -> None:
        self.committed += 1

    def abort_transaction(self, _timeout_s: float) -> None:
        self.aborted += 1

    def _does(self, *_args: object, **_kwargs: object) -> int:
        return 0

    init_transactions = begin_transaction = purge = poll = _does


def a_writer(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> KafkaWriter:
    monkeypatch.setattr(writer, "made", lambda *_: producer)
    made = KafkaWriter({}, "id", ManualClock())
    made.init()
    return made


EVENT = Event("t", 0, b"key", b"value")


def test_a_closed_writer_says_so_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()
    made = a_writer(monkeypatch, producer)
    assert made.commit([EVENT]) == [3]
    made.close()
    for call in (lambda: made.commit([EVENT]), made.init):
        with pytest.raises(Fenced, match="it was closed"):
            call()
    assert producer.committed == 1


def test_a_fenced_writer_is_not_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made = a_writer(monkeypatch, Producer())
    with pytest.raises(Fenced):
        made.die("another leads")
    for call in (lambda: made.commit([EVENT]), made.init):
        with pytest.raises(Fenced, match="another leads"):
            call()


@pytest.mark.parametrize(("code", "says"), [
    (KafkaError._UNKNOWN_PARTITION, "_UNKNOWN_PARTITION"), (KafkaError.MSG_SIZE_TOO_LARGE, "key"),
])  # fmt: skip
def test_what_was_not_delivered_is_not_committed(monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    producer = Producer(KafkaError(code))
    with pytest.raises(LedgerError, match=says):
        a_writer(monkeypatch, producer).commit([EVENT])
    assert (producer.committed, producer.aborted) == (0, 1)


# -- topics ------------------------------------------------------------------------------------------------------------

SETTINGS = TopicSettings(partitions=2)


def problems(monkeypatch: pytest.MonkeyPatch, events: Shape | None, config: Mapping[str, str] | None = None) -> list[str]:
    """The problems that are found if all topics but ledger.events are correct."""
    wanted = {spec.name: spec for spec in specs(SETTINGS)}
    shapes = {name: Shape("id", spec.partitions, 1) for name, spec in wanted.items()}
    shapes |= {SETTINGS.events: events} if events else {}
    configs = {name: dict(spec.config) for name, spec in wanted.items()}
    configs[SETTINGS.events] |= config or {}
    there = {name: shape for name, shape in shapes.items() if events or name != SETTINGS.events}
    monkeypatch.setattr(topics, "Cluster", lambda *_: StandIn(there, configs))
    return [f"{problem.topic} {problem.setting}" for problem in check_topics({}, SETTINGS)]


def test_a_topic_of_other_partitions_or_that_is_missing_or_half_restored_is_no_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Shape("id", 2, 1)
    assert problems(monkeypatch, whole) == []
    assert problems(monkeypatch, None) == ["ledger.events topic"]
    for count in (1, 3):
        assert problems(monkeypatch, Shape("id", count, 1)) == ["ledger.events partitions"]
    assert problems(monkeypatch, whole, RESTORING) == ["ledger.events restore"]


def test_a_topic_that_is_missing_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def result(self, _timeout_s: float) -> None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    class Admin:
        def describe_topics(self, names: Any, **_kwargs: object) -> dict[str, Missing]:
            return {name: Missing() for name in names.topic_names}

    cluster = Cluster({"bootstrap.servers": "nowhere:1"})
    monkeypatch.setattr("ledger.adapters.kafka.cluster.made", lambda *_: Admin())
    assert cluster.shapes(["t"]) == {"t": None}
    with pytest.raises(ConfigError, match="There is no topic t"):
        cluster.shape(["t"])

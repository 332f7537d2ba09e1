"""The archive's stream on a real Spark session and a real broker."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ledger.adapters import avro, cloudevents
from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.append_times import first_times
from ledger.adapters.kafka.cluster import EARLIEST, Cluster
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.spark.segments import SparkSegments
from ledger.adapters.spark.session import start_session
from ledger.archive.format.decoding import Decoded, decoded
from ledger.archive.format.objects import ObjectStore
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Archiver, PartitionShape
from ledger.archive.store.verifying import verify
from ledger.errors import LedgerError
from ledger.ports import Event, Record
from tests.support.servers import create_topic
from tests.support.waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    # py4j leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(tmp_path_factory.mktemp("spark"), slots=2)
    yield session
    session.stop()
    gc.collect()


def read_out(record: Record) -> Decoded:
    return decoded(record, avro, cloudevents)


def world(root: Path) -> tuple[ObjectStore, Callable[[Record], Decoded]]:
    return FolderObjects(root), read_out


class Ledger:
    """Two topics of two partitions, and an archive of them."""

    def __init__(self, spark: SparkSession, bootstrap: str, prefix: str, folder: Path) -> None:
        self.bootstrap, self.topics = bootstrap, [f"{prefix}events", f"{prefix}recovery"]
        for topic in self.topics:
            settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
            create_topic(bootstrap, topic, 2, settings)
        self.client: dict[str, str | int] = {"bootstrap.servers": bootstrap}
        self.cluster, self.log = Cluster(self.client), KafkaLog(self.client, SystemClock())
        self.archive = Archive(FolderObjects(folder / "archive"), "test", lambda: "2026-01-01T00:00:00Z")
        self.numbers = itertools.count()
        kafka = {"bootstrap.servers": bootstrap}
        stream = SparkSegments(spark, kafka, folder / "checkpoints", partial(world, folder / "archive"), 0.2, 500)
        self.stream, self.folder = stream, folder

    def archiver(self) -> Archiver:
        return Archiver(self.archive, self.stream, self.shapes, SystemClock())

    def shapes(self) -> dict[tuple[str, int], PartitionShape]:
        shapes = self.cluster.shape(self.topics)
        places = [(topic, p) for topic in self.topics for p in (0, 1)]
        begins, ends = self.cluster.ends(places, EARLIEST), self.cluster.ends(places)
        return {place: PartitionShape(shapes[place[0]].id, begins[place], ends[place]) for place in places}

    def write(self, count: int) -> None:
        """Writes facts as producers do, with tombstones and invalid bytes; then a committed and an aborted transaction."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for _ in range(count):
            n = next(self.numbers)
            headers = [("ce_id", b"%d" % n), ("ce_time", b"2026-01-01T00:00:00Z"), ("null", None)]
            value = None if n % 7 == 0 else b"\xff\x00" * (n % 9)
            key = b"\xff no key" if n % 11 == 0 else b"job-%d/running/%d" % (n % 30, n)
            producer.produce(self.topics[n % 2], value, key, n % 4 // 2, headers=headers)
        producer.flush()
        writer = self.log.writer(f"writer-{next(self.numbers)}")
        writer.init()
        writer.commit([Event(topic, p, b"~noop", None) for topic in self.topics for p in (0, 1)])
        writer.close()
        broken = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": f"broken-{next(self.numbers)}"})
        broken.init_transactions()
        broken.begin_transaction()
        broken.produce(self.topics[0], b"never committed", "job-1/admitted", 0)
        broken.flush()
        broken.abort_transaction()

    def copy(self) -> dict[tuple[str, int], list[tuple]]:
        reader, found = self.log.reader(self.topics), {place: [] for place in self.shapes()}
        ends = reader.high_watermarks()
        while any(reader.position().get(place, 0) < end for place, end in ends.items()):
            for record in reader.poll(5000, 0.2):
                found[record.topic(), record.partition()].append(raw(record))
        reader.close()
        return found

    def archived(self) -> dict[tuple[str, int], list[tuple]]:
        return {place: [raw(record) for record in self.archive.records(*place)] for place in self.shapes()}


def raw(record: Record) -> tuple:
    return record.offset(), record.timestamp()[1], record.key(), record.value(), record.headers() or None


@pytest.fixture
def ledger(spark: SparkSession, bootstrap: str, prefix: str, tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(spark, bootstrap, prefix, tmp_path)
    yield made
    made.stream.close()


def go_on(archiver: Archiver, ledger: Ledger) -> None:
    wanted = ledger.copy()

    def done() -> bool:
        archiver.step()
        return all(archiver.heads[place].next > records[-1][0] for place, records in wanted.items())

    until(done, "everything is archived", timeout_s=120)
    assert ledger.archived() == wanted


def test_every_record_of_both_topics_is_archived_as_it_is(ledger: Ledger) -> None:
    ledger.write(1500)
    archiver = ledger.archiver()
    archiver.begin()
    go_on(archiver, ledger)
    ledger.write(300)
    go_on(archiver, ledger)
    assert all(not verdict.broken for verdict in verify(ledger.archive, archiver.heads.values()))


def test_another_archiver_goes_on_where_the_chain_ends_whatever_its_checkpoint_says(ledger: Ledger) -> None:
    """The first archiver dies with records stored and not sealed, and its checkpoint says that they are done."""
    ledger.write(900)
    first = ledger.archiver()
    first.begin()
    until(lambda: first.step(), "some are sealed", timeout_s=120)
    until(lambda: ledger.stream.take(0.5), "some are stored and will not be sealed", timeout_s=120)
    ledger.write(100)
    second = ledger.archiver()
    second.begin()
    go_on(second, ledger)
    verdicts = verify(ledger.archive, second.heads.values())
    assert all(not verdict.broken for verdict in verdicts)
    assert sum(verdict.records for verdict in verdicts) == sum(map(len, ledger.copy().values()))


def test_a_topic_made_anew_is_refused(ledger: Ledger, bootstrap: str) -> None:
    ledger.write(100)
    archiver = ledger.archiver()
    archiver.begin()
    go_on(archiver, ledger)
    ledger.cluster.admin.delete_topics([ledger.topics[0]])[ledger.topics[0]].result()
    until(lambda: ledger.cluster.shapes([ledger.topics[0]])[ledger.topics[0]] is None, "the topic is gone")
    create_topic(bootstrap, ledger.topics[0], 2, {"cleanup.policy": "compact"})
    until(ledger.shapes, "the new topic exists")
    with pytest.raises(LedgerError, match="created again"):
        ledger.archiver().begin()


def test_the_age_of_what_waits_is_that_of_its_first_record(ledger: Ledger) -> None:
    ledger.write(50)
    copy = ledger.copy()
    places = {place: records[3][0] for place, records in copy.items()}
    found = first_times(ledger.client, places)
    assert found == {place: copy[place][3][1] / 1000 for place in places}
    ends = {place: shape.end for place, shape in ledger.shapes().items()}
    assert first_times(ledger.client, ends) == {}

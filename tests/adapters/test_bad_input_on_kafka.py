"""All bad input at once, on a real broker: every good job keeps its state, and unusable records are listed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from ledger import connect
from ledger.adapters import avro
from ledger.adapters.kafka.topics import create_topics
from ledger.config.config import Config, load_config
from ledger.core.model.recovery import RecoveryEntry, same_meaning
from ledger.core.model.registers import key_of, partition_of
from ledger.reader.replaying import replay
from tests.support.bad_input import DIGEST, GOOD, RUNNING, SPEC, TARGET, Fate, everything, good_records
from tests.support.bare_producer import send_with_headers
from tests.support.projecting import Projecting
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PARTITIONS = 4
DEADLINE_S = 90.0
ROOT = Path(__file__).resolve().parents[2]
#: Records that a broker itself refuses for a compacted topic.
BROKERS_REFUSE = {"no key"}


@pytest.fixture
def config(bootstrap: str, prefix: str, tmp_path: Path) -> Config:
    topics = {"prefix": prefix, "partitions": PARTITIONS, "replication_factor": 1, "min_insync_replicas": 1}
    made = load_config(tmp_path, kafka={"bootstrap.servers": bootstrap}, topics=topics)
    create_topics(made.client(), made.topic_settings())
    return made


class Bare:
    """A producer without any checks."""

    def __init__(self, config: Config) -> None:
        self.bootstrap, self.topics = config.kafka["bootstrap.servers"], config.topics
        # One record per batch: a broker refuses a whole batch for one of its records.
        own = {"message.max.bytes": 4 << 20, "batch.num.messages": 1}
        self._producer = Producer({"bootstrap.servers": self.bootstrap, **own})
        self.places: dict[str, str] = {}
        self.refused: set[str] = set()

    def send(self, what: str, topic: str, partition: int, key: bytes | None, value: bytes | None, headers=()) -> None:  # type: ignore[no-untyped-def]
        def told(error: object, message: Message) -> None:
            if error is not None:
                self.refused.add(what)
            else:
                self.places[what] = f"{message.topic()}/{message.partition()}/{message.offset()}"

        self._producer.produce(topic, value, key, partition, headers=list(headers), on_delivery=told)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


@pytest.fixture
def projecting(config: Config) -> Iterator[Projecting]:
    made = Projecting(config)
    yield made
    made.stop()


def test_all_bad_input_at_once(config: Config, projecting: Projecting) -> None:
    client, bare, events = connect(config), Bare(config), config.topics.events
    for job_id, register, fact in good_records():
        home = partition_of(job_id, PARTITIONS)
        bare.send("good", events, home, key_of(job_id, register).encode(), avro.encode(fact))
    bare.flush()

    def good() -> dict[str, RecoveryEntry]:
        return {job_id: entry for job_id, entry in client.entries().items() if job_id in GOOD and entry.known}

    until(lambda: len(good()) == len(GOOD), "the good jobs are published", DEADLINE_S)
    before, bads = good(), everything()
    for bad in bads:
        if bad.job and not bad.alone:
            key = f"{bad.job}/spec/{DIGEST}".encode()
            bare.send("spec", events, partition_of(bad.job, PARTITIONS), key, avro.encode(SPEC))
    bare.flush()
    for bad in bads:
        bare.send(bad.what, events, bad.partition(PARTITIONS), bad.key, bad.value, bad.headers)
    home = partition_of(TARGET, PARTITIONS)
    for topic in (events, config.topics.recovery):  # on both topics, since every reader reads both
        odd = [(b"\xff\xfe", b"x"), (b"ledger_epoch", b"1")]
        send_with_headers(bare.bootstrap, topic, (home + 1) % PARTITIONS, TARGET.encode(), RUNNING, odd)
        send_with_headers(bare.bootstrap, topic, home, TARGET.encode(), RUNNING, odd)
    for epoch in (b"9007199254740992", b"1", b"x"):
        headers = [("ledger_epoch", epoch)]
        for partition in range(PARTITIONS):
            if epoch != b"1":
                bare.send("stray", config.topics.recovery, partition, TARGET.encode(), None, headers)
                bare.send("stray", config.topics.recovery, partition, b"~progress", b"junk", headers)
            bare.send("stray", config.topics.recovery, partition, b"\xff\0", b"junk", headers)
    bare.flush()
    assert bare.refused >= BROKERS_REFUSE
    assert {bad.what for bad in bads if bad.what in bare.refused} <= {*BROKERS_REFUSE, "a value of the limit",
                                                                      "a value above the limit"}  # fmt: skip
    taken = [bad for bad in bads if bad.what in bare.places]
    wanted = {bare.places[bad.what]: bad.what for bad in taken if bad.fate is Fate.REJECTED}

    until(lambda: wanted.keys() <= rejected(config), "unusable records are listed", DEADLINE_S)
    listed = rejected(config)
    assert not [bad.what for bad in taken if bad.fate is Fate.HARMLESS and bare.places[bad.what] in listed]
    projecting.stop()  # and another projector starts cold
    projecting.start()
    found = replay(client.source)  # waits for the projector
    assert found.behind == ()
    # its published entry is only a replacement
    assert {difference.job_id for difference in found.differences} <= {"size-3"}
    after, entries = good(), client.entries()
    assert after.keys() == before.keys()
    assert all(same_meaning(after[job_id], before[job_id]) for job_id in before)
    found_in = {bad.job: str(entries[bad.job].state) if bad.job in entries else "" for bad in taken if bad.job}
    assert {bad.what: found_in[bad.job] for bad in taken if bad.job and found_in[bad.job] != bad.state} == {}


def rejected(config: Config) -> set[str]:
    """The places that `jobledger rejects` lists, read as a script would."""
    told = subprocess.run(
        [sys.executable, "-m", "ledger", "rejects", "--dir", str(config.dir), "-o", "jsonl"],
        capture_output=True, text=True, timeout=120, check=True, cwd=ROOT, env={
            "LEDGER_KAFKA__BOOTSTRAP_SERVERS": config.kafka["bootstrap.servers"],
            "LEDGER_TOPICS__PREFIX": config.topics.prefix, "PATH": "", "PYTHONIOENCODING": "utf-8",
        },
    )  # fmt: skip
    return {json.loads(line)["place"] for line in told.stdout.splitlines()}

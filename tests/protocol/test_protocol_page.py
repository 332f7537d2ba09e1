"""docs/PROTOCOL.md is right and sufficient: its vectors and examples are correct, and a producer needs nothing else."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from ledger.adapters import avro, cloudevents, schemas
from ledger.core.fold.fold import fold
from ledger.core.model.facts import (
    FACT_OF,
    CheckpointCompleted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobSubmitted,
    RestorePoint,
)  # fmt: skip
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import murmur2, parse_key, partition_of
from ledger.core.model.table import RegisterTable
from ledger.util import times
from tests.protocol import page
from tests.protocol.producer import Producer, Written, digest_of, encode
from tests.support.pages import blocks
from tests.support.servers import create_topic
from tests.support.waiting import in_time, until

JOB = "orders-1"

# -- the page agrees with itself and the code --------------------------------------------------------------------------


def test_every_block_is_known_to_these_tests() -> None:
    """Every example on the page has a test."""
    assert set(page.BLOCKS) == {
        ("grammar", "keys"), ("keys", "valid"), ("keys", "invalid"), ("python", "murmur2"),
        ("vectors", "job-id murmur2 N=4 N=24"), ("json", "canonical-form"), ("python", "crc64"),
        ("hex", "attempt_running"), ("json", "attempt_running"), ("hex", "checkpoint_completed"),
        ("json", "checkpoint_completed"), ("json", "job_submitted"), ("hex", "job_submitted"), ("text", "digest"),
        ("python", "recovery"),
    }  # fmt: skip


def test_the_partitioner_gives_the_vectors() -> None:
    theirs, partition = page.function("murmur2", "murmur2"), page.function("murmur2", "partition")
    rows = [line.split() for line in page.lines("vectors", "job-id murmur2 N=4 N=24")]
    assert len(rows) >= 12
    assert {len(job_id) % 4 for job_id, *_ in rows} == {0, 1, 2, 3}
    for job_id, number, of_4, of_24 in rows:
        assert f"{theirs(job_id.encode()):08x}" == f"{murmur2(job_id.encode()):08x}" == number
        assert (partition(job_id, 4), partition(job_id, 24)) == (int(of_4), int(of_24))
        assert (partition_of(job_id, 4), partition_of(job_id, 24)) == (int(of_4), int(of_24))


@given(st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True), st.integers(1, 200))
def test_the_pages_partitioner_is_the_ledgers(job_id: str, partitions: int) -> None:
    assert page.function("murmur2", "partition")(job_id, partitions) == partition_of(job_id, partitions)


@pytest.mark.parametrize("key", page.lines("keys", "valid"))
def test_a_key_that_the_page_calls_valid_is(key: str) -> None:
    assert parse_key(key.encode()) is not None


@pytest.mark.parametrize("key", page.lines("keys", "invalid"))
def test_a_key_that_the_page_calls_invalid_is(key: str) -> None:
    assert parse_key(key.encode()) is None


def test_the_grammar_names_every_register() -> None:
    words = re.findall(r'^(?:register +=| +\|) "([a-z]+)', page.BLOCKS["grammar", "keys"], re.M)
    assert sorted(words) == sorted(kind.__name__.lower() for kind in FACT_OF)


def test_the_table_names_every_register_its_fact_and_its_schema() -> None:
    rows = page.table("## 7. Registers")
    said = {row[0].strip("`").split("/")[0]: re.match(r"(\w+) \(`(?:schemas/)?(\w+)", row[1]) for row in rows}
    for kind, fact in FACT_OF.items():
        match = said[kind.__name__.lower()]
        assert match is not None, kind
        assert match[1] == fact.__name__
        newest = sorted((page.SCHEMAS / match[2]).glob("*.avsc"))[-1]
        assert json.loads(newest.read_text(encoding="utf-8"))["name"] == fact.__name__


def test_the_table_names_every_header() -> None:
    written = cloudevents.headers(
        "X", event_id="1", source="/s", subject="j", key="k", time_s=0.0, sequence=1, actor="a", epoch=1
    )
    assert [row[0].strip("`") for row in page.table("## 4. Headers")] == [
        name for name, _ in sorted(written, key=lambda h: (h[0].startswith("ledger_"), 0))
    ]


def test_the_fingerprint_code_finds_every_schema() -> None:
    crc64_avro = page.function("crc64", "crc64_avro")
    for path in page.SCHEMAS.rglob("*.avsc"):
        canonical = to_parsing_canonical_form(json.loads(path.read_text(encoding="utf-8")))
        assert crc64_avro(canonical.encode()) in schemas.by_fingerprint(), path


def test_the_canonical_form_is_that_of_the_schema() -> None:
    raw = json.loads((page.SCHEMAS / "attempt_running" / "0001.avsc").read_text(encoding="utf-8"))
    canonical = page.BLOCKS["json", "canonical-form"].strip()
    assert canonical == to_parsing_canonical_form(raw)
    fingerprint = page.function("crc64", "crc64_avro")(canonical.encode())
    assert page.value("attempt_running")[2:10] == fingerprint
    assert f"0x{fingerprint[::-1].hex()}" in page.TEXT


@pytest.mark.parametrize("name", ["attempt_running", "checkpoint_completed", "job_submitted"])
def test_an_example_is_what_the_ledger_writes_and_reads(name: str) -> None:
    kinds = {kind.__name__: kind for kind in avro.KINDS}
    kind = kinds["".join(map(str.title, name.split("_")))]
    fact = avro.decode(kind, page.value(name))
    assert avro.encode(fact) == page.value(name)
    assert encode(name, json.loads(page.BLOCKS["json", name])) == page.value(name)


def test_the_digest_is_that_of_the_example() -> None:
    spec = avro.decode(JobSubmitted, page.value("job_submitted"))
    digest = page.BLOCKS["text", "digest"].strip()
    assert digest == sha256(page.value("job_submitted")[10:]).hexdigest() == avro.spec_digest(spec)


# -- a producer that knows only the page -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["tests/protocol/page.py", "tests/protocol/producer.py", "consumers/plain.py"])
def test_a_program_by_the_page_imports_nothing_of_the_ledger(path: str) -> None:
    text = (page.ROOT / path).read_text(encoding="utf-8")
    assert re.findall(r"^\s*(?:from|import) (ledger\b.*)", text, re.M) == []


def test_the_plain_consumer_is_short() -> None:
    assert len((page.ROOT / "consumers" / "plain.py").read_text(encoding="utf-8").splitlines()) <= 40


SPEC = json.loads(page.BLOCKS["json", "job_submitted"])
CHECKPOINT = json.loads(page.BLOCKS["json", "checkpoint_completed"])
INTENT = {"kind": "SUSPEND", "attempt": 1, "reason": "maintenance", "actor": "alice"}


@pytest.fixture
def topic(bootstrap: str, prefix: str) -> str:
    """An empty `ledger.events` of four partitions."""
    return create_topic(bootstrap, f"{prefix}ledger.events", 4)


def read_all(bootstrap: str, topic: str) -> list[Message]:
    """All records that are in the topic now, partition by partition."""
    client = {"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer({**client, "isolation.level": "read_committed"})
    try:
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(4)]
        count = sum(consumer.get_watermark_offsets(place, 10)[1] for place in places)
        consumer.assign(places)
        records: list[Message] = []
        deadline = time.monotonic() + 30
        while len(records) < count:
            in_time(time.monotonic() < deadline, f"{len(records)} of {count} records came, not all: not within 30 s")
            found = consumer.consume(count - len(records), 0.5)
            assert not [message.error() for message in found if message.error() is not None]
            records += found
        return sorted(records, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def write_the_job(producer: Producer) -> list[Written]:
    spec = encode("job_submitted", SPEC)
    checkpoints = [{**CHECKPOINT, "location": f"s3://bucket/orders/{i}"} for i in (7, 8)]
    return [
        producer.write(JOB, f"spec/{digest_of(spec)}", "JobSubmitted", spec),
        producer.write(JOB, "running/1", "AttemptRunning", page.value("attempt_running")),
        producer.write(JOB, "checkpoint/1/7", "CheckpointCompleted", encode("checkpoint_completed", checkpoints[0])),
        producer.write(JOB, "checkpoint/1/8", "CheckpointCompleted", encode("checkpoint_completed", checkpoints[1])),
        producer.write(JOB, "intent/1/0194bd6e-2000", "IntentDeclared", encode("intent_declared", INTENT)),
    ]


def folded(records: list[Message]) -> RecoveryEntry | None:
    """The job's entry by the fold, after its spec is admitted."""
    table = RegisterTable(4)
    touched, foreign = table.apply(records)
    assert foreign == []
    assert touched == {JOB.encode(): partition_of(JOB, 4)}
    held = table.registers(JOB.encode(), partition_of(JOB, 4))
    admitted = avro.encode(JobAdmitted(page.BLOCKS["text", "digest"].strip()))
    return fold(JOB, {name: h[0] for name, h in held.items()} | {b"admitted": admitted}, avro.read)


def test_what_a_producer_by_the_page_writes_the_ledger_reads(bootstrap: str, prefix: str, topic: str) -> None:
    producer = Producer(bootstrap, prefix)
    events = write_the_job(producer)
    records = read_all(bootstrap, topic)
    assert [r.partition() for r in records] == [partition_of(JOB, 4)] * len(events)
    for record in records:
        parsed = parse_key(record.key())
        assert parsed is not None
        job_id, register = parsed
        assert job_id == JOB
        fact = avro.read(register, record.value())
        assert type(fact) is FACT_OF[type(register)]
        envelope = cloudevents.parse(record.headers())
        assert envelope.type == cloudevents.type_of(type(fact).__name__)
        assert (envelope.subject, envelope.actor, envelope.source) == (JOB, "zoë@ops", producer.source)
        assert envelope.epoch is None
        assert envelope.time_s is not None
        assert abs(envelope.time_s - time.time()) < 60
    assert [cloudevents.parse(r.headers()).sequence for r in records] == [1, 2, 3, 4, 5]
    found = folded(records)
    assert found is not None
    assert found.state is JobState.SUSPENDED
    assert found.reason == "maintenance"
    assert found.labels == {"team": "payments"}
    point = RestorePoint(1, 8, "s3://bucket/orders/8", 1234, "", CheckpointKind.CHECKPOINT)
    assert found.restore_points[0] == point


def test_an_event_sent_again_changes_nothing(bootstrap: str, prefix: str, topic: str) -> None:
    producer = Producer(bootstrap, prefix)
    events = write_the_job(producer)
    before = folded(read_all(bootstrap, topic))
    for event in (events[2], events[0], events[2]):
        producer.send(event)
    records = read_all(bootstrap, topic)
    assert len(records) == len(events) + 3
    assert folded(records) == before
    assert records[-1].headers() == records[2].headers()


def test_the_plain_consumer_says_how_it_is_called() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "consumers.plain"], capture_output=True, text=True, check=False, cwd=page.ROOT
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "usage: python -m consumers.plain BOOTSTRAP [PREFIX]\n"


def test_the_plain_consumer_prints_every_record_and_says_gaps(
    bootstrap: str, prefix: str, topic: str, tmp_path: Path
) -> None:
    producer = Producer(bootstrap, prefix)
    write_the_job(producer)
    producer.build(JOB, "running/2", "AttemptRunning", b"never sent: the gap")
    producer.write(JOB, "running/1", "AttemptRunning", None)
    producer.write("orders-2", "running/1", "AttemptRunning", b"\xc3\x01garbage")
    rows, complaints = run_plain_consumer(bootstrap, prefix, tmp_path, 7, 1)
    by_key: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(row["key"], []).append(row)
    first, last = by_key[f"{JOB}/running/1"]
    assert first["value"] == {"engine_id": "application_42"}
    assert last["value"] == "tombstone"
    assert (last["fact"], last["who"]) == ("io.jobledger.AttemptRunning.v1", "zoë@ops")
    assert last["offset"] > first["offset"]
    assert times.parse_rfc3339(last["when"]) is not None
    (checkpoint,) = by_key[f"{JOB}/checkpoint/1/8"]
    assert checkpoint["value"] == {**CHECKPOINT, "location": "s3://bucket/orders/8"}
    assert by_key["orders-2/running/1"][0]["value"].startswith("undecodable")
    assert by_key["orders-2/running/1"][0]["partition"] == partition_of("orders-2", 4)
    gap = f"gap: {producer.source} in partition {partition_of(JOB, 4)}: after 5 comes 7"
    # Kafka's client may log lines of its own: `%4|1738324800.250|REQTMOUT|…`.
    assert [line for line in complaints.splitlines() if not re.match(r"%\d\|", line)] == [gap]


def run_plain_consumer(
    bootstrap: str, prefix: str, folder: Path, count: int, complaints: int
) -> tuple[list[dict[str, Any]], str]:
    """Runs the plain consumer until it has printed `count` lines and `complaints` gaps. Returns the parsed lines and its
    stderr."""
    out, err = folder / "out", folder / "err"
    text = (page.ROOT / "docs" / "CONSUMERS.md").read_text()
    (shown,) = [block.lines for block in blocks(text) if block.info == "sh plain"]
    typed = [{"python": sys.executable, "localhost:9092": bootstrap}.get(word, word) for word in shown[0].split()]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen([*typed, prefix], stdout=stdout, stderr=stderr, cwd=page.ROOT)
    try:

        def said() -> bool:
            assert process.poll() is None, err.read_text(encoding="utf-8")
            gaps = [line for line in err.read_bytes().splitlines(keepends=True) if line.startswith(b"gap: ")]
            return out.read_bytes().count(b"\n") >= count and sum(line.endswith(b"\n") for line in gaps) >= complaints

        until(said, f"{count} lines", story=lambda: out.read_text(encoding="utf-8") + err.read_text(encoding="utf-8"))
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()], err.read_text(encoding="utf-8")


def test_the_intent_that_was_written_is_read_as_it_was_meant() -> None:
    fact = avro.decode(IntentDeclared, encode("intent_declared", INTENT))
    assert fact == IntentDeclared(IntentKind.SUSPEND, 1, reason="maintenance", actor="alice")
    checkpoint = avro.decode(CheckpointCompleted, encode("checkpoint_completed", CHECKPOINT))
    assert checkpoint.location == "s3://bucket/orders/7"

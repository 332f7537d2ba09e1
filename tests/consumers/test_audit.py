"""The audit consumer as a separate process on a real broker: it reports exactly the violations, and loses no record."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as Client

from tests.protocol import page
from tests.protocol.producer import Producer, Written, encode
from tests.support.bare_producer import send_with_headers
from tests.support.consumers import MAKE_TOPICS, Audit
from tests.support.servers import create_topic
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]
PATIENCE_S = 120.0

#: All compressions that a producer may use. The ledger itself uses lz4, for which Faust's client needs an extra
#: library.
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
SPEC = encode("job_submitted", json.loads(page.BLOCKS["json", "job_submitted"]))
CHECKPOINT = page.value("checkpoint_completed")
RUNNING = page.value("attempt_running")
ATTEMPT = {"digest": "0" * 64}
RESULT = {
    "name": "etl", "namespace": "default", "runner": "subprocess", "digest": "0" * 64, "reason": "", "when": 0.0,
    "attempts": 1,
}  # fmt: skip


def intent(reason: str) -> bytes:
    return encode("intent_declared", {"kind": "SUSPEND", "attempt": 1, "reason": reason, "actor": "alice"})


class History:
    """Records that producers wrote, correct and wrong ones. expected: (rule, job) of each finding that must be
    reported."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap, self.topic = bootstrap, f"{prefix}ledger.events"
        create_topic(bootstrap, self.topic, 4, {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
        self.producer = Producer(bootstrap, prefix)
        self.expected: Counter[tuple[str, str]] = Counter()
        self.garbage = 0

    def other(self, event: Written, **headers: str | None) -> Written:
        """The same event with some headers replaced; None removes the header."""
        kept = [(name, value) for name, value in event.headers if name not in headers]
        return event._replace(headers=kept + [(n, v.encode()) for n, v in headers.items() if v is not None])

    def sound(self) -> list[Written]:
        """Writes the events of a correct job and its tombstones, and sends all but the tombstones again."""
        write, job = self.producer.write, "sound"
        events = [
            write(job, f"spec/{'0' * 64}", "JobSubmitted", SPEC), write(job, "running/1", "AttemptRunning", RUNNING),
            write(job, "checkpoint/1/7", "CheckpointCompleted", CHECKPOINT),
            write(job, "intent/1/u", "IntentDeclared", intent("maintenance")),
            write(job, "running/1", "AttemptRunning", None), write(job, "checkpoint/1/7", "CheckpointCompleted", None),
        ]  # fmt: skip
        for event in events[:4]:
            self.producer.send(event)
        return events

    def violations(self) -> None:
        """Each rule is broken once."""
        write, build, send, expected = self.producer.write, self.producer.build, self.producer.send, self.expected
        write("retired", "result/FINISHED", "JobResult", encode("job_result", RESULT))
        write("retired", "running/1", "AttemptRunning", None)
        late = write("retired", "checkpoint/1/7", "CheckpointCompleted", CHECKPOINT)
        send(late)
        expected["result", "retired"] += 1
        send(write("silent", "intent/1/u", "IntentDeclared", intent(" ")))
        expected["reason", "silent"] += 1
        for n in (1, 2, 3):
            write("restless", f"attempt/{n}/1", "AttemptStarted", encode("attempt_started", ATTEMPT))
        expected["restarts", "restless"] += 1
        stranger = self.other(build("guest", "running/1", "AttemptRunning", RUNNING), ledger_actor="mallory@elsewhere")
        send(stranger)
        send(stranger)
        expected["actor", "guest"] += 1
        first = write("again", "running/1", "AttemptRunning", RUNNING)
        used = {"ce_sequence": dict(first.headers)["ce_sequence"].decode()}
        send(self.other(build("again", "running/2", "AttemptRunning", RUNNING), ce_id=str(uuid.uuid4()), **used))
        expected["sequence", "again"] += 2  # number used twice, and the number that it should have had is missing
        write("again", "running/3", "AttemptRunning", RUNNING)
        send(self.other(build("twofold", "running/1", "AttemptRunning", RUNNING), ce_id="one-id"))
        send(self.other(build("twofold", "running/2", "AttemptRunning", RUNNING), ce_id="one-id"))
        expected["identity", "twofold"] += 1
        send(self.other(build("nobody", "running/1", "AttemptRunning", RUNNING), ce_source=None))
        expected["headers", "nobody"] += 1
        # Its number is a gap in the sequence of the source, since the event names no source.
        write("nobody", "running/2", "AttemptRunning", RUNNING)
        expected["sequence", "nobody"] += 1

    def aborted(self) -> None:
        """Writes a change without a reason in a transaction that is aborted."""
        client = Client({"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.topic}-aborted"})
        client.init_transactions(30)
        client.begin_transaction()
        client.produce(self.topic, intent(""), b"never/intent/1/u", 0, headers=[("ce_id", b"never")])
        client.flush(30)
        client.abort_transaction(30)

    def spoil(self, key: bytes, value: bytes, compression: str = "none") -> None:
        settings = {"bootstrap.servers": self.bootstrap, "message.max.bytes": 2_000_000, "compression.type": compression}
        client = Client(settings)
        client.produce(self.topic, value, key, 0, headers=[("ce_id", str(uuid.uuid4()).encode())])
        assert client.flush(30) == 0
        self.garbage += 1


@pytest.fixture
def history(bootstrap: str, prefix: str) -> History:
    return History(bootstrap, prefix)


@pytest.fixture
def audit(history: History, bootstrap: str, prefix: str, tmp_path: Path) -> Iterator[Audit]:
    rules = {"AUDIT_ACTORS": "zoë@*", "AUDIT_RESTARTS_MAX": "3", "AUDIT_GAP_GRACE_S": "1"}
    made = Audit(bootstrap, prefix, tmp_path, **rules)
    yield made
    made.kill()


def findings(audit: Audit) -> dict[bytes, bytes]:
    """The findings by id, which removes duplicates."""
    return {message.key(): message.value() for message in audit.topic("findings")}


def rejects_of(audit: Audit) -> dict[bytes, Message]:
    return {message.key(): message for message in audit.topic("rejects")}


def rows(audit: Audit) -> list[dict[str, Any]]:
    return [json.loads(value) for value in findings(audit).values()]


def told(audit: Audit) -> Counter[tuple[str, str]]:
    return Counter((row["rule"], row["job"]) for row in rows(audit))


def test_it_finds_each_violation_once_and_loses_no_garbage_whoever_is_killed(history: History, audit: Audit) -> None:
    refused = audit.run()
    assert refused.returncode == 2 and " ".join(MAKE_TOPICS) in refused.stderr, "no other command makes its topics"
    made = audit.run(MAKE_TOPICS)
    assert made.returncode == 0, made.stderr
    history.sound()
    history.violations()
    history.aborted()
    audit.start()
    until(lambda: audit.ready()[0] == 200, "the consumer is ready", PATIENCE_S, story=audit.story)
    story = lambda: f"{told(audit)} {audit.story()}"  # noqa: E731
    until(lambda: told(audit) == history.expected, "all violations are found", PATIENCE_S, story=story)
    before = findings(audit)

    history.spoil(b"garbled/running/1", b"\xc3\x01garbage")
    history.spoil(b"no key at all", RUNNING)
    history.spoil(b"", b"")
    history.spoil(b"wrong/running/1", CHECKPOINT)
    large = b"\xc3\x01" + bytes(1_040_000)
    for compression in COMPRESSIONS:
        history.spoil(b"large/running/1", large, compression)
    until(lambda: audit.ready()[0] == 503, "the consumer is not ready", PATIENCE_S, story=audit.story)
    until(
        lambda: audit.ready()[1].get("rejected") == history.garbage,
        "all unreadable records are rejected",
        PATIENCE_S,
        story=audit.story,
    )
    # Rejects are counted before they are written.
    until(lambda: len(rejects_of(audit)) == history.garbage, "all rejects are written", PATIENCE_S, story=audit.story)
    rejects = rejects_of(audit)
    spoilt = [b"\xc3\x01garbage", RUNNING, b"", CHECKPOINT, *[large] * len(COMPRESSIONS)]
    assert sorted(message.value() for message in rejects.values()) == sorted(spoilt)
    for place, message in rejects.items():
        said = dict(message.headers())
        topic, partition, offset = (said[f"audit_{name}"].decode() for name in ("topic", "partition", "offset"))
        assert place.decode() == f"{topic}[{partition}]@{offset}"
        assert said["audit_error"] and said["ce_id"], "the error, and the headers of the record itself"

    audit.kill()
    audit.settings["AUDIT_ACCEPTED"] = ",".join(place.decode() for place in rejects)
    audit.start()
    until(
        lambda: audit.ready()[0] == 200,
        "the consumer is ready once the rejects are accepted",
        PATIENCE_S,
        story=audit.story,
    )
    spoilt_jobs = ("garbled", "wrong", "large")
    again = {key: value for key, value in findings(audit).items() if json.loads(value)["job"] not in spoilt_jobs}
    assert again == before, "no finding is duplicated or changed"
    assert set(rejects_of(audit)) == set(rejects)
    assert audit.stop() == 0


def test_a_finding_that_can_not_be_written_ends_it(history: History, audit: Audit, bootstrap: str) -> None:
    """The consumer must not go past an event whose finding it can't write: after a restart it finds the violation
    again."""
    create_topic(bootstrap, f"{audit.prefix}ledger.audit.findings", 1, {"max.message.bytes": "100"})
    assert audit.run(MAKE_TOPICS).returncode == 0
    history.producer.write("silent", "intent/1/u", "IntentDeclared", intent(""))
    audit.start()
    assert audit.wait() != 0
    assert audit.ready()[0] == 0


def test_a_header_whose_name_is_no_text(history: History, audit: Audit) -> None:
    """Faust's client can't read this header. The record is rejected, and the records before and behind it are still
    judged."""
    assert audit.run(MAKE_TOPICS).returncode == 0
    job = next(name for n in range(100) if history.producer.build(name := f"later-{n}", "ask/u", "X", None).partition == 0)
    odd = history.bootstrap, history.topic, 0, b"odd/running/1", RUNNING, [(b"\xff\xfe", b"x")]
    for number in range(3):
        history.producer.write(job, f"intent/{number + 1}/u", "IntentDeclared", intent(""))
        send_with_headers(*odd, times=number + 1)
    history.producer.write(job, "intent/9/u", "IntentDeclared", intent(""))
    audit.start()
    until(lambda: told(audit)["reason", job] == 4, "all records are judged", PATIENCE_S, story=audit.story)
    assert [message.value() for message in audit.topic("rejects")] == [RUNNING] * 6, (
        "the unreadable records are kept as rejects"
    )
    until(lambda: audit.ready()[0] == 503, "the consumer is not ready", PATIENCE_S, story=audit.story)

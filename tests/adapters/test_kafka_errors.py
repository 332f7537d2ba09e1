"""The meaning of librdkafka's errors, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.append_times import first_times
from ledger.adapters.kafka.cluster import OUTDATED, Cluster
from ledger.adapters.kafka.errors import (
    DAMAGED,
    MISCONFIGURED,
    PASSING,
    POSITION_LOST,
    TOO_LARGE,
    FailureAction,
    classify,
    describe_error,
    error_of,
)
from ledger.adapters.kafka.heartbeats import HeartbeatWatch
from ledger.adapters.kafka.log import OURS, KafkaLog
from ledger.adapters.kafka.membership import Membership
from ledger.adapters.kafka.reader import KafkaReader
from ledger.adapters.kafka.sender import KafkaSender
from ledger.adapters.kafka.topics import TopicSettings, create_topics, specs
from ledger.adapters.kafka.writer import KafkaWriter
from ledger.adapters.runners.subprocess.sender import KafkaEventSender
from ledger.errors import ConfigError, Fenced, OutcomeUnknown, Refused, Unreachable
from ledger.ports import Event, RunnerEvent

# code, fatal, retriable, txn_requires_abort -> the action
TABLE = [
    # commit_transaction: the broker or network is slow; a repeated call continues
    (KafkaError._TIMED_OUT, False, True, False, FailureAction.RETRY),
    (KafkaError._TRANSPORT, False, True, False, FailureAction.RETRY),
    (KafkaError.COORDINATOR_NOT_AVAILABLE, False, True, False, FailureAction.RETRY),
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, False, True, False, FailureAction.RETRY),
    (KafkaError._CONFLICT, False, True, False, FailureAction.RETRY),
    # the transaction failed; the producer can still be used
    (KafkaError._MSG_TIMED_OUT, False, False, True, FailureAction.ABORT),
    (KafkaError.MSG_SIZE_TOO_LARGE, False, False, True, FailureAction.ABORT),
    (KafkaError.NOT_ENOUGH_REPLICAS, False, False, True, FailureAction.ABORT),
    (KafkaError.TRANSACTION_ABORTABLE, False, False, True, FailureAction.ABORT),
    (KafkaError.ILLEGAL_GENERATION, False, False, True, FailureAction.ABORT),
    # both flags: a call that needs an abort can't be repeated
    (KafkaError._TIMED_OUT, False, True, True, FailureAction.ABORT),
    # superseded, or the outcome is unknown
    (KafkaError._FENCED, True, False, False, FailureAction.FENCED),
    (KafkaError.PRODUCER_FENCED, True, False, False, FailureAction.FENCED),
    (KafkaError.INVALID_PRODUCER_EPOCH, True, False, False, FailureAction.FENCED),
    (KafkaError.INVALID_TXN_STATE, True, False, False, FailureAction.FENCED),
    (KafkaError.INVALID_PRODUCER_ID_MAPPING, True, False, False, FailureAction.FENCED),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True, False, False, FailureAction.FENCED),
    (KafkaError._TIMED_OUT, True, True, True, FailureAction.FENCED),  # fatal wins over all other flags
    # no flag is set: the outcome is unknown
    (KafkaError._STATE, False, False, False, FailureAction.FENCED),
    (KafkaError._FAIL, False, False, False, FailureAction.FENCED),
    (KafkaError.UNKNOWN, False, False, False, FailureAction.FENCED),
]


@pytest.mark.parametrize(("code", "fatal", "retriable", "abort", "verdict"), TABLE)
def test_classify(code: int, fatal: bool, retriable: bool, abort: bool, verdict: FailureAction) -> None:
    assert classify(KafkaError(code, "why", fatal, retriable, abort)) is verdict


def test_every_verdict_is_reached() -> None:
    assert {row[-1] for row in TABLE} == set(FailureAction)


def test_an_exception_that_is_none_of_kafkas_is_indefinite() -> None:
    assert classify(error_of(SystemError("returned NULL without setting an exception"))) is FailureAction.FENCED
    assert "returned NULL" in describe_error(error_of(SystemError("returned NULL without setting an exception")))
    assert error_of(KafkaException(KafkaError(KafkaError._FENCED))).code() == KafkaError._FENCED


def test_what_passes_by_itself_is_not_what_breaks_a_reader() -> None:
    assert not PASSING & POSITION_LOST
    assert not TOO_LARGE & MISCONFIGURED
    assert KafkaError._PARTITION_EOF not in PASSING | POSITION_LOST


@pytest.mark.parametrize("name", sorted(OURS))
def test_settings_that_carry_a_promise_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=OURS[name]):
        KafkaLog({"bootstrap.servers": "127.0.0.1:1", name: "x"}, SystemClock())


def test_other_settings_pass() -> None:
    KafkaLog({"bootstrap.servers": "127.0.0.1:1", "client.rack": "a", "linger.ms": 1}, SystemClock())


class Leaderships:
    """Stands in for an admin client: answers with each of `errors` in turn, then with offset 7. Every topic exists.
    unknown: how many answers without an offset come before that."""

    def __init__(self, *errors: int, unknown: int = 0) -> None:
        self.errors, self.unknown, self.asked = list(errors), unknown, 0

    def list_offsets(self, wanted, **_kwargs):
        self.asked += 1
        answers = {place: Future() for place in wanted}
        for answer in answers.values():
            if self.errors:
                answer.set_exception(KafkaException(KafkaError(self.errors[0])))
            else:
                answer.set_result(SimpleNamespace(offset=OFFSET_INVALID if self.unknown > 0 else 7))
        self.unknown -= not self.errors
        self.errors[:1] = []
        return answers

    def create_topics(self, new, **_kwargs):
        return {topic.topic: done(None) for topic in new}

    def describe_topics(self, topics, **_kwargs):
        partition = SimpleNamespace(replicas=[1])
        return {name: done(SimpleNamespace(topic_id="id", partitions=[partition])) for name in topics.topic_names}


def done(result: object) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(result)
    return answer


@pytest.mark.parametrize(
    "make",
    [
        lambda client: Cluster(client).ends([("t", 0)]),
        lambda client: KafkaWriter(client, "w", SystemClock()).init(),
        lambda client: KafkaSender(client, SystemClock(), timeout_s=1),
        lambda client: KafkaEventSender("t", 1, client, timeout_s=1).send([RunnerEvent(b"k", (), b"v")]),
        lambda client: HeartbeatWatch(client, "t", "g", 1, 1),
        lambda client: Membership(client, "t", "g", session_timeout_s=9, heartbeat=print, renewed=print, lost=print),
        lambda client: first_times(client, {("t", 0): 0}),
    ],
    ids=["cluster", "writer", "sender", "agent's sender", "signs", "member", "oldest"],
)
def test_every_client_says_which_settings_it_does_not_take(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol") as raised:
        make({"bootstrap.servers": "nowhere:1", "security.protocol": "none"})
    assert "jobledger config check" in raised.value.hint


@pytest.mark.parametrize("code", sorted({*OUTDATED, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT}))
def test_who_leads_is_asked_again_until_client_and_broker_agree(monkeypatch, code: int) -> None:
    """After a broker had hung, its first answer was UNKNOWN_LEADER_EPOCH, and a verb gave up at once. A client repeats
    that answer for ever, so each question uses a new client. On a slow machine it was _NOENT: no leaders found."""
    admin, clients = Leaderships(code, code), list[object]()
    monkeypatch.setattr("ledger.adapters.kafka.cluster.AdminClient", lambda *args, **_kwargs: clients.append(args) or admin)
    assert Cluster({"bootstrap.servers": "nowhere:1"}).ends([("t", 0), ("t", 1)]) == {("t", 0): 7, ("t", 1): 7}
    assert admin.asked == len(clients) == 3


@pytest.mark.slow
def test_an_end_that_is_no_offset_is_no_answer(monkeypatch) -> None:
    """A role that had lost Kafka took -1001 for the end of its partition. It ended with the error that the topic was
    truncated."""
    admin = Leaderships(unknown=2)
    monkeypatch.setattr("ledger.adapters.kafka.cluster.AdminClient", lambda *_args, **_kwargs: admin)
    assert Cluster({"bootstrap.servers": "nowhere:1"}).ends([("t", 0)]) == {("t", 0): 7}
    assert admin.asked == 3
    admin.unknown = 100
    with pytest.raises(Unreachable, match=r"on t\[0\]"):
        Cluster({"bootstrap.servers": "nowhere:1"}, 0.5).ends([("t", 0)])


@pytest.mark.parametrize(
    ("errors", "timeout_s", "asked"),
    [
        ([KafkaError.UNKNOWN_LEADER_EPOCH] * 100, 0.5, 3),
        ([KafkaError._ALL_BROKERS_DOWN], 5.0, 1),
    ],
    ids=["not for ever", "nor of one that is not there"],
)
def test_it_is_asked_again_only_while_that_can_help(monkeypatch, errors: list[int], timeout_s: float, asked: int) -> None:
    admin = Leaderships(*errors)
    monkeypatch.setattr("ledger.adapters.kafka.cluster.AdminClient", lambda *_args, **_kwargs: admin)
    with pytest.raises(Unreachable):
        Cluster({"bootstrap.servers": "nowhere:1"}, timeout_s).ends([("t", 0)])
    assert 1 <= admin.asked <= asked


def test_a_topic_that_its_leader_has_not_heard_of_yet_is_waited_for_by_who_made_it(monkeypatch) -> None:
    """On three busy brokers `topics create` ended as if refused, although all topics were made."""
    admin = Leaderships(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_OR_PART)
    monkeypatch.setattr("ledger.adapters.kafka.cluster.AdminClient", lambda *_args, **_kwargs: admin)
    settings = TopicSettings(partitions=1, replication_factor=1)
    assert create_topics({"bootstrap.servers": "nowhere:1"}, settings) == [spec.name for spec in specs(settings)]
    assert admin.asked == 3


def test_who_may_not_ask_for_a_topic_that_it_made_is_told_so_at_once(monkeypatch) -> None:
    admin = Leaderships(*[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 100)
    monkeypatch.setattr("ledger.adapters.kafka.cluster.AdminClient", lambda *_args, **_kwargs: admin)
    with pytest.raises(ConfigError, match="refused: TOPIC_AUTHORIZATION_FAILED"):
        create_topics({"bootstrap.servers": "nowhere:1"}, TopicSettings(partitions=1, replication_factor=1))
    assert admin.asked == 1


class FencedProducer:
    """Stands in for a fenced producer. told: the error that the C code raises instead while it runs callbacks."""

    def __init__(self, told: Exception) -> None:
        self._told = told

    def flush(self, _timeout_s: float) -> int:
        raise self._told

    def abort_transaction(self, _timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED, "by a newer instance", True))

    def _does(self, *_args: object, **_kwargs: object) -> None: ...

    init_transactions = begin_transaction = produce = purge = _does


@pytest.mark.parametrize("told", [
    KafkaException(KafkaError(KafkaError._FATAL, "fenced", True)),
    SystemError("<method 'flush' of 'cimpl.Producer' objects> returned a result with an exception set"),
    AttributeError("'_FixedFindCallerLogger' object has no attribute '_log'"),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_a_fatal_error_that_the_callbacks_hid_still_tells_that_the_writer_is_fenced(monkeypatch, told: Exception) -> None:
    """A projector whose session had expired ended as if it had a bug, and did not become a candidate again."""
    monkeypatch.setattr("ledger.adapters.kafka.writer.Producer", lambda *_args, **_kwargs: FencedProducer(told))
    writer = KafkaWriter({"bootstrap.servers": "nowhere:1"}, "id", SystemClock())
    writer.init()
    with pytest.raises(Fenced, match="by a newer instance"):
        writer.commit([Event("t", 0, b"key", b"value")])


class QuietProducer:
    """Stands in for a producer that accepts everything, and reports each record as stored, or with `error`."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self._error, self._reports = error, list[Any]()

    def produce(self, *_args: object, on_delivery: Any, **_kwargs: object) -> None:
        self._reports.append(on_delivery)

    def poll(self, _timeout_s: float) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report(self._error, SimpleNamespace(offset=lambda: 3))
        return len(reports)

    def flush(self, timeout_s: float) -> int:
        self.poll(timeout_s)
        return 0

    def __len__(self) -> int:
        return len(self._reports)

    def _does(self, *_args: object, **_kwargs: object) -> None: ...

    init_transactions = begin_transaction = commit_transaction = purge = _does


def test_what_broke_before_a_transaction_ends_no_writer(monkeypatch) -> None:
    """A broker closes idle connections. Only a connection that breaks within a transaction may cause a repeated end of
    it."""
    monkeypatch.setattr("ledger.adapters.kafka.writer.Producer", lambda *_args, **_kwargs: QuietProducer())
    writer = KafkaWriter({"bootstrap.servers": "nowhere:1"}, "id", SystemClock())
    writer.init()
    writer._lines.log(6, "%s", "FAIL", "client", "connection closed by peer")
    for _ in range(2):
        assert writer.commit([Event("t", 0, b"key", b"value")]) == [3]


@pytest.fixture
def sending(monkeypatch) -> Iterator[Callable[..., KafkaSender]]:
    """Makes a sender with one producer per error; each producer reports its error (None: success)."""
    made: list[KafkaSender] = []

    def make(*errors: KafkaError | None) -> KafkaSender:
        producers = iter([QuietProducer(error) for error in errors])
        monkeypatch.setattr("ledger.adapters.kafka.sender.Producer", lambda *_args, **_kwargs: next(producers))
        made.append(KafkaSender({"bootstrap.servers": "nowhere:1"}, SystemClock(), timeout_s=1))
        return made[-1]

    yield make
    for sender in made:
        sender.close()


@pytest.mark.parametrize("code", sorted(MISCONFIGURED))
def test_what_kafka_will_never_take_is_refused(sending: Callable[..., KafkaSender], code: int) -> None:
    with pytest.raises(Refused):
        sending(KafkaError(code)).send(Event("t", 0, b"key", b"value"))


def test_a_producer_with_a_fatal_error_is_replaced(sending: Callable[..., KafkaSender]) -> None:
    sender = sending(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost", True), None)
    with pytest.raises(OutcomeUnknown):
        sender.send(Event("t", 0, b"key", b"value"))
    assert sender.send(Event("t", 0, b"key", b"value")) == 3


def test_what_nobody_has_answered_may_be_stored(sending: Callable[..., KafkaSender], monkeypatch) -> None:
    monkeypatch.setattr(QuietProducer, "poll", lambda *_: 0)
    monkeypatch.setattr("ledger.adapters.kafka.sender._REPORT_SLACK_S", -0.95)
    with pytest.raises(OutcomeUnknown, match="No acknowledgement of"):
        sending(None).send(Event("t", 0, b"key", b"value"))


@pytest.mark.parametrize("code", [*sorted(DAMAGED), KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_is_damaged_on_the_brokers_disk_is_told_with_where_to_look(code: int) -> None:
    reader = KafkaReader.__new__(KafkaReader)
    reader._take_error(SimpleNamespace(topic=lambda: "ledger.events", partition=lambda: 1), KafkaError(code))
    with pytest.raises(ConfigError, match=r"Can't read ledger.events\[1\]") as raised:
        reader._must_be_whole()
    assert ("A file of the broker is damaged" in raised.value.hint) == (code in DAMAGED)
    assert "\n## A file of the broker is damaged\n" in (Path(__file__).parents[2] / "docs" / "RUNBOOK.md").read_text()

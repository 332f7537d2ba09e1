"""Which error of librdkafka means what: a table."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ledger.adapters.clock import SystemClock
from ledger.adapters.kafka.errors import LOST_PLACE, MISCONFIGURED, PASSING, TOO_LARGE, Verdict, classify, error_of, told
from ledger.adapters.kafka.log import OURS, KafkaLog
from ledger.errors import ConfigError

# code, fatal, retriable, txn_requires_abort -> what to do
TABLE = [
    # commit_transaction: broker or network slow; the same call goes on where it was
    (KafkaError._TIMED_OUT, False, True, False, Verdict.RETRY),
    (KafkaError._TRANSPORT, False, True, False, Verdict.RETRY),
    (KafkaError.COORDINATOR_NOT_AVAILABLE, False, True, False, Verdict.RETRY),
    (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, False, True, False, Verdict.RETRY),
    (KafkaError._CONFLICT, False, True, False, Verdict.RETRY),
    # the transaction failed, the producer did not
    (KafkaError._MSG_TIMED_OUT, False, False, True, Verdict.ABORT),
    (KafkaError.MSG_SIZE_TOO_LARGE, False, False, True, Verdict.ABORT),
    (KafkaError.NOT_ENOUGH_REPLICAS, False, False, True, Verdict.ABORT),
    (KafkaError.TRANSACTION_ABORTABLE, False, False, True, Verdict.ABORT),
    (KafkaError.ILLEGAL_GENERATION, False, False, True, Verdict.ABORT),
    (KafkaError._TIMED_OUT, False, True, True, Verdict.ABORT),  # both: what must be aborted can't be called again
    # superseded, or the outcome is unknown
    (KafkaError._FENCED, True, False, False, Verdict.FENCED),
    (KafkaError.PRODUCER_FENCED, True, False, False, Verdict.FENCED),
    (KafkaError.INVALID_PRODUCER_EPOCH, True, False, False, Verdict.FENCED),
    (KafkaError.INVALID_TXN_STATE, True, False, False, Verdict.FENCED),
    (KafkaError.INVALID_PRODUCER_ID_MAPPING, True, False, False, Verdict.FENCED),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True, False, False, Verdict.FENCED),
    (KafkaError._TIMED_OUT, True, True, True, Verdict.FENCED),  # fatal stays fatal whatever else it claims
    # says nothing of itself: indefinite
    (KafkaError._STATE, False, False, False, Verdict.FENCED),
    (KafkaError._FAIL, False, False, False, Verdict.FENCED),
    (KafkaError.UNKNOWN, False, False, False, Verdict.FENCED),
]


@pytest.mark.parametrize(("code", "fatal", "retriable", "abort", "verdict"), TABLE)
def test_classify(code: int, fatal: bool, retriable: bool, abort: bool, verdict: Verdict) -> None:
    assert classify(KafkaError(code, "why", fatal, retriable, abort)) is verdict


def test_every_verdict_is_reached() -> None:
    assert {row[-1] for row in TABLE} == set(Verdict)


def test_an_exception_that_is_none_of_kafkas_is_indefinite() -> None:
    assert classify(error_of(SystemError("returned NULL without setting an exception"))) is Verdict.FENCED
    assert "returned NULL" in told(error_of(SystemError("returned NULL without setting an exception")))
    assert error_of(KafkaException(KafkaError(KafkaError._FENCED))).code() == KafkaError._FENCED


def test_what_passes_by_itself_is_not_what_breaks_a_reader() -> None:
    assert not PASSING & LOST_PLACE
    assert not TOO_LARGE & MISCONFIGURED
    assert KafkaError._PARTITION_EOF not in PASSING | LOST_PLACE


@pytest.mark.parametrize("name", sorted(OURS))
def test_settings_that_carry_a_promise_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=OURS[name]):
        KafkaLog({"bootstrap.servers": "127.0.0.1:1", name: "x"}, SystemClock())


def test_other_settings_pass() -> None:
    KafkaLog({"bootstrap.servers": "127.0.0.1:1", "client.rack": "a", "linger.ms": 1}, SystemClock())

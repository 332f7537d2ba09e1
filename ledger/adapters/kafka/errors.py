"""Classifies librdkafka's errors; no other module does.

Source: librdkafka INTRODUCTION.md "Transactional Producer"; rdkafka_txnmgr.c (which errors of EndTxn are fatal).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ledger.errors import ConfigError

T = TypeVar("T")


class FailureAction(Enum):
    """The writer's reaction to a transactional call that failed."""

    RETRY = "call the same function again"
    ABORT = "abort: no reader will see the transaction, and the producer can be used again"
    FENCED = "drop the producer: it is superseded, or the outcome is unknown"


#: Errors of single records that a retry can't fix: the configuration is wrong.
MISCONFIGURED = frozenset({
    KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION,
    KafkaError.INVALID_RECORD, KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION,
})  # fmt: skip

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

#: A reader that gets one of these errors can't continue from its position: the topic no longer holds what was read.
POSITION_LOST = frozenset({
    KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION,
    KafkaError._NO_OFFSET, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID,
})  # fmt: skip

#: The data on a broker's disk is damaged.
DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._NOT_IMPLEMENTED})
DAMAGED_HINT = "The broker's file of this partition is damaged. See docs/RUNBOOK.md: A file of the broker is damaged."

#: Transient states of brokers and connections: librdkafka recovers by itself.
PASSING = frozenset({
    KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._WAIT_COORD, KafkaError._WAIT_CACHE, KafkaError._MAX_POLL_EXCEEDED, KafkaError.KAFKA_STORAGE_ERROR,
})  # fmt: skip


def classify(error: KafkaError) -> FailureAction:
    """The reaction to an error of a transactional call. The order of the tests matters: a fatal error stays fatal
    whatever its other flags. An error without any flag has an unknown outcome, so it is treated as fatal."""
    if error.fatal():
        return FailureAction.FENCED
    if error.txn_requires_abort():
        return FailureAction.ABORT
    return FailureAction.RETRY if error.retriable() else FailureAction.FENCED


def error_of(exception: BaseException) -> KafkaError:
    """The KafkaError in an exception of confluent_kafka. For any other exception, an error whose outcome is unknown."""
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return exception.args[0]
    return KafkaError(KafkaError._FAIL, repr(exception))


def describe_error(error: KafkaError) -> str:
    """The name and text of an error, for people."""
    return f"{error.name()}: {error.str()}"


def made(kind: Callable[..., T], settings: Mapping[str, Any], logger: Any) -> T:
    """A new client of class `kind`, such as a Producer. Raises: ConfigError, with librdkafka's text, if librdkafka
    refuses the settings."""
    try:
        return kind(dict(settings), logger=logger)
    except KafkaException as exception:
        why = f"Kafka's client refuses these settings: {error_of(exception).str()}."
        raise ConfigError(why, hint="Correct section kafka, then run: jobledger config check") from exception

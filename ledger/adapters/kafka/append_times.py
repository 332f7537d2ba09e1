"""Reads the append time of the first record at or after an offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ledger.adapters.kafka.cluster import Partition
from ledger.adapters.kafka.errors import describe_error, made
from ledger.errors import Unreachable

log = logging.getLogger("ledger.kafka")


def first_times(
    client: Mapping[str, str | int], begin: Mapping[Partition, int], timeout_s: float = 10.0
) -> dict[Partition, float]:
    """The append time of the first committed record at or after an offset: partition -> seconds since the epoch.

    begin: partition -> offset. Partitions without such a record are left out of the result. Raises: Unreachable."""
    if not begin:
        return {}
    found: dict[Partition, float] = {}
    settings: dict[str, str | int | float | bool] = {
        **client, "group.id": "ledger-archive-status", "isolation.level": "read_committed", "enable.auto.commit": "false",
        "enable.partition.eof": "true", "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = made(Consumer, settings, log)
    try:
        consumer.assign([TopicPartition(*tp, offset) for tp, offset in begin.items()])
        left, deadline = set(begin), time.monotonic() + timeout_s
        while left:
            message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    raise Unreachable(f"No answer from Kafka within {timeout_s:g} s.")
                continue
            tp, error = (str(message.topic()), int(message.partition() or 0)), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Unreachable(f"Can't read {tp[0]}[{tp[1]}]: {describe_error(error)}")
            if tp in left:
                left.remove(tp)
                consumer.incremental_unassign([TopicPartition(*tp)])
                if error is None:
                    found[tp] = message.timestamp()[1] / 1000
    finally:
        consumer.close()
    return found

"""Reads the append time of the first record at or after an offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ledger.adapters.kafka.cluster import Place
from ledger.adapters.kafka.errors import made, told
from ledger.errors import Unreachable

log = logging.getLogger("ledger.kafka")


def first_times(client: Mapping[str, str | int], begin: Mapping[Place, int], timeout_s: float = 10.0) -> dict[Place, float]:
    """Partition -> append time, in seconds since the epoch, of the first committed record at or after the partition's
    offset in `begin`. Partitions without such a record are left out.

    Raises: Unreachable."""
    if not begin:
        return {}
    found: dict[Place, float] = {}
    settings: dict[str, str | int | float | bool] = {
        **client, "group.id": "ledger-archive-status", "isolation.level": "read_committed", "enable.auto.commit": "false",
        "enable.partition.eof": "true", "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = made(Consumer, settings, log)
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in begin.items()])
        left, deadline = set(begin), time.monotonic() + timeout_s
        while left:
            message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    raise Unreachable(f"No answer from Kafka within {timeout_s:g} s.")
                continue
            place, error = (str(message.topic()), int(message.partition() or 0)), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Unreachable(f"Can't read {place[0]}[{place[1]}]: {told(error)}")
            if place in left:
                left.remove(place)
                consumer.incremental_unassign([TopicPartition(*place)])
                if error is None:
                    found[place] = message.timestamp()[1] / 1000
    finally:
        consumer.close()
    return found

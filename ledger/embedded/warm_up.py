"""Starts a broker, sends requests as clients do, and ends the broker, so that its JVM loads the classes for the class
archive."""

from __future__ import annotations

import logging
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ledger.adapters.java.class_archives import end, kill
from ledger.embedded.broker import Broker

_PATIENCE_S = 120.0
_TOPIC = "exercise"
_SILENT = logging.Logger("ledger.embedded.warm_up", logging.CRITICAL + 1)


def warm_up(options: Sequence[str]) -> None:
    """Runs the broker once. options: options of the broker's JVM. Raises: ConfigError, Unreachable or KafkaException if
    the broker fails."""
    with tempfile.TemporaryDirectory(prefix="jobledger-exercise-") as folder:
        broker = replace(Broker.at(Path(folder)), java_options=options)
        broker.prepare()
        process = subprocess.Popen(broker.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            broker.ready(_PATIENCE_S, lambda: process.poll() is None)
            _use(broker.bootstrap)
            process.terminate()
            end(process, _PATIENCE_S)
        finally:
            kill(process)


def _use(bootstrap: str) -> None:
    """Uses a compacted topic, a transaction, and a group that reads it."""
    client: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    topic = NewTopic(_TOPIC, 1, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient(client, logger=_SILENT)
    admin.create_topics([topic])[_TOPIC].result()
    producer = Producer({**client, "transactional.id": _TOPIC}, logger=_SILENT)
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"value", key=b"key")
    producer.commit_transaction(_PATIENCE_S)
    consumer = Consumer({**client, "group.id": _TOPIC, "auto.offset.reset": "earliest"}, logger=_SILENT)
    consumer.subscribe([_TOPIC])
    consumer.poll(_PATIENCE_S)
    consumer.close()

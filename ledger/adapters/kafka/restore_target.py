"""The topics of a Kafka cluster as the target of a restore.

Until the restore is finished, the topics have `message.timestamp.type` CreateTime, so that append times can be written,
and `cleanup.policy` delete, so that log compaction removes no record before it is compared. With these settings,
`require_topics` lets no role start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ledger.adapters.kafka.cluster import EARLIEST, Cluster
from ledger.adapters.kafka.errors import PASSING, describe_error, error_of, made
from ledger.adapters.kafka.topics import (
    RESTORING,
    Client,
    create_topics,
    is_restoring,
    require_topics,
    specs,
)
from ledger.adapters.kafka.writer import SENDING
from ledger.config.topics import TopicSettings
from ledger.core.model.published import headers_of
from ledger.errors import ConfigError, LedgerError, Unreachable
from ledger.ports import MemoryRecord, TopicPartition

log = logging.getLogger("ledger.kafka")
_ONLY_THEN = ("retention.ms", "retention.bytes")
_BATCH = 5_000  # most records in flight before their acknowledgements are checked
EMPTY = (
    "If a restore into these topics was finished, there is nothing left to do. Otherwise restore into empty topics: in "
    "another cluster, or with another prefix (LEDGER_TOPICS__PREFIX)."
)


class KafkaTarget:
    """The topics to restore into. Implements `archive.restore.restoring.RestoreTarget`. timeout_s: how long Kafka may
    take to acknowledge records."""

    def __init__(self, client: Client, settings: TopicSettings, timeout_s: float = 60.0) -> None:
        self._client, self._settings, self._timeout_s = dict(client), settings, timeout_s
        self._cluster, self._topics = Cluster(self._client), (settings.events, settings.recovery)
        self._trouble: LedgerError | None = None
        self._producer: Producer | None = None
        self._unseen = 0

    def begin(self) -> Mapping[TopicPartition, int]:
        create_topics(self._client, self._settings)
        shapes = self._cluster.shape(self._topics)
        for topic, shape in shapes.items():
            if shape.partitions != self._settings.partitions:
                raise ConfigError(
                    f"{topic} has {shape.partitions} partitions, but the settings require {self._settings.partitions}.",
                    hint="Delete the empty topic, or set LEDGER_TOPICS__PARTITIONS.",
                )
        tps = [(topic, p) for topic in self._topics for p in range(shapes[topic].partitions)]
        begins, ends = self._cluster.ends(tps, EARLIEST), self._cluster.ends(tps)
        for topic in self._topics:
            own = [tp for tp in tps if tp[0] == topic]
            whole = is_restoring(self._cluster.config(topic)) and not any(begins[tp] for tp in own)
            if any(ends[tp] for tp in own) and not whole:
                raise LedgerError(f"{topic} holds records already, and no restore into it is under way.", hint=EMPTY)
        self._alter(RESTORING)
        return ends

    def write(self, record: MemoryRecord) -> None:
        if self._producer is None:
            size = 2 * self._settings.max_message_bytes
            self._producer = made(
                Producer,
                {**SENDING, "message.max.bytes": size, **self._client, "enable.idempotence": "true", "acks": "all",
                 "message.timeout.ms": int(self._timeout_s * 1000)}, log,
            )  # fmt: skip
        where = record.topic(), record.partition(), record.offset()
        while True:
            try:
                self._producer.produce(
                    record.topic(), record.value(), record.key(), record.partition(),
                    on_delivery=partial(self._delivered, where), timestamp=record.timestamp()[1],
                    headers=list[tuple[str, str | bytes | None]](headers_of(record)),
                )  # fmt: skip
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as exception:
                self._delivered(where, error_of(exception), None)
                break
        self._unseen += 1
        if self._unseen >= _BATCH:
            self.flush()

    def flush(self) -> None:
        self._unseen = 0
        if self._producer is not None and self._producer.flush(self._timeout_s):
            raise Unreachable(f"Kafka did not acknowledge the restored records within {self._timeout_s:g} s.",
                              hint="Run the restore again: it continues where it ended.")  # fmt: skip
        if self._trouble is not None:
            raise self._trouble

    def topic_id(self, topic: str) -> str:
        return self._cluster.shape([topic])[topic].id

    def finish(self) -> None:
        wanted = {spec.name: spec.config for spec in specs(self._settings)}
        self._alter(*(wanted[topic] for topic in self._topics), drop=_ONLY_THEN)
        require_topics(self._client, self._settings)

    def _delivered(self, where: tuple[str, int, int], error: KafkaError | None, message: Message | None) -> None:
        topic, partition, wanted = where
        if self._trouble is not None:
            return
        if error is not None:
            kind = Unreachable if error.retriable() or error.code() in PASSING else ConfigError
            self._trouble = kind(f"Can't write {topic}[{partition}]@{wanted}: {describe_error(error)}.")
        elif message is not None and (found := message.offset()) is not None and found >= 0 and found != wanted:
            self._trouble = LedgerError(
                f"{topic}[{partition}] gave offset {found} to the record of offset {wanted}: another program writes to it.",
                hint="Stop that program, delete the partly restored topics, and run the restore again.",
            )

    def _alter(self, *settings: Mapping[str, str], drop: tuple[str, ...] = ()) -> None:
        """Changes the configuration of both topics in one request: the controller applies all changes or none."""
        resources = []
        for topic, config in zip(self._topics, settings * (2 // len(settings)), strict=True):
            changes: list[tuple[str, str | None, AlterConfigOpType]]
            changes = [(name, value, AlterConfigOpType.SET) for name, value in config.items()]
            changes += [(name, None, AlterConfigOpType.DELETE) for name in drop if name not in config]
            entries = [ConfigEntry(name, value, incremental_operation=kind) for name, value, kind in changes]
            resources.append(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))
        answers: Any = self._cluster.admin.incremental_alter_configs(resources, request_timeout=self._cluster.timeout_s)
        for answer in answers.values():
            self._cluster.answer(answer)

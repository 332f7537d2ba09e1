"""The log on Kafka: creates its readers and writers, and queries its topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import count

from ledger.adapters.kafka.cluster import Cluster
from ledger.adapters.kafka.reader import KafkaReader
from ledger.adapters.kafka.writer import KafkaWriter
from ledger.errors import ConfigError
from ledger.ports import NOWHERE, Clock, Marks

log = logging.getLogger("ledger.kafka")

#: Client settings that users must not set, because the guarantees of the ledger depend on our values. Each with its
#: reason.
OURS = {
    "acks": "a fact counts once all in-sync replicas have it",
    "enable.auto.commit": "offsets are not stored in consumer groups",
    "enable.auto.offset.store": "offsets are not stored in consumer groups",
    "enable.idempotence": "a resend must not become a second record",
    "enable.partition.eof": "readers need it to move past control records",
    "auto.offset.reset": "a reader whose offset is gone must fail, not skip records",
    "group.id": "readers belong to no group",
    "isolation.level": "readers see committed records only",
    "transactional.id": "it is derived from the role, so that a new leader fences the old one",
    "transaction.timeout.ms": "a paused leader's open transaction must not block its successor",
    "partitioner": "every writer names the partition itself",
}


class KafkaLog:
    """The topics of one Kafka cluster. Implements `ports.EventLog`.

    client: librdkafka settings for every client, with `bootstrap.servers` and without the settings in OURS.
    timeout_s: time limit of one query to the cluster; then Unreachable.
    init_timeout_s: time limit for fencing the predecessors; then Unreachable.
    commit_timeout_s: time limit of one transaction; then the writer is Fenced.
    """

    def __init__(
        self, client: Mapping[str, str | int], clock: Clock, *,
        timeout_s: float = 10.0, init_timeout_s: float = 20.0, commit_timeout_s: float = 10.0,
    ) -> None:  # fmt: skip
        if refused := [f"{name} ({why})" for name, why in OURS.items() if name in client]:
            raise ConfigError(f"These client settings are the ledger's own: {'; '.join(refused)}.", hint="Remove them.")
        self._client = dict(client)
        self._clock = clock
        self._init_timeout_s, self._commit_timeout_s = init_timeout_s, commit_timeout_s
        self._cluster = Cluster(self._client, timeout_s)
        self._readers = count(1)

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> KafkaReader:
        """A reader as in `ports.EventLog.reader`.

        Raises: ConfigError if a topic does not exist; LedgerError if the first records of a topic were deleted;
        Unreachable."""
        group_id = f"ledger-reader-{next(self._readers)}"
        return KafkaReader(self._client, self._cluster, topics, group_id, partition, begin)

    def writer(self, transactional_id: str) -> KafkaWriter:
        """A new writer. The cluster is first contacted by the writer's `init`."""
        return KafkaWriter(
            self._client, transactional_id, self._clock,
            init_timeout_s=self._init_timeout_s, commit_timeout_s=self._commit_timeout_s,
        )  # fmt: skip

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> its id (KIP-516). A topic that was deleted and created again has another id.

        Raises: ConfigError if a topic does not exist; Unreachable."""
        return {topic: shape.id for topic, shape in self._cluster.shape(topics).items()}

    def partitions(self, topic: str) -> int:
        return self._cluster.shape([topic])[topic].partitions

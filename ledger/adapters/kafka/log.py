"""The log on Kafka: readers, writers, and what it takes to ask the cluster."""

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

#: Client settings that nobody may set: the promises of the ledger rest on what we set here.
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
    """Topics of one Kafka cluster. Implements `ports.EventLog`.

    client: librdkafka settings, `bootstrap.servers` among them; they go to every client, except those of OURS.
    timeout_s: how long one question to the cluster may take before it counts as Unreachable.
    init_timeout_s: how long fencing the predecessors may take before the cluster counts as Unreachable.
    commit_timeout_s: how long one transaction may take before the writer counts as Fenced.
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
        """Raises: ConfigError if a topic is missing; LedgerError if records at its beginning are gone; Unreachable."""
        group_id = f"ledger-reader-{next(self._readers)}"
        return KafkaReader(self._client, self._cluster, topics, group_id, partition, begin)

    def writer(self, transactional_id: str) -> KafkaWriter:
        """Asks nothing of the cluster yet: `init` does."""
        return KafkaWriter(
            self._client, transactional_id, self._clock,
            init_timeout_s=self._init_timeout_s, commit_timeout_s=self._commit_timeout_s,
        )  # fmt: skip

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> its id; one that is made anew has another. Raises: ConfigError if one is missing; Unreachable."""
        return {topic: shape.id for topic, shape in self._cluster.shape(topics).items()}

    def partitions(self, topic: str) -> int:
        return self._cluster.shape([topic])[topic].partitions

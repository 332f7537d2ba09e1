"""Admin queries to a Kafka cluster that readers, the log and the topic checks share."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from ledger.adapters.kafka.errors import PASSING, describe_error, error_of, made
from ledger.errors import ConfigError, Unreachable

log = logging.getLogger("ledger.kafka")
T = TypeVar("T")
Partition = tuple[str, int]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: The client's metadata names another partition leader than the broker's: after a failover, or while a restarted broker
#: learns that it leads again. The client does not refresh its metadata by itself: the error would repeat for ever (seen
#: after each kill -9). _NOENT: the metadata names no leader at all (seen after a broker had hung).
OUTDATED = frozenset({
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._NOENT,
})  # fmt: skip
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_ASK_AGAIN_S = 0.2


class _Outdated(Unreachable):
    """The broker returned an error of OUTDATED, or no offset. The same request may succeed if it is sent again."""


class Unheard(ConfigError):
    """The queried broker does not know the topic: the topic does not exist, or is too new for the broker's metadata."""


class Shape(NamedTuple):
    """The id and size of a topic. A new topic has a new `id`, even if an earlier topic had its name (KIP-516).
    replicas: of each partition."""

    id: str
    partitions: int
    replicas: int


class Cluster:
    """Queries a Kafka cluster through one AdminClient, which is created on first use. A query without an answer within
    timeout_s raises Unreachable."""

    def __init__(self, client: Mapping[str, str | int], timeout_s: float = 10.0) -> None:
        self._client, self.timeout_s = dict(client), timeout_s

    @property
    def bootstrap(self) -> str:
        return str(self._client.get("bootstrap.servers", ""))

    @cached_property
    def admin(self) -> AdminClient:
        return made(AdminClient, self._client, log)

    def shapes(self, topics: Collection[str]) -> dict[str, Shape | None]:
        """Topic -> its shape; None for a topic that does not exist. Raises: Unreachable, ConfigError."""
        if not topics:
            return {}
        futures = self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=self.timeout_s)
        return {topic: self._shape(future) for topic, future in futures.items()}

    def shape(self, topics: Collection[str]) -> dict[str, Shape]:
        """Topic -> its shape. Raises: ConfigError if one of the topics does not exist; Unreachable."""
        found = {topic: shape for topic, shape in self.shapes(topics).items() if shape is not None}
        if missing := sorted(set(topics) - set(found)):
            raise ConfigError(
                f"There is no topic {', '.join(missing)} at {self.bootstrap}.", hint="Run: jobledger topics create"
            )
        return found

    def ends(self, tps: Iterable[Partition], spec: OffsetSpec = LATEST) -> dict[Partition, int]:
        """The high watermark of each partition, open transactions included; with `spec`, another offset of each
        partition.

        Uses the admin client on purpose: a read_committed consumer returns the last stable offset instead. An error of
        OUTDATED is retried until timeout_s has passed. Raises: Unreachable, ConfigError."""
        wanted = {TopicPartition(topic, partition): spec for topic, partition in tps}
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return self._offsets(wanted, max(_ASK_AGAIN_S, deadline - time.monotonic()))
            except _Outdated:
                if time.monotonic() + _ASK_AGAIN_S >= deadline:
                    raise
                time.sleep(_ASK_AGAIN_S)

    def _offsets(self, wanted: dict[TopicPartition, OffsetSpec], timeout_s: float) -> dict[Partition, int]:
        futures = self.admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
        )
        found = {(tp.topic, tp.partition): self.answer(future).offset for tp, future in futures.items()}
        if unknown := [tp for tp, offset in found.items() if offset < 0]:
            # Neither an error nor an offset: the client's metadata has no leader (seen while Kafka went down).
            raise _Outdated(f"No answer from Kafka at {self.bootstrap} on {unknown[0][0]}[{unknown[0][1]}].")
        return found

    def config(self, topic: str) -> dict[str, str]:
        """The settings in force for a topic, defaults included: name -> value."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self.admin.describe_configs([resource], request_timeout=self.timeout_s)[resource]
        return {name: entry.value or "" for name, entry in self.answer(future).items()}

    def answer(self, future: Future[T]) -> T:
        """The result of an admin request, from its future. Raises: Unreachable; ConfigError if the cluster refuses;
        Unheard if the broker does not know the topic."""
        try:
            return future.result(self.timeout_s + 1.0)
        except FutureTimeout:
            raise Unreachable(f"No answer from Kafka at {self.bootstrap} within {self.timeout_s:g} s.") from None
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() in OUTDATED:
                self.__dict__.pop("admin", None)  # the next query uses a new client without old metadata
                raise _Outdated(f"No answer from Kafka at {self.bootstrap}: {describe_error(error)}") from exception
            # The admin client marks no error as retriable. A negative code comes from the client, not from a broker.
            if error.retriable() or error.code() < 0 or error.code() in PASSING:
                raise Unreachable(f"No answer from Kafka at {self.bootstrap}: {describe_error(error)}") from exception
            kind = Unheard if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else ConfigError
            raise kind(f"Kafka at {self.bootstrap} refused: {describe_error(error)}") from exception

    def _shape(self, future: Future[Any]) -> Shape | None:
        try:
            found = future.result(self.timeout_s + 1.0)
        except KafkaException as exception:
            if error_of(exception).code() in _MISSING:
                return None
            self.answer(future)
            raise
        except FutureTimeout:
            self.answer(future)
            raise
        replicas = min((len(partition.replicas) for partition in found.partitions), default=0)
        return Shape(str(found.topic_id), len(found.partitions), replicas)

"""Questions to the cluster that readers, the log and the topic checks share."""

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

from ledger.adapters.kafka.errors import PASSING, error_of, made, told
from ledger.errors import ConfigError, Unreachable

log = logging.getLogger("ledger.kafka")
T = TypeVar("T")
Place = tuple[str, int]
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: Client and broker disagree on who leads a partition: after a failover, or while a broker that was away learns that it
#: leads again. The client does not look again by itself: it would say the same for ever (seen: after each kill -9).
OUTDATED = frozenset({
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION,
})  # fmt: skip
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_ASK_AGAIN_S = 0.2


class _Outdated(Unreachable):
    """One of OUTDATED, or an answer that says nothing: asked anew it may be answered."""


class Unheard(ConfigError):
    """There is no such topic; or there is, but the broker that was asked has not heard of it yet."""


class Shape(NamedTuple):
    """What a topic is made of. `id` is a new one for every topic ever created, also under an old name."""

    id: str
    partitions: int
    replicas: int


class Cluster:
    """One lazily made AdminClient. Every answer comes within timeout_s or is Unreachable."""

    def __init__(self, client: Mapping[str, str | int], timeout_s: float = 10.0) -> None:
        self._client, self.timeout_s = dict(client), timeout_s

    @property
    def bootstrap(self) -> str:
        return str(self._client.get("bootstrap.servers", ""))

    @cached_property
    def admin(self) -> AdminClient:
        return made(AdminClient, self._client, log)

    def shapes(self, topics: Collection[str]) -> dict[str, Shape | None]:
        """Of each topic; None if there is no such topic."""
        if not topics:
            return {}
        futures = self.admin.describe_topics(TopicCollection(list(topics)), request_timeout=self.timeout_s)
        return {topic: self._shape(future) for topic, future in futures.items()}

    def shape(self, topics: Collection[str]) -> dict[str, Shape]:
        """Raises: ConfigError if there is no such topic."""
        found = {topic: shape for topic, shape in self.shapes(topics).items() if shape is not None}
        if missing := sorted(set(topics) - set(found)):
            raise ConfigError(
                f"There is no topic {', '.join(missing)} at {self.bootstrap}.", hint="Run: jobledger topics create"
            )
        return found

    def ends(self, places: Iterable[Place], spec: OffsetSpec = LATEST) -> dict[Place, int]:
        """The true ends (high watermarks), open transactions included; with `spec` another offset of each partition.

        Asked through the admin client on purpose: a read_committed consumer's own watermark is the last stable offset.
        While client and broker disagree on who leads a partition it is asked again, until timeout_s has passed.
        """
        wanted = {TopicPartition(topic, partition): spec for topic, partition in places}
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return self._offsets(wanted, max(_ASK_AGAIN_S, deadline - time.monotonic()))
            except _Outdated:
                if time.monotonic() + _ASK_AGAIN_S >= deadline:
                    raise
                time.sleep(_ASK_AGAIN_S)

    def _offsets(self, wanted: dict[TopicPartition, OffsetSpec], timeout_s: float) -> dict[Place, int]:
        futures = self.admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=timeout_s
        )
        found = {(tp.topic, tp.partition): self.answer(future).offset for tp, future in futures.items()}
        if unknown := [place for place, offset in found.items() if offset < 0]:
            # An answer without an error and without an offset: the client was told of no leader (seen as one lost Kafka).
            raise _Outdated(f"No answer from Kafka at {self.bootstrap} on {unknown[0][0]}[{unknown[0][1]}].")
        return found

    def config(self, topic: str) -> dict[str, str]:
        """The settings in force for a topic, defaults included."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future = self.admin.describe_configs([resource], request_timeout=self.timeout_s)[resource]
        return {name: entry.value or "" for name, entry in self.answer(future).items()}

    def answer(self, future: Future[T]) -> T:
        """Raises: Unreachable; ConfigError if the cluster says that this can't be had, Unheard if there is none."""
        try:
            return future.result(self.timeout_s + 1.0)
        except FutureTimeout:
            raise Unreachable(f"No answer from Kafka at {self.bootstrap} within {self.timeout_s:g} s.") from None
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() in OUTDATED:
                self.__dict__.pop("admin", None)  # the next question is asked by a client that knows nothing yet
                raise _Outdated(f"No answer from Kafka at {self.bootstrap}: {told(error)}") from exception
            # The admin client calls nothing retriable. A negative code was said by the client, not by a broker.
            if error.retriable() or error.code() < 0 or error.code() in PASSING:
                raise Unreachable(f"No answer from Kafka at {self.bootstrap}: {told(error)}") from exception
            kind = Unheard if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART else ConfigError
            raise kind(f"Kafka at {self.bootstrap} refused: {told(error)}") from exception

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

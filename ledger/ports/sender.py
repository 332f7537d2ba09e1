"""The port for writing single events outside of transactions, used by recorders and by the anchors of an archive."""

from __future__ import annotations

from typing import Protocol

from ledger.ports.log import Event


class Sender(Protocol):
    """Sends events to the log (adapters/kafka/sender, adapters/memory). Thread-safe."""

    def partitions(self, topic: str) -> int:
        """The number of partitions. Raises: Unreachable; ConfigError if there is no such topic."""

    def ready(self, topic: str) -> None:
        """Returns if the topic can be written now, as far as known. Cheap if it was checked a moment ago.

        Raises: Unreachable if Kafka did not answer in time. Nothing was sent."""

    def send(self, event: Event) -> int | None:
        """The offset of the event, once it is durable (acknowledged by all in-sync replicas). None if it is durable,
        but its offset is unknown.

        Raises: OutcomeUnknown if it may be stored; sending the same event again is safe. Unreachable if it was not
        sent. Refused if it is not stored and never will be (too large, not allowed)."""

    def close(self) -> None: ...

"""The port of whoever writes single events outside of transactions: recorders, and the anchors of an archive."""

from __future__ import annotations

from typing import Protocol

from ledger.ports.log import Event


class Sender(Protocol):
    """What a recorder needs of the log (adapters/kafka/sender, adapters/memory). Many threads may send at once."""

    def partitions(self, topic: str) -> int:
        """Raises: Unreachable; ConfigError if there is no such topic."""

    def ready(self, topic: str) -> None:
        """Returns if, to the best of its knowledge, the topic can be written now; cheap where that was seen just now.

        Raises: Unreachable: Kafka did not answer in time. Nothing was sent."""

    def send(self, event: Event) -> int | None:
        """Blocks until the event is durable (acknowledged by all in-sync replicas). Its offset; None if it is stored
        but nobody knows where.

        Raises: OutcomeUnknown: it may be stored; sending the same event again is harmless. Unreachable: it was not even
        sent. Refused: it is not stored and never will be (too large, not allowed)."""

    def close(self) -> None: ...

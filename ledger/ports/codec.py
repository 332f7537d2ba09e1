"""Facts and envelopes as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ledger.core.model.facts import Fact
from ledger.core.model.registers import Register
from ledger.ports.log import Headers

T = TypeVar("T")


class Codec(Protocol):
    """Facts to bytes and back (adapters/avro is one)."""

    def encode(self, fact: Any) -> bytes: ...
    def decode(self, kind: type[T], value: bytes) -> T:
        """Raises: ValueError if the bytes can't be read as one."""

    def read(self, register: Register, value: bytes) -> Fact | None: ...


class Envelope(Protocol):
    """Headers of an event (adapters/cloudevents is one)."""

    def headers(
        self, fact_name: str, *, event_id: str, source: str, subject: str, key: str, time_s: float, sequence: int,
        actor: str = "", epoch: int | None = None,
    ) -> Headers: ...  # fmt: skip

    def parse(self, headers: Sequence[tuple[str, Any]] | None) -> Any:
        """What headers say. Total. `.time_s`: when, in seconds since the epoch; None if they do not say."""

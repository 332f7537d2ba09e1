"""The ports that convert facts to bytes and headers, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ledger.core.model.facts import Fact
from ledger.core.model.registers import Register
from ledger.ports.log import Headers

T = TypeVar("T")


class Codec(Protocol):
    """Converts facts to bytes and back (for example adapters/avro)."""

    def encode(self, fact: Any) -> bytes: ...
    def decode(self, kind: type[T], value: bytes) -> T:
        """The fact that the bytes hold. kind: the class of the fact. Raises: ValueError if the bytes are no such
        fact."""

    def read(self, register: Register, value: bytes) -> Fact | None: ...


class Envelope(Protocol):
    """Converts the envelope of an event to headers and back (for example adapters/cloudevents)."""

    def headers(
        self, fact_name: str, *, event_id: str, source: str, subject: str, key: str, time_s: float, sequence: int,
        actor: str = "", epoch: int | None = None,
    ) -> Headers: ...  # fmt: skip

    def parse(self, headers: Sequence[tuple[str, Any]] | None) -> Any:
        """The envelope in the headers; never raises. `.time_s`: seconds since the epoch; None if the headers have no
        time."""

"""Records whose headers the client library can't return."""

from __future__ import annotations

from typing import Any

from ledger.ports import MemoryRecord

ODD = (("odd", b"x"),)  # the mark of such a record


class OddHeaders:
    """A log whose client fails on the headers of marked records, as confluent-kafka does if a header name is not UTF-8."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def reader(self, *arguments: Any) -> Any:
        reader = self._log.reader(*arguments)
        poll = reader.poll
        reader.poll = lambda *limits: [Odd.of(record) for record in poll(*limits)]
        return reader


class Odd(MemoryRecord):
    __slots__ = ()

    @classmethod
    def of(cls, r: MemoryRecord) -> Odd:
        return cls(r.topic(), r.partition(), r.offset(), r.key(), r.value(), r._headers, r.timestamp()[1])

    def headers(self) -> list[tuple[str, bytes]] | None:
        if any(name == "odd" for name, _ in self._headers):
            raise SystemError("returned a result with an exception set")
        return super().headers()

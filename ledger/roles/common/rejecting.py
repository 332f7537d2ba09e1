"""The port that writes rejected records to `ledger.rejects`."""

from __future__ import annotations

from typing import Protocol

from ledger.ports import Event, Record


class RejectEvents(Protocol):
    """Makes events for `ledger.rejects`. Their key is `<topic>/<partition>/<offset>`, so a second reading adds none."""

    def record(self, record: Record, reason: str) -> Event: ...

    def held(self, partition: int, key: bytes, value: bytes, offset: int, reason: str) -> Event:
        """The event that rejects a register, from its key and value, if the record itself is no longer in memory.
        partition, offset: of that record in `ledger.events`. reason: for people."""

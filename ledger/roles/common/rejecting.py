"""The port that writes rejected records to `ledger.rejects`."""

from __future__ import annotations

from typing import Protocol

from ledger.ports import Event, Record


class RejectEvents(Protocol):
    """Makes events for `ledger.rejects`. Their key is `<topic>/<partition>/<offset>`, so a second reading adds none."""

    def record(self, record: Record, reason: str) -> Event: ...

    def held(self, partition: int, key: bytes, value: bytes, offset: int, reason: str) -> Event:
        """The event for a register's value, if its record of `ledger.events` is not at hand any more."""

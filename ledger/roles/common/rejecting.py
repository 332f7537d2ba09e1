"""The port by which roles put what they can't use on `ledger.rejects`."""

from __future__ import annotations

from typing import Protocol

from ledger.ports import Event, Record


class RejectEvents(Protocol):
    """Makes events for `ledger.rejects`, keyed `<topic>/<partition>/<offset>` so that re-reading repeats nothing."""

    def record(self, record: Record, reason: str) -> Event: ...

    def held(self, partition: int, key: bytes, value: bytes, offset: int, reason: str) -> Event:
        """For the value of a register of `ledger.events` whose record is not at hand any more."""

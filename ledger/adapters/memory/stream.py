"""The recovery stream in memory."""

from __future__ import annotations

from ledger.adapters.memory.log import MemoryLog, MemoryReader
from ledger.core.model.latest import highest_claimed, latest_effective
from ledger.ports import Record

BATCHES_MAX = 50


class MemoryRecoveryStream:
    """Implements `ports.RecoveryStream`. Reads the log in small batches and reduces each batch as Spark's tasks do.
    records_max: records of one batch."""

    def __init__(self, log: MemoryLog, topic: str, records_max: int = 3) -> None:
        self._log, self._topic, self._records_max = log, topic, records_max
        self._reader: MemoryReader | None = None
        self._claimed: dict[int, int] = {}

    def open(self, epoch: int) -> None:  # noqa: ARG002
        self._reader, self._claimed = self._log.reader([self._topic]), {}

    def take(self, timeout_s: float) -> list[Record]:  # noqa: ARG002
        """The reduced records of several batches, as they accumulate during a pass."""
        found: list[Record] = []
        for _ in range(BATCHES_MAX if self._reader is not None else 0):
            assert self._reader is not None
            batch = sorted(self._reader.poll(self._records_max, 0), key=lambda record: record.partition())
            left = latest_effective(batch, self._claimed)
            self._claimed = highest_claimed(left, self._claimed)
            found += left
        return found

    def close(self) -> None:
        self._reader = None

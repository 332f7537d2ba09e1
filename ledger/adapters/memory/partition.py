"""One partition in memory: records with offsets, open and aborted transactions, and the rules of log compaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from ledger.ports import Event, MemoryRecord, TopicPartition


@dataclass(eq=False, slots=True)
class Transaction:
    """A transaction of one producer. deadline: in monotonic seconds. committed: None while the transaction is open.
    touched: the partitions that it wrote to."""

    epoch: int
    deadline: float
    committed: bool | None = None
    touched: list[Partition] = field(default_factory=list)

    def end(self, committed: bool) -> list[Partition]:
        """Ends the transaction, and returns the partitions that now need a control record."""
        self.committed = committed
        return self.touched


@dataclass(eq=False, slots=True)
class _Slot:
    """A record, or a control record (None), at an offset. horizon_s: from when on a tombstone may be removed, by the
    wall clock; None until a compaction saw it."""

    offset: int
    record: MemoryRecord | None
    transaction: Transaction | None
    horizon_s: float | None = None

    @property
    def readable(self) -> bool:
        return self.record is not None and (self.transaction is None or self.transaction.committed is True)


class Partition:
    """The records of one partition. end: the high watermark, which is the offset of the next record."""

    def __init__(self, topic: str, number: int) -> None:
        self.tp: TopicPartition = (topic, number)
        self.end = 0
        self._slots: list[_Slot] = []
        self._open: dict[Transaction, int] = {}  # open ones -> offset of their first record here

    def append(self, event: Event, now_ms: int, transaction: Transaction | None = None) -> int:
        record = MemoryRecord(*self.tp, self.end, event.key, event.value, event.headers, now_ms)
        if transaction is not None and self not in transaction.touched:
            transaction.touched.append(self)
            self._open[transaction] = self.end
        return self._put(record, transaction)

    def set_apart(self, transaction: Transaction) -> Transaction:
        """Moves the transaction's records in this partition to a new transaction, which stays open, and returns the new
        transaction."""
        own = Transaction(transaction.epoch, transaction.deadline, touched=[self])
        self._open[own] = self._open.pop(transaction)
        for slot in self._slots:
            if slot.transaction is transaction:
                slot.transaction = own
        return own

    def append_control(self) -> int:
        return self._put(None, None)

    def stable_end(self) -> int:
        """The last stable offset: the first offset of an open transaction, or the end if none is open."""
        self._open = {transaction: first for transaction, first in self._open.items() if transaction.committed is None}
        return min(self._open.values(), default=self.end)

    def read(self, position: int, records_max: int) -> tuple[list[MemoryRecord], int]:
        """Committed records from `position` on, and the position after them. Control records and gaps are skipped."""
        stable_end = self.stable_end()
        found: list[MemoryRecord] = []
        for index in range(self._index(position), len(self._slots)):
            slot = self._slots[index]
            if slot.offset >= stable_end:
                break
            if slot.record is not None and slot.readable:
                if len(found) >= records_max:
                    return found, slot.offset
                found.append(slot.record)
        return found, max(position, stable_end)

    def committed(self) -> list[MemoryRecord]:
        return [slot.record for slot in self._slots if slot.record is not None and slot.readable]

    def compact(
        self, now_s: float, horizon_s: float, keep: Callable[[MemoryRecord], bool] | None, min_lag_s: float = 0.0
    ) -> int:
        before, stable_end = len(self._slots), self._cleanable_end(int((now_s - min_lag_s) * 1000))
        last = {
            slot.record.key(): slot.offset
            for slot in self._slots
            if slot.record is not None and slot.readable and slot.offset < stable_end
        }
        self._slots = [
            slot for slot in self._slots if slot.offset >= stable_end or self._stays(slot, last, now_s, horizon_s, keep)
        ]
        return before - len(self._slots)

    def _cleanable_end(self, younger_than_ms: int) -> int:
        """The offset below which compaction may work. Records of open transactions and young records are ignored: they
        don't supersede earlier records either."""
        young = (s.offset for s in self._slots if s.record is not None and s.record.timestamp()[1] > younger_than_ms)
        return min(self.stable_end(), next(young, self.end))

    @staticmethod
    def _stays(
        slot: _Slot, last: dict[bytes | None, int], now_s: float, horizon_s: float,
        keep: Callable[[MemoryRecord], bool] | None,
    ) -> bool:  # fmt: skip
        if slot.record is None:
            return True  # a control record stays: no reader sees it
        if not slot.readable:
            return False  # an aborted record is removed at once
        may_go = last[slot.record.key()] > slot.offset
        if not may_go and slot.record.value() is None:
            if slot.horizon_s is None:
                slot.horizon_s = horizon_s
            else:
                may_go = now_s >= slot.horizon_s
        return not may_go or (keep is not None and keep(slot.record))

    def _index(self, offset: int) -> int:
        return bisect_left(self._slots, offset, key=lambda slot: slot.offset)

    def _put(self, record: MemoryRecord | None, transaction: Transaction | None) -> int:
        offset, self.end = self.end, self.end + 1
        self._slots.append(_Slot(offset, record, transaction))
        return offset

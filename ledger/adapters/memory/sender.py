"""Sends events of producers to the log in memory. A test can make it lose events or acknowledgements."""

from __future__ import annotations

import threading

from ledger.adapters.memory.log import MemoryLog
from ledger.errors import OutcomeUnknown, RecordTooLarge, Refused, Unreachable
from ledger.ports import Event


class MemorySender:
    """Implements `ports.Sender`. Thread-safe, although the log is not.

    lost_acks: for how many of the next sends the event is stored but its acknowledgement is lost. lost_events: for how
    many of the next sends the event itself is lost. In both cases `send` raises OutcomeUnknown."""

    def __init__(self, log: MemoryLog) -> None:
        self._log, self._lock = log, threading.Lock()
        self.lost_acks = self.lost_events = 0
        self.closed = False

    def partitions(self, topic: str) -> int:
        self.ready(topic)
        return self._log.partitions(topic)

    def ready(self, topic: str) -> None:
        if not self._log.up:
            raise Unreachable(f"The log in memory is down, {topic} can't be written.")

    def send(self, event: Event) -> int | None:
        with self._lock:
            if self.lost_events:
                self.lost_events -= 1
                raise OutcomeUnknown("No acknowledgement came.")
            try:
                (offset,) = self._log.append([event])
            except RecordTooLarge as error:
                raise Refused(str(error)) from error
            if self.lost_acks:
                self.lost_acks -= 1
                raise OutcomeUnknown("No acknowledgement came.")
            return offset

    def close(self) -> None:
        self.closed = True

"""Follows one job over time: its registers, its published entry, and its rejected records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ledger.core.fold.job import Job
from ledger.core.model.facts import JobAdmitted
from ledger.core.model.published import Published
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Admitted, Register, key_of
from ledger.ports import Record
from ledger.reader import rejects
from ledger.reader.reading import POLL_S, JobLog, Source, Tail

T = TypeVar("T")


class Watch:
    """Reads the job's partition of ledger.events and, on request, of ledger.recovery and ledger.rejects.

    admitted: digests that were admitted at any time, even if the job is retired now. rejected: position of a rejected
    record (`<topic>/<partition>/<offset>`) -> reason.
    """

    def __init__(self, source: Source, job_id: str, *, recovery: bool = False, reject: bool = False) -> None:
        self.log = JobLog(source, job_id)
        self.admitted: set[str] = set()
        self.rejected: dict[str, str] = {}
        self._source = source
        self._published = Published(source.codec.decode)
        topics = source.topics
        wanted = [topics.events, *([topics.recovery] if recovery else []), *([topics.rejects] if reject else [])]
        self._tail = Tail(source, wanted, self.log.partition)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._tail.close()

    def read(self) -> None:
        """Reads up to the present high watermark."""
        for records in self._tail.to_end():
            self._take(records)

    def until(self, answer: Callable[[], T | None], timeout_s: float | None) -> T | None:
        """Reads until `answer` returns a value; None if it does not within timeout_s (None = wait for ever)."""
        clock = self._source.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        while (found := answer()) is None:
            left_s = POLL_S if deadline is None else deadline - clock.monotonic()
            if left_s <= 0:
                return None
            self._take(self._tail.more(min(POLL_S, left_s)))
        return found

    def job(self) -> Job:
        return self.log.job()

    def offset_of(self, register: Register) -> int | None:
        """The offset of the first record in the log that holds the register."""
        key = key_of(self.log.job_id, register).encode()
        return next((r.offset() for r in self.log.records if r.key() == key and r.value() is not None), None)

    def published_entry(self) -> RecoveryEntry | None:
        return self._published.entries.get(self.log.job_id)

    def published_as_of(self) -> int:
        """The published entry of the job reflects every record below this offset."""
        return self._published.as_of(self.log.job_id, self.log.partition)

    def _take(self, records: Iterable[Record]) -> None:
        topics = self._source.topics
        events: list[Record] = []
        for record in records:
            topic = record.topic()
            if topic == topics.recovery:
                self._published.apply(record)
            elif topic == topics.rejects:
                self._reject(record)
            else:
                events.append(record)
        admitted = key_of(self.log.job_id, Admitted()).encode()
        for record in self.log.take(events):
            value = record.value()
            if record.key() == admitted and value is not None:
                fact = self._source.codec.read(Admitted(), value)
                if isinstance(fact, JobAdmitted):
                    self.admitted.add(fact.digest)

    def _reject(self, record: Record) -> None:
        key, value = record.key(), record.value()
        if key is None or value is None:
            return
        try:
            reason = rejects.decode(value).reason
        except ValueError:
            reason = "the reason can't be read"
        self.rejected[key.decode("utf-8", "replace")] = reason

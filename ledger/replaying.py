"""Replay: folds the log anew, to its end, and compares with what is published. The projector's work, done over again.

Log and recovery set move while they are read, so a job is compared only at a point where both speak of the same records:
what is published of it covers the last record that the log holds of it. Jobs of which that is not so yet are looked at
again until the projector has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ledger.core.facts import Fact
from ledger.core.fold import fold
from ledger.core.published import Published
from ledger.core.recovery import Difference, diff
from ledger.core.registers import Register, is_job_id, partition_of
from ledger.core.table import Held, RegisterTable
from ledger.ports import Record
from ledger.reading import POLL_S, Source, Tail

CATCH_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Replay:
    """differences: jobs on which fold and published entry disagree. compared: how many jobs were compared. behind: jobs
    that could not be, as the projector did not come so far in time. dropped: records of ledger.recovery without effect,
    by reason."""

    differences: tuple[Difference, ...]
    compared: int
    behind: tuple[str, ...]
    dropped: dict[str, int]


def replay(source: Source, timeout_s: float = CATCH_UP_S) -> Replay:
    """timeout_s: how long to wait for a projector that is behind."""
    both = _Both(source)
    deadline = source.clock.monotonic() + timeout_s
    with Tail(source, [source.topics.events]) as events, Tail(source, [source.topics.recovery]) as recovery:
        while True:
            # In this order: what is published covers no record that the fold does not know.
            for records in recovery.to_end():
                both.take_published(records)
            for records in events.to_end():
                both.take_events(records)
            behind = both.compare()
            if not behind or source.clock.monotonic() >= deadline:
                differences = tuple(both.differences[job_id] for job_id in sorted(both.differences))
                return Replay(differences, len(both.compared), tuple(behind), dict(both.published.dropped))
            both.take_published(recovery.more(POLL_S))


class _Both:
    """compared: jobs that were compared once at a point where that says something."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._partitions = source.log.partitions(source.topics.events)
        self._table = RegisterTable(self._partitions)
        self._last: dict[str, int] = {}
        self.published = Published(source.codec.decode)
        self.compared: set[str] = set()
        self.differences: dict[str, Difference] = {}

    def take_published(self, records: Iterable[Record]) -> None:
        for record in records:
            self.published.apply(record)

    def take_events(self, records: Iterable[Record]) -> None:
        listed = list(records)
        self._table.apply(listed)
        for record in listed:
            job_id = (record.key() or b"").partition(b"/")[0].decode("ascii", "replace")
            if is_job_id(job_id) and record.partition() == partition_of(job_id, self._partitions):
                self._last[job_id] = record.offset()

    def compare(self) -> list[str]:
        """Compares every job that has not been; those that can't be yet."""
        behind = []
        for job_id in sorted({*self._last, *self.published.entries, *self.published.unreadable} - self.compared):
            partition = partition_of(job_id, self._partitions)
            if self.published.as_of(job_id, partition) <= self._last.get(job_id, -1):
                behind.append(job_id)
                continue
            self.compared.add(job_id)
            entry = self.published.entries.get(job_id)
            folded = fold(job_id, self._table.registers(job_id.encode(), partition), self._read, self._source.keep)
            if folded is not None:
                folded = replace(folded, partition=partition)
            for difference in diff({job_id: entry} if entry else {}, {job_id: folded} if folded else {}):
                self.differences[job_id] = difference
        return behind

    def _read(self, register: Register, held: Held) -> Fact | None:
        return self._source.codec.read(register, held[0])

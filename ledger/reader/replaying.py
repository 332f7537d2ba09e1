"""Replay: folds the log anew, to its end, and compares with what is published. The projector's work, done over again.

Log and recovery set move while they are read, and the recovery set comes after: of a job that never rests, and of a
projector that is a second behind, the two never speak of the same records at the same moment. So the log is read to its
end once, and that is what the projector must have come to. What comes later is held back, record by record, and taken
only as far as what is published of the job says that it covers: there fold and entry are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ledger.core.fold.fold import fold
from ledger.core.model.facts import Fact
from ledger.core.model.published import Published
from ledger.core.model.recovery import Difference, diff
from ledger.core.model.registers import Register, is_job_id, partition_of
from ledger.core.model.table import Held, RegisterTable
from ledger.ports import Record
from ledger.reader.reading import POLL_S, Source, Tail

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
            # In this order: what is published covers no record that was not read.
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
        self._wanted: set[str] | None = None
        self._held_back: dict[str, list[Record]] = {}
        self.published = Published(source.codec.decode)
        self.compared: set[str] = set()
        self.differences: dict[str, Difference] = {}

    def take_published(self, records: Iterable[Record]) -> None:
        for record in records:
            self.published.apply(record)

    def take_events(self, records: Sequence[Record]) -> None:
        """Until jobs are compared for the first time all is taken at once: compaction has left of it only what was last.
        What comes later is read as it was written, long before the cleaner may touch it (min.compaction.lag.ms)."""
        if self._wanted is None:
            self._table.apply(records)
        for record in records:
            job_id = (record.key() or b"").partition(b"/")[0].decode("ascii", "replace")
            if is_job_id(job_id) and record.partition() == partition_of(job_id, self._partitions):
                if self._wanted is None:
                    self._last[job_id] = record.offset()
                elif job_id in self._wanted:
                    self._held_back.setdefault(job_id, []).append(record)

    def compare(self) -> list[str]:
        """Compares every job that was there at the first time and has not been compared; those that can't be yet."""
        if self._wanted is None:
            self._wanted = {*self._last, *self.published.entries, *self.published.unreadable}
        behind = []
        for job_id in sorted(self._wanted):
            partition = partition_of(job_id, self._partitions)
            as_of = self.published.as_of(job_id, partition)
            if as_of <= self._last.get(job_id, -1):
                behind.append(job_id)
                continue
            self._compare(job_id, partition, as_of)
        self._wanted = set(behind)
        return behind

    def _compare(self, job_id: str, partition: int, as_of: int) -> None:
        self.compared.add(job_id)
        later = self._held_back.pop(job_id, ())
        self._table.apply([record for record in later if record.offset() < as_of])
        entry = self.published.entries.get(job_id)
        folded = fold(job_id, self._table.registers(job_id.encode(), partition), self._read, self._source.keep)
        if folded is not None:
            folded = replace(folded, partition=partition)
        for difference in diff({job_id: entry} if entry else {}, {job_id: folded} if folded else {}):
            self.differences[job_id] = difference

    def _read(self, register: Register, held: Held) -> Fact | None:
        return self._source.codec.read(register, held[0])

"""Replay folds the log again, up to its end, and compares the result with the published entries.

Log and entries change during the read, and entries lag behind. A job that writes all the time, with a projector a second
behind, would never match. Therefore the log is read to its end once; the projector must reach that point. Later records of
a job are held back and applied one by one, only as far as its published entry covers them (`as_of`). At that point fold
and entry are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ledger.core.fold.fold import fold
from ledger.core.model.facts import Fact
from ledger.core.model.published import Published
from ledger.core.model.recovery import Difference, diff
from ledger.core.model.registers import Register, is_job_id, partition_of
from ledger.core.model.table import RawValue, RegisterTable
from ledger.ports import Record
from ledger.reader.reading import POLL_S, Source, Tail

CATCH_UP_S = 30.0


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay. differences: jobs whose published entry differs from the fold. compared: the number of jobs
    compared. behind: jobs that could not be compared, since the projector was behind until the timeout. dropped: records
    of ledger.recovery without effect, by reason."""

    differences: tuple[Difference, ...]
    compared: int
    behind: tuple[str, ...]
    dropped: dict[str, int]


def replay(source: Source, timeout_s: float = CATCH_UP_S) -> Replay:
    """The result of folding all jobs again and comparing them with their published entries. timeout_s: how long to wait
    for a projector that is behind."""
    both = _Both(source)
    deadline = source.clock.monotonic() + timeout_s
    with Tail(source, [source.topics.events]) as events, Tail(source, [source.topics.recovery]) as recovery:
        while True:
            # In this order, the published entries cover no record that was not read.
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
    """The log and the published entries as read so far. compared: jobs that were compared at an offset that both
    cover."""

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
        """Applies all records at once until jobs are compared for the first time, since compaction has left only the last
        value of each key. Later records are complete: compaction may not touch them yet (min.compaction.lag.ms)."""
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
        """Compares the jobs of the first read that are not compared yet. Returns the jobs for which the projector is
        still behind."""
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

    def _read(self, register: Register, held: RawValue) -> Fact | None:
        return self._source.codec.read(register, held[0])

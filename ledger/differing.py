"""What changed between two moments: which jobs, from what to what, and by which records of whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.core.fold import fold_job
from ledger.core.recovery import RecoveryEntry, diff
from ledger.core.registers import parse_key
from ledger.core.table import RegisterTable
from ledger.past import since
from ledger.reading import HistoryRecord, Source, Tail, all_registers, history_record, jobs_in


@dataclass(frozen=True, slots=True)
class Changed:
    """A job on which the folds of two moments disagree; None: it was no job, or retired. records: of this job, in between,
    in the order of the log."""

    job_id: str
    before: RecoveryEntry | None
    after: RecoveryEntry | None
    records: tuple[HistoryRecord, ...]


def changed(before: Source, after: Source, cut: Mapping[int, int]) -> list[Changed]:
    """By what the log said at both moments, by id. cut: partition of ledger.events -> the first offset that did not count
    at the earlier one."""
    found = diff(folded(before, all_registers(before)), folded(after, all_registers(after)))
    records: dict[str, list[HistoryRecord]] = {one.job_id: [] for one in found}
    with Tail(since(after, {(after.topics.events, p): end for p, end in cut.items()}), [after.topics.events]) as tail:
        for batch in tail.to_end():
            for record in batch:
                named = parse_key(record.key())
                if named is not None and named[0] in records and record.offset() >= cut.get(record.partition(), 0):
                    records[named[0]].append(history_record(after, record))
    return [Changed(one.job_id, one.published, one.folded, tuple(records[one.job_id])) for one in found]


def folded(source: Source, table: RegisterTable) -> dict[str, RecoveryEntry]:
    """job id -> entry, of every job of a table that is not retired."""
    entries = ((job.job_id, fold_job(job, source.keep)) for job, _ in jobs_in(source, table))
    return {job_id: entry for job_id, entry in entries if entry is not None}

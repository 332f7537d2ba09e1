"""The jobs that changed between two moments, with their states and the records that changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model.recovery import RecoveryEntry, diff
from ledger.core.model.registers import parse_key
from ledger.core.model.table import RegisterTable
from ledger.history.historical_log import since
from ledger.reader.reading import (
    HistoryRecord,
    RetiredJob,
    Source,
    Tail,
    all_registers,
    history_record,
    jobs_in,
    result_of,
)

#: The state of a job: its folded entry, or its result once it is retired.
Known = RecoveryEntry | RetiredJob


@dataclass(frozen=True, slots=True)
class Changed:
    """A job whose state differs at two moments; None = unknown then. records: of this job in between, in log order."""

    job_id: str
    before: Known | None
    after: Known | None
    records: tuple[HistoryRecord, ...]


def changed(before: Source, after: Source, cut: Mapping[int, int]) -> list[Changed]:
    """The changed jobs, by id. cut: partition of ledger.events -> the first offset that did not count at the earlier
    moment."""
    was, is_ = known(before, all_registers(before)), known(after, all_registers(after))
    records: dict[str, list[HistoryRecord]] = {job_id: [] for job_id in differing(was, is_)}
    with Tail(since(after, {(after.topics.events, p): end for p, end in cut.items()}), [after.topics.events]) as tail:
        for batch in tail.to_end():
            for record in batch:
                named = parse_key(record.key())
                if named is not None and named[0] in records and record.offset() >= cut.get(record.partition(), 0):
                    records[named[0]].append(history_record(after, record))
    return [Changed(job_id, was.get(job_id), is_.get(job_id), tuple(found)) for job_id, found in records.items()]


def known(source: Source, table: RegisterTable) -> dict[str, Known]:
    """job id -> state, for every job of a table."""
    pairs = ((job.job_id, known_of(source, job)) for job, _ in jobs_in(source, table))
    return {job_id: one for job_id, one in pairs if one is not None}


def known_of(source: Source, job: Job) -> Known | None:
    return fold_job(job, source.keep) or result_of(job)


def differing(one: Mapping[str, Known], other: Mapping[str, Known]) -> list[str]:
    """The jobs whose states differ in meaning, by id."""
    return [job_id for job_id in sorted({*one, *other}) if not _same(one.get(job_id), other.get(job_id))]


def _same(one: Known | None, other: Known | None) -> bool:
    if isinstance(one, RecoveryEntry) and isinstance(other, RecoveryEntry):
        return not diff({one.job_id: one}, {other.job_id: other})
    return one == other

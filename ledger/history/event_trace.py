"""The records between two moments, with the effect of each on its job. `state_diff` compares only the two ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate

from ledger.core.fold.job import Job
from ledger.core.model.registers import parse_key, partition_of
from ledger.core.model.table import RegisterTable
from ledger.history.historical_log import since, until
from ledger.history.state_diff import Known, known_of
from ledger.ports import Record
from ledger.reader.reading import HistoryRecord, Source, Tail, history_record


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A record with the folded state of its job before and after the record; None = the job is unknown."""

    job_id: str
    before: Known | None
    after: Known | None
    record: HistoryRecord


def steps(source: Source, cut: Mapping[int, int], job_id: str | None = None) -> Iterator[TraceStep]:
    """A step for each record of ledger.events from the cut on (partition -> offset), by append time, and in offset order
    within a partition. job_id: only this job. Malformed records have no step."""
    partitions = source.log.partitions(source.topics.events)
    table = RegisterTable(partitions)
    for record in _by_time(_read(source, cut, table, job_id)):
        named = parse_key(record.key())
        if named is None or partition_of(named[0], partitions) != record.partition() or job_id not in (None, named[0]):
            continue
        before = _known(source, table, named[0], record.partition())
        table.apply([record], tell_touched=False)
        yield TraceStep(
            named[0], before, _known(source, table, named[0], record.partition()), history_record(source, record)
        )


def _read(source: Source, cut: Mapping[int, int], table: RegisterTable, job_id: str | None) -> list[list[Record]]:
    """The records from the cut on, by partition. The earlier ones, or a snapshot of them, are applied to the table."""
    later: list[list[Record]] = [[] for _ in range(table.partitions)]
    only = None if job_id is None else source.partition_of(job_id)
    topic = source.topics.events
    offsets = {(topic, partition): at for partition, at in cut.items()}
    with Tail(until(source, offsets), [topic], only) as below:
        for records in below.to_end():
            table.apply([one for one in records if one.offset() < cut.get(one.partition(), 0)], tell_touched=False)
    with Tail(since(source, offsets), [topic], only) as tail:
        for records in tail.to_end():
            for record in records:
                if record.offset() >= cut.get(record.partition(), 0):
                    later[record.partition()].append(record)
    return later


def _by_time(partitions: list[list[Record]]) -> Iterator[Record]:
    """Records by time. Within a partition the highest time so far counts, so a clock set back does not reorder records."""
    timed = [zip(accumulate((r.timestamp()[1] for r in records), max), records, strict=True) for records in partitions]
    return (record for _, record in merge(*timed, key=lambda pair: pair[0]))


def _known(source: Source, table: RegisterTable, job_id: str, partition: int) -> Known | None:
    registers = table.registers(job_id.encode(), partition)
    return known_of(source, Job(job_id, registers, lambda r, held: source.codec.read(r, held[0])))

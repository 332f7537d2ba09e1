"""Disaster recovery: both topics are rebuilt from the archive and compared with it before a role may use them.

The target makes sure that no role starts on topics that are being restored, so a partial restore is never taken for a
complete one. If a restore is interrupted, run it again: it resumes where it ended. Source: docs/decisions/0030.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from ledger.archive.format.chain import Head, leaf_of
from ledger.archive.format.notes import RESTORED
from ledger.archive.format.redacted import RedactedRecord
from ledger.archive.format.removals import REDACTED
from ledger.archive.restore.layout import RestorePlan, TopicPair, lay_out, plan
from ledger.archive.store.archive import Archive
from ledger.core.fold.fold import fold
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.published import Published, headers_of
from ledger.core.model.recovery import Difference, diff
from ledger.core.model.registers import Register
from ledger.core.model.table import ELSEWHERE, RawValue, RegisterTable
from ledger.errors import LedgerError, UsageError
from ledger.ports import Clock, Codec, EventLog, MemoryRecord, Record, TopicPartition
from ledger.reader.reading import POLL_S, RECORDS_MAX
from ledger.util import failpoints

BEGIN_ANEW = "Delete the partly restored topics, and run the restore again. No other program may write to them meanwhile."


class RestoreTarget(Protocol):
    """The topics that are being restored. Raises: Unreachable if the cluster does not answer; ConfigError if it
    refuses."""

    def begin(self) -> Mapping[TopicPartition, int]:
        """Creates missing topics, closes both to roles, and allows append times to be set. Returns the end of every
        partition; it is above 0 only if an earlier restore was interrupted.

        Raises: LedgerError if a topic holds records, but not from a restore; then nothing was changed."""

    def write(self, record: MemoryRecord) -> None:
        """Writes a record to its partition with its append time. The write is acknowledged by the next `flush` at the
        latest.

        Raises: LedgerError if this record, or an earlier one, got an offset other than its own, because another program
        writes to the topic.
        """

    def flush(self) -> None:
        """Waits until all records are acknowledged. Raises: as `write`."""

    def topic_id(self, topic: str) -> str: ...

    def finish(self) -> None:
        """Gives both topics their required settings, in one request. From then on, roles may use them."""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """One restored partition. records: the number of records from the archive. filled: the number of no-ops for offsets
    without a record. resumed: how many of both an earlier restore had written. end: the offset behind the last record.
    last_s: the latest append time, seconds since the epoch, 0 = no record; records written after it are lost."""

    topic: str
    partition: int
    records: int
    filled: int
    resumed: int
    end: int
    last_s: float


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. exact: every record has its former offset. jobs: how many jobs were folded from archive
    and topics and compared. differences: the jobs that differed; if there are any, the restore is not finished.
    left_out: records that were not restored, by reason. redacted: records whose placeholder value, which can't be read,
    was restored."""

    partitions: tuple[RestoredPartition, ...]
    exact: bool
    jobs: int
    differences: tuple[Difference, ...]
    left_out: dict[str, int]
    redacted: int = 0


@dataclass(frozen=True, slots=True)
class Restoring:
    """A restore and its dependencies. patience_s: how long reading back may make no progress. keep: how many restore
    points of a job a fold keeps. report: called with progress messages."""

    archive: Archive
    target: RestoreTarget
    log: EventLog
    codec: Codec
    clock: Clock
    patience_s: float = 30.0
    keep: int = RESTORE_POINTS
    report: Callable[[str], object] = len

    def run(
        self, archived: TopicPair, restored: TopicPair, partitions: int, before: int | None = None, *, adopt: bool = False
    ) -> Restored:
        """Restores both topics. partitions: the number of partitions of the restored topics. before: their former
        number; None = derive it from the archive. adopt: the archive continues with the restored topics instead of the
        former ones.

        Raises: UsageError, LedgerError: nothing, or not everything, was restored, and no role will start on it."""
        made = self._plan(archived, restored, partitions, before)
        if adopt and (not made.exact or archived != restored):
            raise UsageError(
                f"The archive of {made.before} partitions of {archived.events} can't go on with {made.after} partitions of "
                f"{restored.events}.", hint="Leave out --adopt, and use another folder or prefix for a new archive.",
            )  # fmt: skip
        begun = self.target.begin()
        if set(begun) != set(made.partitions()):
            raise LedgerError("The partly restored topics have another number of partitions.", hint=BEGIN_ANEW)
        there = {tp: self._read_back(tp, end, None) for tp, end in begun.items() if end}
        written, table, counts = self._write(made, begun, there)
        restored_table = RegisterTable(made.after)
        for tp, wanted in written.items():
            self.report(f"reading back {tp[0]}[{tp[1]}]")
            into = restored_table if tp[0] == restored.events else None
            if self._read_back(tp, wanted.end, into) != wanted.digest():
                raise LedgerError(f"{tp[0]}[{tp[1]}] does not hold the records that were restored to it.", hint=BEGIN_ANEW)
        jobs, differences = self._compare(table, restored_table)
        failpoints.hit("restore.read")
        if not differences:
            for tp, one in written.items() if adopt else ():
                self._adopt(self.archive.head(*tp), one.end)
            self.target.finish()
        found = [RestoredPartition(*tp, one.end - one.filled, one.filled, begun[tp], one.end, one.last_ms / 1000)
                 for tp, one in written.items()]  # fmt: skip
        redacted = counts.pop(REDACTED, 0)
        return Restored(tuple(found), made.exact, jobs, differences, {**counts}, redacted)

    def _adopt(self, head: Head, end: int) -> None:
        """Writes a note to the chain: it continues with the restored topic. Repeating it changes nothing."""
        topic_id = self.target.topic_id(head.topic)
        if head.sequence >= 0 and head.topic_id != topic_id:
            body = {"from_topic_id": head.topic_id, "to_topic_id": topic_id, "sealed": head.next, "next": end}
            self.archive.note(head, RESTORED, body, topic_id=topic_id, next_=end)

    def _plan(self, archived: TopicPair, restored: TopicPair, partitions: int, before: int | None) -> RestorePlan:
        first = plan(self.archive, archived, restored, partitions, before, None)
        if not first.exact:
            return first
        published = Published(self.codec.decode)
        for partition in range(first.before):
            for record in self.archive.records(archived.recovery, partition):
                published.apply(record)
        return plan(self.archive, archived, restored, partitions, before, published)

    def _write(
        self, made: RestorePlan, begun: Mapping[TopicPartition, int], there: Mapping[TopicPartition, str]
    ) -> tuple[dict[TopicPartition, _Written], RegisterTable, Counter[str]]:
        written = {tp: _Written() for tp in made.partitions()}
        table, left_out = RegisterTable(made.before), Counter[str]()

        elsewhere: set[bytes] = set()

        def archived(record: Record) -> None:
            left_out[REDACTED] += isinstance(record, RedactedRecord)
            if record.topic() == made.archived.events:
                _, malformed = table.apply([record], tell_touched=False)
                elsewhere.update((r.key() or b"").partition(b"/")[0] for r, why in malformed if why.startswith(ELSEWHERE))

        for count, (record, filled) in enumerate(lay_out(self.archive, made, archived, left_out), start=1):
            tp = record.topic(), record.partition()
            one = written[tp]
            if one.end == begun[tp]:
                _must_be_ours(tp, one, there)
            if one.end >= begun[tp]:
                failpoints.hit("restore.writing")
                self.target.write(record)
            one.take(record)
            one.filled += filled
            if count % 10_000 == 0:
                self.report(f"{count} records")
        for tp, one in written.items():
            if one.end < begun[tp]:
                raise LedgerError(f"{tp[0]}[{tp[1]}] holds more records than the archive.", hint=BEGIN_ANEW)
            if one.end == begun[tp]:
                _must_be_ours(tp, one, there)
        if len(elsewhere) > len(table):  # misplaced jobs are rare; if most are, the number of partitions is wrong
            raise LedgerError(
                f"{made.archived.events} had not {made.before} partitions: if it had, {len(elsewhere)} jobs would be in "
                "a wrong one.",
                hint=f"Give the former number with --archived-partitions. {BEGIN_ANEW}",
            )
        self.target.flush()
        failpoints.hit("restore.written")
        return written, table, left_out

    def _read_back(self, tp: TopicPartition, end: int, table: RegisterTable | None) -> str:
        """The digest of the records in a partition up to `end`. Raises: Unreachable. LedgerError if a record is
        missing, reading makes no progress, or another program writes."""
        found = _Written()
        reader = self.log.reader([tp[0]], tp[1])
        try:
            idle_since = self.clock.monotonic()
            while found.end < end:
                records = reader.poll(RECORDS_MAX, POLL_S)
                for record in records:
                    if record.offset() != found.end:
                        raise LedgerError(f"{tp[0]}[{tp[1]}] has no record at offset {found.end}.", hint=BEGIN_ANEW)
                    found.take(record)
                if table is not None:
                    table.apply(records, tell_touched=False)
                if records:
                    idle_since = self.clock.monotonic()
                elif self.clock.monotonic() - idle_since > self.patience_s:
                    raise LedgerError(f"Reading {tp[0]}[{tp[1]}] back makes no progress at offset {found.end} of {end}.")
            if reader.high_watermarks()[tp] != found.end:
                raise LedgerError(f"Another program writes to {tp[0]}[{tp[1]}].", hint=BEGIN_ANEW)
        finally:
            reader.close()
        return found.digest()

    def _compare(self, archived: RegisterTable, restored: RegisterTable) -> tuple[int, tuple[Difference, ...]]:
        before, after = self._folded(archived), self._folded(restored)
        differences = tuple(diff({job: e for job, e in before.items() if e}, {job: e for job, e in after.items() if e}))
        return len({*before, *after}), differences

    def _folded(self, table: RegisterTable) -> dict[str, Any]:
        def read(register: Register, held: RawValue) -> Any:
            return self.codec.read(register, held[0])

        jobs = ((job.decode(), registers) for held in table.jobs for job, registers in held.items())
        return {job_id: fold(job_id, registers, read, self.keep) for job_id, registers in jobs}


def _must_be_ours(tp: TopicPartition, one: _Written, there: Mapping[TopicPartition, str]) -> None:
    if tp in there and there[tp] != one.digest():
        raise LedgerError(
            f"{tp[0]}[{tp[1]}] holds {one.end} records, but they are not those that this archive begins with.",
            hint=BEGIN_ANEW,
        )


class _Written:
    """A digest of the records of a partition, from offset 0 on."""

    def __init__(self) -> None:
        self._hash, self.end, self.filled, self.last_ms = sha256(), 0, 0, 0

    def take(self, record: Record) -> None:
        at = record.offset(), record.timestamp()[1]
        self._hash.update(leaf_of(*at, record.key(), record.value(), headers_of(record)))
        self.end += 1
        self.last_ms = max(self.last_ms, at[1])

    def digest(self) -> str:
        return self._hash.copy().hexdigest()

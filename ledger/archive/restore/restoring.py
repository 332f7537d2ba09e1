"""Disaster recovery: both topics made anew from the archive, and compared with it before anybody may use them.

While topics are being restored no role starts on them (the target sees to that), so a restore that was broken off is never
taken for a whole one; run again, it goes on where it ended. Source: docs/decisions/0030.
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
from ledger.core.model.table import ELSEWHERE, Held, RegisterTable
from ledger.errors import LedgerError, UsageError
from ledger.ports import Clock, Codec, EventLog, MemoryRecord, Record, TopicPartition
from ledger.reader.reading import POLL_S, RECORDS_MAX
from ledger.util import failpoints

BEGIN_ANEW = "Delete the topics that were begun, and run it again. Nothing else may write to them until it is done."


class RestoreTarget(Protocol):
    """Topics that are being restored. Raises: Unreachable; ConfigError if the cluster refuses."""

    def begin(self) -> Mapping[TopicPartition, int]:
        """Makes what is missing, shuts the topics to roles and lets append times be given; the end of every partition,
        which is above 0 only where an earlier restore was broken off.

        Raises: LedgerError if a topic holds anything else; then nothing was changed."""

    def write(self, record: MemoryRecord) -> None:
        """To its partition, with its append time; acknowledged with its offset by the next `flush` at the latest.

        Raises: LedgerError if it, or an earlier one, came to lie at another offset than it names: somebody else writes."""

    def flush(self) -> None:
        """Raises: as `write`."""

    def topic_id(self, topic: str) -> str: ...

    def finish(self) -> None:
        """The topics get the settings that they must have, all at once: from then on they are a ledger's."""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """records: of the archive, that now lie here. filled: no-ops in the place of offsets without a record. resumed: how
    many of both an earlier restore had written. end: beyond the last one. last_s: the latest append time, seconds since the
    epoch, 0 = there is no record: what was written after it is lost."""

    topic: str
    partition: int
    records: int
    filled: int
    resumed: int
    end: int
    last_s: float


@dataclass(frozen=True, slots=True)
class Restored:
    """exact: every record lies at the offset that it had. jobs: how many were folded from archive and topic, and were the
    same. differences: those that were not (then the restore is not finished). left_out: records that are in the archive
    only, by reason. redacted: records whose value is gone: what stands in for it was restored, and nobody can read that."""

    partitions: tuple[RestoredPartition, ...]
    exact: bool
    jobs: int
    differences: tuple[Difference, ...]
    left_out: dict[str, int]
    redacted: int = 0


@dataclass(frozen=True, slots=True)
class Restoring:
    """What a restore needs. patience_s: how long reading back may stand still. told: hears how far it is."""

    archive: Archive
    target: RestoreTarget
    log: EventLog
    codec: Codec
    clock: Clock
    patience_s: float = 30.0
    keep: int = RESTORE_POINTS
    told: Callable[[str], object] = len

    def run(
        self, archived: TopicPair, restored: TopicPair, partitions: int, before: int | None = None, *, adopt: bool = False
    ) -> Restored:
        """partitions: how many the topics are to have; before: how many they had (None: as many as the archive shows).
        adopt: the archive goes on with the restored topics, and no more with those whose records it holds.

        Raises: UsageError, LedgerError: nothing is restored, or not all of it, and no role will start on that."""
        made = self._plan(archived, restored, partitions, before)
        if adopt and (not made.exact or archived != restored):
            raise UsageError(
                f"The archive of {made.before} partitions of {archived.events} can't go on with {made.after} of "
                f"{restored.events}.", hint="Leave out --adopt, and name another folder, or prefix, for a new archive.",
            )  # fmt: skip
        begun = self.target.begin()
        if set(begun) != set(made.places()):
            raise LedgerError("The topics that are there have another number of partitions.", hint=BEGIN_ANEW)
        there = {place: self._read_back(place, end, None) for place, end in begun.items() if end}
        written, table, counts = self._write(made, begun, there)
        restored_table = RegisterTable(made.after)
        for place, wanted in written.items():
            self.told(f"reading back {place[0]}[{place[1]}]")
            into = restored_table if place[0] == restored.events else None
            if self._read_back(place, wanted.end, into) != wanted.digest():
                raise LedgerError(f"{place[0]}[{place[1]}] does not hold what was restored to it.", hint=BEGIN_ANEW)
        jobs, differences = self._compare(table, restored_table)
        failpoints.hit("restore.read")
        if not differences:
            for place, one in written.items() if adopt else ():
                self._adopt(self.archive.head(*place), one.end)
            self.target.finish()
        found = [RestoredPartition(*place, one.end - one.filled, one.filled, begun[place], one.end, one.last_ms / 1000)
                 for place, one in written.items()]  # fmt: skip
        redacted = counts.pop(REDACTED, 0)
        return Restored(tuple(found), made.exact, jobs, differences, {**counts}, redacted)

    def _adopt(self, head: Head, end: int) -> None:
        """A note in the chain: from here on it is of the restored topic. Repeated, it changes nothing."""
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
        written = {place: _Written() for place in made.places()}
        table, left_out = RegisterTable(made.before), Counter[str]()

        elsewhere: set[bytes] = set()

        def archived(record: Record) -> None:
            left_out[REDACTED] += isinstance(record, RedactedRecord)
            if record.topic() == made.archived.events:
                _, foreign = table.apply([record], tell_touched=False)
                elsewhere.update((r.key() or b"").partition(b"/")[0] for r, why in foreign if why.startswith(ELSEWHERE))

        for count, (record, filled) in enumerate(lay_out(self.archive, made, archived, left_out), start=1):
            place = record.topic(), record.partition()
            one = written[place]
            if one.end == begun[place]:
                _must_be_ours(place, one, there)
            if one.end >= begun[place]:
                failpoints.hit("restore.writing")
                self.target.write(record)
            one.take(record)
            one.filled += filled
            if count % 10_000 == 0:
                self.told(f"{count} records")
        for place, one in written.items():
            if one.end < begun[place]:
                raise LedgerError(f"{place[0]}[{place[1]}] holds more than the archive.", hint=BEGIN_ANEW)
            if one.end == begun[place]:
                _must_be_ours(place, one, there)
        if len(elsewhere) > len(table):  # a stray is rare; with most of them it is us who count the partitions wrongly
            raise LedgerError(
                f"{made.archived.events} had not {made.before} partitions: by that, {len(elsewhere)} jobs lie astray.",
                hint=f"--archived-partitions says how many it had. {BEGIN_ANEW}",
            )
        self.target.flush()
        failpoints.hit("restore.written")
        return written, table, left_out

    def _read_back(self, place: TopicPartition, end: int, table: RegisterTable | None) -> str:
        """The digest of what lies in a partition. Raises: Unreachable, LedgerError."""
        found = _Written()
        reader = self.log.reader([place[0]], place[1])
        try:
            idle_since = self.clock.monotonic()
            while found.end < end:
                records = reader.poll(RECORDS_MAX, POLL_S)
                for record in records:
                    if record.offset() != found.end:
                        raise LedgerError(f"{place[0]}[{place[1]}] has no record at offset {found.end}.", hint=BEGIN_ANEW)
                    found.take(record)
                if table is not None:
                    table.apply(records, tell_touched=False)
                if records:
                    idle_since = self.clock.monotonic()
                elif self.clock.monotonic() - idle_since > self.patience_s:
                    raise LedgerError(f"Reading {place[0]}[{place[1]}] back stands still at offset {found.end} of {end}.")
            if reader.high_watermarks()[place] != found.end:
                raise LedgerError(f"Somebody else writes to {place[0]}[{place[1]}].", hint=BEGIN_ANEW)
        finally:
            reader.close()
        return found.digest()

    def _compare(self, archived: RegisterTable, restored: RegisterTable) -> tuple[int, tuple[Difference, ...]]:
        before, after = self._folded(archived), self._folded(restored)
        differences = tuple(diff({job: e for job, e in before.items() if e}, {job: e for job, e in after.items() if e}))
        return len({*before, *after}), differences

    def _folded(self, table: RegisterTable) -> dict[str, Any]:
        def read(register: Register, held: Held) -> Any:
            return self.codec.read(register, held[0])

        jobs = ((job.decode(), registers) for held in table.jobs for job, registers in held.items())
        return {job_id: fold(job_id, registers, read, self.keep) for job_id, registers in jobs}


def _must_be_ours(place: TopicPartition, one: _Written, there: Mapping[TopicPartition, str]) -> None:
    if place in there and there[place] != one.digest():
        raise LedgerError(
            f"{place[0]}[{place[1]}] holds {one.end} records, and they are not those that this archive begins with.",
            hint=BEGIN_ANEW,
        )


class _Written:
    """A digest of what lies in a partition from offset 0 on."""

    def __init__(self) -> None:
        self._hash, self.end, self.filled, self.last_ms = sha256(), 0, 0, 0

    def take(self, record: Record) -> None:
        at = record.offset(), record.timestamp()[1]
        self._hash.update(leaf_of(*at, record.key(), record.value(), headers_of(record)))
        self.end += 1
        self.last_ms = max(self.last_ms, at[1])

    def digest(self) -> str:
        return self._hash.copy().hexdigest()

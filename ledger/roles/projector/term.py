"""One term of a leading projector, from its claim until it steps down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from ledger.core.fold.fold import prunable
from ledger.core.fold.job import Job
from ledger.core.model.facts import Progress
from ledger.core.model.published import ROLE, Published
from ledger.core.model.recovery import JobState, RecoveryEntry, same_meaning
from ledger.core.model.registers import NOOP_KEY, PROGRESS_KEY, Spec, is_job_id, key_of, parse_claim, partition_of
from ledger.core.model.table import MalformedRecord, RawValue, RegisterTable
from ledger.errors import Fenced, LedgerError
from ledger.ports import Codec, Event, Leadership, Marks, Reader, Record, Writer
from ledger.roles.common.events import EventFactory
from ledger.roles.common.own_claims import OwnClaims
from ledger.roles.common.rejecting import RejectEvents
from ledger.roles.common.role_parts import EntryListener, Parts, ProjectorSettings
from ledger.roles.projector.admission import Admission
from ledger.roles.projector.clocks import LeaderClocks

log = structlog.get_logger("projector")


class ProjectorTerm:
    """Acts as leader of one epoch. Make it after the log was read to its true end.

    current: job -> the last entry written or taken over. written: (partition, key) -> offset of our last record on
    ledger.recovery. overwritten: keys whose last raw record may not reach every reader after log compaction.
    """

    def __init__(
        self, parts: Parts, settings: ProjectorSettings, rejects: RejectEvents, writer: Writer, epoch: int,
        table: RegisterTable, published: Published, reader: Reader, on_entry: EntryListener,
    ) -> None:  # fmt: skip
        self._parts, self._settings, self._rejects = parts, settings, rejects
        self._writer, self._table, self._published, self._reader = writer, table, published, reader
        self._topics, self._clock, self._on_entry = parts.topics, parts.clock, on_entry
        self._codec: Codec = parts.codec
        self._leadership: Leadership = parts.leadership
        self.epoch = epoch
        self._factory = EventFactory(
            role="projector", epoch=epoch, writer=parts.writer_name, actor=parts.actor, partitions=table.partitions,
            clock=parts.clock, new_id=parts.new_id, codec=parts.codec, envelope=parts.envelope,
        )  # fmt: skip
        self._admission = Admission(
            self._topics.events, parts.codec, parts.clock, rejects, settings.collect_unadmitted_after_s,
            settings.result_retention_s, settings.record_bytes_max // 2,
        )  # fmt: skip
        self._clocks = LeaderClocks()
        self._written: dict[tuple[int, bytes], int] = {}
        self._progressed: dict[int, int] = {}
        self._rejected: set[tuple[int, int]] = set()
        self._untold: list[RecoveryEntry] = []
        self._next_progress = self._next_housekeeping = parts.clock.monotonic()
        self._current: dict[str, RecoveryEntry] = dict(published.entries)
        self._own_claims = OwnClaims()
        self._overwritten = {(partition, key) for partition in published.raw for key in published.not_lasting(partition)}

    # -- taking over ---------------------------------------------------------------------------------------------------

    def claim(self, malformed: Sequence[MalformedRecord], reason: str) -> Marks:
        """Claims the epoch on every partition and publishes all differences, in one transaction. Returns the offsets
        behind the claims."""
        claims = self._factory.claims(self._topics.recovery, self._parts.writer_name, reason)
        self._own_claims = OwnClaims(claims)
        self._commit(claims + self._plan(self._everything(), malformed) + self._progress())
        for entry in self._current.values():  # the predecessor may have ended before it passed its last entries on
            self._on_entry(entry)
        return {(c.topic, c.partition): self._written[c.partition, c.key] + 1 for c in claims}

    def _everything(self) -> dict[str, int]:
        jobs = {job.decode(): p for p, jobs in enumerate(self._table.jobs) for job in jobs}
        for partition, keys in self._published.raw.items():
            for key in keys:
                if self._is_home(job_id := key.decode("ascii", "replace"), partition):
                    jobs.setdefault(job_id, partition)
        return jobs

    def _is_home(self, job_id: str, partition: int) -> bool:
        """Whether a text is a job id and the partition is the one of its entry."""
        return is_job_id(job_id) and partition_of(job_id, self._table.partitions) == partition

    # -- leading -------------------------------------------------------------------------------------------------------

    def submitted_at(self, job_id: str, digest: str, time_s: float) -> None:
        self._admission.submitted_at(job_id, digest, time_s)

    def tail(self, record: Record) -> list[tuple[str, int]]:
        """The jobs (with partitions) whose entries must be written again, because of this record of ledger.recovery.

        Log compaction keeps a record that readers drop and removes the good one before it, so the leader writes the
        good one again at once. Raises: Fenced if a higher epoch is claimed.
        """
        key, partition = record.key(), record.partition()
        if key is None or key == NOOP_KEY.encode():
            return []
        is_ours = record.offset() <= self._written.get((partition, key), -1)
        if (claim := parse_claim(key)) is not None:
            return self._tail_claim(record, *claim, is_ours)
        if is_ours:
            return []
        log.error("overwritten_by_another", record=key.decode("utf-8", "replace"), offset=record.offset())
        return self._write_again(partition, key)

    def _tail_claim(self, record: Record, role: str, epoch: int, is_ours: bool) -> list[tuple[str, int]]:
        """Checks a claim. If it repeats an earlier claim, entries that rest on the earlier copy are written again."""
        partition, claimed = record.partition(), self._published.claimed.get(record.partition(), 0)
        if claimed > self.epoch:
            raise Fenced(f"epoch {self.epoch} was replaced by {claimed} at {record.topic()}[{partition}]@{record.offset()}")
        if role != ROLE or (is_ours and partition not in self._own_claims.again):
            return []
        if not is_ours:
            removed = record.value() is None
            log.error("claim_repeated", epoch=epoch, partition=partition, offset=record.offset(), removed=removed)
            self._own_claims.note(record)
        out = []
        for key in self._published.not_lasting(partition):
            if self._written.get((partition, key), -1) < record.offset():  # else our newer record is still to be read
                out += self._write_again(partition, key)
        return out

    def _write_again(self, partition: int, key: bytes) -> list[tuple[str, int]]:
        """Notes that the last record of a key must be replaced. Returns its job and partition, if the key is an entry's."""
        if key == PROGRESS_KEY.encode():
            self._progressed.pop(partition, None)
            return []
        self._overwritten.add((partition, key))
        job_id = key.decode("ascii", "replace")
        # Any other key, or an entry's key in a wrong partition, hides none of our records. A tombstone there would remove a
        # job of another partition, since readers know jobs by their ids.
        return [(job_id, partition)] if self._is_home(job_id, partition) else []

    def publish(self, dirty: dict[str, int], malformed: Sequence[MalformedRecord]) -> int:
        """Writes entries of dirty jobs, rejects of malformed records, and what is due by the clock. Returns the number of
        events written."""
        now = self._clock.monotonic()
        for job_id in self._clocks.passed(now):
            if (entry := self._current.get(job_id)) is not None:
                dirty.setdefault(job_id, entry.partition)
        events = self._own_claims.take() + self._plan(dirty, malformed)
        if now >= self._next_housekeeping:
            self._next_housekeeping = now + self._settings.housekeeping_interval_s
            events += self._admission.collect(self._table, self._factory)
        if events or now >= self._next_progress:
            events += self._progress()
        if events:
            self._commit(events)
        return len(events)

    def close(self) -> None:
        self._writer.close()

    # -- what to write -------------------------------------------------------------------------------------------------

    def _plan(self, dirty: dict[str, int], malformed: Iterable[MalformedRecord]) -> list[Event]:
        events = [self._rejects.record(record, reason) for record, reason in malformed]
        for job_id, partition in dirty.items():
            try:
                events += self._plan_job(job_id, partition)
            except Exception:  # one job's trouble is nobody else's (incident 003): its entry stays as it is published
                log.exception("job_not_folded", job=job_id)
        return events

    def _plan_job(self, job_id: str, partition: int) -> list[Event]:
        registers = self._table.registers(job_id.encode(), partition)
        job = Job(job_id, registers, self._read)
        events = self._entry(job, partition)
        events += self._admission.judge(job, registers, partition, self._factory)
        gone = prunable(job, self._settings.restore_points, self._settings.history)
        events += [self._factory.register(self._topics.events, job_id, register, None) for register in gone]
        return events + self._unreadable(job, registers, partition)

    def _read(self, register: Any, held: RawValue) -> Any:
        return self._codec.read(register, held[0])

    def _entry(self, job: Job, partition: int) -> list[Event]:
        job_id, key = job.job_id, (partition, job.job_id.encode())
        before, overwritten = self._current.get(job_id), key in self._overwritten
        self._overwritten.discard(key)
        time_s, now = self._clock.time(), self._clock.monotonic()
        entry = self._clocks.fold(job, self._settings.restore_points, before, time_s, now)
        if entry is None:
            if self._current.pop(job_id, None) is None and not overwritten:
                return []
            return [self._factory.write(self._topics.recovery, partition, job_id, job_id, RecoveryEntry, None)]
        entry = replace(entry, partition=partition, as_of=self._position(partition), epoch=self.epoch)
        if same_meaning(entry, before) and not overwritten:
            return []
        if why := self._why_unpublishable(entry):
            entry = _unpublishable(entry, why)
        self._current[job_id] = entry
        self._untold.append(entry)
        return [self._factory.write(self._topics.recovery, partition, job_id, job_id, RecoveryEntry, entry)]

    def _why_unpublishable(self, entry: RecoveryEntry) -> str:
        try:
            size = len(self._codec.encode(entry))
        except LedgerError as error:
            return str(error)
        return f"it takes {size} bytes" if size > self._settings.record_bytes_max else ""

    def _unreadable(self, job: Job, registers: dict[bytes, RawValue], partition: int) -> list[Event]:
        events = []
        for register in job.unreadable:
            if isinstance(register, Spec) and job.admitted is None:
                continue  # refused by admission, which says more
            held = registers[job.names[register]]
            if (partition, held[1]) not in self._rejected:
                self._rejected.add((partition, held[1]))
                reason = "the value is not the fact that its register holds; it counts as absent"
                key = key_of(job.job_id, register).encode()
                events.append(self._rejects.held(partition, key, *held, reason))
        return events

    def _progress(self) -> list[Event]:
        self._next_progress = self._clock.monotonic() + self._settings.progress_interval_s
        events = []
        for partition in range(self._table.partitions):
            as_of = self._position(partition)
            if self._progressed.get(partition) != as_of:
                self._progressed[partition] = as_of
                fact = Progress(partition, as_of, self.epoch)
                events.append(
                    self._factory.write(self._topics.recovery, partition, PROGRESS_KEY, PROGRESS_KEY, Progress, fact)
                )
        return events

    def _position(self, partition: int) -> int:
        return self._reader.position().get((self._topics.events, partition), 0)

    def _commit(self, events: list[Event]) -> None:
        if not self._leadership.valid():
            raise Fenced("the lease ended")
        marks = {tp: at for tp, at in self._reader.position().items() if tp[0] == self._topics.events}
        for event, offset in zip(events, self._writer.commit(events, marks), strict=True):
            if event.topic == self._topics.recovery:
                self._written[event.partition, event.key] = offset
        untold, self._untold = self._untold, []
        for entry in untold:
            self._on_entry(entry)


def _unpublishable(entry: RecoveryEntry, why: str) -> RecoveryEntry:
    """The entry that replaces one too large for a record: the job is quarantined, and all others go on."""
    return RecoveryEntry(
        entry.job_id, entry.name[:256], entry.namespace[:256], entry.runner[:256], JobState.QUARANTINED, entry.digest,
        attempt=entry.attempt, reason=f"its entry can't be published: {why}"[:1000], partition=entry.partition,
        as_of=entry.as_of, epoch=entry.epoch,
    )  # fmt: skip

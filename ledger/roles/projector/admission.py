"""Admission decides which spec is the job's, and removes registers that were never admitted or have expired.

The leader writes `admitted` when it first sees a valid spec, and folds it only when it reads it back from the log. The
record decides for good: a decision by age each time would kill a live job whose spec is sent again. Source:
docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from ledger.core.fold.fold import LASTING
from ledger.core.fold.job import Job
from ledger.core.model.facts import JobAdmitted, JobResult, JobSubmitted
from ledger.core.model.registers import Admitted, Register, Spec, parse_register
from ledger.core.model.table import RawValue, RegisterTable
from ledger.ports import Clock, Codec, Event
from ledger.roles.common.events import EventFactory
from ledger.roles.common.rejecting import RejectEvents


class Admission:
    """The memory of one leader: specs that it admits or refuses, jobs without an admitted spec, results that may
    expire."""

    def __init__(
        self, events_topic: str, codec: Codec, clock: Clock, rejects: RejectEvents,
        collect_unadmitted_after_s: float, result_retention_s: float | None, spec_bytes_max: int,
    ) -> None:  # fmt: skip
        self._topic, self._codec, self._clock, self._rejects = events_topic, codec, clock, rejects
        self._collect_after_s = collect_unadmitted_after_s
        self._result_retention_s = result_retention_s
        self._spec_bytes_max = spec_bytes_max
        self._admitting: dict[str, str] = {}
        self._refused: set[tuple[str, Spec, int]] = set()
        self._unadmitted: dict[tuple[int, bytes], float] = {}
        self._results: dict[tuple[int, bytes], float] = {}
        self._submitted_at: dict[tuple[str, str], float] = {}

    def submitted_at(self, job_id: str, digest: str, time_s: float) -> None:
        """Notes when a spec was submitted (its header ce_time). Used only if results expire."""
        self._submitted_at[job_id, digest] = time_s

    def judge(self, job: Job, registers: dict[bytes, RawValue], partition: int, factory: EventFactory) -> list[Event]:
        """Admits the first valid spec in log order; refuses every other one with a tombstone and a reject."""
        key = (partition, job.job_id.encode())
        self._note_result(job, key)
        if job.result is not None:
            return []
        if Admitted() in job.names:
            self._admitting.pop(job.job_id, None)
            self._unadmitted.pop(key, None)
            reason = "another spec is admitted under this job id"
            others = [s for s in job.specs if job.admitted and s.digest != job.admitted.digest]
            return [e for spec in others for e in self._refuse(job, registers, partition, spec, reason)]
        self._unadmitted.setdefault(key, self._clock.monotonic())
        events: list[Event] = []
        for spec in sorted(job.specs, key=lambda s: registers[job.names[s]][1]):
            if reason := self._why_refused(job, spec, registers[job.names[spec]]):
                events += self._refuse(job, registers, partition, spec, reason)
                events.append(factory.register(self._topic, job.job_id, spec, None))
            elif self._admitting.get(job.job_id) is None:
                self._admitting[job.job_id] = spec.digest
                events.append(factory.register(self._topic, job.job_id, Admitted(), JobAdmitted(spec.digest)))
        return events

    def collect(self, table: RegisterTable, factory: EventFactory) -> list[Event]:
        """Tombstones for registers of job ids that were never admitted, and for expired results."""
        now, time_s = self._clock.monotonic(), self._clock.time()
        events: list[Event] = []
        for key, seen in list(self._unadmitted.items()):
            if now - seen >= self._collect_after_s:
                del self._unadmitted[key]
                events += self._tombstones(table, key, factory)
        for key, expires in list(self._results.items()):
            if time_s >= expires:
                del self._results[key]
                events += self._tombstones(table, key, factory)
        return events

    def _why_refused(self, job: Job, spec: Spec, held: RawValue) -> str:
        if len(held[0]) > self._spec_bytes_max:
            return f"the spec takes {len(held[0])} bytes, more than {self._spec_bytes_max}"
        if job.fact(spec, JobSubmitted) is None:
            return "the spec does not decode, or its digest is not that of its key"
        submitted_at = self._submitted_at.get((job.job_id, spec.digest))
        if self._result_retention_s is not None and submitted_at is not None:
            age_s = self._clock.time() - submitted_at
            if age_s > self._result_retention_s / 2:
                return f"submitted {age_s:.0f} s ago: a job of this id may have come and gone since"
        return ""

    def _refuse(self, job: Job, registers: dict[bytes, RawValue], partition: int, spec: Spec, reason: str) -> list[Event]:
        name = job.names[spec]
        held = registers[name]
        if (job.job_id, spec, held[1]) in self._refused:  # by its offset: a repeated submission gets an answer too
            return []
        self._refused.add((job.job_id, spec, held[1]))
        key = job.job_id.encode() + b"/" + name
        return [self._rejects.held(partition, key, *held, reason)]

    def _note_result(self, job: Job, key: tuple[int, bytes]) -> None:
        """Schedules the expiry of a result once no other register is left."""
        self._results.pop(key, None)
        if job.result is None or self._result_retention_s is None:
            return
        if all(isinstance(register, LASTING) for register in job.names):
            fact = job.fact(job.result, JobResult)
            if fact is not None:
                self._results[key] = fact.when + self._result_retention_s

    def _tombstones(self, table: RegisterTable, key: tuple[int, bytes], factory: EventFactory) -> list[Event]:
        partition, job_id = key
        registers: list[Register | None] = [parse_register(name) for name in table.registers(job_id, partition)]
        return [factory.register(self._topic, job_id.decode(), r, None) for r in registers if r is not None]

"""Histories of a log, as the protocol allows them: one key, one writer, one value; resent at any moment; pruned at any
moment by `prunable`; compacted by any legal pass of log compaction, including the worst case.

To reuse: `cleaned` (the records that log compaction may leave) and `Log` (a log in memory that also keeps every fact ever
sent). A value in the log is a `RawValue`: the fact, the register that it was written for, and its append time, which no
fold may use. `drawn` and `actors` draw the histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ledger.core.fold import fold as core
from ledger.core.fold.job import Job
from ledger.core.model.facts import CheckpointKind, Fact, RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Attempt, Checkpoint, Register, parse_key, register_name

JOB = "job-a"
KEEP, HISTORY = 2, 2  # numbers of restore points and attempts to keep: small, so that pruning starts early
DIGEST, OTHER_DIGEST = "a" * 64, "b" * 64
OUTSIDE = RestorePoint(0, 0, "elsewhere", kind=CheckpointKind.SAVEPOINT)


class RawValue(NamedTuple):
    """A value as a reader holds it. register: the register that it was written for; readers do not need it."""

    register: Register
    fact: Fact
    time_s: float = 0.0


class Record(NamedTuple):
    """A record of the log. value: None = tombstone. epoch: that of the reconciler that wrote it, 0 = another writer."""

    offset: int
    key: bytes
    value: Any
    epoch: int = 0


R = TypeVar("R", bound=Any)


# -- compaction ------------------------------------------------------------------------------------------------------


def cleaned(records: Sequence[R], upto: int, horizon: int = 0, spared: int = 0) -> list[R]:
    """The records that one pass of Kafka's log cleaner may leave. Records need `offset`, `key` and `value`.

    upto: the first offset that the pass may not touch (active segment, open transaction, compaction lag). horizon:
    tombstones below it have outlived delete.retention.ms. spared: bits, used cyclically by position: superseded records
    that this pass does not reach (its offset map was full, or the segment was not due). Order and offsets do not change.
    Source: KIP-534; LogCleaner keeps the last record of each key. It keeps a tombstone while older records of its key may
    be in the log, or readers within the retention may need it.
    """
    last = {r.key: r.offset for r in records if r.offset < upto}
    left: list[R] = []
    below: set[bytes] = set()
    for place, r in enumerate(records):
        superseded = r.offset < upto and last[r.key] != r.offset and not spared >> (place % 16) & 1
        expired = r.value is None and r.offset < min(horizon, upto) and r.key not in below
        if not superseded and not expired:
            left.append(r)
            below.add(r.key)
    return left


def least_favourable(records: Sequence[R], upto: int) -> list[R]:
    """The worst case: two full passes over all records below `upto` that remove every removable tombstone."""
    once = cleaned(records, upto, horizon=upto)
    return cleaned(once, upto, horizon=upto)


# -- reading ---------------------------------------------------------------------------------------------------------


def registers_of(records: Iterable[Any], start: Mapping[str, Mapping[bytes, Any]] | None = None) -> dict[str, dict]:
    """The registers that a reader holds after these records: job id -> name -> value. start: its registers before them."""
    jobs: dict[str, dict[bytes, Any]] = {job: dict(registers) for job, registers in (start or {}).items()}
    for record in records:
        parsed = parse_key(record.key)
        if parsed is None:
            continue
        job_id, name = parsed[0], record.key.partition(b"/")[2]
        registers = jobs.setdefault(job_id, {})
        if record.value is None:
            registers.pop(name, None)
        else:
            registers[name] = record.value
    return {job: registers for job, registers in jobs.items() if registers}


def read(register: Register, raw: Any) -> Fact | None:
    """The fact, if the value was written for a register of this kind; else None (unreadable)."""
    return raw.fact if isinstance(raw, RawValue) and type(raw.register) is type(register) else None


def view(registers: Mapping[bytes, Any], job_id: str = JOB) -> Job:
    return Job(job_id, registers, read)


def fold(registers: Mapping[bytes, Any], job_id: str = JOB) -> RecoveryEntry | None:
    return core.fold_job(view(registers, job_id), KEEP)


def prunable(registers: Mapping[bytes, Any], job_id: str = JOB) -> list[Register]:
    return core.prunable(view(registers, job_id), KEEP, HISTORY)


def bare(entry: RecoveryEntry | None) -> RecoveryEntry | None:
    """The entry without the fields that pruning and deleting may change: restore points and their labels, remaining
    registers, disposals, and whether the runner has reported (a checkpoint alone may be the report)."""
    return entry and replace(
        entry, restore_points=(), consistency=(), registers=(), disposals=(), known=False, stall_policy=None
    )


# -- the log ---------------------------------------------------------------------------------------------------------


def name_of(register: Register) -> bytes:
    """The key of a register in the log. It is a module attribute, so that a mutant can store two facts under one key."""
    return register_name(register).encode()


class Log:
    """One partition. `records` are in it now; `sent` holds every fact ever sent, in the order of first sending."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sent: list[Record] = []
        self.facts: dict[str, dict[bytes, RawValue]] = {}
        self.end = 0

    def send(self, register: Register, fact: Fact, job_id: str = JOB, time_s: float | None = None) -> None:
        name = name_of(register)
        held = RawValue(register, fact, float(self.end) if time_s is None else time_s)
        self.facts.setdefault(job_id, {})[name] = held
        epoch = register.epoch if isinstance(register, Attempt) else 0
        self._append(job_id.encode() + b"/" + name, held, epoch)
        self.sent.append(self.records[-1])

    def send_again(self, i: int) -> None:
        """A producer got no answer and sends the same bytes again: mostly soon, now and then late."""
        if self.sent:
            again = self.sent[-1 - (i // 2 % 6 if i % 2 else i) % len(self.sent)]
            self._append(again.key, again.value._replace(time_s=float(self.end)), again.epoch)

    def prune(self, job_id: str = JOB) -> list[Register]:
        gone = prunable(self.registers(job_id), job_id)
        for register in gone:
            self._append(job_id.encode() + b"/" + name_of(register), None, 0)
        return gone

    def dispose(self, job_id: str = JOB) -> None:
        """The reconciler deletes the savepoints that the entry lists, and then tombstones their registers."""
        entry = fold(self.registers(job_id), job_id)
        for point in entry.disposals if entry else ():
            self._append(job_id.encode() + b"/" + name_of(Checkpoint(*point.order)), None, 0)

    def clean(self, choice: int) -> None:
        """Runs log compaction, with parameters from the bits of `choice`. One pass in four is the worst case."""
        if choice % 4 == 0:
            self.records = least_favourable(self.records, self.end)
        else:
            upto = self.end - (choice >> 2) % 4
            self.records = cleaned(self.records, upto, horizon=upto - (choice >> 4) % 4, spared=choice >> 6)

    def registers(self, job_id: str = JOB) -> dict[bytes, Any]:
        return registers_of(self.records).get(job_id, {})

    def _append(self, key: bytes, value: RawValue | None, epoch: int) -> None:
        self.records.append(Record(self.end, key, value, epoch))
        self.end += 1

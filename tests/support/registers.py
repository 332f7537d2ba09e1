"""Builds a job from the names of its registers, with plain values where a test does not care.

Values are fact objects (no codec). A fact is readable if it is of the kind that its register holds.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, TypeVar

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    Fact,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    LeaderClaimed,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
)
from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import (
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Disposed,
    Ended,
    Intent,
    Register,
    Result,
    Running,
    Spec,
    claim_key,
    parse_register,
)
from ledger.ports import MemoryRecord

DIGEST = "a" * 64
OTHER_DIGEST = "b" * 64
GRAPH = GraphRef("file:///graphs/g", "0" * 64, 7)
UNREADABLE = "not a fact"
KIND_OF: dict[type[Register], type[Fact]] = {
    Spec: JobSubmitted,
    Admitted: JobAdmitted,
    Intent: IntentDeclared,
    Attempt: AttemptStarted,
    Running: AttemptRunning,
    Checkpoint: CheckpointCompleted,
    Ended: AttemptEnded,
    Ask: SavepointAsked,
    Disposed: SavepointDisposed,
    Result: JobResult,
}


def read(register: Register, raw: Any) -> Fact | None:
    return raw if isinstance(raw, KIND_OF[type(register)]) else None


def spec(**fields: Any) -> JobSubmitted:
    return JobSubmitted(**{"name": "etl", "namespace": "prod", "runner": "subprocess", "graph": GRAPH, **fields})


def point(place: str, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> RestorePoint:
    """ "2/7" -> the restore point of checkpoint/2/7 with the plain value."""
    attempt, id_ = map(int, place.split("/"))
    return RestorePoint(attempt, id_, f"chk-{place}", kind=kind)


def checkpoint(
    place: str, base: str | None = None, kind: CheckpointKind = CheckpointKind.CHECKPOINT
) -> CheckpointCompleted:
    return CheckpointCompleted(f"chk-{place}", base=point(base) if base else None, kind=kind)


def started(base: str | None = None, failures: int = 0, **fields: Any) -> AttemptStarted:
    return AttemptStarted(DIGEST, point(base) if base else None, failures=failures, **fields)


def intent(kind: str, attempt: int = 0, **fields: Any) -> IntentDeclared:
    return IntentDeclared(IntentKind(kind), attempt, **fields)


def plain(register: Register) -> Fact:
    """A default value for a register."""
    match register:
        case Spec():
            return spec()
        case Admitted():
            return JobAdmitted(DIGEST)
        case Attempt():
            return started()
        case Running():
            return AttemptRunning("pid 1")
        case Checkpoint(n, id_):
            return checkpoint(f"{n}/{id_}")
        case Ended(_, outcome, _):
            return AttemptEnded(f"why {outcome}")
        case Ask():
            return SavepointAsked()
        case Disposed(n, id_, _):
            return SavepointDisposed(f"chk-{n}/{id_}")
        case Result(state):
            return JobResult("etl", "prod", "subprocess", DIGEST, f"was {state}", 1.0, 2, {"team": "a"})
    raise AssertionError(f"no plain value for {register}: name its kind")


def registers(*names: str, facts: dict[str, Any] | None = None, admitted: bool = True) -> dict[bytes, Any]:
    """Register name -> value. Every job has a spec and is admitted, unless the test asks otherwise."""
    known: dict[str, Any] = {f"spec/{DIGEST}": spec(), "admitted": JobAdmitted(DIGEST)} if admitted else {}
    for name in names:
        register = parse_register(name)
        assert register is not None, f"{name} names no register"
        known[name] = plain(register)
    known.update(facts or {})
    return {name.encode(): value for name, value in known.items()}


def given(*names: str, facts: dict[str, Any] | None = None, admitted: bool = True) -> Job:
    return Job("job-1", registers(*names, facts=facts, admitted=admitted), read)


def entry(
    *names: str, facts: dict[str, Any] | None = None, admitted: bool = True, keep: int = RESTORE_POINTS
) -> RecoveryEntry:
    """The entry of a job. Fails if the job has none."""
    found = fold_job(given(*names, facts=facts, admitted=admitted), keep)
    assert found is not None
    return found


TOPIC = "ledger.recovery"


K = TypeVar("K")


class Topic:
    """Records of one or more partitions, and a codec that keeps the objects that it encoded."""

    def __init__(self) -> None:
        self.records: list[MemoryRecord] = []
        self._values: list[object] = []

    def append(self, key: str, value: object, epoch: int | None, partition: int = 0) -> int:
        offset = len(self.records)
        headers = () if epoch is None else (("ledger_epoch", str(epoch).encode()),)
        raw = None if value is None else self.encode(value)
        self.records.append(MemoryRecord(TOPIC, partition, offset, key.encode(), raw, headers))
        return offset

    def claim(self, epoch: int, partition: int = 0, role: str = "projector") -> int:
        return self.append(claim_key(role, epoch), LeaderClaimed(role, epoch, f"{role}-x"), epoch, partition)

    def entry(self, job_id: str, epoch: int | None, attempt: int = 0, as_of: int = 0, partition: int = 0) -> int:
        entry = RecoveryEntry(
            job_id, "etl", "prod", "subprocess", JobState.RUNNING, "d" * 64, attempt=attempt, as_of=as_of,
            partition=partition,
        )  # fmt: skip
        return self.append(job_id, entry, epoch, partition)

    def encode(self, value: object) -> bytes:
        self._values.append(value)
        return b"%d" % (len(self._values) - 1)

    def decode(self, kind: type[K], value: bytes) -> K:
        found = self._values[int(value)]
        if not isinstance(found, kind):
            raise ValueError(f"not a {kind.__name__}")
        return found

    def published(self, without: Set[int] = frozenset()) -> Published:
        published = Published(self.decode)
        for record in self.records:
            if record.offset() not in without:
                published.apply(record)
        return published

"""Given these registers … : a job from the names of its registers, with plain values where a test does not care.

Values are facts as they stand (no codec): a fact is readable where it is of the kind that its register holds.
"""

from __future__ import annotations

from typing import Any

from ledger.core.facts import (
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
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
)
from ledger.core.fold import RESTORE_POINTS, fold_job
from ledger.core.job import Job
from ledger.core.recovery import RecoveryEntry
from ledger.core.registers import (
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
    parse_register,
)

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
    """ "2/7" -> the restore point that checkpoint/2/7 is, if it has the plain value."""
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
    """A value for a register, where the test does not care which."""
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
    raise AssertionError(f"say which intent {register} is")


def registers(*names: str, facts: dict[str, Any] | None = None, admitted: bool = True) -> dict[bytes, Any]:
    """Register name -> value. Every job here has a spec and is admitted, unless the test says otherwise."""
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
    """The entry of a job that must have one."""
    found = fold_job(given(*names, facts=facts, admitted=admitted), keep)
    assert found is not None
    return found

"""The verbs `savepoint list` and `savepoint dispose`: the savepoints of a job, which jobs need them, and the outcome.

The log lists the savepoints of a job until it is retired; after that only its runner knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, IntentKind, RestorePoint
from ledger.core.model.periodic_savepoints import parse
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Checkpoint, register_name
from ledger.core.plan.reconcile import needed
from ledger.errors import PermanentError, Refused, TemporaryError, Unreachable, UsageError
from ledger.ports import Runner
from ledger.reader.reading import JobLog, result_of
from ledger.reader.watching import Watch

OFFERED, KEPT, GIVEN_UP = "offered", "kept", "given up"


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that exists. state: offered (the next start may begin from it), kept, or given up (its files will be
    deleted). periodic: whether the job's policy requested it. made_at: seconds since the epoch, None = unknown. base, ask:
    as in CheckpointCompleted. needed_by: live jobs that began or may begin from it, its own job included."""

    point: RestorePoint
    state: str
    periodic: bool = False
    made_at: float | None = None
    base: RestorePoint | None = None
    ask: str | None = None
    needed_by: tuple[str, ...] = ()


def listed(log: JobLog, entries: Mapping[str, RecoveryEntry], runners: Mapping[str, Runner], keep: int) -> list[Savepoint]:
    """The savepoints of a job, oldest first. entries: of all jobs. runners: asked only if the job is retired. Raises:
    Unreachable."""
    job = log.job()
    entry = fold_job(job, keep)
    retired = result_of(job)
    if retired is not None:
        own = _with_runner(runner_of(runners, retired.result.runner), job.job_id)
        facts = [Savepoint(point, KEPT if job.disposal(*point.order) is None else GIVEN_UP) for point in own]
    else:
        facts = [_of(job, entry, point, fact, log) for point, fact in savepoints(job)]
    return [_needed(one, job.job_id, entry, entries) for one in facts]


def savepoints(job: Job) -> list[tuple[RestorePoint, CheckpointCompleted]]:
    """The savepoints in the registers of a job that is not retired."""
    found = []
    for register in sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints):
        point, fact = job.restore_point(register), job.fact(register, CheckpointCompleted)
        if point is not None and fact is not None and point.kind is CheckpointKind.SAVEPOINT:
            found.append((point, fact))
    return found


def find(job: Job, there: Iterable[Savepoint], which: str) -> Savepoint | None:
    """The savepoint that `which` names, as ATTEMPT/ID or by location; None = it was disposed of and deleted. Raises:
    UsageError if the job never had such a savepoint."""
    known = list(there)
    for one in known:
        if which in (str(one.point), one.point.location, one.point.location.removeprefix("file://")):
            return one
    for point in job.disposed:
        gone = job.disposal(*point)
        if gone is not None and which in (f"{point[0]}/{point[1]}", gone.location):
            return None
    registers = [c for checkpoints in job.checkpoints.values() for c in checkpoints]
    if any(which in (str(p), p.location) for r in registers if (p := job.restore_point(r)) is not None):
        raise UsageError(
            f"{which} is a checkpoint that {job.job_id} made by itself.", hint="The ledger deletes checkpoints itself."
        )
    names = ", ".join(str(one.point) for one in known) or "none"
    raise UsageError(f"{job.job_id} has no savepoint {which}.", hint=f"It has: {names}.")


def check_unneeded(job: Job, one: Savepoint, entries: Mapping[str, RecoveryEntry], keep: int) -> None:
    """Checks that no live job began from a savepoint or may have to begin from it. Raises: Refused."""
    entry = fold_job(job, keep)
    point, job_id = one.point, job.job_id
    if entry is not None and not entry.terminal and not entry.retiring:
        if not entry.outcome and entry.base is not None and entry.base.order == point.order:
            raise Refused(f"Attempt {entry.attempt} of {job_id}, which is not over, began from {point}.")
        retry = entry.intent if entry.intent is not None and entry.intent.kind == IntentKind.RETRY else None
        if retry is not None and retry.from_ == str(point) and retry.attempt >= entry.attempt:
            raise Refused(
                f"A retry of {job_id} starts from {point}.", hint="Retry from another one: jobledger retry --from"
            )
        if entry.restore_points == (point,):
            hint = "Without it the job could not be brought back. Cancel the job first, or make another savepoint."
            raise Refused(f"{point} is the only restore point of {job_id}.", hint=hint)
    for other_id, other in entries.items():
        if other_id == job_id or other.terminal:
            continue
        if point.location in needed(other):
            raise Refused(f"{other_id}, which is not over, began from {point} of {job_id}, or may begin from it.")
        takes_over = other.replaces == job_id and other.inherits and other.state is not JobState.QUARANTINED
        if takes_over and entry is not None and point in entry.restore_points:
            raise Refused(f"{other_id} is to take over from {job_id}, and may begin from {point}.")


def outcome(watch: Watch, point: RestorePoint) -> bool | None:
    """Whether the reconciler has disposed of a savepoint. True = its files and register are deleted. False = the job is
    retired, so this process must delete the files. None = neither is the case yet."""
    job = watch.job()
    if job.result is not None:
        return False
    return True if Checkpoint(*point.order) not in job.names else None


def delete(runners: Mapping[str, Runner], runner_name: str, job_id: str, point: RestorePoint) -> None:
    """Deletes a savepoint of a retired job, if it still exists. Raises: Unreachable; then `jobledger gc` deletes the
    savepoint later."""
    runner = runner_of(runners, runner_name)
    runner.dispose(job_id, [point])
    with suppress(TemporaryError, PermanentError):  # garbage collection then deletes the rest
        if not runner.fence(job_id, 0):
            runner.forget(job_id)


def runner_of(runners: Mapping[str, Runner], name: str) -> Runner:
    """The runner with this name. Raises: Unreachable if there is none."""
    runner = runners.get(name)
    if runner is None:
        raise Unreachable(
            f"There is no runner {name!r} here, and only it knows its savepoints.", hint="Run the command on its host."
        )
    return runner


def _with_runner(runner: Runner, job_id: str) -> list[RestorePoint]:
    kept = runner.kept() if hasattr(runner, "kept") else []
    return sorted((point for one in kept if one.job_id == job_id for point in one.savepoints), key=lambda p: p.order)


def _of(job: Job, entry: RecoveryEntry | None, point: RestorePoint, fact: CheckpointCompleted, log: JobLog) -> Savepoint:
    offered = entry is not None and point in entry.restore_points
    going = job.disposal(*point.order) is not None or (entry is not None and point in entry.disposals)
    state = GIVEN_UP if going else OFFERED if offered else KEPT
    name = register_name(Checkpoint(*point.order))
    times = [r.ce_time_s if r.ce_time_s is not None else r.time_s for r in log.history() if r.register == name]
    return Savepoint(point, state, parse(fact.ask) is not None, times[0] if times else None, fact.base, fact.ask)


def _needed(one: Savepoint, job_id: str, entry: RecoveryEntry | None, entries: Mapping[str, RecoveryEntry]) -> Savepoint:
    by = [other for other, its in entries.items() if other != job_id and one.point.location in needed(its)]
    began = entry is not None and not entry.terminal and not entry.outcome and entry.base is not None
    if began and entry is not None and entry.base is not None and entry.base.order == one.point.order:
        by.append(job_id)
    return Savepoint(one.point, one.state, one.periodic, one.made_at, one.base, one.ask, tuple(sorted(by)))

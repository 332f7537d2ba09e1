"""The tasks of a reconciler, one function for each verb. They run in processes of their own (`ports.Executor`), use
only ports, and return plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.core.model.facts import RefusedRestorePoint, RestorePoint
from ledger.core.model.registers import NUMBER_MAX
from ledger.core.plan.reconcile import Observed
from ledger.errors import LedgerError, PermanentError, RunnerBroke
from ledger.ports import (
    AcknowledgeTask,
    BlobStore,
    Cleaned,
    CleanTask,
    DisposeTask,
    FenceTask,
    ForgetTask,
    Observation,
    Prepared,
    PrepareTask,
    Runner,
    RunnerEvent,
    SavepointTask,
    StartAnswer,
    StartTask,
    StopTask,
    Task,
    TaskOutcome,
    TaskStatus,
    Verification,
    VerifyTask,
)


def prepare(task: PrepareTask, runner: Runner, blobs: BlobStore) -> Prepared:
    """The newest offered restore point that verifies. No restore point (a start from scratch) only if none is offered.

    Raises: PermanentError if the graph is missing, or no offered restore point verifies.
    """
    if task.graph is None or not blobs.exists(task.graph):
        raise PermanentError(f"the job graph is missing from the blob store: {task.graph and task.graph.uri}")
    refused: list[RefusedRestorePoint] = []
    for point in task.restore_points:
        verification = _verified(task, runner, point)
        if verification is Verification.VALID:
            return Prepared(point, tuple(refused))
        if verification is Verification.UNKNOWN:
            return Prepared(None, tuple(refused), unknown=_why_unknown(task, runner, point))
        refused.append(RefusedRestorePoint(point, runner.why_refused(point) or "missing or damaged"))
    if refused or task.restore_from_named:
        named = "; ".join(f"{r.restore_point}: {r.reason}" for r in refused) or "none is left"
        raise PermanentError(
            f"no restore point verifies ({named}); the ledger does not start this job from scratch by itself. To do so: "
            "jobledger retry --from scratch"
        )
    return Prepared(None, ())


def verify(task: VerifyTask, runner: Runner, _: BlobStore) -> tuple[Verification, ...]:
    """The runner's verification of each restore point, in order."""
    return verified(task, runner)


def verified(task: VerifyTask, runner: Runner) -> tuple[Verification, ...]:
    """The runner's verification of each restore point, as `verify`, for callers without a blob store."""
    return tuple(_verified(task, runner, point) for point in task.restore_points)


def _verified(task: PrepareTask | VerifyTask, runner: Runner, point: RestorePoint) -> Verification:
    """The verification of a restore point. If another instance made it, INVALID becomes UNKNOWN: this instance can read
    it only if they share storage, so its failure proves nothing."""
    found = runner.verify(point)
    return Verification.UNKNOWN if found is Verification.INVALID and point in task.elsewhere else found


def _why_unknown(task: PrepareTask, runner: Runner, point: RestorePoint) -> str:
    if point in task.elsewhere:
        return f"restore point {point} is not stored with {task.instance}, which can't read {point.location}"
    why = runner.why_refused(point)
    return f"restore point {point} can't be verified at the moment" + (f": {why}" if why else "")


def start(task: StartTask, runner: Runner, _: BlobStore) -> StartAnswer:
    """Starts the attempt from the only entry of `restore_points`, or from scratch if there is none."""
    if task.graph is None:
        raise PermanentError("a job without a graph can't be started")
    return runner.start(task.job_id, task.n, task.graph, task.base, {}, task.failure_rules)


def fence(task: FenceTask, runner: Runner, _: BlobStore) -> list[RunnerEvent]:
    return runner.fence(task.job_id, task.n)


def stop(task: StopTask, runner: Runner, _: BlobStore) -> None:
    runner.stop(task.job_id, task.n, task.outcome, task.savepoint, task.reason)


def savepoint(task: SavepointTask, runner: Runner, _: BlobStore) -> None:
    for ask in task.asks:
        runner.savepoint(task.job_id, task.n, ask)


def clean(task: CleanTask, runner: Runner, blobs: BlobStore) -> Cleaned:
    """Fences the job for good. If no attempt of it runs, deletes its blobs, and its checkpoints if `dispose` is set. If
    `forced` is set, deletes only the blobs, without calling the runner."""
    if task.forced:
        return Cleaned((), blobs.delete_all(task.job_id))
    runner.fence(task.job_id, NUMBER_MAX)
    alive = tuple(sorted(a.n for a in runner.observe() if a.job_id == task.job_id and a.alive))
    if alive:
        return Cleaned(alive)
    if task.dispose:
        runner.dispose(task.job_id, task.checkpoints)
    return Cleaned((), blobs.delete_all(task.job_id))


def dispose(task: DisposeTask, runner: Runner, _: BlobStore) -> None:
    runner.dispose(task.job_id, task.savepoints)


def forget(task: ForgetTask, runner: Runner, _: BlobStore) -> None:
    runner.forget(task.job_id)


def observation_of(runner: Runner) -> Observation:
    """The attempts that one instance of the runner knows. Raises: as `Runner.observe`."""
    instance = runner.instance()
    return Observation(instance, runner.only(instance).observe())


def observe(runners: Mapping[str, Runner], unheard: Callable[[str, LedgerError], None]) -> dict[str, Observation | None]:
    """Maps each runner to the attempts that it knows; None if the runner did not answer: then `unheard` is called with
    the error. This is not a task: the reconciler calls it before each pass (docs/decisions/0006). It queries one runner
    after the other; `adapters.asking` queries all at once."""
    answers: dict[str, Observation | None] = {}
    for name, runner in runners.items():
        try:
            answers[name] = observation_of(runner)
        except LedgerError as error:
            answers[name] = None
            unheard(name, error)
    return answers


def observed_from(
    answers: Mapping[str, Observation | None], earlier: Observed | None = None, why: Mapping[str, str] | None = None
) -> Observed:  # fmt: skip
    """The answers in the form that the plan needs. earlier: the previous observation. why: maps a runner to the reason
    why it did not answer."""
    attempts = {name: None if answer is None else answer.attempts for name, answer in answers.items()}
    instances = {name: answer.instance for name, answer in answers.items() if answer is not None}
    return Observed(attempts, earlier, why, instances)


def acknowledge(task: AcknowledgeTask, runner: Runner, _: BlobStore) -> None:
    runner.acknowledge(task.job_id, task.keys)


#: The signature of `observe` and its replacements.
Ask = Callable[[Mapping[str, Runner], Callable[[str, LedgerError], None]], Mapping[str, Observation | None]]

_PERFORM: Mapping[type[Task[Any]], Callable[[Any, Runner, BlobStore], object]] = {
    PrepareTask: prepare, VerifyTask: verify, StartTask: start, FenceTask: fence, StopTask: stop, CleanTask: clean,
    SavepointTask: savepoint, AcknowledgeTask: acknowledge, DisposeTask: dispose, ForgetTask: forget,
}  # fmt: skip


def perform(task: Task[Any], runners: Mapping[str, Runner], blobs: BlobStore) -> TaskOutcome[Any]:
    """The outcome of one task. An exception of the task becomes an outcome too."""
    runner = runners.get(task.runner)
    if runner is None:
        known = ", ".join(sorted(runners)) or "none"
        return TaskOutcome(TaskStatus.NO_RUNNER, reason=f"there is no runner {task.runner!r} here (known: {known})")
    try:
        asked = runner.only(task.instance) if task.instance else runner
        return TaskOutcome(TaskStatus.DONE, _PERFORM[type(task)](task, asked, blobs))
    except PermanentError as error:
        return TaskOutcome(TaskStatus.REFUSED, reason=str(error))
    except RunnerBroke as error:
        return TaskOutcome(TaskStatus.CRASHED, reason=str(error))
    except LedgerError as error:
        return TaskOutcome(TaskStatus.UNREACHABLE, reason=str(error))
    except Exception as error:
        return TaskOutcome(TaskStatus.CRASHED, reason=f"{type(error).__name__}: {error}")

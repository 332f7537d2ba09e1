"""What the tasks of a reconciler do, one function a verb. They run in processes of their own (ports.Executor), know only
ports, and answer with plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledger.core.model.facts import RefusedRestorePoint, RestorePoint
from ledger.core.model.registers import NUMBER_MAX
from ledger.core.plan.reconcile import Observed
from ledger.errors import LedgerError, PermanentError, RunnerBroke
from ledger.ports import (
    BlobStore,
    Observation,
    Runner,
    RunnerEvent,
    StartAnswer,
    Task,
    TaskOutcome,
    TaskStatus,
    Verification,
)


class Prepared(NamedTuple):
    """base: what the attempt begins from, None = from scratch. unknown: a restore point that could not be judged now,
    so the start waits; "" = none."""

    base: RestorePoint | None
    refused: tuple[RefusedRestorePoint, ...]
    unknown: str = ""


class Cleaned(NamedTuple):
    """alive: attempts that still run, so nothing was deleted. blobs: how many were."""

    alive: tuple[int, ...]
    blobs: int = 0


def prepare(task: Task, runner: Runner, blobs: BlobStore) -> Prepared:
    """Checks that the graph is there, and takes the newest offered restore point that verifies. Never from scratch if
    there is one to begin from."""
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
            f"no restore point verifies ({named}); the ledger never starts such a job from scratch by itself: "
            "jobledger retry --from scratch does"
        )
    return Prepared(None, ())


def verify(task: Task, runner: Runner, _: BlobStore) -> tuple[Verification, ...]:
    """Of each restore point what the runner says of it."""
    return verified(task, runner)


def verified(task: Task, runner: Runner) -> tuple[Verification, ...]:
    """As `verify`, for who has no blob store at hand."""
    return tuple(_verified(task, runner, point) for point in task.restore_points)


def _verified(task: Task, runner: Runner, point: RestorePoint) -> Verification:
    """Storage may be shared, so an instance can read what another one made. If it can't, that says nothing."""
    found = runner.verify(point)
    return Verification.UNKNOWN if found is Verification.INVALID and point in task.elsewhere else found


def _why_unknown(task: Task, runner: Runner, point: RestorePoint) -> str:
    if point in task.elsewhere:
        return f"restore point {point} does not lie with {task.instance}, which can't read {point.location}"
    why = runner.why_refused(point)
    return f"restore point {point} can't be verified at the moment" + (f": {why}" if why else "")


def start(task: Task, runner: Runner, _: BlobStore) -> StartAnswer:
    """`restore_points` holds the one to begin from, or none."""
    if task.graph is None:
        raise PermanentError("a job without a graph can't be started")
    base = next(iter(task.restore_points), None)
    return runner.start(task.job_id, task.n, task.graph, base, {}, task.failure_rules)


def fence(task: Task, runner: Runner, _: BlobStore) -> list[RunnerEvent]:
    return runner.fence(task.job_id, task.n)


def stop(task: Task, runner: Runner, _: BlobStore) -> None:
    runner.stop(task.job_id, task.n, task.outcome, task.savepoint, task.reason)


def savepoint(task: Task, runner: Runner, _: BlobStore) -> None:
    for ask in task.asks:
        runner.savepoint(task.job_id, task.n, ask)


def clean(task: Task, runner: Runner, blobs: BlobStore) -> Cleaned:
    """Fences the job for good; once nothing of it runs, deletes its blobs, and its checkpoints if they are not kept.
    By force only the blobs, without a word from the runner."""
    if task.forced:
        return Cleaned((), blobs.delete_all(task.job_id))
    runner.fence(task.job_id, NUMBER_MAX)
    alive = tuple(sorted(a.n for a in runner.observe() if a.job_id == task.job_id and a.alive))
    if alive:
        return Cleaned(alive)
    if task.dispose:
        runner.dispose(task.job_id, task.restore_points)
    return Cleaned((), blobs.delete_all(task.job_id))


def dispose(task: Task, runner: Runner, _: BlobStore) -> None:
    runner.dispose(task.job_id, task.restore_points)


def forget(task: Task, runner: Runner, _: BlobStore) -> None:
    runner.forget(task.job_id)


def observation_of(runner: Runner) -> Observation:
    """What runs, and which instance says so. Raises: what `Runner.observe` raises."""
    instance = runner.instance()
    return Observation(instance, runner.only(instance).observe())


def observe(runners: Mapping[str, Runner], unheard: Callable[[str, LedgerError], None]) -> dict[str, Observation | None]:
    """No task: what the reconciler asks every runner itself, before each pass (docs/decisions/0006). None: no answer; then
    `unheard` hears why. This one asks one after the other; `adapters.asking` asks all at once."""
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
    """The answers as the plan takes them. earlier: what was known before. why: runner -> why it did not answer."""
    attempts = {name: None if answer is None else answer.attempts for name, answer in answers.items()}
    instances = {name: answer.instance for name, answer in answers.items() if answer is not None}
    return Observed(attempts, earlier, why, instances)


def acknowledge(task: Task, runner: Runner, _: BlobStore) -> None:
    runner.acknowledge(task.job_id, task.keys)


#: `observe`, or what stands in for it.
Ask = Callable[[Mapping[str, Runner], Callable[[str, LedgerError], None]], Mapping[str, Observation | None]]

VERBS: Mapping[str, Callable[[Task, Runner, BlobStore], object]] = {
    "prepare": prepare, "verify": verify, "start": start, "fence": fence, "stop": stop,
    "savepoint": savepoint, "acknowledge": acknowledge, "clean": clean, "dispose": dispose, "forget": forget,
}  # fmt: skip


def perform(task: Task, runners: Mapping[str, Runner], blobs: BlobStore) -> TaskOutcome:
    """Performs one task; what it raises becomes its outcome."""
    runner = runners.get(task.runner)
    if runner is None:
        known = ", ".join(sorted(runners)) or "none"
        return TaskOutcome(TaskStatus.NO_RUNNER, reason=f"there is no runner {task.runner!r} here (known: {known})")
    try:
        asked = runner.only(task.instance) if task.instance else runner
        return TaskOutcome(TaskStatus.DONE, VERBS[task.verb](task, asked, blobs))
    except PermanentError as error:
        return TaskOutcome(TaskStatus.REFUSED, reason=str(error))
    except RunnerBroke as error:
        return TaskOutcome(TaskStatus.CRASHED, reason=str(error))
    except LedgerError as error:
        return TaskOutcome(TaskStatus.UNREACHABLE, reason=str(error))
    except Exception as error:
        return TaskOutcome(TaskStatus.CRASHED, reason=f"{type(error).__name__}: {error}")

"""The port to runners, which start and stop attempts of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.ports.log import Headers


class StartAnswer(StrEnum):
    STARTED = "started"
    ALREADY = "already"  # this (job, n) was started before; it may have ended since
    FENCED = "fenced"  # it was never started, and never will be


class Verification(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # the store did not answer: check again later


class ObservedAttempt(NamedTuple):
    """An attempt that the runner knows. alive: some process of it runs or may run. engine_id: the engine's name for
    it."""

    job_id: str
    n: int
    alive: bool
    engine_id: str


class Observation(NamedTuple):
    """All attempts of one instance of a runner. instance: its name, as returned by `Runner.instance`."""

    instance: str
    attempts: Sequence[ObservedAttempt]


class RunnerStorage(NamedTuple):
    """The data that a runner stores for one job.

    where: its location, for people. age_s: seconds since any of it changed, by the runner's own clock. alive: attempts
    that run or may run. checkpoints: those that `forget` does not delete unless they were disposed of; without
    savepoints. rest: whether there is other data than checkpoints and savepoints. rest_size, checkpoint_size: in
    bytes."""

    job_id: str
    where: str
    age_s: float
    rest: bool
    rest_size: int = 0
    alive: tuple[int, ...] = ()
    checkpoints: tuple[RestorePoint, ...] = ()
    checkpoint_size: int = 0
    savepoints: tuple[RestorePoint, ...] = ()


class RunnerEvent(NamedTuple):
    """An event that the runner has persisted. key, headers and value are the bytes that the log holds or will hold."""

    key: bytes
    headers: Headers
    value: bytes | None


class Runner(Protocol):
    """Starts and stops attempts on one engine. All calls are idempotent: each names its job and attempt.

    A runner may have several instances under one name, such as an agent on each host. Each instance knows only its own
    attempts.

    Raises: Unreachable if there is no answer. Then nothing is known; in particular, the attempt is not lost.
    PermanentError if this runner can never start this job.
    """

    def instance(self) -> str:
        """The name of the instance that answers here. It stays the same as long as that instance remembers its
        attempts. "" means that the runner has no instances, so that every answer covers all attempts."""

    def only(self, instance: str) -> Runner:
        """This runner, with all calls limited to one instance. Any other instance does nothing and raises Unreachable.
        "" means no limit."""

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        """Starts attempt n at most once, even if the runner crashes between the call and the start.

        failure_rules: if the attempt fails, the label of the first matching rule is put before the cause. If that rule
        is permanent, the end is `failed-permanent`. Rules apply only to failures that the runner observed itself."""

    def observe(self) -> list[ObservedAttempt]:
        """All attempts that the runner has not forgotten."""

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Orders attempt n to stop. outcome: stopped, canceled, or failed (for a stalled job). It is stored durably
        before any signal is sent. The end of the attempt has the outcome of the first order, regardless of the exit
        code. reason: put before the cause of that end; "" means none."""

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Requests a savepoint from attempt n. Repeated calls with the same `ask` are one request. The event of the
        savepoint names the ask. The call has no effect if the attempt is over or does not support savepoints."""

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """Refuses every start of attempts up to n for ever; this is durable before the method returns. Returns all
        events of the job's attempts that are not acknowledged yet."""

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        """Informs the runner that these events are in the log, so that it stops sending them."""

    def verify(self, restore_point: RestorePoint) -> Verification: ...

    def why_refused(self, restore_point: RestorePoint) -> str:
        """Why the last `verify` of this restore point did not return VALID, for people: what differs, and in which
        file. "" if the runner does not know."""

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Deletes restore points of the job; missing ones are no error. Called after the job's final fence, it also
        allows the runner to delete the job's other checkpoints, unless all points given are savepoints: those are
        disposed of one by one."""

    def forget(self, job_id: str) -> None:
        """Forgets the job and its fence. Call it only after the job's `result` is committed."""

    def kept(self) -> list[RunnerStorage]:
        """The data that the runner stores for jobs, including jobs that it no longer remembers. It omits data stored
        elsewhere, and data whose lifetime the runner manages itself."""

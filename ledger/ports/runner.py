"""What starts and stops attempts of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.ports.log import Headers


class StartAnswer(StrEnum):
    STARTED = "started"
    ALREADY = "already"  # this (job, n) was started before, whatever became of it
    FENCED = "fenced"  # never started, and never will be


class Verification(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # the store did not answer: wait


class ObservedAttempt(NamedTuple):
    """An attempt that the runner knows of. `alive`: some process of it still runs or may run."""

    job_id: str
    n: int
    alive: bool
    engine_id: str


class Observation(NamedTuple):
    """All attempts of one instance of a runner. instance: its name, as of `Runner.instance`."""

    instance: str
    attempts: Sequence[ObservedAttempt]


class RunnerStorage(NamedTuple):
    """What a runner keeps of a job. age_s: since anything of it changed, by the runner's own clock. alive: attempts that
    run or may run. checkpoints: those that `forget` leaves unless they were disposed of; no savepoints. savepoints: those.
    rest: whether there is anything beside both. rest_size, checkpoint_size: in bytes."""

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
    """An event that the runner has persisted: `key`, `headers`, `value` as they stand, or will stand, in the log."""

    key: bytes
    headers: Headers
    value: bytes | None


class Runner(Protocol):
    """Starts and stops attempts of one engine. Every call names (job, attempt) and may be repeated without harm.

    A runner may have several instances under one name, such as an agent per host. Each knows its own attempts alone.

    Raises: Unreachable: no answer, hence nothing is known (never: the attempt is lost). PermanentError: this job can't
    be started by this runner, ever.
    """

    def instance(self) -> str:
        """Name of the instance that answers here. It stays for as long as that instance remembers its attempts. "" = the
        runner has no instances: whatever answers knows every attempt."""

    def only(self, instance: str) -> Runner:
        """This runner, with each call meant for one instance alone: any other that receives it does nothing and raises
        Unreachable. "" = the runner as it is."""

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        """At most once per (job, n), durably: also after a crash of the runner between the call and the start.

        failure_rules: the first that fits a failure of the attempt stands with its label before the cause; if it is
        permanent the end is `failed-permanent`. What the runner did not see itself is judged by none."""

    def observe(self) -> list[ObservedAttempt]:
        """All attempts that the runner has not forgotten, in one call."""

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Orders attempt n to stop. `outcome` (stopped, canceled, or failed for want of progress) is stored durably
        before anything is signalled: the first order's outcome is what its end will say, whatever the exit code. `reason`,
        if there is one, stands before the cause of that end."""

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Asks attempt n for a savepoint, once for each ask, however often it is called; the event of the savepoint will
        name the ask. Nothing comes of it if the attempt is over, or knows no savepoints."""

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """Refuses any start <= n for ever (durable before the answer). Answers with all events of attempts of the job
        that nobody has acknowledged yet."""

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        """These events stand in the log: the runner need not send them any more."""

    def verify(self, restore_point: RestorePoint) -> Verification: ...

    def why_refused(self, restore_point: RestorePoint) -> str:
        """Why the last `verify` of this restore point did not find it valid, for people: what differs, and in which file.
        "" = the runner does not say."""

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Deletes restore points of the job; those that are gone already are no error. After a fence for good it also says
        that no other checkpoint of the job is kept, unless all of them are savepoints: those are disposed of one by one."""

    def forget(self, job_id: str) -> None:
        """Forgets the job, its fence included. Only after its `result` is committed."""

    def kept(self) -> list[RunnerStorage]:
        """All that lies with the runner on behalf of jobs, whether it remembers them or not. What it keeps elsewhere, or
        as long as it means to by itself, is not among it."""

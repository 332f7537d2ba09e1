"""The runner of outside jobs, which their producers run themselves (`ledger.producer.outside`).

There is nothing to start, stop, fence or delete.

The producer writes all facts of such a job to the log, and `core.outside.decide` judges the job by these facts alone.
This runner only answers the calls that the ledger makes on the way to a job's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.errors import PermanentError
from ledger.ports import ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification


# ruff: noqa: ARG002 -- it ignores its arguments
class OutsideRunner:
    """Implements `ports.Runner` for jobs that their producers run."""

    def instance(self) -> str:
        return ""

    def only(self, instance: str) -> Runner:
        return self

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        raise PermanentError(f"only its producer can start attempt {n} of {job_id}: the ledger has nothing to start")

    def observe(self) -> list[ObservedAttempt]:
        return []

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Does nothing: only the producer can stop the job."""

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Does nothing: the producer takes no requests."""

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        return []

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        """Does nothing: this runner sends no events."""

    def verify(self, restore_point: RestorePoint) -> Verification:
        return Verification.UNKNOWN

    def why_refused(self, restore_point: RestorePoint) -> str:
        return ""

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Does nothing: the restore points belong to the producer, and outside jobs keep them."""

    def forget(self, job_id: str) -> None:
        """Does nothing: this runner remembers no jobs."""

    def kept(self) -> list[RunnerStorage]:
        return []

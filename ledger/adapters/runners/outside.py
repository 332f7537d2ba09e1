"""The runner of jobs that their producers run by themselves (`ledger.producer.outside`).

There is nothing to start, stop, fence or delete.

What such a job does is in the log by its producer's own word, and `core.outside.decide` judges it by that alone. This
runner answers for it where the ledger asks on the way to a job's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.core.model.facts import FailureRule, GraphRef, RestorePoint
from ledger.errors import PermanentError
from ledger.ports import ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification


# ruff: noqa: ARG002 -- it has no use for what it is told
class OutsideRunner:
    """Implements `ports.Runner`."""

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
        raise PermanentError(f"attempt {n} of {job_id} is its producer's to start: the ledger has nothing to start it with")

    def observe(self) -> list[ObservedAttempt]:
        return []

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Nobody to tell."""

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Nobody to ask."""

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        return []

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        """Nothing was sent on its behalf."""

    def verify(self, restore_point: RestorePoint) -> Verification:
        return Verification.UNKNOWN

    def why_refused(self, restore_point: RestorePoint) -> str:
        return ""

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """They are the producer's: such jobs keep them."""

    def forget(self, job_id: str) -> None:
        """Nothing was remembered."""

    def kept(self) -> list[RunnerStorage]:
        return []

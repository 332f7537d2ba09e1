"""What runners and the blob store would have said at a moment of the past, by the word of the log alone.

Nobody can be asked what ran then. What the log knew to run is taken to have run, and what it offered to have been there:
so a plan of the past is what a leader that believed the log would have done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger.adapters.runners.outside import OutsideRunner
from ledger.core.model.facts import GraphRef, RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.plan.heard import ANY_INSTANCE
from ledger.errors import PermanentError
from ledger.ports import Clock, ObservedAttempt, StoredBlob, Verification


class RecordedRunner(OutsideRunner):
    """Implements `ports.Runner` for reading only. entries: of the jobs of one runner."""

    def __init__(self, entries: Iterable[RecoveryEntry]) -> None:
        self._entries = list(entries)

    def instance(self) -> str:
        return ANY_INSTANCE

    def observe(self) -> list[ObservedAttempt]:
        """What is to stop runs until its end is known, as a leader that asks then would be told."""
        running = (entry for entry in self._entries if entry.attempt and entry.known and not entry.outcome)
        return [ObservedAttempt(entry.job_id, entry.attempt, True, "") for entry in running]

    def verify(self, restore_point: RestorePoint) -> Verification:  # noqa: ARG002
        return Verification.VALID


def recorded_runners(entries: Iterable[RecoveryEntry]) -> Mapping[str, RecordedRunner]:
    found: dict[str, list[RecoveryEntry]] = {}
    for entry in entries:
        found.setdefault(entry.runner, []).append(entry)
    return {runner: RecordedRunner(of_it) for runner, of_it in found.items()}


class RecordedBlobs:
    """Implements `ports.BlobStore` for reading only: every graph that the log names is taken to have been there."""

    def put(self, job_id: str, source: Path) -> GraphRef:
        raise PermanentError(f"{source} of {job_id} can't be put into the past.")

    def fetch(self, ref: GraphRef, target: Path) -> None:
        raise PermanentError(f"{ref.uri} can't be had from the past for {target}.")

    def exists(self, ref: GraphRef) -> bool:  # noqa: ARG002
        return True

    def delete_all(self, job_id: str) -> int:
        raise PermanentError(f"Nothing of {job_id} can be deleted in the past.")

    def listing(self) -> list[StoredBlob]:
        return []

    def delete(self, blob: StoredBlob) -> bool:
        raise PermanentError(f"{blob.job_id} can't be deleted in the past.")


class ThenClock:
    """The time that it was then; what is waited for passes as ever."""

    def __init__(self, clock: Clock, time_s: float) -> None:
        self._clock, self._time_s = clock, time_s

    def time(self) -> float:
        return self._time_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

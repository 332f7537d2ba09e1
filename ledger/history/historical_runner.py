"""Runners and the blob store of a past moment, reconstructed from the log alone.

Attempts that the log held as running are taken to have run, and restore points that it offered to have existed. A plan of
the past is therefore the plan of a leader that believed the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ledger.adapters.runners.outside import OutsideRunner
from ledger.core.model.facts import GraphRef, RestorePoint
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.plan.runner_report import ANY_INSTANCE
from ledger.errors import PermanentError
from ledger.ports import Clock, ObservedAttempt, StoredBlob, Verification


class RecordedRunner(OutsideRunner):
    """A runner of a past moment, as the log recorded it, for reading only (`ports.Runner`). entries: of the runner's
    jobs."""

    def __init__(self, entries: Iterable[RecoveryEntry]) -> None:
        self._entries = list(entries)

    def instance(self) -> str:
        return ANY_INSTANCE

    def observe(self) -> list[ObservedAttempt]:
        """The attempts without a known end, also those that were ordered to stop."""
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
    """The blob store of a past moment, for reading only (`ports.BlobStore`). Every graph that the log names is taken to
    have existed."""

    def put(self, job_id: str, source: Path) -> GraphRef:
        raise PermanentError(f"{source} of {job_id} can't be stored in the past.")

    def fetch(self, ref: GraphRef, target: Path) -> None:
        raise PermanentError(f"{ref.uri} can't be fetched to {target}: the past holds no graphs.")

    def exists(self, ref: GraphRef) -> bool:  # noqa: ARG002
        return True

    def delete_all(self, job_id: str) -> int:
        raise PermanentError(f"Nothing of {job_id} can be deleted in the past.")

    def listing(self) -> list[StoredBlob]:
        return []

    def delete(self, blob: StoredBlob) -> bool:
        raise PermanentError(f"{blob.job_id} can't be deleted in the past.")


class ThenClock:
    """A clock whose wall time is the past moment; its monotonic time runs on."""

    def __init__(self, clock: Clock, time_s: float) -> None:
        self._clock, self._time_s = clock, time_s

    def time(self) -> float:
        return self._time_s

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

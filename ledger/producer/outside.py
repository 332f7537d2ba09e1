"""A context manager for a job that its producer runs itself: `with recorder.job("etl") as job`.

    with recorder.job("etl", namespace="prod") as job:
        job.running("application_17")
        job.checkpoint("s3://bucket/etl/0001")

On entry it submits the job (runner `outside`, no graph). On exit it writes the job's end: finished, or failed with the
exception as its cause. The producer takes the part of the runner and writes as `agent-<instance of its recorder>`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    CheckpointCompleted,
    CheckpointKind,
    CheckpointRetention,
    GraphRef,
    JobSubmitted,
)  # fmt: skip
from ledger.core.model.registers import Checkpoint, Ended, Outcome, Running
from ledger.core.plan.outside import ATTEMPT, OUTSIDE, RESTART_POLICY
from ledger.errors import LedgerError, UsageError
from ledger.ports import Clock

if TYPE_CHECKING:
    from ledger.producer.recorder import Recorder

#: The empty blob, because no runner needs a graph of this job.
NO_GRAPH = GraphRef("", sha256(b"").hexdigest(), 0)
CAUSE_CHARS_MAX = 1000


class OutsideJob:
    """One run of an outside job. Thread-safe. Each method returns once its fact is durable. Raises: as
    `Recorder.record`."""

    def __init__(
        self, recorder: Recorder, name: str, *, namespace: str, priority: int, labels: Mapping[str, str] | None,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._recorder, self._clock = recorder, clock
        self.job_id = recorder.new_id()
        self.spec = JobSubmitted(
            name, namespace, OUTSIDE, NO_GRAPH, RESTART_POLICY, slots=0, priority=priority, labels=dict(labels or {}),
            checkpoint_retention=CheckpointRetention.KEEP,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._engine_id: str | None = None
        self._checkpoint = 0
        self._newest: int | None = None
        self._began_at = clock.monotonic()

    def running(self, engine_id: str) -> None:
        """Records that the job runs. engine_id: the engine's own name for it. A repetition with the same name has no
        effect.

        Raises: UsageError if another engine_id was recorded before."""
        with self._lock:
            if self._engine_id not in (None, engine_id):
                raise UsageError(f"job {self.job_id} runs as {self._engine_id}; another run is another job")
            if self._engine_id is None:
                self._recorder.record(self.job_id, Running(ATTEMPT), AttemptRunning(engine_id))
                self._engine_id = engine_id

    def checkpoint(
        self, location: str, *, size: int = 0, digest: str = "", kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ) -> int:
        """Records that a checkpoint is complete at `location`. Returns its id, which rises with each call.

        size: in bytes, 0 if unknown."""
        with self._lock:
            self._checkpoint += 1
            id_ = self._checkpoint
        fact = CheckpointCompleted(location, size, digest, kind=kind)
        self._recorder.record(self.job_id, Checkpoint(ATTEMPT, id_), fact)
        with self._lock:
            self._newest = max(id_, self._newest or 0)
        return id_

    def __enter__(self) -> OutsideJob:
        self._began_at = self._clock.monotonic()
        self._recorder.submit(self.job_id, self.spec)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        ran_for_s = round(self._clock.monotonic() - self._began_at, 3)
        outcome, cause = Outcome.FINISHED, ""
        if kind is not None:
            outcome, cause = Outcome.FAILED, f"{kind.__name__}: {error}"[:CAUSE_CHARS_MAX]
        register = Ended(ATTEMPT, outcome, f"agent-{self._recorder.instance}")
        try:
            self._recorder.record(self.job_id, register, AttemptEnded(cause, self._newest, ran_for_s))
        except LedgerError as unsaid:
            if error is None:
                raise
            error.add_note(f"jobledger: the end of job {self.job_id} is not recorded: {unsaid}")

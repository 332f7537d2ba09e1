"""The jobs of an agent, each under its own lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.adapters.runners.subprocess.digests import Digests
from ledger.adapters.runners.subprocess.events import EventMaker
from ledger.adapters.runners.subprocess.jobs import AgentJob
from ledger.core.model.registers import is_job_id
from ledger.errors import PermanentError, Unreachable

log = logging.getLogger(__name__)

#: Errors that a damaged folder can cause.
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class JobRegistry:
    """The jobs of an agent by their ids. Thread-safe."""

    def __init__(
        self, folder: Path, maker: EventMaker, held: Callable[[str], bool] = lambda _: False,
        digests: Digests | None = None,
    ) -> None:  # fmt: skip
        self._folder, self._maker, self._held, self._digests = folder, maker, held, digests
        self._guard = threading.Lock()  # guards the dictionary; never held during I/O
        self._jobs: dict[str, AgentJob] = {}

    def load(self) -> None:
        """Takes over the jobs that an earlier agent on this folder started. A damaged job affects no other job."""
        for path in sorted(self._folder.glob("*")):
            if not is_job_id(path.name) or not path.is_dir():
                continue
            job = AgentJob(path.name, path, self._maker, self._held, self._digests)
            try:
                job.load()
            except DAMAGE as error:
                job.damaged = f"{path} is damaged: {type(error).__name__}: {error}"
                log.error("damaged_job", extra={"job": job.id, "reason": job.damaged})
            self._jobs[job.id] = job

    def __contains__(self, job_id: str) -> bool:
        with self._guard:
            return job_id in self._jobs

    def all(self) -> list[AgentJob]:
        with self._guard:
            return list(self._jobs.values())

    def forget(self, job: AgentJob) -> None:
        """Removes a job whose lock the caller holds. A call that waits for this lock then gets a new job with the same
        id."""
        job.forgotten = True
        with self._guard:
            self._jobs.pop(job.id, None)

    @contextmanager
    def locked(self, job_id: str, damaged: bool = False) -> Iterator[AgentJob]:
        """The job, under its lock; a new job if the id is unknown. damaged: return a damaged job as well.

        Raises: PermanentError if job_id is not a valid job id. Unreachable if the job is damaged."""
        if not is_job_id(job_id):
            raise PermanentError(f"no job id: {job_id!r}")
        while True:
            with self._guard:
                job = self._jobs.get(job_id)
                if job is None:
                    folder = self._folder / job_id
                    job = self._jobs[job_id] = AgentJob(job_id, folder, self._maker, self._held, self._digests)
            with job.lock:
                if job.forgotten:
                    continue  # it was forgotten while we waited: this call is about a new job
                if job.damaged and not damaged:
                    raise Unreachable(job.damaged, hint="Repair or move the folder, then start the agent again.")
                yield job
                return


@contextmanager
def answering(job_id: str) -> Iterator[None]:
    """Turns errors from a damaged folder into Unreachable: no answer is better than a wrong one."""
    try:
        yield
    except DAMAGE as error:
        raise Unreachable(f"the agent can't answer for {job_id}: {type(error).__name__}: {error}") from error

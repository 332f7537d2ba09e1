"""The runner agent of a host. It starts attempts, makes events from what their supervisors report, and stores the
events until they are in the log.

All state of the agent is in its folder: `id`, `lock`, `sequences.json`, `jobs/<job_id>/…` (see `jobs`, `folders`). An
agent that is killed stops no attempt and loses no data. The next agent on the same folder continues. Agent and
supervisors never wait for each other: they exchange complete files."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ledger.adapters.runners.one_instance import OneInstance
from ledger.adapters.runners.subprocess import content, log_retention, restore
from ledger.adapters.runners.subprocess.cleanup import delete_job
from ledger.adapters.runners.subprocess.digests import Checks, Digests
from ledger.adapters.runners.subprocess.events import EventMaker, Sequences
from ledger.adapters.runners.subprocess.folders import MARKER, MarkedAttempt, Phase
from ledger.adapters.runners.subprocess.inventory import kept_in
from ledger.adapters.runners.subprocess.jobs import AgentJob
from ledger.adapters.runners.subprocess.orphan_processes import lives
from ledger.adapters.runners.subprocess.prepare import prepare, spawn
from ledger.adapters.runners.subprocess.registry import DAMAGE, JobRegistry, answering
from ledger.adapters.runners.subprocess.sender import EventSender
from ledger.adapters.runners.subprocess.supervisor import checkpoints
from ledger.adapters.runners.subprocess.supervisor.files import create_once, numbered
from ledger.core.model.facts import CheckpointKind, FailureRule, GraphRef, RestorePoint
from ledger.core.model.registers import NUMBER_MAX, STOP_OUTCOMES, is_writer, parse_key
from ledger.errors import ConfigError, PermanentError, TemporaryError, Unreachable
from ledger.ports import BlobStore, Clock, ObservedAttempt, Runner, RunnerEvent, RunnerStorage, StartAnswer, Verification
from ledger.util.files import make_folder

log = logging.getLogger(__name__)

#: Maximum number of events in one answer of `fence`. The caller acknowledges them, then calls again for the rest.
EVENTS_MAX = 5000
BATCH_MAX = 1000
NO_ID = (
    "Restore the id, without a line end: `jobledger explain JOB` shows which agent-ID holds the newest attempt of a job. "
    "If you move the file away, this agent gets a new id. The jobs of the old id then wait for `jobledger retry --force`."
)
#: Supervisors that are checked per second. If there are fewer, every step checks each of them.
LOOKS_PER_S = 2000


class Agent:
    """The agent of one host; implements `ports.Runner`. Thread-safe, but only one thread may call `step`, and only one
    `send`.

    folder: used by this agent alone. inherited: an environment; jobs inherit a small fixed part of it. at: called with
    the name of each point where a crash would be worst (tests). held: whether the logs of a job must be kept, however
    many jobs have logs; called under locks, so it must return at once. digests: computes the digests of checkpoints
    while it runs; None: no digests are computed.
    Raises: ConfigError if another agent has this folder.
    """

    def __init__(
        self, folder: Path, blobs: BlobStore, sender: EventSender, clock: Clock, *, new_id: Callable[[], str],
        inherited: Mapping[str, str] = os.environ, at: Callable[[str], None] = lambda _: None,
        held: Callable[[str], bool] = lambda _: False, digests: Digests | None = None,
    ) -> None:  # fmt: skip
        make_folder(folder, 0o700)
        folder.chmod(0o700)
        self.folder = folder.resolve()
        self._blobs, self._sender, self._clock, self._inherited, self._at = blobs, sender, clock, inherited, at
        self._held = held
        self._guard = threading.Lock()  # guards the fields below; never held during I/O
        self._processes: list[subprocess.Popen[bytes]] = []
        self._looked_at = -1.0
        self._complaints: dict[str, str] = {}
        self._lock_fd = self._take_lock()
        try:
            self._maker = self._identify(new_id)
            self._jobs = JobRegistry(self.folder / "jobs", self._maker, held, digests)
            self._checks = Checks(partial(restore.verify, jobs=self.folder / "jobs"))
            self._jobs.load()
        except BaseException:
            self.close()
            raise

    def _identify(self, new_id: Callable[[], str]) -> EventMaker:
        """The maker of events, with the writer name and the sequence numbers that belong to this folder.

        Raises: ConfigError if they can't be read."""
        if any("\ud800" <= c <= "\udfff" for c in str(self.folder)):  # bytes that are not UTF-8
            raise ConfigError(f"{str(self.folder)!a} is not UTF-8, so no event can hold it", hint="Use another folder.")
        create_once(str(self.folder / "id"), new_id().encode())
        name = (self.folder / "id").read_bytes().decode("utf-8", "replace")
        self.writer = f"agent-{name}"
        if not (name and is_writer(self.writer)):
            raise ConfigError(f"{self.folder / 'id'} holds no id: {name!r}", hint=NO_ID)
        try:
            sequences = Sequences(self.folder / "sequences.json")
        except DAMAGE as error:
            hint = "Move it away. The sequence numbers of this agent's events then start again, and audits will show it."
            raise ConfigError(f"{self.folder / 'sequences.json'} is damaged: {error}", hint=hint) from error
        return EventMaker(self.writer, self._sender.partitions, self._clock, new_id, sequences)

    def _take_lock(self) -> int:
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise ConfigError(
                f"another agent serves {self.folder}", hint="Stop it first, or use another folder for this agent."
            ) from None
        return fd

    def close(self) -> None:
        """Releases the folder. Running attempts keep running. Idempotent."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
        with self._guard:
            for process in self._processes:
                process.returncode = 0  # it keeps running: Popen must not warn that nobody waited for it

    # -- the runner --------------------------------------------------------------------------------------------------

    def instance(self) -> str:
        return self.writer

    def only(self, instance: str) -> Runner:
        return OneInstance(self, instance) if instance else self

    def start(
        self,
        job_id: str,
        n: int,
        graph: GraphRef,
        restore_point: RestorePoint | None,
        environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        """Starts an attempt, as `ports.Runner`. Nothing is started before the attempt's marker exists; from then on the
        attempt counts as started for ever."""
        _check_number(n, 1)
        with self._jobs.locked(job_id) as job, answering(job_id):
            if answer := _known(job, n):
                return answer
            if job.preparing is not None:
                raise Unreachable(f"attempt {job.preparing} of {job_id} is being started", hint="Try again.")
            for earlier in job.attempts.values():
                if earlier.phase is Phase.ENDED:
                    job.report_late(earlier)
            attempt = MarkedAttempt(job_id, n, job.run_folder(n), restore_point)
            job.preparing = n
        try:
            prepare(attempt, graph, self._blobs, environment, self._inherited, failure_rules)
            self._at("prepared")
            return self._begin(attempt)
        except OSError as error:
            raise Unreachable(f"attempt {n} of {job_id} was not started: {error}") from error
        finally:
            job.preparing = None

    def _begin(self, attempt: MarkedAttempt) -> StartAnswer:
        """Creates the marker, then starts the attempt. Raises: OSError only if the marker was not created."""
        with self._jobs.locked(attempt.job_id) as job:
            if answer := _known(job, attempt.n):  # fenced meanwhile
                return answer
            if not attempt.mark():
                return StartAnswer.ALREADY
            job.attempts[attempt.n] = attempt
            self._at("marked")
            try:
                attempt.process = spawn(attempt)
            except OSError as error:
                about = {"job": attempt.job_id, "attempt": attempt.n, "reason": str(error)}
                log.error("supervisor_not_started", extra=about)
            else:
                with self._guard:
                    self._processes.append(attempt.process)
            self._at("spawned")
            said = {"job": job.id, "attempt": attempt.n, "begins_from": str(attempt.base or "scratch")}
            log.info("attempt_started", extra=said)
            return StartAnswer.STARTED

    def observe(self) -> list[ObservedAttempt]:
        observed = []
        for job in self._jobs.all():
            if job.damaged:
                numbers = numbered(str(job.folder / "attempts"), suffix="")
                observed += [ObservedAttempt(job.id, n, lives(path), "") for n, path in numbers]
                continue
            alive, attempts = job.alive(), dict(job.attempts)
            for n in sorted({*attempts, *alive}):
                engine_id = attempts[n].engine_id if n in attempts else ""
                observed.append(ObservedAttempt(job.id, n, n in alive, engine_id))
        return observed

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Stores a stop order. It also applies to an attempt that is not started yet. An attempt of a damaged job can
        be stopped too: its supervisor needs only the order."""
        _check_number(n, 1)
        if outcome not in STOP_OUTCOMES:
            raise PermanentError(f"a stop order's outcome is one of {', '.join(STOP_OUTCOMES)}, not {outcome!r}")
        with self._jobs.locked(job_id, damaged=True) as job, answering(job_id):
            attempt = job.attempts.get(n) or MarkedAttempt(job_id, n, job.run_folder(n))
            if job.damaged:
                if (attempt.folder / MARKER).exists():
                    attempt.order(outcome, savepoint, reason)
                return
            if attempt.phase is Phase.LIVE and (n in job.attempts or _known(job, n) is None):
                make_folder(attempt.folder, 0o700)
                attempt.order(outcome, savepoint, reason)

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Requests a savepoint from attempt n, once per ask. The event of that savepoint will name the ask."""
        if not is_writer(ask):
            raise PermanentError(f"not the id of an ask: {ask!r}")
        with self._jobs.locked(job_id) as job, answering(job_id):
            attempt = job.attempts.get(n)
            if attempt is not None and attempt.phase is Phase.LIVE:
                attempt.ask(ask)

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """Refuses all starts up to attempt n, and returns at most EVENTS_MAX events of the job that are not
        acknowledged. Acknowledge these, then call again for the rest."""
        _check_number(n, 0)
        with self._jobs.locked(job_id) as job, answering(job_id):
            job.raise_fence(n)
            for attempt in job.attempts.values():
                job.observe_attempt(attempt, thorough=True, complete=True)
            return job.outbox.unacknowledged()[:EVENTS_MAX]

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        if job_id in self._jobs:
            with self._jobs.locked(job_id) as job:
                job.acknowledge(set(keys))

    def verify(self, restore_point: RestorePoint) -> Verification:
        return self._checks.verify(restore_point)

    def why_refused(self, restore_point: RestorePoint) -> str:
        return self._checks.why_refused(restore_point)

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Deletes the restore points that are in the job's own checkpoint folders. Other restore points do not belong
        to the job and stay."""
        one_by_one = bool(restore_points) and all(p.kind is CheckpointKind.SAVEPOINT for p in restore_points)
        with self._jobs.locked(job_id) as job, answering(job_id):
            if not one_by_one:
                job.note_disposal()
            for point in restore_points:
                path = restore.path_of(point)
                own = job.run_folder(point.attempt) / "checkpoints"
                if path is None or checkpoints.parse(path.name) is None or path.parent.resolve() != own:
                    about = {"job": job_id, "path": point.location, "reason": "it is no checkpoint of this job"}
                    log.warning("checkpoint_not_deleted", extra=about)
                    continue
                restore.remove(path)
                content.manifest_path(path).unlink(missing_ok=True)
                if attempt := job.attempts.get(point.attempt):
                    attempt.acknowledged.pop(point.id, None)

    def forget(self, job_id: str) -> None:
        """Deletes all data of the job except its kept checkpoints, even if the job is damaged.

        Raises: TemporaryError while an attempt of the job is alive."""
        with self._jobs.locked(job_id, damaged=True) as job, answering(job_id):
            folders = numbered(str(job.folder / "attempts"), suffix="") if job.damaged else []
            if alive := [n for n, path in folders if lives(path)] if job.damaged else job.alive():
                raise TemporaryError(f"attempt {alive[0]} of {job_id} is alive", hint="Stop it, then try again.")
            self._maker.sequences.save()  # the event files that hold the numbers are deleted below
            self._jobs.forget(job)
            log_retention.keep(self.folder, job_id, held=self._held)
            delete_job(job.folder)

    def kept(self) -> list[RunnerStorage]:
        alive: dict[str, list[int]] = {}
        for attempt in self.observe():
            if attempt.alive:
                alive.setdefault(attempt.job_id, []).append(attempt.n)
        with answering("the folder of jobs"):
            return list(kept_in(self.folder / "jobs", alive, self._clock.time()))

    # -- the two loops -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Does one round over all jobs: facts become events, attempts without a supervisor are ended, unneeded files
        are deleted."""
        with self._guard:
            self._processes = [process for process in self._processes if process.poll() is None]
        jobs = self._jobs.all()
        live = sum(len(job.alive()) for job in jobs)
        thorough = self._clock.monotonic() - self._looked_at >= live / LOOKS_PER_S
        if thorough:
            self._looked_at = self._clock.monotonic()
        for job in jobs:
            if job.damaged or not job.lock.acquire(blocking=False):
                continue  # another call uses it
            try:
                if not job.forgotten:
                    self._step(job, thorough)
            finally:
                job.lock.release()

    def _step(self, job: AgentJob, thorough: bool) -> None:
        try:
            for attempt in list(job.attempts.values()):
                job.observe_attempt(attempt, thorough)
            job.settle()
        except Exception as error:  # any error delays this job only
            complaint = f"{type(error).__name__}: {error}"
            if self._complaints.get(job.id) != complaint:
                self._complaints[job.id] = complaint
                log.exception("job_step_failed", extra={"job": job.id})
        else:
            self._complaints.pop(job.id, None)

    def send(self) -> int:
        """Sends unacknowledged events and returns how many are acknowledged now. Blocks as long as the sender does."""
        batch: list[RunnerEvent] = []
        for job in self._jobs.all():
            if len(batch) < BATCH_MAX and not job.damaged and job.lock.acquire(blocking=False):
                try:
                    batch += job.outbox.sendable()[:BATCH_MAX]
                finally:
                    job.lock.release()
        if not batch:
            return 0
        acknowledged = set(self._sender.send(batch))
        self._at("sent")
        for job_id in {named[0] for key in acknowledged if (named := parse_key(key))}:
            self.acknowledge(job_id, list(acknowledged))
        return len(acknowledged)


def _known(job: AgentJob, n: int) -> StartAnswer | None:
    if n in job.attempts or n in job.past:
        return StartAnswer.ALREADY
    return StartAnswer.FENCED if n <= job.fence else None


def _check_number(n: int, low: int) -> None:
    if not (isinstance(n, int) and low <= n <= NUMBER_MAX):
        raise PermanentError(f"not the number of an attempt: {n!r}")

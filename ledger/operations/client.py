"""The operations on a ledger as a library: submit jobs, wait for them, declare intents.

The command line is a thin layer over this library. A changing call returns once the ledger shows its effect. It raises
Refused if the ledger refused the change, and OutcomeUnknown if the outcome is not known yet. Every call may be repeated
without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Protocol

from ledger.core.garbage import GRACE_MIN_S
from ledger.core.model.facts import (
    Fact,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobSubmitted,
    RestoreBy,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
)
from ledger.core.model.recovery import Entries, JobState, RecoveryEntry
from ledger.core.model.registers import Ask, Disposed, Intent, Register, Spec
from ledger.errors import NotFound, OutcomeUnknown, PermanentError, Refused, UsageError
from ledger.operations import intents, replacing, savepoint_disposal, savepoints
from ledger.operations.replacing import LATEST, Replaced
from ledger.operations.savepoint_disposal import Savepoint
from ledger.ports import BlobStore, Runner
from ledger.producer.recorder import Recorded
from ledger.reader.job_lookup import SEE_ALL, resolve
from ledger.reader.reading import POLL_S, JobLog, RetiredJob, Source, entries_of, registers_of, result_of
from ledger.reader.watching import Watch
from ledger.util import failpoints

ANSWER_S = 30.0
SAVEPOINT_S = 120.0


class Records(Protocol):
    """The methods of a `Recorder` that a Client uses."""

    def record(self, job_id: str, register: Register, fact: Fact) -> Recorded: ...


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The result of `wait`. state: a terminal state, QUARANTINED, or "" after a timeout. reason: "" = unknown."""

    job_id: str
    state: str
    reason: str

    @property
    def finished(self) -> bool:
        return self.state == JobState.FINISHED


class Client:
    """The client of one ledger. recorder: returns a recorder, which is a context manager; called only to write. digest:
    returns the digest of a spec. actor: the user, for audit. new_id: returns a new id for a job or intent. held_by:
    returns the pin that holds a job, "" = none."""

    def __init__(
        self, source: Source, recorder: Callable[[], AbstractContextManager[Records]], blobs: BlobStore, *,
        digest: Callable[[JobSubmitted], str], new_id: Callable[[], str], actor: str,
        held_by: Callable[[str], str] = lambda _: "",
    ) -> None:  # fmt: skip
        self._held_by = held_by
        self.source, self._recorder, self._blobs = source, recorder, blobs
        self._digest, self._new_id, self._actor = digest, new_id, actor

    def entries(self) -> Entries:
        """The entry of every job that is not retired, by job id; its `.recovery_set()` are those to bring back."""
        return entries_of(self.source)

    def resolve(self, ref: str, retired: bool = False, taking_over: bool = True) -> str:
        """The id of the job that `ref` names; see `job_lookup.resolve`."""
        return resolve(self.source, ref, retired, taking_over)

    def submit(
        self, spec: JobSubmitted, graph: Path, *, job_id: str | None = None, unique: bool = False,
        timeout_s: float = ANSWER_S, named: Callable[[str], None] | None = None,
    ) -> str:  # fmt: skip
        """Stores the graph, records the spec, and waits until it is admitted. Returns the job id.

        graph: the packed job graph; fills the spec's own `graph`. named: called with the id before the first write, so that
        the caller can look the job up after any error. Idempotent: the same spec under the same id succeeds again, even if
        the job is over and retired. Raises: Refused if the id has another spec, or (unique) a job of this name is not over;
        UsageError if the spec names two restore points; OutcomeUnknown if it is recorded but not admitted in time;
        Unreachable as `Recorder.record`.
        """
        if spec.restore is RestoreBy.EXTERNAL and spec.restore_from is not None:
            raise UsageError("A job that restores by itself (restore: external) can't begin --from a restore point.")
        given, job_id = job_id is not None, job_id or self._new_id()
        self.source.partition_of(job_id)  # raises UsageError for an invalid id
        if unique:
            self._check_unique(spec, job_id)
        if named is not None:
            named(job_id)
        with Watch(self.source, job_id, reject=True) as watch:
            if given and self._is_over(watch, spec, graph):
                return job_id
            failpoints.hit("submit.unstored")
            put_at = self._moment()
            spec = replace(spec, graph=self._blobs.put(job_id, graph))
            failpoints.hit("submit.stored")
            register = Spec(self._digest(spec))
            watch.read()
            if _stands_already(watch, register.digest):
                return job_id
            offset = watch.offset_of(register) if register in watch.job().names else None
            if offset is None:
                with self._recorder() as recorder:
                    offset = recorder.record(job_id, register, spec).offset
            self._recheck(job_id, spec, graph, put_at)
            if not watch.until(lambda: _admitted(watch, register, offset), timeout_s):
                raise OutcomeUnknown(
                    f"The spec of {job_id} is recorded, but was not admitted within {timeout_s:g} s.",
                    hint=f"Does a projector run? To ask again: submit the same with --id {job_id}.",
                )
        return job_id

    def _is_over(self, watch: Watch, spec: JobSubmitted, graph: Path) -> bool:
        """Whether the job is retired and had exactly this spec. Then the graph is not stored, since nothing would
        delete it.
        Raises: Refused if the retired job had another spec."""
        watch.read()
        job = watch.job()
        if job.result is None:
            return False
        with graph.open("rb") as content:
            sha256 = file_digest(content, "sha256").hexdigest()
        stored = GraphRef(f"graphs/{job.job_id}/{sha256}", sha256, graph.stat().st_size)  # as every BlobStore names it
        return _stands_already(watch, self._digest(replace(spec, graph=stored)))

    def spec(self, job_id: str) -> JobSubmitted:
        """The spec of a job. Raises: NotFound; Refused if the job is retired, so that its spec is gone."""
        log = registers_of(self.source, job_id)
        if (retired := result_of(log.job())) is not None:
            raise Refused(f"{job_id} is {retired.state} and retired.")
        if (spec := log.job().spec) is None:
            raise NotFound(f"There is no job {job_id}.", hint=SEE_ALL)
        return spec

    def to_replace(self, old_id: str, new_id: str | None) -> tuple[str, JobSubmitted]:
        """The id of the job to replace, and the spec that the new job inherits unset fields from. That is the old job's
        spec, or the spec of the job `new_id` if it is submitted already. So a replacement can be repeated in any state
        of the old job. Raises: as `spec`."""
        if new_id is not None:
            there = registers_of(self.source, new_id).job().spec
            if there is not None and there.replaces is not None and old_id in (there.replaces, new_id):
                return there.replaces, there
        return old_id, self.spec(old_id)

    def fetch_graph(self, spec: JobSubmitted, path: Path) -> None:
        """Writes the graph of a job to `path` and checks its digest. Raises: PermanentError if it is gone; Unreachable."""
        self._blobs.fetch(spec.graph, path)

    def replace(
        self, old_id: str, spec: JobSubmitted, graph: Path, *, from_: str = LATEST, reason: str = "",
        job_id: str | None = None, unique: bool = False, timeout_s: float = ANSWER_S,
        named: Callable[[str], None] | None = None,
    ) -> str:  # fmt: skip
        """Submits a job that replaces another, as `submit` does. Returns its id. The reconciler then stops the old job,
        starts the new one from its restore points, and cancels the old one once the new one runs, or else resumes it.

        from_: "latest", "scratch", a restore point of the old job as "<attempt>/<id>", or a location. unique: the old job
        is not counted. Idempotent: a repeated replacement is the existing one. Raises: as `submit`; Refused also if the old
        job is over or is being replaced; UsageError if there is no such restore point, or the ledger cannot stop the old
        job; NotFound."""
        jobs = replacing.RegisteredJobs(self.source)
        for taker, its in jobs.takers(old_id):
            if job_id in (None, taker) and replacing.says_the_same(its, spec, old_id, from_, reason, graph):
                return self.submit(its, graph, job_id=taker, timeout_s=timeout_s, named=named)
        old = jobs.to_replace(old_id)
        jobs.check_free(old_id, job_id)
        spec = replacing.spec_of(old, spec, from_, reason)
        return self.submit(spec, graph, job_id=job_id, unique=unique, timeout_s=timeout_s, named=named)

    def await_replacement(self, job_id: str, old_id: str, timeout_s: float | None = None) -> Replaced:
        """Waits until a job has replaced the old one, or has failed to."""
        clock = self.source.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        with Watch(self.source, job_id) as new, Watch(self.source, old_id) as old:
            new.read()
            old.read()
            while deadline is None or clock.monotonic() < deadline:
                for watch in (new, old):
                    if (found := watch.until(lambda: replacing.outcome(new, old), POLL_S)) is not None:
                        return found
        return Replaced(job_id, old_id, False, "", "the time ran out")

    def declare(
        self, job_id: str, kind: IntentKind, *, reason: str, from_: str = "latest", force: bool = False,
        savepoint: bool = False, timeout_s: float = ANSWER_S,
    ) -> RecoveryEntry | RetiredJob:  # fmt: skip
        """Declares an intent and waits until the job's entry shows it. Returns that entry, or the result of a job that is
        canceled and retired. savepoint: with SUSPEND, request a savepoint before the stop.

        Idempotent: an intent that already holds is not declared again, and a CANCELED job can be canceled again. Raises:
        Refused if the job is over, is being canceled, is in a wrong state, or a later intent won; UsageError if there is no
        such restore point; OutcomeUnknown if the intent is declared but not published in time.
        """
        with Watch(self.source, job_id, recovery=True) as watch:
            watch.read()
            if (canceled := intents.canceled_already(watch, kind)) is not None:
                return canceled
            entry = intents.entry_to_change(watch, kind)
            intent = intents.standing(entry, kind, force)
            offset = None
            if intent is None:
                intents.check_possible(watch.job(), entry, kind, from_, force)
                rev = 1 + max((i.rev for i in watch.job().intents), default=0)
                intent = Intent(rev, self._new_id())
                fact = IntentDeclared(kind, entry.attempt, from_, force, reason, self._actor, savepoint)
                with self._recorder() as recorder:
                    offset = recorder.record(job_id, intent, fact).offset
            return intents.outcome(watch, intent, kind, offset, timeout_s)

    def savepoint(self, job_id: str, *, reason: str, timeout_s: float | None = SAVEPOINT_S) -> RestorePoint:
        """Requests a savepoint of a running job and waits for it.

        Raises: Refused if the job is not to run, is over, or ends before the savepoint is complete; UsageError for an
        outside job; OutcomeUnknown if it is not complete in time (the request stays open)."""
        with Watch(self.source, job_id) as watch:
            watch.read()
            savepoints.check_possible(watch)
            ask = Ask(self._new_id())
            with self._recorder() as recorder:
                recorder.record(job_id, ask, SavepointAsked(reason, self._actor))
            point = watch.until(lambda: savepoints.answer(watch, ask), timeout_s)
        if point is None:
            raise OutcomeUnknown(
                f"Savepoint {ask.uuid} of {job_id} is requested, but was not complete within {timeout_s:g} s.",
                hint="A job makes one when it gets SIGUSR1, if its program can. See whether it is there: jobledger show",
            )
        return point

    def savepoints(self, job_id: str, runners: Callable[[], Mapping[str, Runner]]) -> list[Savepoint]:
        """The savepoints of a job, oldest first. runners: called for a retired job, whose savepoints only its runner knows.

        Raises: NotFound; Unreachable if that runner does not answer."""
        log = registers_of(self.source, job_id)
        if not log.known:
            raise NotFound(f"There is no job {job_id}.", hint=SEE_ALL)
        asked = runners() if log.job().result is not None else {}
        return savepoint_disposal.listed(log, self.entries(), asked, self.source.keep)

    def dispose(
        self, job_id: str, which: str, runners: Callable[[], Mapping[str, Runner]], *, reason: str,
        timeout_s: float = ANSWER_S,
    ) -> RestorePoint | None:  # fmt: skip
        """Disposes of a savepoint (ATTEMPT/ID, or its location) and waits until its files are deleted. Returns it; None if
        it was gone already.

        The disposal is recorded first. Then the reconciler deletes the files; for a retired job this call deletes them, or
        else `jobledger gc`. Idempotent. Raises: UsageError if there is no such savepoint; Refused if a live job needs it or
        a pin holds it; NotFound; OutcomeUnknown if it is disposed of but not deleted in time; Unreachable."""
        with Watch(self.source, job_id) as watch:
            watch.read()
            if not watch.log.known:
                raise NotFound(f"There is no job {job_id}.", hint=SEE_ALL)
            job, entries = watch.job(), self.entries()
            asked = runners() if job.result is not None else {}
            one = savepoint_disposal.find(
                job, savepoint_disposal.listed(watch.log, entries, asked, self.source.keep), which
            )
            if one is None:
                return None
            if pin := self._held_by(job_id):
                raise Refused(f"The pin {pin} protects {job_id} and its savepoints.", hint="See: jobledger audit pins")
            point = one.point
            if job.disposal(*point.order) is None:
                savepoint_disposal.check_unneeded(job, one, entries, self.source.keep)
                fact = SavepointDisposed(point.location, one.base, one.ask, reason, self._actor)
                failpoints.hit("dispose.unrecorded")
                with self._recorder() as recorder:
                    recorder.record(job_id, Disposed(*point.order, self._new_id()), fact)
            failpoints.hit("dispose.recorded")
            done = watch.until(lambda: savepoint_disposal.outcome(watch, point), timeout_s)
            retired = result_of(watch.job())
        if done is None:
            raise OutcomeUnknown(
                f"Savepoint {point} of {job_id} is disposed of, but was not deleted within {timeout_s:g} s.",
                hint="The reconciler deletes it once its runner answers and no job needs it. See: jobledger explain",
            )
        if retired is not None:
            savepoint_disposal.delete(runners(), retired.result.runner, job_id, point)
        return point

    def wait(self, job_id: str, timeout_s: float | None = None) -> JobOutcome:
        """Waits until the job is over or quarantined. A late fact may still turn FAILED into CANCELED, or either into
        FINISHED. Raises: NotFound if the log holds no record of this job."""
        with Watch(self.source, job_id) as watch:
            watch.read()
            if not watch.log.known:
                raise NotFound(f"There is no job {job_id}.", hint=SEE_ALL)
            ended = watch.until(lambda: _ended(watch.log), timeout_s)
        return ended or JobOutcome(job_id, "", "the time ran out")

    def _moment(self) -> tuple[float, float]:
        """The monotonic time and the wall time. The monotonic clock may stop while the machine sleeps; the wall clock
        may be set back."""
        return self.source.clock.monotonic(), self.source.clock.time()

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _check_unique(self, spec: JobSubmitted, job_id: str) -> None:
        for entry in entries_of(self.source).values():
            same = (entry.namespace, entry.name) == (spec.namespace, spec.name)
            if same and entry.job_id not in (job_id, spec.replaces) and not entry.terminal:
                raise Refused(
                    f"{entry.namespace}/{entry.name} is {entry.state} as {entry.job_id}.",
                    hint="Cancel it first, or submit without --unique.",
                )

    def _recheck(self, job_id: str, spec: JobSubmitted, graph: Path, put_at: tuple[float, float]) -> None:
        """Repeats the put of the graph if it was long ago (the process was stopped, or the machine slept): garbage
        collection may have deleted the blob before its reference was in the log. From now on it cannot, since it reads the
        log again before it deletes, and spares young blobs. Source: decision 19."""
        long_ago = max(now - then for now, then in zip(self._moment(), put_at, strict=True)) > GRACE_MIN_S / 2
        if (long_ago or not self._blobs.exists(spec.graph)) and self._blobs.put(job_id, graph) != spec.graph:
            raise PermanentError(f"{graph} changed while it was submitted.", hint="Submit it again, under a new id.")


def _stands_already(watch: Watch, digest: str) -> bool:
    """Whether this spec is or was the job's, as its registers or result show. Raises: Refused if another one is or was."""
    job = watch.job()
    if (retired := result_of(job)) is not None and retired.result.digest != digest:
        raise Refused(
            f"{job.job_id} is {retired.state} and retired, and had another spec: {retired.result.digest[:12]}….",
            hint="A job id is never used again: submit under a new id.",
        )
    if job.admitted is not None and job.admitted.digest != digest:
        raise Refused(
            f"Another spec is admitted as {job.job_id}: {job.admitted.digest[:12]}…, not {digest[:12]}….",
            hint="A job id is never used again: submit under a new id.",
        )
    return retired is not None or job.admitted is not None


def _admitted(watch: Watch, spec: Spec, offset: int | None) -> bool | None:
    """True once the spec is or was admitted; None while that is not decided. offset: of the spec's record. Raises:
    Refused if the spec was rejected, or the job has another spec."""
    if spec.digest in watch.admitted or _stands_already(watch, spec.digest):
        return True
    at = offset if offset is not None else watch.offset_of(spec)
    position = f"{watch.log.source.topics.events}/{watch.log.partition}/{at}"
    if position in watch.rejected:
        raise Refused(f"The spec of {watch.log.job_id} was refused: {watch.rejected[position]}.")
    return None


def _ended(log: JobLog) -> JobOutcome | None:
    job, entry = log.job(), log.entry()
    if (retired := result_of(job)) is not None:
        return JobOutcome(log.job_id, retired.state, retired.result.reason)
    if entry is not None and (entry.terminal or entry.state is JobState.QUARANTINED):
        return JobOutcome(log.job_id, str(entry.state), entry.reason)
    return None

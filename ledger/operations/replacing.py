"""The verb `replace`: whether a job can be replaced, the spec of the new job, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path

from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.model.facts import JobSubmitted, Replacement, RestoreBy, RestorePoint
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.plan.outside import OUTSIDE
from ledger.core.plan.replacing import CANCEL, STOP, intent_id
from ledger.errors import NotFound, Refused, UsageError
from ledger.reader.job_lookup import SEE_ALL
from ledger.reader.reading import Source, all_registers, jobs_in
from ledger.reader.watching import Watch

LATEST, SCRATCH = "latest", "scratch"


@dataclass(frozen=True, slots=True)
class Replaced:
    """The outcome of a replacement. done: whether the new job has replaced the old one for good; if not, it has failed, or
    (state "") the time ran out. state, reason: of the new job."""

    job_id: str
    old_id: str
    done: bool
    state: str
    reason: str


class RegisteredJobs:
    """All jobs that have registers, read to the high watermark; also replacements that are not admitted yet."""

    def __init__(self, source: Source) -> None:
        self._keep = source.keep
        self._jobs = {job.job_id: job for job, _ in jobs_in(source, all_registers(source))}

    def entry(self, job_id: str) -> RecoveryEntry | None:
        return fold_job(self._jobs[job_id], self._keep) if job_id in self._jobs else None

    def to_replace(self, job_id: str) -> Job:
        """The registers of a job that can be replaced. Raises: NotFound, Refused, UsageError if it can't."""
        job, entry = self._jobs.get(job_id), self.entry(job_id)
        over = job is not None and job.result is not None
        if job is None or (entry is None and not over):
            raise NotFound(f"There is no job {job_id}.", hint=SEE_ALL)
        if over or entry is None or entry.terminal or entry.state is JobState.CANCELLING:
            state = job.result.state if job.result is not None else entry.state if entry is not None else "over"
            by = next((f"{taker} replaces it: replace that one." for taker, _ in self.takers(job_id)), "")
            raise Refused(f"{job_id} is {state}: there is nothing to replace.", hint=by or "Submit a new job.")
        check_runner(job_id, entry.runner)
        first = self.entry(entry.replaces) if entry.replaces is not None else None
        if entry.replaces is not None and (not entry.begun or not (first is None or first.terminal)):
            hint = f"Wait until it runs, or cancel it and replace {entry.replaces}."
            raise Refused(f"{job_id} is still taking over from {entry.replaces}.", hint=hint)
        return job

    def takers(self, job_id: str) -> list[tuple[str, JobSubmitted]]:
        """The live jobs that replace this one, admitted or not, by id."""
        found = []
        for taker in self._jobs.values():
            if taker.result is not None or taker.terminal_end is not None:
                continue
            specs = [taker.spec] if taker.admitted is not None else [taker.fact(s, JobSubmitted) for s in taker.specs]
            found += [(taker.job_id, spec) for spec in specs if spec is not None and spec.replaces == job_id]
        return sorted(found, key=lambda one: one[0])

    def check_free(self, job_id: str, new_id: str | None) -> None:
        """Checks that no other job replaces this one; a failed replacement does not count. Raises: Refused."""
        for taker, _ in self.takers(job_id):
            entry = self.entry(taker)
            given_up = entry is not None and entry.state in (JobState.QUARANTINED, JobState.CANCELLING)
            if taker != new_id and not given_up:
                raise Refused(
                    f"{job_id} is being replaced by {taker} already.", hint=f"Replace {taker} once it runs, or cancel it."
                )


def check_runner(job_id: str, runner: str) -> None:
    """Checks that the ledger can stop jobs of this runner. Raises: UsageError."""
    if runner == OUTSIDE:
        raise UsageError(f"{job_id} is run by its own producer: the ledger can't stop it.")


def spec_of(job: Job, spec: JobSubmitted, from_: str, reason: str) -> JobSubmitted:
    """The spec with the fields of a replacement filled in. Raises: UsageError if there is no such restore point."""
    by = RestoreBy.LEDGER if job.spec is None else job.spec.restore
    if by is not spec.restore:
        raise UsageError(f"{job.job_id} has restore: {by.lower()}. A job that replaces it restores in the same way.")
    if by is RestoreBy.EXTERNAL and from_ != LATEST:
        raise UsageError(f"{job.job_id} restores by itself (restore: external): --from {from_} would have no effect.")
    after_rev = max((intent.rev for intent in job.intents), default=0)
    point = None if from_ in (LATEST, SCRATCH) else _point(job, from_)
    replacement = Replacement(from_, after_rev, reason)
    return replace(spec, replaces=job.job_id, replacement=replacement, restore_from=point)


def _point(job: Job, from_: str) -> RestorePoint:
    registers = sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints)
    known = [point for register in registers if (point := job.restore_point(register)) is not None]
    points = [point for point in known if job.disposal(*point.order) is None]
    for point in points:
        if from_ in (str(point), point.location):
            return replace(point, attempt=0, id=0)
    attempt, _, id_ = from_.partition("/")
    if attempt.isdigit() and id_.isdigit():
        hint = f"It has: {', '.join(map(str, points)) or 'none'}. Or say latest, scratch, or a location."
        raise UsageError(f"{job.job_id} has no restore point {from_}.", hint=hint)
    return RestorePoint(0, 0, from_)


def says_the_same(its: JobSubmitted, spec: JobSubmitted, old_id: str, from_: str, reason: str, graph: Path) -> bool:
    """Whether a spec is the same replacement as an earlier one. The time of the request and the locations of graph and
    restore point may differ."""
    wanted = replace(
        spec, replaces=old_id, replacement=Replacement(from_, its.replacement.after_rev, reason),
        restore_from=its.restore_from, graph=its.graph,
    )  # fmt: skip
    if wanted != its:
        return False
    with graph.open("rb") as content:
        return file_digest(content, "sha256").hexdigest() == its.graph.sha256


def outcome(new: Watch, old: Watch) -> Replaced | None:
    """The outcome of a replacement; None while it is not decided."""
    job, before, entry = new.job(), old.job(), new.log.entry()
    if job.result is not None:
        state, reason = job.result.state, ""
    elif entry is not None:
        state, reason = str(entry.state), entry.reason
    else:
        return None
    job_id, old_id = job.job_id, before.job_id
    wins = before.intent[0].uuid if before.intent is not None else ""
    if wins == intent_id(job_id, CANCEL) or state == JobState.FINISHED:
        return Replaced(job_id, old_id, True, state, reason)
    over = before.result is not None or before.terminal_end is not None
    if over and entry is not None and entry.state is JobState.RUNNING and entry.known:
        return Replaced(job_id, old_id, True, state, reason)
    given_up = state in (JobState.QUARANTINED, JobState.CANCELED, JobState.FAILED)
    if given_up and (wins != intent_id(job_id, STOP) or before.intent is None or over):
        return Replaced(job_id, old_id, False, state, reason)
    return None

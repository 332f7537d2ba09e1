"""Intents for suspend, resume, cancel and retry: whether one is needed and possible, and its outcome."""

from __future__ import annotations

from ledger.core.fold.job import Job
from ledger.core.model.facts import IntentKind, RestoreBy
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Intent, register_name
from ledger.errors import NotFound, OutcomeUnknown, Refused, UsageError
from ledger.reader.reading import RetiredJob, result_of
from ledger.reader.watching import Watch


def canceled_already(watch: Watch, kind: IntentKind) -> RecoveryEntry | RetiredJob | None:
    """The entry or result of a job that is CANCELED already, if a cancel is wanted; else None."""
    if kind is not IntentKind.CANCEL:
        return None
    known = watch.log.entry() or result_of(watch.job())
    return known if known is not None and known.state == JobState.CANCELED else None


def entry_to_change(watch: Watch, kind: IntentKind) -> RecoveryEntry:
    """The folded entry, which may be newer than the published one. Raises: Refused, NotFound."""
    entry = watch.log.entry()
    if entry is None or entry.retiring:
        if watch.job().result is not None:
            raise Refused(f"{watch.log.job_id} is over and retired.")
        raise NotFound(f"There is no job {watch.log.job_id}.", hint="List the jobs: jobledger list")
    if entry.terminal:
        raise Refused(f"{entry.job_id} is {entry.state} already.")
    if entry.state is JobState.CANCELLING and kind is not IntentKind.CANCEL:
        raise Refused(f"{entry.job_id} is being canceled, and a cancel can't be undone.")
    return entry


def standing(entry: RecoveryEntry, kind: IntentKind, force: bool) -> Intent | None:
    """The winning intent, if it equals the wanted one; else None. A retry is always a new one."""
    wins = entry.intent
    if wins is None or wins.kind != kind or kind is IntentKind.RETRY:
        return None
    forced = wins.force and wins.attempt >= entry.attempt
    return Intent(wins.rev, wins.id) if forced or not force else None


def check_possible(job: Job, entry: RecoveryEntry, kind: IntentKind, from_: str, force: bool = False) -> None:
    """Checks that an intent has a sensible effect on a job. Raises: Refused if it would have no effect in the job's
    state, or a harmful one; UsageError if there is no such restore point."""
    if kind is IntentKind.RUN and entry.state is not JobState.SUSPENDED:
        hint = "jobledger retry brings it back." if entry.state is JobState.QUARANTINED else ""
        raise Refused(f"{entry.job_id} is {entry.state}, not SUSPENDED: there is nothing to resume.", hint=hint)
    if kind is not IntentKind.RETRY:
        return
    if entry.state is JobState.SUSPENDED:
        raise Refused(f"{entry.job_id} is SUSPENDED: a retry would end that.", hint="jobledger resume brings it back.")
    if not entry.outcome and not (force and entry.attempt):
        hint = "If its runner is gone for good, give up the attempt with --force." if entry.attempt else ""
        raise Refused(
            f"{entry.job_id} is {entry.state} and no end of attempt {entry.attempt} is known: there is nothing to retry.",
            hint=hint,
        )
    if entry.restore is RestoreBy.EXTERNAL and from_ != "latest":
        raise UsageError(
            f"{entry.job_id} restores by itself (restore: external): --from {from_} would have no effect.",
            hint="Reset the job's own state, then retry without --from.",
        )
    if from_ not in ("latest", "scratch"):
        registers = (c for checkpoints in job.checkpoints.values() for c in checkpoints)
        points = [point for register in sorted(registers) if (point := job.restore_point(register)) is not None]
        known = [str(point) for point in points if job.disposal(*point.order) is None]
        if from_ not in known:
            hint = f"It has: {', '.join(known) or 'none'}. Or say latest or scratch."
            raise UsageError(f"{entry.job_id} has no restore point {from_}.", hint=hint)


def outcome(
    watch: Watch, intent: Intent, kind: IntentKind, offset: int | None, timeout_s: float
) -> RecoveryEntry | RetiredJob:
    """Waits until the published entry covers the intent's record. Returns that entry, if the intent wins in it, or the
    result of a job that is canceled and retired by then.

    Raises: Refused if a later intent won or the job was over; OutcomeUnknown."""

    def published() -> bool | None:
        at = offset if offset is not None else watch.offset_of(intent)
        return (at is not None and watch.published_as_of() > at) or None

    job_id = watch.log.job_id
    if not watch.until(published, timeout_s):
        raise OutcomeUnknown(
            f"{register_name(intent)} of {job_id} is recorded, but not published within {timeout_s:g} s.",
            hint="Does a projector run? Once it does, see the effect: jobledger show",
        )
    entry = watch.published_entry()
    if entry is None or entry.retiring:
        if (canceled := canceled_already(watch, kind)) is not None:
            return canceled
        raise Refused(f"{job_id} was retired meanwhile.")
    wins = entry.intent
    if wins is None or (wins.rev, wins.id) != (intent.rev, intent.uuid):
        winner = f"intent/{wins.rev}/{wins.id} ({wins.kind} by {wins.actor or 'an unnamed actor'})" if wins else "none"
        raise Refused(f"The {kind} of {job_id} was superseded: {winner} wins.")
    too_late = kind is IntentKind.SUSPEND or (kind is IntentKind.CANCEL and entry.state is not JobState.CANCELED)
    if entry.terminal and too_late:
        raise Refused(f"{job_id} was over before that: it is {entry.state}.")
    return entry

"""Weaker variants of readers, of the offered restore points, and of pruning. See `mutants`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from ledger.core.fold import fold as core
from ledger.core.fold import restart, restore_points
from ledger.core.fold.job import Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, IntentKind
from ledger.core.model.registers import NUMBER_MAX, Intent, Register, register_name
from tests.laws import histories
from tests.laws.mutants import MUTANTS as MUTANTS
from tests.laws.mutants import mutant
from tests.support.offered import offered

# -- readers -----------------------------------------------------------------------------------------------------------


@mutant("set", "a_legal_record_sent_again_after_a_takeover_and_compacted_still_counts")
def the_events_fold_filters_by_epoch(m: MonkeyPatch) -> None:
    """A reader drops records with a lower epoch than one it saw before. So a legal record that was resent after a take-over
    and then compacted is lost. (The claim of an epoch is assumed to come just before its first record.)"""

    def registers_of(records: Any, start: Any = None) -> Any:
        highest, passed = 0, []
        for record in records:
            if record.epoch == 0 or record.epoch >= highest:
                passed.append(record)
            highest = max(highest, record.epoch)
        return plain(passed, start)

    plain = histories.registers_of
    m.setattr(histories, "registers_of", registers_of)


@mutant("compaction")
def the_cleaner_takes_tombstones_before_what_they_hide(m: MonkeyPatch) -> None:
    """This is no variant of the fold: it shows that the laws detect an illegal compaction."""

    def illegal(records: Any, upto: int) -> Any:
        return [r for r in records if r.value is not None or r.offset >= upto]

    from tests.laws import laws

    m.setattr(laws, "least_favourable", illegal)


@mutant("split")
def a_late_reader_goes_on_where_it_was(m: MonkeyPatch) -> None:
    """A reader that stopped at an offset continues there, although compaction removed later tombstones meanwhile."""
    plain = histories.cleaned
    m.setattr(histories, "cleaned", lambda records, upto, horizon=0, spared=0: plain(records, upto, upto, spared))


# -- restore points ----------------------------------------------------------------------------------------------------


def _by_lineage(job: Job) -> Iterator[Any]:
    if job.checkpointed:
        return restore_points._downwards(job, restore_points._newest_of(job.checkpointed))
    return restore_points._outside(job)


@mutant("restore", "oracle", "scratch_stays_scratch_after_verdicts_and_a_prune")
def the_offer_is_the_lineage_bounded_by_tops_record(m: MonkeyPatch) -> None:
    """The bound depends on the top attempt's record, and an attempt that only has a verdict has no record."""
    plain = restore_points._path_from

    def offer(job: Job, chosen: str) -> Iterator[Any]:
        record = job.attempt(job.top)
        if chosen != "latest":
            yield from plain(job, chosen)
        elif job.top in job.checkpoints or record is None:
            yield from _by_lineage(job)
        elif record.base is not None:
            yield from (p for p in _by_lineage(job) if p.order <= record.base.order)

    m.setattr(restore_points, "_path_from", offer)


@mutant("restore", "oracle")
def the_offer_looks_at_checkpoints_alone(m: MonkeyPatch) -> None:
    plain = restore_points._path_from
    m.setattr(
        restore_points, "_path_from", lambda job, chosen: _by_lineage(job) if chosen == "latest" else plain(job, chosen)
    )


@mutant("restore", "oracle")
def the_offer_is_every_checkpoint_newest_first(m: MonkeyPatch) -> None:
    def offer(job: Job, chosen: str) -> Iterator[Any]:
        own = sorted((c for checkpoints in job.checkpoints.values() for c in checkpoints), reverse=True)
        yield from (p for c in own if (p := job.restore_point(c)) is not None)
        yield from restore_points._outside(job)

    m.setattr(restore_points, "_path_from", offer)


@mutant("a_base_that_is_gone_is_no_start_from_scratch")
def nothing_named_is_said_where_nothing_is_offered(m: MonkeyPatch) -> None:
    m.setattr(restore_points, "named", lambda job: next(offered(job), None) is not None)


@mutant("zero", "oracle", "a_base_that_is_gone_gives_way_to_what_is_left")
def a_base_that_is_gone_ends_the_way(m: MonkeyPatch) -> None:
    m.setattr(Job, "checkpointed_below", lambda job, n: 0 if n <= NUMBER_MAX else _checkpointed(job))


def _checkpointed(job: Job) -> int:
    return next((n for n in sorted(job.checkpoints, reverse=True) if job._has_checkpoint(n)), 0)


@mutant("a_place_that_an_operator_named_is_not_replaced_by_another", "oracle")
def a_retry_takes_what_is_left(m: MonkeyPatch) -> None:
    plain = restore_points._path_from

    def offer(job: Job, chosen: str) -> Iterator[Any]:
        points = list(plain(job, chosen))
        yield from points if points or chosen == "scratch" else _by_lineage(job)

    m.setattr(restore_points, "_path_from", offer)


@mutant("zero", "a_base_that_is_gone_gives_way_to_what_is_left")
def what_a_lost_base_gives_way_to_is_pruned(m: MonkeyPatch) -> None:
    """Only checkpoints on the lineage of an existing base are kept, but not other remaining ones."""

    def kept(job: Job, keep: int) -> set[tuple[int, int]]:
        ways = [restore_points._path_from(job, "latest")]
        if pending := restore_points.pending_retry(job):
            ways.append(restore_points._path_from(job, pending.from_))
        record = job.attempt(job.recorded)
        lost = (
            record is not None
            and record.base is not None
            and record.base.attempt > 0
            and not any(id_ <= record.base.id for id_ in job.checkpoint_ids(record.base.attempt))
        )
        if lost and job.recorded > job.checkpointed:
            return set()
        return plain(job, keep)

    plain = restore_points.kept
    m.setattr(restore_points, "kept", kept)


# -- pruning -----------------------------------------------------------------------------------------------------------


def _also(m: MonkeyPatch, more: Callable[[Job, int, int], list[Register]]) -> None:
    """Patches `prunable` to return additional registers."""
    plain = core.prunable

    def prunable(job: Job, keep: int = RESTORE_POINTS, history: int = core.HISTORY) -> list[Register]:
        gone = plain(job, keep, history)
        if job.result is not None or job.spec is None:
            return gone
        return gone + [r for r in more(job, keep, history) if r not in gone and r in job.names]

    m.setattr(core, "prunable", prunable)


def _beyond(job: Job, history: int) -> set[int]:
    return set(sorted({*job.attempts, *job.runnings, *job.ends}, reverse=True)[history:]) - {job.top}


@mutant("restore", "what_the_newest_attempt_began_from_stays")
def pruning_takes_the_base(m: MonkeyPatch) -> None:
    """Only the newest checkpoints on the lineage are kept."""
    m.setattr(
        restore_points, "kept",
        lambda job, keep: {p.order for p in restore_points.first(job, _by_lineage(job), keep)},
    )  # fmt: skip


@mutant("retry", "restore", "a_place_that_a_retry_names_stays_until_its_attempt_ends")
def pruning_takes_what_a_pending_retry_names(m: MonkeyPatch) -> None:
    m.setattr(restore_points, "pending_retry", lambda job: None)
    plain = restore_points.retry_of_end

    def retry_of_end(job: Job) -> Any:
        wants = job.intent[1] if job.intent else None
        named = wants and wants.kind is IntentKind.RETRY and wants.attempt == job.top
        return wants if named and job.end(job.top) else None

    assert plain is not retry_of_end
    m.setattr(restore_points, "retry_of_end", retry_of_end)


@mutant("restore", "what_the_newest_attempt_began_from_stays")
def pruning_by_attempt_takes_checkpoints_of_old_attempts(m: MonkeyPatch) -> None:
    _also(m, lambda job, keep, history: [c for n in _beyond(job, history) for c in job.checkpoints.get(n, ())])


@mutant("scratch_stays_scratch_after_verdicts_and_a_prune")
def pruning_takes_the_newest_record(m: MonkeyPatch) -> None:
    _also(m, lambda job, keep, history: [a for n in _beyond(job, history) for a in job.attempts.get(n, ())])


@mutant("set", "prunable", "finished_is_final_whatever_comes_later")
def pruning_takes_terminal_ends(m: MonkeyPatch) -> None:
    _also(m, lambda job, keep, history: [e for n in _beyond(job, history) for e in job.ends.get(n, ())])


@mutant("set", "prunable", "what_the_newest_attempt_began_from_stays")
def pruning_takes_the_top_with_the_history(m: MonkeyPatch) -> None:
    def top(job: Job, keep: int, history: int) -> list[Register]:
        if not job.top:
            return []
        return [*job.attempts.get(job.top, ()), *job.ends.get(job.top, ())]

    _also(m, lambda job, keep, history: top(job, keep, history) if len(_beyond(job, 0)) >= history else [])


@mutant("prunable", "a_cancel_outlasts_a_later_intent_and_a_prune")
def pruning_keeps_only_the_highest_revision(m: MonkeyPatch) -> None:
    plain = core.prunable

    def prunable(job: Job, keep: int = RESTORE_POINTS, history: int = core.HISTORY) -> list[Register]:
        gone = plain(job, keep, history)
        if job.result is not None or job.spec is None or not job.intents:
            return gone
        highest = max(i.rev for i in job.intents)
        return [r for r in gone if not isinstance(r, Intent)] + [i for i in job.intents if i.rev < highest]

    m.setattr(core, "prunable", prunable)


@mutant("set", "prunable", "what_the_newest_attempt_began_from_stays")
def pruning_takes_the_admission(m: MonkeyPatch) -> None:
    _also(m, lambda job, keep, history: [r for r in job.names if register_name(r) == "admitted" and job.top > 1])


@mutant("a_savepoint_stays_until_it_is_disposed_of")
def pruning_takes_savepoints(m: MonkeyPatch) -> None:
    def savepoints(job: Job, keep: int, history: int) -> list[Register]:
        kept = restore_points.kept(job, keep)
        every = [c for checkpoints in job.checkpoints.values() for c in checkpoints if (c.n, c.id) not in kept]
        return [
            c for c in every
            if (fact := job.fact(c, CheckpointCompleted)) is not None and fact.kind is CheckpointKind.SAVEPOINT
        ]  # fmt: skip

    _also(m, savepoints)


# -- budgets -----------------------------------------------------------------------------------------------------------


@mutant("oracle", "a_retry_forgives_failures_and_their_times")
def a_retry_forgives_the_counter_and_not_the_times(m: MonkeyPatch) -> None:
    plain = core.fold_job

    def fold_job(job: Job, keep: int = RESTORE_POINTS) -> Any:
        entry, record = plain(job, keep), job.attempt(job.top)
        if entry is None or record is None or entry.terminal:
            return entry
        return replace(entry, failure_times=record.failure_times)

    m.setattr(core, "fold_job", fold_job)


@mutant("oracle", "jitter_leads_no_job_beyond_the_longest_delay")
def jitter_leads_beyond_the_longest_delay(m: MonkeyPatch) -> None:
    """The delay is capped before the jitter is added."""
    plain = restart.after_failure

    def after_failure(policy: Any, *rest: Any) -> Any:
        verdict = plain(replace(policy, delay_max_s=1e9), *rest)
        if policy.kind is not restart.RestartKind.EXPONENTIAL_DELAY:
            return verdict
        grown = restart._backoff(policy, verdict.failures) / restart._backoff(
            replace(policy, delay_max_s=1e9), verdict.failures
        )
        return verdict._replace(delay_s=round(verdict.delay_s * grown, 3))

    m.setattr(restart, "after_failure", after_failure)


def _exceeded(m: MonkeyPatch, other: Callable[..., bool]) -> None:
    plain = restart._exceeded
    m.setattr(restart, "_exceeded", lambda policy, *rest: other(lambda *r: plain(policy, *r), policy, *rest))


@mutant("oracle", "a_rate_counts_the_newest_failure")
def a_rate_leaves_out_the_newest_failure(m: MonkeyPatch) -> None:
    _exceeded(m, lambda plain, policy, times, failed_at, recorded_at: plain(times, None, failed_at))


@mutant("oracle", "a_rate_counts_from_failure_to_failure")
def a_rate_counts_from_the_start_of_the_attempt(m: MonkeyPatch) -> None:
    _exceeded(m, lambda plain, policy, times, failed_at, recorded_at: plain(times, recorded_at, recorded_at))


@mutant("oracle", "a_rate_counts_from_failure_to_failure")
def a_rate_counts_all_the_failures_that_there_are(m: MonkeyPatch) -> None:
    _exceeded(m, lambda plain, policy, times, *rest: len(times) >= policy.failures_per_interval)

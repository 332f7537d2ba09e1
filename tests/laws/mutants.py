"""Weaker variants of the fold and of the storage. Each lacks one rule, or implements it in the naive way.

Each is a patch of `ledger.core` (or of the storage of a history) during one test. Its killers are laws, or histories
written by hand (`directed`), that must detect it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pytest import MonkeyPatch

from ledger.core.fold import fold as core
from ledger.core.fold import job as view
from ledger.core.fold import restore_points
from ledger.core.fold.job import INTENT_RANK, OUTCOME_RANK, RESULT_RANK, TERMINAL_OUTCOMES, Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import AttemptEnded, AttemptStarted, IntentDeclared, IntentKind, JobAdmitted
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Attempt, Ended, Intent, Register, Result
from tests.laws import histories

Patch = Callable[[MonkeyPatch], None]


class Mutant(NamedTuple):
    """A weaker variant. killers: laws or histories; each must kill it. examples: the number of histories, with a fixed
    seed, within which a law must kill it. error: the exception that the killer raises."""

    patch: Patch
    killers: tuple[str, ...]
    examples: int
    error: type[Exception]


MUTANTS: dict[str, Mutant] = {}


def mutant(*killers: str, examples: int = 4000, error: type[Exception] = AssertionError) -> Callable[[Patch], Patch]:
    def register(patch: Patch) -> Patch:
        MUTANTS[patch.__name__] = Mutant(patch, killers, examples, error)
        return patch

    return register


def _property(m: MonkeyPatch, name: str, work_out: Callable[[Job], Any]) -> None:
    assert name in Job.__dict__
    m.setattr(Job, name, property(work_out), raising=False)  # a cached attribute can't be read from the class


# -- two facts under one key -------------------------------------------------------------------------------------------


def _stored(m: MonkeyPatch, kind: type, key: Callable[[Any], str]) -> None:
    """Stores registers of a kind under other keys. Readers then get the register from the value."""
    plain = histories.name_of

    def name_of(register: Register) -> bytes:
        return key(register).encode() if isinstance(register, kind) else plain(register)

    m.setattr(histories, "name_of", name_of)


def _written(job: Job, register: Register) -> Any:
    return job._registers[job.names[register]].register


@mutant("set", "order")
def intent_is_one_register_and_the_last_writer_wins(m: MonkeyPatch) -> None:
    def intent(job: Job) -> Any:
        for register in job.intents:
            fact = job.fact(register, IntentDeclared)
            return (_written(job, register), fact) if fact else None
        return None

    _stored(m, Intent, lambda i: "intent/1/one")
    _property(m, "intent", intent)


@mutant("order", "of_two_results_the_stronger_counts")
def result_is_one_register(m: MonkeyPatch) -> None:
    def result(job: Job) -> Any:
        return next((_written(job, r) for r in job.results), None)

    plain = Job.fact

    def fact(job: Job, register: Register, kind: type) -> Any:
        return plain(job, Result("FINISHED") if isinstance(register, Result) else register, kind)

    _stored(m, Result, lambda r: "result/FINISHED")
    _property(m, "result", result)
    m.setattr(Job, "fact", fact)


@mutant("order", "a_record_of_an_older_epoch_that_comes_late_is_history")
def attempt_is_one_register_for_all_epochs(m: MonkeyPatch) -> None:
    _stored(m, Attempt, lambda a: f"attempt/{a.n}/1")


@mutant("order", "an_end_is_not_overwritten_by_a_weaker_one_of_the_same_writer")
def permanent_is_a_flag_in_the_value(m: MonkeyPatch) -> None:
    def strongest(job: Job, ends: Any) -> Any:
        readable = [(_written(job, e), fact) for e in ends if (fact := job.fact(e, AttemptEnded)) is not None]
        return max(readable, key=lambda x: view._end_order(x[0]), default=None)

    _stored(m, Ended, lambda e: f"ended/{e.n}/{e.outcome.removesuffix('-permanent')}/{e.writer}")
    m.setattr(Job, "_strongest", strongest)


# -- which fact counts -------------------------------------------------------------------------------------------------


def _winner(m: MonkeyPatch, key: Callable[[tuple[Intent, IntentDeclared]], Any]) -> None:
    def intent(job: Job) -> Any:
        readable = [(i, fact) for i in job.intents if (fact := job.fact(i, IntentDeclared)) is not None]
        return max(readable, key=key, default=None)

    _property(m, "intent", intent)


@mutant("final", "oracle", "a_cancel_outlasts_a_later_intent_and_a_prune")
def a_cancel_can_be_overtaken(m: MonkeyPatch) -> None:
    _winner(m, lambda x: (x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid))


@mutant("oracle")
def the_lowest_revision_wins(m: MonkeyPatch) -> None:
    _winner(m, lambda x: (x[1].kind is IntentKind.CANCEL, -x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid))


@mutant("order", "of_two_intents_of_one_revision_the_more_careful_counts")
def of_one_revision_the_first_read_wins(m: MonkeyPatch) -> None:
    _winner(m, lambda x: (x[1].kind is IntentKind.CANCEL, x[0].rev))


@mutant("final", "oracle", "finished_is_final_whatever_comes_later")
def terminal_only_at_the_top(m: MonkeyPatch) -> None:
    def terminal_end(job: Job) -> Any:
        end = job.end(job.top)
        return end if end and end[0].outcome in TERMINAL_OUTCOMES else None

    _property(m, "terminal_end", terminal_end)


@mutant("final", "oracle", "a_cancel_is_no_end")
def canceled_is_derived_from_the_intent(m: MonkeyPatch) -> None:
    plain = core.fold_job

    def fold_job(job: Job, keep: int = RESTORE_POINTS) -> Any:
        entry = plain(job, keep)
        if entry and entry.state is JobState.CANCELLING and (job.top == 0 or job.end(job.top)):
            return replace(entry, state=JobState.CANCELED)
        return entry

    m.setattr(core, "fold_job", fold_job)


@mutant("oracle", "suspending_does_not_cancel")
def a_stop_is_a_cancel(m: MonkeyPatch) -> None:
    """A stop for a suspension has the outcome of a cancel."""

    def terminal_end(job: Job) -> Any:
        ends = [e for ends in job.ends.values() for e in ends if e.outcome in (*TERMINAL_OUTCOMES, "stopped")]
        found = job._strongest(ends)
        if found and found[0].outcome == "stopped":
            return found[0]._replace(outcome="canceled"), found[1]
        return found

    _property(m, "terminal_end", terminal_end)


@mutant("oracle", "a_crash_during_a_stop_is_the_stop")
def stopped_ranks_below_failed(m: MonkeyPatch) -> None:
    order = ["stopped", "lost", "failed", "failed-permanent", "abandoned", "canceled", "finished"]
    m.setattr(view, "OUTCOME_RANK", {outcome: rank for rank, outcome in enumerate(order)})


@mutant("oracle", "finished_is_final_whatever_comes_later")
def abandoned_ranks_above_finished(m: MonkeyPatch) -> None:
    m.setattr(view, "OUTCOME_RANK", {**OUTCOME_RANK, "abandoned": 99})


@mutant("order", "oracle")
def ends_have_no_rank(m: MonkeyPatch) -> None:
    m.setattr(view, "_end_order", lambda end: 0)


@mutant("oracle")
def the_last_writers_name_decides_between_ends(m: MonkeyPatch) -> None:
    m.setattr(view, "_end_order", lambda end: end.writer)


@mutant("oracle", "of_two_equal_ends_the_runners_word_counts")
def a_reconcilers_word_counts_before_the_runners(m: MonkeyPatch) -> None:
    m.setattr(view, "is_runner", lambda writer: writer.startswith("reconciler-"))


@mutant("oracle", "a_record_of_an_older_epoch_that_comes_late_is_history")
def the_lowest_epoch_counts(m: MonkeyPatch) -> None:
    def attempt(job: Job, n: int) -> Any:
        for register in sorted(job.attempts.get(n, ()), key=lambda a: a.epoch):
            if (fact := job.fact(register, AttemptStarted)) is not None:
                return fact
        return None

    m.setattr(Job, "attempt", attempt)


@mutant("set", "oracle", "failures_are_what_the_record_says")
def failures_are_counted_from_the_ends_that_are_there(m: MonkeyPatch) -> None:
    plain = Job.attempt

    def attempt(job: Job, n: int) -> Any:
        record = plain(job, n)
        before = sum(1 for k in job.ends if k < n and (end := job.end(k)) and end[0].outcome in ("failed", "lost"))
        return record and replace(record, failures=before)

    m.setattr(Job, "attempt", attempt)


@mutant("oracle", "an_older_retry_revives_nothing")
def a_retry_counts_for_any_attempt(m: MonkeyPatch) -> None:
    def retry(job: Job) -> Any:
        wants = job.intent[1] if job.intent else None
        return wants if wants and wants.kind is IntentKind.RETRY and job.end(job.top) else None

    m.setattr(restore_points, "retry_of_end", retry)


@mutant("oracle", "an_end_alone_tells_of_an_attempt")
def top_is_known_from_attempt_records_alone(m: MonkeyPatch) -> None:
    _property(m, "top", lambda job: max(job.attempts, default=0))


@mutant("oracle", "of_two_results_the_stronger_counts")
def a_result_ends_nothing(m: MonkeyPatch) -> None:
    _property(m, "result", lambda job: None)


@mutant("oracle", "of_two_results_the_stronger_counts")
def the_weakest_result_counts(m: MonkeyPatch) -> None:
    m.setattr(view, "RESULT_RANK", {state: -rank for state, rank in RESULT_RANK.items()})


@mutant("oracle", "a_job_that_is_not_admitted_is_unknown")
def without_admission_the_latest_spec_counts(m: MonkeyPatch) -> None:
    _property(m, "admitted", lambda job: JobAdmitted(max(s.digest for s in job.specs)) if job.specs else None)


@mutant("clock", "how_long_an_attempt_ran_is_what_its_end_says")
def healthy_time_is_taken_from_record_timestamps(m: MonkeyPatch) -> None:
    plain = Job.end

    def end(job: Job, n: int) -> Any:
        found = plain(job, n)
        return found and (found[0], replace(found[1], ran_for_s=job._registers[job.names[found[0]]].time_s))

    m.setattr(Job, "end", end)


@mutant("unreadable", "an_end_that_cannot_be_read_ends_nothing")
def the_key_of_an_end_is_enough(m: MonkeyPatch) -> None:
    def strongest(job: Job, ends: Any) -> Any:
        found = max(ends, key=view._end_order, default=None)
        return found and (found, job.fact(found, AttemptEnded) or AttemptEnded())

    m.setattr(Job, "_strongest", strongest)


@mutant("unreadable", "a_sign_that_cannot_be_read_says_nothing")
def a_sign_that_cannot_be_read_is_a_sign(m: MonkeyPatch) -> None:
    m.setattr(Job, "known", lambda job, n: n in job.runnings or n in job.checkpoints or job.end(n) is not None)


@mutant("isolation", "unreadable", error=AttributeError)
def what_cannot_be_read_raises(m: MonkeyPatch) -> None:
    def read(register: Register, raw: Any) -> Any:
        return raw.fact

    m.setattr(histories, "read", read)

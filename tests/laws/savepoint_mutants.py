"""Weaker variants of the rules on savepoints: requests, disposals, deletion by policy, and the restore point that a job
inherits from the job that it replaces. See `mutants`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

from pytest import MonkeyPatch

from ledger.core.fold import fold as core
from ledger.core.fold import restore_points, savepoints
from ledger.core.fold.job import Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import CheckpointCompleted
from tests.laws.mutants import MUTANTS as MUTANTS
from tests.laws.mutants import mutant


@mutant("oracle", "restore", "what_is_given_up_is_not_offered_and_nothing_takes_its_place")
def what_is_given_up_is_offered(m: MonkeyPatch) -> None:
    m.setattr(restore_points, "first", lambda job, way, keep: tuple(islice(way, keep)))


@mutant("oracle", "what_is_given_up_is_not_offered_and_nothing_takes_its_place")
def what_is_given_up_makes_room_for_one_more(m: MonkeyPatch) -> None:
    """The additional point may be pruned already. A late copy of its record would then be offered."""
    m.setattr(
        restore_points,
        "first",
        lambda job, way, keep: tuple(islice((p for p in way if job.disposal(*p.order) is None), keep)),
    )


@mutant("set", "oracle", "what_is_given_up_was_there_even_when_it_is_gone")
def what_is_given_up_was_never_there(m: MonkeyPatch) -> None:
    def has_checkpoint(job: Job, n: int) -> bool:
        return any(job.fact(c, CheckpointCompleted) is not None for c in job.checkpoints.get(n, ()))

    m.setattr(Job, "_has_checkpoint", has_checkpoint)


@mutant("oracle", "what_runs_keeps_what_it_began_from")
def what_runs_loses_what_it_began_from(m: MonkeyPatch) -> None:
    plain = savepoints.disposals

    class Over(Job):
        def end(self, n: int) -> Any:
            return super().end(n) or "over"

    def disposals(job: Job, kept: Any) -> Any:
        return plain(Over(job.job_id, job._registers, job._read), kept)

    m.setattr(savepoints, "disposals", disposals)


@mutant("oracle", "the_policy_deletes_one_more_than_it_keeps_and_none_that_is_offered")
def the_policy_deletes_what_is_offered(m: MonkeyPatch) -> None:
    plain = savepoints.disposals
    m.setattr(savepoints, "disposals", lambda job, kept: plain(job, ()))


@mutant("oracle", "an_ask_is_open_until_a_savepoint_names_it_and_the_next_follows_the_newest")
def an_ask_that_is_answered_stays_open(m: MonkeyPatch) -> None:
    m.setattr(core, "open_asks", lambda job: sorted(job.asks))


@mutant("oracle", "an_ask_is_open_until_a_savepoint_names_it_and_the_next_follows_the_newest")
def the_next_ask_follows_the_first_savepoint(m: MonkeyPatch) -> None:
    m.setattr(savepoints, "newest", lambda job: min(savepoints._periodic(job), default=savepoints.NO_SAVEPOINT))


@mutant("oracle", "a_takeover_inherits_until_it_has_a_checkpoint_and_goes_on_where_it_began")
def what_has_checkpoints_of_its_own_still_inherits(m: MonkeyPatch) -> None:
    plain = restore_points.inherits

    def inherits(job: Job, spec: Any) -> bool:
        return plain(Job(job.job_id, {n: v for n, v in job._registers.items() if b"/" not in n}, job._read), spec)

    m.setattr(restore_points, "inherits", inherits)


@mutant("oracle", "a_takeover_inherits_until_it_has_a_checkpoint_and_goes_on_where_it_began")
def a_record_says_nothing_of_where_a_replacing_job_began(m: MonkeyPatch) -> None:
    plain = restore_points._outside
    m.setattr(restore_points, "_outside", lambda job, recorded=None: plain(job))


@mutant("oracle", "what_restores_by_itself_is_offered_nothing")
def a_job_that_restores_by_itself_is_offered_its_checkpoints(m: MonkeyPatch) -> None:
    plain = core.fold_job

    def fold_job(job: Job, keep: int = RESTORE_POINTS) -> Any:
        entry = plain(job, keep)
        if entry is None or entry.retiring:
            return entry
        return replace(entry, restore_points=restore_points.first(job, restore_points.path(job), keep))

    m.setattr(core, "fold_job", fold_job)

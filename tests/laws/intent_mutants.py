"""More weaker variants of the fold: forced intents, and intents of a kind that this version does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pytest import MonkeyPatch

from ledger.core.fold import fold as core
from ledger.core.fold.job import INTENT_RANK, Job
from ledger.core.fold.restore_points import RESTORE_POINTS
from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.registers import Intent
from tests.laws.mutants import MUTANTS as MUTANTS
from tests.laws.mutants import _winner, mutant


def _forced(m: MonkeyPatch, force: Callable[[Job], bool]) -> None:
    """Patches the fold: the entry's intent has `force` if `force(job)` is true."""
    plain = core.fold_job

    def fold_job(job: Job, keep: int = RESTORE_POINTS) -> Any:
        entry = plain(job, keep)
        if entry is None or entry.intent is None:
            return entry
        return replace(entry, intent=replace(entry.intent, force=force(job)))

    m.setattr(core, "fold_job", fold_job)


@mutant("oracle")
def force_is_lost_on_the_way(m: MonkeyPatch) -> None:
    _forced(m, lambda job: False)


@mutant("set", "oracle")
def one_forced_intent_forces_every_later_one(m: MonkeyPatch) -> None:
    """The first prune removes that effect."""
    _forced(m, lambda job: any(fact.force for i in job.intents if (fact := job.fact(i, IntentDeclared)) is not None))


@mutant("oracle")
def what_is_forced_wins(m: MonkeyPatch) -> None:
    _winner(m, lambda x: (x[1].kind is IntentKind.CANCEL, x[1].force, x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid))


@mutant("oracle")
def an_intent_of_unknown_kind_is_passed_over(m: MonkeyPatch) -> None:
    _winner(m, lambda x: (
        x[1].kind is IntentKind.CANCEL, x[1].kind is not IntentKind.UNKNOWN, x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid,
    ))  # fmt: skip


@mutant("final", "oracle")
def an_intent_of_unknown_kind_overtakes_a_cancel(m: MonkeyPatch) -> None:
    careful = (IntentKind.CANCEL, IntentKind.UNKNOWN)
    _winner(m, lambda x: (x[1].kind in careful, x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid))


@mutant("oracle")
def an_intent_of_unknown_kind_gives_way_to_one_of_its_revision(m: MonkeyPatch) -> None:
    rank = INTENT_RANK | {IntentKind.UNKNOWN: -1}
    _winner(m, lambda x: (x[1].kind is IntentKind.CANCEL, x[0].rev, rank[x[1].kind], x[0].uuid))


@mutant("oracle")
def an_intent_of_unknown_kind_runs_the_job(m: MonkeyPatch) -> None:
    """The entry still names the intent."""
    plain = Job.fact

    def fact(job: Job, register: Any, kind: Any) -> Any:
        found = plain(job, register, kind)
        if isinstance(register, Intent) and found is not None and found.kind is IntentKind.UNKNOWN:
            return replace(found, kind=IntentKind.RUN)
        return found

    m.setattr(Job, "fact", fact)

"""Histories written by hand: savepoints, replacements of a job, jobs that restore by themselves. See `directed`."""

from __future__ import annotations

from ledger.core.model.facts import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    Replacement,
    RestoreBy,
    SavepointDisposed,
)
from ledger.core.model.registers import Ask, Attempt, Checkpoint, Disposed
from tests.laws.directed import Hand, by_hand
from tests.laws.drawn import World, place
from tests.laws.histories import DIGEST, OUTSIDE


def savepoint(job: Hand, n: int, id_: int, ask: str | None = None) -> None:
    fact = CheckpointCompleted(f"{n}/{id_}", kind=CheckpointKind.SAVEPOINT, ask=ask)
    job.log.send(Checkpoint(n, id_), fact)


def give_up(job: Hand, n: int, id_: int, ask: str | None = None) -> None:
    job.log.send(Disposed(n, id_, "u"), SavepointDisposed(f"{n}/{id_}", ask=ask))


@by_hand
def what_is_given_up_is_not_offered_and_nothing_takes_its_place() -> None:
    job = Hand()
    job.attempt(1)
    job.checkpoint("1/1")
    savepoint(job, 1, 2)
    job.checkpoint("1/3")
    give_up(job, 1, 2)
    assert job.offers() == ["1/3"]


@by_hand
def what_is_given_up_was_there_even_when_it_is_gone() -> None:
    job = Hand()
    job.attempt(1)
    savepoint(job, 1, 1)
    give_up(job, 1, 1)
    before = job.entry()
    assert before.known and before.restore_from_named and before.disposals
    job.log.dispose()
    job.log.clean(0)
    after = job.entry()
    assert after.known and after.restore_from_named and not after.disposals


@by_hand
def what_runs_keeps_what_it_began_from() -> None:
    job = Hand()
    savepoint(job, 1, 1)
    job.attempt(2, "1/1")
    give_up(job, 1, 1)
    assert job.entry().disposals == ()
    job.end(2, "failed")
    assert [point.order for point in job.entry().disposals] == [(1, 1)]


@by_hand
def the_policy_deletes_one_more_than_it_keeps_and_none_that_is_offered() -> None:
    job = Hand(World(keep_max=1))
    job.attempt(1)
    for id_ in (1, 2):
        savepoint(job, 1, id_, f"periodic-{id_ - 1}-{id_ - 1}-0")
    assert job.entry().disposals == ()
    savepoint(job, 1, 3)
    assert [point.order for point in job.entry().disposals] == [(1, 1)]


@by_hand
def an_ask_is_open_until_a_savepoint_names_it_and_the_next_follows_the_newest() -> None:
    job = Hand(World(keep_max=0))
    job.attempt(1)
    job.plain(Ask("u1"), Ask("periodic-0-0-0"))
    assert job.entry().asks == ("periodic-0-0-0", "u1") and job.entry().next_ask == "periodic-0-0-1"
    savepoint(job, 1, 1, "u1")
    assert job.entry().asks == () and job.entry().next_ask == "periodic-1-1-0"
    savepoint(job, 1, 2, "periodic-1-1-0")
    assert job.entry().next_ask == "periodic-1-2-0"
    give_up(job, 1, 2, "periodic-1-1-0")
    assert job.entry().next_ask == "periodic-1-2-0"


@by_hand
def a_takeover_inherits_until_it_has_a_checkpoint_and_goes_on_where_it_began() -> None:
    job = Hand(World(replacement=Replacement("latest")))
    job.log.send(Attempt(1, 1), AttemptStarted(DIGEST, OUTSIDE))
    assert job.entry().inherits and job.offers() == [OUTSIDE.location]
    job.checkpoint("1/1")
    assert not job.entry().inherits and job.offers() == ["1/1"]


@by_hand
def what_restores_by_itself_is_offered_nothing() -> None:
    job = Hand(World(restore=RestoreBy.EXTERNAL))
    job.attempt(1)
    job.checkpoint("1/1")
    job.end(1, "failed")
    assert job.offers() == [] and job.entry().marker == place(1, 1) and not job.entry().restore_from_named

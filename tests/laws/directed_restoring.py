"""Histories written by hand about the restore point of the next attempt, and the records that stay in the log for it."""

from __future__ import annotations

from ledger.core.model.recovery import JobState
from tests.laws.directed import Hand, by_hand
from tests.laws.drawn import place


@by_hand
def a_savepoint_stays_until_it_is_disposed_of() -> None:
    job = Hand()
    job.attempt(1)
    job.checkpoint("1/1", savepoint=True)
    for id_ in range(2, 7):
        job.checkpoint(f"1/{id_}")
    job.log.prune()
    job.end(1, "failed")
    job.intend(1, "RETRY", 1, from_="1/1")
    assert job.offers() == ["1/1"]


@by_hand
def a_base_that_is_gone_gives_way_to_what_is_left() -> None:
    """Attempt 2 was planned from an entry of before the prune. The start was forced, so attempt 1 still ran."""
    job = Hand()
    job.attempt(1)
    for id_ in range(1, 4):
        job.checkpoint(f"1/{id_}")
    job.log.prune()
    job.attempt(2, "1/1")
    job.end(2, "failed")
    assert job.offers() == ["1/3", "1/2"] and job.entry().state is JobState.RESTARTING
    job.checkpoint("1/4")
    job.log.prune()
    job.log.clean(0)
    assert job.offers() == ["1/4", "1/3"], "points that are offered in this way are kept too"


@by_hand
def a_base_that_is_gone_is_no_start_from_scratch() -> None:
    """All checkpoints of attempt 1 are gone."""
    job = Hand()
    job.attempt(1)
    job.attempt(2, "1/1")
    job.end(2, "failed")
    assert job.offers() == [] and job.entry().restore_from_named


@by_hand
def a_place_that_an_operator_named_is_not_replaced_by_another() -> None:
    job = Hand()
    job.attempt(1)
    for id_ in range(1, 4):
        job.checkpoint(f"1/{id_}")
    job.log.prune()
    job.end(1, "failed")
    job.intend(1, "RETRY", 1, from_="1/1")
    assert job.offers() == [] and job.entry().restore_from_named


@by_hand
def scratch_stays_scratch_after_verdicts_and_a_prune() -> None:
    """The newest attempt record is a start from scratch. Two verdicts without attempt records displace it from the
    history."""
    job = Hand()
    job.attempt(1)
    job.attempt(2)
    job.end(3, "failed-permanent", "reconciler-1")
    job.end(4, "failed-permanent", "reconciler-1")
    job.log.prune()
    job.checkpoint("1/1")
    job.intend(1, "RETRY", 4)
    assert job.entry().state is JobState.RESTARTING and job.offers() == []


@by_hand
def a_record_of_an_older_epoch_that_comes_late_is_history() -> None:
    job = Hand()
    job.checkpoint("1/1")
    job.attempt(2, "1/1", epoch=2, failures=1)
    job.attempt(2, None, epoch=1, failures=0)
    assert job.offers() == ["1/1"]
    assert (job.entry().base, job.entry().failures) == (place(1, 1), 1)


@by_hand
def a_place_that_a_retry_names_stays_until_its_attempt_ends() -> None:
    job = Hand()
    job.attempt(1)
    for id_ in range(1, 3):
        job.checkpoint(f"1/{id_}")
    job.intend(1, "RETRY", 1, from_="1/1")
    for id_ in range(3, 6):
        job.checkpoint(f"1/{id_}")
    job.log.prune()
    job.end(1, "failed")
    assert job.offers() == ["1/1"]


@by_hand
def what_the_newest_attempt_began_from_stays() -> None:
    """Neither newer checkpoints of the previous attempt nor later attempts without checkpoints change it."""
    job = Hand()
    job.attempt(1)
    for id_ in range(1, 4):
        job.checkpoint(f"1/{id_}")
    for n in range(2, 7):
        job.attempt(n, "1/1", failures=n)
        job.end(n, "failed-permanent")
        job.log.prune()
        assert job.offers() == ["1/1"]
        assert (job.entry().attempt, job.entry().base, job.entry().failures) == (n, place(1, 1), n)

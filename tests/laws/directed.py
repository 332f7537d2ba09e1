"""Histories written by hand, for rules that random ones reach seldom or cannot see. Each raises AssertionError if the
fold does not say what it must.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.core.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    RestartKind,
)
from ledger.core.recovery import JobState, RecoveryEntry
from ledger.core.registers import Admitted, Attempt, Checkpoint, Ended, Intent, Register, Result, Running, Spec
from tests.laws import histories
from tests.laws.drawn import World, place, value
from tests.laws.histories import DIGEST, Log

HISTORIES: dict[str, Callable[[], None]] = {}


def by_hand(check: Callable[[], None]) -> Callable[[], None]:
    HISTORIES[check.__name__] = check
    return check


class Hand:
    """A job written down fact by fact."""

    def __init__(self, world: World | None = None) -> None:
        self.world, self.log = world or World(), Log()
        self.plain(Spec(DIGEST), Admitted())

    def plain(self, *registers: Register) -> None:
        for register in registers:
            self.log.send(register, value(register, self.world))

    def attempt(self, n: int, base: str | None = None, epoch: int = 1, failures: int = 0) -> None:
        self.log.send(Attempt(n, epoch), AttemptStarted(DIGEST, _place(base), failures=failures))

    def checkpoint(self, where: str, base: str | None = None, savepoint: bool = False) -> None:
        n, id_ = map(int, where.split("/"))
        kind = CheckpointKind.SAVEPOINT if savepoint else CheckpointKind.CHECKPOINT
        self.log.send(Checkpoint(n, id_), CheckpointCompleted(where, base=_place(base), kind=kind))

    def end(self, n: int, outcome: str, writer: str = "agent-1") -> None:
        self.plain(Ended(n, outcome, writer))

    def intend(self, rev: int, kind: str, attempt: int = 0, from_: str = "latest") -> None:
        self.log.send(Intent(rev, f"u{rev}"), IntentDeclared(IntentKind(kind), attempt, from_))

    def unreadable(self, register: Register) -> None:
        """A value that was written for another register."""
        self.plain(register)
        last = self.log.records[-1]
        self.log.records[-1] = last._replace(value=last.value._replace(register=Spec(DIGEST)))

    def entry(self) -> RecoveryEntry:
        entry = histories.fold(self.log.registers())
        assert entry is not None
        return entry

    def offers(self) -> list[str]:
        return [str(point) for point in self.entry().restore_points]


def _place(text: str | None):
    return None if text is None else place(*map(int, text.split("/")))


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
    """V9: attempt 2 was planned from an entry of before the prune, and by force: attempt 1 lived on."""
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
    assert job.offers() == ["1/4", "1/3"], "what is offered so is kept as well"


@by_hand
def a_base_that_is_gone_is_no_start_from_scratch() -> None:
    """Nothing is left of attempt 1."""
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
    """V1 and V3: the newest record says `from scratch`; two verdicts without records push it out of the history."""
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
def suspending_does_not_cancel() -> None:
    job = Hand()
    job.attempt(1)
    job.intend(1, "SUSPEND", 1)
    job.end(1, "stopped")
    assert job.entry().state is JobState.SUSPENDED
    job.intend(2, "RUN", 1)
    assert job.entry().state is JobState.RESTARTING


@by_hand
def a_crash_during_a_stop_is_the_stop() -> None:
    """The order's outcome stands above the exit code: it uses up nothing of the budget."""
    job = Hand()
    job.attempt(1, failures=1)
    job.end(1, "failed")
    job.end(1, "stopped")
    assert job.entry().state is JobState.RESTARTING and job.entry().failures == 1


@by_hand
def an_older_retry_revives_nothing() -> None:
    job = Hand()
    job.intend(1, "RETRY", 1)
    job.attempt(2)
    job.end(2, "failed-permanent")
    assert job.entry().state is JobState.QUARANTINED


@by_hand
def a_record_of_an_older_epoch_that_comes_late_is_history() -> None:
    job = Hand()
    job.checkpoint("1/1")
    job.attempt(2, "1/1", epoch=2, failures=1)
    job.attempt(2, None, epoch=1, failures=0)
    assert job.offers() == ["1/1"]
    assert (job.entry().base, job.entry().failures) == (place(1, 1), 1)


@by_hand
def a_legal_record_sent_again_after_a_takeover_and_compacted_still_counts() -> None:
    """No epoch filter on the events: a record of epoch 1, one of epoch 2, the first once more, and the cleaner."""
    job = Hand()
    job.attempt(3, epoch=1)
    job.attempt(2, epoch=2)
    job.log.send_again(3)  # the last but one
    job.log.clean(0)
    assert job.entry().attempt == 3


@by_hand
def an_end_is_not_overwritten_by_a_weaker_one_of_the_same_writer() -> None:
    job = Hand()
    job.attempt(1)
    job.end(1, "failed-permanent")
    job.end(1, "failed")
    assert job.entry().state is JobState.QUARANTINED


@by_hand
def a_job_that_is_not_admitted_is_unknown() -> None:
    log = Log()
    log.send(Spec(DIGEST), value(Spec(DIGEST), World()))
    assert histories.fold(log.registers()) is None


@by_hand
def a_sign_that_cannot_be_read_says_nothing() -> None:
    job = Hand()
    job.attempt(1)
    job.unreadable(Running(1))
    assert not job.entry().known


@by_hand
def an_end_that_cannot_be_read_ends_nothing() -> None:
    job = Hand()
    job.attempt(1)
    job.unreadable(Ended(1, "finished", "agent-1"))
    assert job.entry().state is JobState.RUNNING


@by_hand
def a_cancel_outlasts_a_later_intent_and_a_prune() -> None:
    job = Hand()
    job.attempt(1)
    job.intend(1, "CANCEL")
    assert job.entry().state is JobState.CANCELLING
    job.intend(2, "RUN", 1)
    assert job.entry().state is JobState.CANCELLING
    job.log.prune()
    assert job.entry().state is JobState.CANCELLING


@by_hand
def a_cancel_is_no_end() -> None:
    job = Hand()
    job.intend(1, "CANCEL")
    assert job.entry().state is JobState.CANCELLING


@by_hand
def of_two_intents_of_one_revision_the_more_careful_counts() -> None:
    for first, second in (("RUN", "SUSPEND"), ("SUSPEND", "RUN")):
        job = Hand()
        for uuid, kind in enumerate((first, second)):
            job.log.send(Intent(1, f"u{uuid}"), IntentDeclared(IntentKind(kind)))
        assert job.entry().state is JobState.SUSPENDED


def _failed_at_a_rate(before_s: float, recorded_at: float, ran_for_s: float) -> JobState:
    """The state of a job that may fail once in 135 s, and failed twice."""
    job = Hand(World(RestartKind.FAILURE_RATE))
    job.log.send(Attempt(2, 1), AttemptStarted(DIGEST, failures=1, failure_times=(before_s,), recorded_at=recorded_at))
    job.log.send(Ended(2, "failed", "agent-1"), AttemptEnded(ran_for_s=ran_for_s))
    return job.entry().state


@by_hand
def a_rate_counts_the_newest_failure() -> None:
    assert _failed_at_a_rate(100.0, recorded_at=150.0, ran_for_s=10.0) is JobState.QUARANTINED


@by_hand
def a_rate_counts_from_failure_to_failure() -> None:
    """And not from one to the start that followed it."""
    assert _failed_at_a_rate(100.0, recorded_at=200.0, ran_for_s=60.0) is JobState.RESTARTING


@by_hand
def of_two_results_the_stronger_counts() -> None:
    job = Hand()
    job.plain(Result("FINISHED"), Result("CANCELED"))
    assert job.entry().state is JobState.FINISHED and job.entry().retiring


@by_hand
def finished_is_final_whatever_comes_later() -> None:
    """An abandonment, other attempts, and a prune that leaves out old ones."""
    job = Hand()
    job.attempt(1)
    job.end(1, "finished")
    job.end(1, "abandoned", "reconciler-1")
    assert job.entry().state is JobState.FINISHED
    for n in range(2, 6):
        job.attempt(n)
        job.end(n, "failed")
        assert job.entry().state is JobState.FINISHED
    job.log.prune()
    job.log.clean(0)
    assert job.entry().state is JobState.FINISHED


@by_hand
def of_two_equal_ends_the_runners_word_counts() -> None:
    job = Hand()
    job.attempt(1)
    job.end(1, "failed", "reconciler-1")
    job.end(1, "failed", "agent-1")
    job.end(1, "failed", "reconciler-2")
    assert job.entry().outcome_writer == "agent-1"


@by_hand
def failures_are_what_the_record_says() -> None:
    job = Hand()
    job.attempt(7, failures=3)
    assert job.entry().failures == 3


@by_hand
def an_end_alone_tells_of_an_attempt() -> None:
    job = Hand()
    job.attempt(1)
    job.end(2, "lost", "reconciler-1")
    assert job.entry().attempt == 2 and job.entry().next_attempt == 3


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
    """Newer checkpoints of the attempt before, and attempts after it that leave none, change nothing."""
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


@by_hand
def a_retry_forgives_failures_and_their_times() -> None:
    job = Hand(World(RestartKind.FAILURE_RATE))
    job.log.send(Attempt(2, 1), AttemptStarted(DIGEST, failures=1, failure_times=(100.0,), recorded_at=150.0))
    job.end(2, "failed-permanent")
    job.intend(1, "RETRY", 2)
    assert job.entry().failure_times == () and job.entry().failures == 0


@by_hand
def how_long_an_attempt_ran_is_what_its_end_says() -> None:
    """And not when the end was appended."""
    for time_s in (0.0, 1e6):
        job = Hand(World(RestartKind.EXPONENTIAL_DELAY))
        job.attempt(1, failures=1)
        job.log.send(Ended(1, "failed", "agent-1"), AttemptEnded(ran_for_s=1.0), time_s=time_s)
        assert job.entry().failures == 2


@by_hand
def jitter_leads_no_job_beyond_the_longest_delay() -> None:
    """Of six attempts some jitter is upwards."""
    for n in range(1, 7):
        job = Hand(World(RestartKind.EXPONENTIAL_DELAY))
        job.attempt(n, failures=1)
        job.log.send(Ended(n, "failed", "agent-1"), AttemptEnded(ran_for_s=1.0))
        assert job.entry().restart_delay_s <= 1.5

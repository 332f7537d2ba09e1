"""Histories written by hand, for rules that random histories rarely reach or cannot check. Each raises AssertionError if
the fold returns a wrong entry.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.core.model.facts import AttemptStarted, CheckpointCompleted, CheckpointKind, IntentDeclared, IntentKind
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Admitted, Attempt, Checkpoint, Ended, Intent, Register, Result, Running, Spec
from tests.laws import histories
from tests.laws.drawn import World, place, value
from tests.laws.histories import DIGEST, Log

HISTORIES: dict[str, Callable[[], None]] = {}


def by_hand(check: Callable[[], None]) -> Callable[[], None]:
    HISTORIES[check.__name__] = check
    return check


class Hand:
    """A job whose log is written fact by fact."""

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
        """Writes a value that belongs to another kind of register, so it is unreadable."""
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
def suspending_does_not_cancel() -> None:
    job = Hand()
    job.attempt(1)
    job.intend(1, "SUSPEND", 1)
    job.end(1, "stopped")
    assert job.entry().state is JobState.SUSPENDED
    job.intend(2, "RUN", 1)
    assert job.entry().state is JobState.RESTARTING


@by_hand
def an_older_retry_revives_nothing() -> None:
    job = Hand()
    job.intend(1, "RETRY", 1)
    job.attempt(2)
    job.end(2, "failed-permanent")
    assert job.entry().state is JobState.QUARANTINED


@by_hand
def a_legal_record_sent_again_after_a_takeover_and_compacted_still_counts() -> None:
    """The events have no epoch filter: a record of epoch 1, one of epoch 2, the first one resent, then log compaction."""
    job = Hand()
    job.attempt(3, epoch=1)
    job.attempt(2, epoch=2)
    job.log.send_again(3)  # the second to last record
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


@by_hand
def of_two_results_the_stronger_counts() -> None:
    job = Hand()
    job.plain(Result("FINISHED"), Result("CANCELED"))
    assert job.entry().state is JobState.FINISHED and job.entry().retiring


@by_hand
def finished_is_final_whatever_comes_later() -> None:
    """An abandonment, later attempts, and pruning of old attempts do not change it."""
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
def an_end_alone_tells_of_an_attempt() -> None:
    job = Hand()
    job.attempt(1)
    job.end(2, "lost", "reconciler-1")
    assert job.entry().attempt == 2 and job.entry().next_attempt == 3

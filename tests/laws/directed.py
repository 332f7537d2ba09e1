"""Histories written by hand, for rules that random ones reach seldom or cannot see. Each raises AssertionError if the
fold does not say what it must.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.core.facts import AttemptStarted, CheckpointCompleted, CheckpointKind, IntentDeclared, IntentKind
from ledger.core.recovery import JobState, RecoveryEntry
from ledger.core.registers import Admitted, Attempt, Checkpoint, Ended, Intent, Register, Spec
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

"""Abilities of the in-memory runner beyond the contract: slow answers, no answers, and scripted events."""

from __future__ import annotations

import pytest

from ledger.adapters import cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core.model.facts import GraphRef
from ledger.core.model.registers import Ended, Running
from ledger.errors import Unreachable
from ledger.ports import ObservedAttempt, StartAnswer
from tests.support.host import facts_in

pytestmark = pytest.mark.slow

J = "job-1"
GRAPH = GraphRef("graphs/job-1/0", "0" * 64, 1)


@pytest.fixture
def runner() -> MemoryRunner:
    return MemoryRunner(ManualClock())


def test_a_slow_start_answers_nobody_but_is_taken(runner: MemoryRunner) -> None:
    runner.slow_starts = True
    with pytest.raises(Unreachable):
        runner.start(J, 1, GRAPH, None, {})
    assert runner.observe() == [ObservedAttempt(J, 1, True, "")]
    assert runner.starts == []
    assert runner.start(J, 1, GRAPH, None, {}) is StartAnswer.ALREADY
    runner.finish_starts()
    assert runner.starts == [(J, 1, None)]
    assert [register for register, _ in facts_in(runner.pending())] == [Running(1)]
    runner.finish_starts()
    assert len(runner.starts) == 1


def test_an_order_during_a_slow_start_is_what_becomes_of_it(runner: MemoryRunner) -> None:
    runner.slow_starts = True
    with pytest.raises(Unreachable):
        runner.start(J, 1, GRAPH, None, {})
    runner.stop(J, 1, "canceled")
    assert runner.observe()[0].alive
    runner.finish_starts()
    assert runner.starts == []
    assert [type(register) for register, _ in facts_in(runner.pending())] == [Ended]
    assert runner.attempt(J, 1).outcome == "canceled"


def test_what_happened_while_nobody_could_be_reached_is_there_afterwards(runner: MemoryRunner) -> None:
    runner.start(J, 1, GRAPH, None, {})
    runner.up = False
    runner.checkpoint(J, 1, 3)
    runner.end(J, 1, "failed", ran_for_s=7.5)
    with pytest.raises(Unreachable):
        runner.observe()
    runner.up = True
    end, fact = facts_in(runner.fence(J, 1))[-1]
    assert end == Ended(1, "failed", "agent-memory")
    assert (fact.checkpoint, fact.ran_for_s) == (3, 7.5)


def test_two_runs_of_the_same_story_are_the_same_bytes() -> None:
    def tell(runner: MemoryRunner) -> list[object]:
        runner.start(J, 1, GRAPH, None, {})
        runner.checkpoint(J, 1, 1)
        runner.kill(J, 1)
        return list(runner.pending())

    assert tell(MemoryRunner(ManualClock())) == tell(MemoryRunner(ManualClock()))


def test_numbers_go_on_per_partition(runner: MemoryRunner) -> None:
    for i in range(20):
        runner.start(f"job-{i}", 1, GRAPH, None, {})
    numbers: dict[int, list[int | None]] = {}
    from ledger.core.model.registers import partition_of

    for event in runner.pending():
        envelope = cloudevents.parse(event.headers)
        numbers.setdefault(partition_of(envelope.subject, 4), []).append(envelope.sequence)
    assert len(numbers) == 4
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())

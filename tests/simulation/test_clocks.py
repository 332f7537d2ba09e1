"""Wrong clocks delay no restart, and no entry depends on the append time of its records."""

from __future__ import annotations

import random

import pytest

from ledger.roles.common.role_parts import RoleTopics
from tests.simulation import replay
from tests.simulation.directed import Director
from tests.simulation.ports import WrongClock
from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, PARTITIONS, TOPICS, quiet

HOUR_S = 3600.0


@pytest.mark.parametrize("off_s", [-HOUR_S, HOUR_S])
@pytest.mark.parametrize("successor", [False, True])
def test_a_restart_is_due_whatever_the_wall_clock_says(off_s: float, successor: bool) -> None:
    """The wall clock is set between the leader's stamp and the restart, or the next leader has a different one."""
    d = Director()
    with quiet():
        leader = d.lead("projector")
        d.lead("reconciler")
        d.submit("job")
        d.settle()
        d.world.runner.kill("job", 1)
        d.world.agent_sends()
        d.until(lambda: d.state("job") == "RESTARTING", leader)
        assert not d.world.observer.entries["job"].due
        if successor:
            d.world.off_s = lambda: off_s
            d.lead("projector")
        else:
            leader.clock.off_s = off_s
        d.settle()
        assert (d.state("job"), d.world.observer.entries["job"].attempt) == ("RUNNING", 2)
        d.world.close()


def test_the_monotonic_clock_is_never_wrong() -> None:
    d = Director()
    clock = WrongClock(d.world.clock, HOUR_S)
    assert clock.time() - d.world.clock.time() == HOUR_S
    d.world.clock.advance(1.0)
    assert clock.monotonic() == d.world.clock.monotonic() == 1.0


def test_entries_are_the_same_whatever_timestamps_their_records_have() -> None:
    with quiet() as said:
        walk = Walk(8, said)
        assert walk.run().findings == []
        events = walk.world.evidence.copies[EVENTS]
        assert sum(record.value is None for record in events) > 20
        for seed in range(3):
            assert replay.clock_free(events, RoleTopics(*TOPICS), PARTITIONS, random.Random(seed)) == []

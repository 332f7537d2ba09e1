"""Stalled jobs: the leader marks them, and they are restarted if the spec says so, but never for a component's silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.adapters import avro
from ledger.core.model.facts import AttemptEnded, OnStall, RestartKind, RestartPolicy, RestorePoint, StallPolicy
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.roles.projector.stalls import StallTimes
from tests.support.roles.cluster import Cluster, starts
from tests.support.roles.world import SPEC

POLICY = StallPolicy(10.0, 3)
MARK = replace(SPEC, stall_policy=POLICY)
RESTART = replace(SPEC, stall_policy=replace(POLICY, on_stall=OnStall.RESTART))
RUNNING = RecoveryEntry("job", "n", "d", "memory", JobState.RUNNING, "0" * 64, 1, known=True, stall_policy=POLICY)


def at(checkpoint: int, entry: RecoveryEntry = RUNNING) -> RecoveryEntry:
    return replace(entry, restore_points=(RestorePoint(1, checkpoint, "x"),))


# -- the stamp ---------------------------------------------------------------------------------------------------------


def test_it_is_stamped_once_and_set_when_it_passes() -> None:
    stalls = StallTimes()
    first = stalls.stamp(RUNNING, None, 1000.0, 0.0)
    assert (first.stalls_at, first.stalled) == (1030.0, False)
    later = stalls.stamp(RUNNING, first, 1029.9, 29.9)
    assert (later.stalls_at, later.stalled) == (1030.0, False)
    assert stalls.passed(29.9) == []
    assert stalls.passed(30.0) == ["job"]
    assert stalls.stamp(RUNNING, later, 1030.0, 30.0).stalled


def test_a_checkpoint_begins_anew_and_takes_the_mark_away() -> None:
    stalls = StallTimes()
    first = stalls.stamp(RUNNING, None, 1000.0, 0.0)
    assert stalls.passed(30.0) == ["job"]
    marked = stalls.stamp(RUNNING, first, 1030.0, 30.0)
    assert marked.stalled
    assert stalls.stamp(RUNNING, marked, 1031.0, 31.0).stalled, "and only then"
    anew = stalls.stamp(at(7), marked, 1040.0, 40.0)
    assert (anew.stalls_at, anew.stalled) == (1070.0, False)
    assert stalls.passed(69.9) == [] and stalls.passed(70.0) == ["job"]


def test_nobody_watches_what_does_not_run_or_need_not() -> None:
    stalls = StallTimes()
    stalls.stamp(RUNNING, None, 1000.0, 0.0)
    over = stalls.stamp(replace(RUNNING, state=JobState.RESTARTING, stall_policy=None), RUNNING, 1001.0, 1.0)
    assert (over.stalls_at, over.stalled) == (None, False)
    assert stalls.passed(100.0) == []


def test_a_job_that_gets_on_is_looked_at_once_in_its_patience_and_not_once_a_checkpoint() -> None:
    stalls, entry = StallTimes(), RUNNING
    looked = 0
    for second in range(300):
        entry = stalls.stamp(at(second), entry, 1000.0 + second, float(second))
        for _ in stalls.passed(float(second)):
            looked += 1
            entry = stalls.stamp(at(second), entry, 1000.0 + second, float(second))
        assert len(stalls._heap) <= 1 and not entry.stalled
    assert looked <= 10


def test_a_successor_takes_the_stamp_over_and_judges_only_what_it_has_watched_itself() -> None:
    """A healthy job is not marked because of a clock that is ahead, nor because of an outage in which nothing could be
    sent."""
    stamped = StallTimes().stamp(RUNNING, None, 1000.0, 0.0)
    for ahead in (0.0, 3600.0):
        successor = StallTimes()
        taken = successor.stamp(RUNNING, stamped, 1100.0 + ahead, 500.0)
        assert (taken.stalls_at, taken.stalled) == (1030.0, False)
        assert successor.passed(509.9) == [] and successor.passed(510.0) == ["job"]
        assert successor.stamp(RUNNING, taken, 1110.0 + ahead, 510.0).stalled
        assert not successor.stamp(at(3), taken, 1109.0 + ahead, 509.0).stalled


def test_a_clock_that_is_behind_hides_nothing_for_longer_than_the_patience() -> None:
    stamped = StallTimes().stamp(RUNNING, None, 1000.0, 0.0)
    successor = StallTimes()
    assert not successor.stamp(RUNNING, stamped, -5000.0, 100.0).stalled
    assert successor.passed(129.9) == [] and successor.passed(130.0) == ["job"]
    assert successor.stamp(RUNNING, stamped, -4970.0, 130.0).stalled


def test_a_mark_survives_a_successor() -> None:
    assert StallTimes().stamp(RUNNING, replace(RUNNING, stalls_at=5.0, stalled=True), 1.0, 1.0).stalled


@given(st.lists(st.tuples(st.sampled_from(["wait", "checkpoint", "again", "successor"]), st.integers(1, 40)), max_size=30))
def test_law_marked_exactly_where_nothing_came_for_its_patience(steps: list[tuple[str, int]]) -> None:
    """After each step, the mark shows whether the limit since the last checkpoint has passed. A new leader sets the mark
    at most one interval later. The leader evaluates it in time by itself."""
    stalls, now, newest, came_at, led_since = StallTimes(), 0.0, 0, 0.0, 0.0
    entry = stalls.stamp(at(0), None, 1000.0, now)
    for what, number in steps:
        if what == "wait":
            now += number
            if stalls.passed(now):
                entry = stalls.stamp(at(newest), entry, 1000.0 + now, now)
        elif what == "checkpoint":
            newest, came_at = newest + 1, now
            entry = stalls.stamp(at(newest), entry, 1000.0 + now, now)
        elif what == "again":
            entry = stalls.stamp(at(newest), entry, 1000.0 + now, now)
        else:
            stalls, led_since = StallTimes(), now
            entry = stalls.stamp(at(newest), entry, 1000.0 + now, now)
        silent_for = now - came_at
        if silent_for < POLICY.stalled_after_s:
            assert not entry.stalled
        elif now - max(led_since, came_at) >= POLICY.checkpoint_interval_s:
            assert entry.stalled


# -- with the roles ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    return cluster


def patience(cluster: Cluster) -> None:
    cluster.go(rounds=40, seconds=1.0)


def test_a_stalled_job_is_marked_and_left_alone(cluster: Cluster) -> None:
    cluster.job("job", MARK)
    cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and entry.stalls_at is not None and not entry.stalled
    patience(cluster)
    entry = cluster.entry("job")
    assert entry is not None and (entry.state, entry.stalled) == (JobState.RUNNING, True)
    assert starts(cluster) == [(1, None)]
    cluster.runner.checkpoint("job", 1, 1)
    cluster.go(3)
    entry = cluster.entry("job")
    assert entry is not None and not entry.stalled and entry.stalls_at is not None


def test_a_job_that_nobody_watches_has_no_mark(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    patience(cluster)
    entry = cluster.entry("job")
    assert entry is not None and (entry.stall_policy, entry.stalls_at, entry.stalled) == (None, None, False)


def test_a_stalled_job_is_restarted_and_that_counts_as_a_failure(cluster: Cluster) -> None:
    policy = RestartPolicy(RestartKind.FIXED_DELAY, 1, 1.0)
    cluster.job("job", replace(RESTART, restart_policy=policy))
    cluster.go()
    cluster.runner.checkpoint("job", 1, 5)
    patience(cluster)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/5")]
    ends = {key for key in cluster.values() if key.startswith(b"job/ended/1/")}
    assert ends == {b"job/ended/1/failed/agent-memory"}, "recorded by the runner itself"
    fact = avro.decode(AttemptEnded, cluster.values()[ends.pop()])
    assert "no progress" in fact.cause
    entry = cluster.entry("job")
    assert entry is not None and entry.failures == 1 and not entry.stalled
    patience(cluster)
    cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and entry.state is JobState.QUARANTINED and len(starts(cluster)) == 2


def test_it_survives_new_leaders(cluster: Cluster) -> None:
    cluster.job("job", RESTART)
    cluster.go()
    before = cluster.entry("job")
    cluster.go(rounds=20, seconds=1.0)
    cluster.elections["projector"].holder = None
    cluster.p, cluster.r = cluster.projector("p2"), cluster.new_reconciler()
    cluster.go(rounds=2, seconds=0.1)
    entry = cluster.entry("job")
    assert entry is not None and before is not None and entry.stalls_at == before.stalls_at
    cluster.go(rounds=16, seconds=1.0)
    assert starts(cluster)[-1][0] == 2, "not a whole limit later"


def test_silence_that_is_not_the_jobs_own_stops_nothing(cluster: Cluster) -> None:
    """The agent can't send for a long time. The reconciler relays its facts, which show that the job is healthy."""
    cluster.job("job", RESTART)
    cluster.go()
    cluster.mute = True
    for i in range(1, 12):
        cluster.runner.checkpoint("job", 1, i)
        cluster.go(rounds=8, seconds=1.0)
    assert starts(cluster) == [(1, None)] and not cluster.runner.attempt("job", 1).order
    entry = cluster.entry("job")
    assert entry is not None and entry.restore_points[0].id >= 3, "relayed by the reconciler"


def test_a_runner_that_does_not_answer_is_waited_for(cluster: Cluster) -> None:
    cluster.job("job", RESTART)
    cluster.go()
    cluster.runner.up = False
    patience(cluster)
    entry = cluster.entry("job")
    assert entry is not None and entry.stalled
    cluster.runner.up = True
    cluster.go()
    assert starts(cluster)[-1][0] == 2


def test_one_that_ends_by_itself_meanwhile_is_not_stopped(cluster: Cluster) -> None:
    cluster.job("job", RESTART)
    cluster.go()
    cluster.mute = True
    cluster.runner.end("job", 1)
    patience(cluster)
    cluster.mute = False
    cluster.go()
    assert cluster.registers("job") == {"result/FINISHED"}


def test_an_end_that_was_ordered_is_of_the_order_even_if_it_was_clean(cluster: Cluster) -> None:
    cluster.runner.obedient = False
    cluster.job("job", RESTART)
    cluster.go()
    patience(cluster)
    assert cluster.runner.attempt("job", 1).order == "failed"
    cluster.runner.end("job", 1, "finished")
    cluster.go(2)
    assert "ended/1/failed/agent-memory" in cluster.registers("job")

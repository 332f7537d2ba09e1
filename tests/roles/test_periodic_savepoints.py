"""Periodic savepoints: the leader measures the interval, and the reconciler requests savepoints. No request is lost or
doubled when either is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.model.facts import CheckpointKind, CheckpointRetention, IntentKind, SavepointDisposed, SavepointPolicy
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Disposed
from ledger.roles.projector.savepoint_times import SavepointTimes
from ledger.util import failpoints
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import SPEC, Killed

POLICY = SavepointPolicy(60.0)
EVERY = replace(SPEC, savepoint_policy=POLICY)
SAV = CheckpointKind.SAVEPOINT
RUNNING = RecoveryEntry(
    "job", "n", "d", "memory", JobState.RUNNING, "0" * 64, 1, known=True, savepoint_policy=POLICY, next_ask="periodic-0-0-0"
)


# -- the stamp ---------------------------------------------------------------------------------------------------------


def test_it_is_stamped_once_and_due_when_that_passes() -> None:
    times = SavepointTimes()
    first = times.stamp(RUNNING, None, 1000.0, 0.0)
    assert (first.savepoint_at, first.savepoint_due) == (1060.0, False)
    later = times.stamp(RUNNING, first, 1059.9, 59.9)
    assert (later.savepoint_at, later.savepoint_due) == (1060.0, False)
    assert times.passed(59.9) == [] and times.passed(60.0) == ["job"] and times.passed(60.0) == []
    assert times.stamp(RUNNING, later, 1060.0, 60.0).savepoint_due


def test_a_savepoint_begins_anew_and_an_ask_waits_twice_as_long() -> None:
    times = SavepointTimes()
    due = replace(RUNNING, savepoint_at=1060.0, savepoint_due=True)
    anew = times.stamp(replace(RUNNING, next_ask="periodic-1-3-0"), due, 1070.0, 70.0)
    assert (anew.savepoint_at, anew.savepoint_due) == (1130.0, False)
    again = times.stamp(replace(RUNNING, next_ask="periodic-0-0-1"), due, 1070.0, 70.0)
    assert (again.savepoint_at, again.savepoint_due) == (1190.0, False)


def test_a_successor_takes_it_over_and_a_wrong_clock_puts_it_off_for_one_interval_at_most() -> None:
    stamped = SavepointTimes().stamp(RUNNING, None, 1000.0, 0.0)
    successor = SavepointTimes()
    taken = successor.stamp(RUNNING, stamped, 1059.0, 500.0)
    assert (taken.savepoint_at, taken.savepoint_due) == (1060.0, False)
    assert successor.passed(500.9) == [] and successor.passed(501.0) == ["job"]
    behind = SavepointTimes()
    assert not behind.stamp(RUNNING, stamped, -5000.0, 100.0).savepoint_due
    assert behind.passed(159.9) == [] and behind.passed(160.0) == ["job"]
    assert behind.stamp(RUNNING, stamped, -4940.0, 160.0).savepoint_due


def test_what_is_due_stays_so_for_a_successor() -> None:
    assert SavepointTimes().stamp(RUNNING, replace(RUNNING, savepoint_at=5.0, savepoint_due=True), 1.0, 1.0).savepoint_due


def test_a_job_without_a_policy_has_no_stamp() -> None:
    times = SavepointTimes()
    times.stamp(RUNNING, None, 1000.0, 0.0)
    over = times.stamp(replace(RUNNING, savepoint_policy=None, next_ask=""), RUNNING, 1001.0, 1.0)
    assert (over.savepoint_at, over.savepoint_due) == (None, False) and times.passed(100.0) == []


@given(st.lists(st.tuples(st.sampled_from(["wait", "savepoint", "again", "successor"]), st.integers(1, 40)), max_size=30))
def test_law_due_exactly_an_interval_after_the_newest_savepoint(steps: list[tuple[str, int]]) -> None:
    """This holds for any leader and any number of evaluations."""
    times, now, newest, since = SavepointTimes(), 0.0, 0, 0.0
    entry = times.stamp(RUNNING, None, 1000.0, now)
    for what, number in steps:
        if what == "wait":
            now += number
        elif what == "savepoint":
            newest, since = newest + 1, now
        elif what == "successor":
            times = SavepointTimes()
        if what != "wait" or times.passed(now):
            ask = f"periodic-{1 if newest else 0}-{newest}-0"
            entry = times.stamp(replace(RUNNING, next_ask=ask), entry, 1000.0 + now, now)
        assert entry.savepoint_due is (now - since >= POLICY.interval_s)
        assert len(times._alarms) <= len(steps) + 1


# -- with the roles ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    yield cluster
    failpoints.arm("")


def begun(cluster: Cluster, policy: SavepointPolicy = POLICY, **fields: object) -> None:
    cluster.job("job", replace(SPEC, savepoint_policy=policy, **fields))  # type: ignore[arg-type]
    cluster.go(8)


def pass_time(cluster: Cluster, seconds: float) -> None:
    cluster.clock.advance(seconds)
    cluster.go(8)


def asked(cluster: Cluster, n: int = 1) -> list[str]:
    return sorted(cluster.runner.attempt("job", n).asked)


def answer(cluster: Cluster, id_: int, n: int = 1) -> None:
    cluster.runner.checkpoint("job", n, id_, kind=SAV)
    cluster.go(4)


def asks_on_the_log(cluster: Cluster) -> list[str]:
    return sorted(name for name in cluster.registers("job") if name.startswith("ask/"))


def test_it_is_asked_an_interval_after_its_start_and_after_each_savepoint(cluster: Cluster) -> None:
    begun(cluster)
    assert asked(cluster) == []
    pass_time(cluster, 60.0)
    assert asked(cluster) == ["periodic-0-0-0"] and asks_on_the_log(cluster) == ["ask/periodic-0-0-0"]
    answer(cluster, 3)
    assert asks_on_the_log(cluster) == []
    pass_time(cluster, 40.0)
    assert asked(cluster) == ["periodic-0-0-0"]
    pass_time(cluster, 30.0)
    assert asked(cluster) == ["periodic-0-0-0", "periodic-1-3-0"]


def test_a_job_without_an_interval_is_never_asked(cluster: Cluster) -> None:
    begun(cluster, SavepointPolicy())
    pass_time(cluster, 10_000.0)
    assert asked(cluster) == []


def test_a_savepoint_that_a_person_asked_for_counts(cluster: Cluster) -> None:
    begun(cluster)
    pass_time(cluster, 40.0)
    answer(cluster, 2)
    pass_time(cluster, 40.0)
    assert asked(cluster) == []
    pass_time(cluster, 30.0)
    assert asked(cluster) == ["periodic-1-2-0"]


def test_a_restart_does_not_begin_the_interval_anew(cluster: Cluster) -> None:
    begun(cluster)
    answer(cluster, 2)
    pass_time(cluster, 40.0)
    cluster.runner.kill("job", 1)
    cluster.go(8)
    pass_time(cluster, 20.0)
    assert asked(cluster, 2) == ["periodic-1-2-0"]


def test_an_open_ask_is_asked_of_the_next_attempt(cluster: Cluster) -> None:
    begun(cluster)
    pass_time(cluster, 60.0)
    cluster.runner.kill("job", 1)
    cluster.go(8)
    assert asked(cluster, 2) == ["periodic-0-0-0"]


def test_a_job_that_never_answers_is_asked_ever_more_rarely_and_one_ask_is_open(cluster: Cluster) -> None:
    begun(cluster)
    for _ in range(40):
        pass_time(cluster, 60.0)
        assert len(asks_on_the_log(cluster)) <= 1
    assert asked(cluster) == [f"periodic-0-0-{i}" for i in range(5)], "after 1, 3, 7, 15, 31 intervals"
    assert cluster.r.counters["wantsavepoint"] == 5


def test_new_leaders_neither_forget_nor_double(cluster: Cluster) -> None:
    begun(cluster)
    for _ in range(3):
        pass_time(cluster, 10.0)
        cluster.elections["projector"].holder = None
        cluster.p = cluster.projector()
        cluster.r = cluster.new_reconciler()
        cluster.go(4)
    assert asked(cluster) == []
    pass_time(cluster, 15.0)
    assert asked(cluster) == ["periodic-0-0-0"]
    cluster.r = cluster.new_reconciler()
    cluster.go(10)
    assert asked(cluster) == ["periodic-0-0-0"] and asks_on_the_log(cluster) == ["ask/periodic-0-0-0"]


@pytest.mark.parametrize("point", ["savepoint.unasked", "savepoint.asked"])
def test_a_reconciler_that_ends_there_has_asked_once_in_the_end(point: str, cluster: Cluster) -> None:
    begun(cluster)
    reached = []

    def end(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Killed

    failpoints.hit = end
    cluster.clock.advance(60.0)
    for _ in range(30):
        try:
            cluster.go(1)
        except Killed:
            cluster.r = cluster.new_reconciler()
    assert reached and asked(cluster) == ["periodic-0-0-0"] and asks_on_the_log(cluster) == ["ask/periodic-0-0-0"]


# -- retention and disposal --------------------------------------------------------------------------------------------


def stored(cluster: Cluster) -> list[str]:
    return sorted(location.removeprefix("/memory/job/") for location in cluster.runner.stored)


def saved_often(cluster: Cluster, times: int) -> None:
    for i in range(times):
        pass_time(cluster, 70.0)
        cluster.runner.checkpoint("job", 1, 10 * i + 1, kind=SAV)
        for id_ in (2, 3, 4):
            cluster.runner.checkpoint("job", 1, 10 * i + id_)
        cluster.go(6)


def savepoints(cluster: Cluster) -> list[str]:
    return [name for name in stored(cluster) if "sav" in name]


def test_as_many_as_the_policy_keeps(cluster: Cluster) -> None:
    begun(cluster, SavepointPolicy(60.0, 2))
    saved_often(cluster, 5)
    assert savepoints(cluster) == ["1/sav-31", "1/sav-41"]
    registers = {name for name in cluster.registers("job") if name.startswith(("checkpoint", "ask", "disposed"))}
    assert registers == {"checkpoint/1/31", "checkpoint/1/41", *(f"checkpoint/1/{i}" for i in (42, 43, 44))}, "bounded"


def test_all_are_kept_by_default_also_when_the_job_is_over(cluster: Cluster) -> None:
    begun(cluster)
    saved_often(cluster, 4)
    cluster.runner.end("job", 1)
    cluster.go(20)
    assert cluster.state("job") == "none"
    assert savepoints(cluster) == [f"1/sav-{i}" for i in ("1", "11", "21", "31")]


@pytest.mark.parametrize("retention", [CheckpointRetention.DELETE, CheckpointRetention.KEEP])
def test_those_that_are_kept_outlive_the_job_whatever_becomes_of_its_checkpoints(
    cluster: Cluster, retention: CheckpointRetention
) -> None:
    begun(cluster, SavepointPolicy(60.0, 1), checkpoint_retention=retention)
    saved_often(cluster, 3)
    cluster.runner.end("job", 1)
    cluster.go(20)
    assert cluster.registers("job") == {"result/FINISHED"} and savepoints(cluster) == ["1/sav-21"]
    assert ("1/chk-24" in stored(cluster)) is (retention is CheckpointRetention.KEEP)


def given_up(cluster: Cluster, id_: int = 1, n: int = 1) -> None:
    fact = SavepointDisposed(f"/memory/job/{n}/sav-{id_}", reason="full", actor="ann")
    cluster.record("job", Disposed(n, id_, "u"), fact)


@pytest.mark.parametrize("ends", ["", "finished", "suspended"])
def test_what_is_given_up_is_deleted_in_any_state(cluster: Cluster, ends: str) -> None:
    begun(cluster)
    saved_often(cluster, 2)
    given_up(cluster)
    if ends == "finished":
        cluster.runner.end("job", 1)
    elif ends == "suspended":
        cluster.intend("job", IntentKind.SUSPEND)
    cluster.go(20)
    assert savepoints(cluster) == ["1/sav-11"]
    assert "checkpoint/1/1" not in cluster.registers("job") and "disposed/1/1/u" in cluster.registers("job")
    if ends == "finished":
        assert cluster.registers("job") == {"result/FINISHED", "disposed/1/1/u"} and cluster.state("job") == "none"


@pytest.mark.parametrize("point", ["dispose.deleted", "dispose.written"])
def test_a_reconciler_that_ends_there_is_followed_by_one_that_goes_on(point: str, cluster: Cluster) -> None:
    begun(cluster)
    saved_often(cluster, 2)
    reached = []

    def end(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Killed

    failpoints.hit = end
    given_up(cluster)
    for _ in range(30):
        try:
            cluster.go(1)
        except Killed:
            cluster.r = cluster.new_reconciler()
    assert reached and savepoints(cluster) == ["1/sav-11"]
    assert "checkpoint/1/1" not in cluster.registers("job")


def test_a_runner_that_is_away_is_waited_for(cluster: Cluster) -> None:
    begun(cluster)
    saved_often(cluster, 2)
    cluster.runner.up = False
    given_up(cluster)
    cluster.mute = True
    cluster.go(10)
    assert savepoints(cluster) == ["1/sav-1", "1/sav-11"] and "checkpoint/1/1" in cluster.registers("job")
    cluster.runner.up, cluster.mute = True, False
    cluster.go(10)
    assert savepoints(cluster) == ["1/sav-11"] and "checkpoint/1/1" not in cluster.registers("job")


def test_a_savepoint_that_is_told_of_again_goes_again(cluster: Cluster) -> None:
    begun(cluster)
    saved_often(cluster, 2)
    again = next(v for k, v in cluster.values().items() if k == b"job/checkpoint/1/1")
    given_up(cluster)
    cluster.go(10)
    cluster.raw(b"job/checkpoint/1/1", again, cluster.entry("job").partition)  # type: ignore[union-attr]
    cluster.go(10)
    assert "checkpoint/1/1" not in cluster.registers("job")
    entry = cluster.entry("job")
    assert entry is not None and entry.disposals == () and all(point.id != 1 for point in entry.restore_points)


def test_what_an_attempt_began_from_stays_until_that_is_over(cluster: Cluster) -> None:
    begun(cluster)
    cluster.runner.checkpoint("job", 1, 1, kind=SAV)
    cluster.runner.kill("job", 1)
    cluster.go(10)
    assert cluster.starts()[-1] == (2, "1/1")
    given_up(cluster)
    cluster.go(10)
    assert savepoints(cluster) == ["1/sav-1"]
    cluster.runner.checkpoint("job", 2, 5)
    cluster.runner.kill("job", 2)
    cluster.go(10)
    assert savepoints(cluster) == [] and cluster.starts()[-1] == (3, "2/5")

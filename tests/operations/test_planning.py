"""`jobledger plan`, as a library: it returns the actions that a new leader then takes, and changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

import pytest

from ledger.adapters import avro, cloudevents
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKind,
    CheckpointRetention,
    IntentKind,
    OnStall,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
    SavepointPolicy,
    StallPolicy,
)  # fmt: skip
from ledger.core.model.registers import Ask, Attempt, Disposed, Ended
from ledger.core.plan.plan import Action
from ledger.core.plan.pools import NO_POOLS, Pool, Pools
from ledger.errors import Unreachable
from ledger.operations import planning
from ledger.operations.planning import Plan, Planned, PoolUse, plan
from ledger.reader.reading import Source
from ledger.roles.common.role_parts import RoleTopics
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, RECOVERY, REJECTS, SPEC


class Untouchable:
    """A proxy that allows only the given attributes."""

    def __init__(self, thing: Any, *allowed: str) -> None:
        self._thing, self._allowed = thing, allowed
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        assert name in self._allowed, f"a plan must not ask for {name}"
        self.asked.add(name)
        return getattr(self._thing, name)

    def only(self, instance: str) -> Any:
        return Untouchable(self._thing.only(instance), *self._allowed)


class Planning(Cluster):
    def source(self) -> Source:
        log: Any = Untouchable(self.log, "reader", "partitions")
        return Source(log, RoleTopics(EVENTS, RECOVERY, REJECTS), avro, cloudevents, self.clock, patience_s=5.0)

    def state_of_the_world(self) -> Any:
        """All state that a plan could change."""
        reader = self.log.reader([EVENTS, RECOVERY, REJECTS])
        return (
            dict(reader.high_watermarks()),
            copy.deepcopy(self.runner._jobs),
            dict(self.blobs.stored),
            dict(self.runner.stored),
        )

    def plan(self, pools: Pools = NO_POOLS, starts_max: int = 20) -> Plan:
        before = self.state_of_the_world()
        runner: Any = Untouchable(self.runner, "instance", "observe", "verify", "why_refused")
        blobs: Any = Untouchable(self.blobs, "exists")
        found = plan(self.source(), {"memory": runner}, lambda: blobs, pools, starts_max)
        assert self.state_of_the_world() == before
        return found

    def row(self, job_id: str = "job", **settings: Any) -> Planned:
        (row,) = [row for row in self.plan(**settings).jobs if row.job_id == job_id]
        return row


@pytest.fixture
def cluster(tmp_path: Path) -> Planning:
    """A cluster that was led for a while. From here on there is no reconciler."""
    cluster = Planning(tmp_path)
    cluster.go(4)
    return cluster


def leave(cluster: Cluster) -> None:
    """Takes the reconciler out of service."""
    cluster.r.step = lambda: None


def come_back(cluster: Cluster, rounds: int = 12) -> None:
    cluster.r = cluster.new_reconciler()
    cluster.go(rounds)


# -- the planned actions -----------------------------------------------------------------------------------------------


def test_of_an_empty_ledger_there_is_nothing_to_say(cluster: Planning) -> None:
    found = cluster.plan()
    assert (found.jobs, found.pools, found.silent) == ((), (), {})
    assert set(found.as_of) == {EVENTS, RECOVERY} and set(found.as_of[EVENTS]) == {0, 1}


def test_what_runs_as_it_should_is_left_alone(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    assert (cluster.row().action, cluster.row().why) == ("nothing", "attempt 1 runs")


def test_a_failed_job_is_started_from_its_newest_sound_restore_point(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    sound, damaged = cluster.runner.checkpoint("job", 1, 3), cluster.runner.checkpoint("job", 1, 7)
    leave(cluster)
    del cluster.runner.stored[damaged.location]
    cluster.runner.kill("job", 1)
    cluster.go()
    row = cluster.row()
    assert (row.action, row.attempt, row.restore_point) == ("start", 2, sound)
    assert [(str(one.restore_point), one.reason) for one in row.refused] == [("1/7", "missing or damaged")]
    assert row.why == "attempt 1 failed: killed by SIGKILL"
    come_back(cluster)
    assert cluster.starts() == [(1, None), (2, "1/3")]


def test_one_that_replaces_another_waits_for_it_then_begins_from_what_it_left(cluster: Planning) -> None:
    cluster.job("old")
    cluster.go()
    left = cluster.runner.checkpoint("old", 1, 7)
    cluster.go(3)
    leave(cluster)
    cluster.job("new", replace(SPEC, replaces="old"))
    cluster.go(3)
    stops = cluster.row("old")
    assert (stops.action, stops.why) == ("suspend", "new is to replace it")
    assert (cluster.row("new").action, cluster.row("new").why) == ("wait", "waits for old to stop with a savepoint")
    cluster.intend("old", IntentKind.SUSPEND)
    cluster.runner.stop("old", 1, "stopped")
    cluster.go(3)
    begins = cluster.row("new")
    assert begins.action == "start" and begins.restore_point is not None
    assert begins.restore_point.location == left.location
    cluster.job("lost", replace(SPEC, replaces="nobody"))
    cluster.go(3)
    assert cluster.row("lost").action == "quarantine" and "nobody, which it replaces" in cluster.row("lost").why


def test_a_job_that_no_projector_has_seen_end_is_planned_from_the_log(cluster: Planning) -> None:
    """No projector publishes any more. The plan folds the log itself, and computes the delay from now."""
    cluster.job("job")
    cluster.go()
    cluster.runner.kill("job", 1)
    cluster.deliver()
    assert cluster.state("job") == "RUNNING"  # in the published entry
    assert cluster.row().action == "wait" and cluster.row().why == "restart delay: due in 1 s"


def test_a_savepoint_that_is_wanted_would_be_asked_for_by_a_new_leader(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    leave(cluster)
    cluster.record("job", Ask("u"), SavepointAsked())
    cluster.go(4)
    assert (cluster.row().action, cluster.row().attempt) == ("savepoint", 1)
    come_back(cluster)
    assert cluster.runner.attempt("job", 1).asks == ["u"]


def test_a_periodic_savepoint_that_is_due_would_be_asked_for(cluster: Planning) -> None:
    cluster.job("job", replace(SPEC, savepoint_policy=SavepointPolicy(600.0)))
    cluster.go()
    assert cluster.row().action == "nothing"
    assert cluster.row().why == "attempt 1 runs; the next periodic savepoint is due in 595 s"
    leave(cluster)
    cluster.clock.advance(600.0)
    cluster.go(4)
    assert (cluster.row().action, cluster.row().why) == ("savepoint", "attempt 1 is to make a savepoint every 600 s")
    come_back(cluster)
    assert cluster.runner.attempt("job", 1).asks == ["periodic-0-0-0"]


def test_a_savepoint_that_is_given_up_would_be_deleted(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    point = cluster.runner.checkpoint("job", 1, 1, kind=CheckpointKind.SAVEPOINT)
    cluster.go()
    leave(cluster)
    cluster.record("job", Disposed(1, 1, "u"), SavepointDisposed(point.location))
    cluster.go(4)
    row = cluster.row()
    assert (row.action, row.deletes) == ("dispose", ("savepoint 1/1 at /memory/job/1/sav-1",))
    cluster.runner.end("job", 1)
    cluster.go(4)
    assert (cluster.row().action, cluster.row().then) == ("dispose", "retire the job")
    come_back(cluster)
    assert cluster.runner.stored == {}


def test_what_is_marked_as_stalled_would_be_stopped_where_its_spec_says_so(cluster: Planning) -> None:
    cluster.job("job", replace(SPEC, stall_policy=StallPolicy(10.0, 3, OnStall.RESTART)))
    cluster.go()
    leave(cluster)
    cluster.go(4, seconds=20.0)
    row = cluster.row()
    assert (row.action, row.attempt, row.why) == ("stop", 1, "attempt 1 runs without progress")
    assert "restart policy" in row.then
    come_back(cluster)
    assert cluster.runner.attempt("job", 1).order == "failed"


def test_every_action_has_a_name(cluster: Planning) -> None:
    assert set(planning._WORDS) == set(get_args(Action))


def test_a_due_time_that_has_passed_counts_though_nobody_said_so(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.kill("job", 1)
    cluster.deliver()
    cluster.p.step()
    cluster.p.step()
    assert cluster.row().action == "wait"
    cluster.clock.advance(5.0)
    assert (cluster.row().action, cluster.row().attempt) == ("start", 2)


def test_a_job_that_would_be_quarantined_is_named_with_its_cause(cluster: Planning) -> None:
    leave(cluster)
    cluster.job("job", replace(SPEC, restore_from=RestorePoint(0, 0, "/gone")))
    cluster.job("no-runner", replace(SPEC, runner="mainframe"))
    cluster.job("no-graph")
    cluster.blobs.delete_all("no-graph")
    cluster.go()
    why = {row.job_id: row.why for row in cluster.plan().jobs if row.action == "quarantine"}
    assert "no restore point verifies (/gone: missing or damaged)" in why["job"]
    assert "no runner 'mainframe'" in why["no-runner"] and "missing from the blob store" in why["no-graph"]
    come_back(cluster, 20)
    assert {cluster.state(job_id) for job_id in why} == {"QUARANTINED"}


def test_a_store_that_does_not_answer_makes_a_start_wait(cluster: Planning) -> None:
    leave(cluster)
    cluster.job("job", replace(SPEC, restore_from=RestorePoint(0, 0, "/backup")))
    cluster.go()
    cluster.runner.unknown_storage = True
    assert cluster.row().action == "wait" and "can't be verified at the moment" in cluster.row().why


def test_what_a_finished_job_leaves_is_listed_for_deletion(cluster: Planning) -> None:
    cluster.job("job")
    cluster.job("keeps", replace(SPEC, checkpoint_retention=CheckpointRetention.KEEP))
    cluster.go()
    point = cluster.runner.checkpoint("job", 1, 3)
    cluster.runner.checkpoint("keeps", 1, 3)
    leave(cluster)
    for job_id in ("job", "keeps"):
        cluster.runner.end(job_id, 1)
    cluster.go()
    row, kept = cluster.row(), cluster.row("keeps")
    assert row.action == "retire" and row.why == "attempt 1 finished"
    assert row.deletes[:2] == ("every blob under graphs/job/", f"checkpoint 1/3 at {point.location}")
    assert not any("checkpoint" in what for what in kept.deletes)
    come_back(cluster)
    assert cluster.registers("job") == {"result/FINISHED"}


def test_a_cancel_is_told_to_its_end(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    leave(cluster)
    cluster.intend("job", IntentKind.CANCEL)
    cluster.go()
    row = cluster.row()
    assert (row.action, row.attempt, row.why) == ("stop", 1, "the job is CANCELLING")
    assert row.then == "close attempt 2 as canceled, retire the job"
    come_back(cluster, 20)
    assert cluster.registers("job") == {"result/CANCELED"}


def test_what_is_gone_is_settled_first_then_lost(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    leave(cluster)
    cluster.runner._jobs.clear()  # somebody deleted its folder
    row = cluster.row()
    assert (row.action, row.attempt) == ("settle", 1) and row.then == "give up attempt 1, go on by its restart policy"


def test_a_superseded_attempt_is_stopped_then_settled_and_followed(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 5)
    leave(cluster)
    cluster.record("job", Ended(1, "lost", "reconciler-77"), AttemptEnded("wrong"))
    cluster.go()
    row = cluster.row()
    assert (row.action, row.attempt, row.why) == ("stop", 1, "superseded")
    assert row.then == "start attempt 2 from restore point 1/5"


def test_what_was_recorded_and_not_started_is_started_as_recorded(cluster: Planning) -> None:
    leave(cluster)
    spec = cluster.job("job")
    cluster.record("job", Attempt(1, 1), AttemptStarted(avro.spec_digest(spec)))
    cluster.go()
    assert (cluster.row().action, cluster.row().attempt) == ("start-again", 1)
    come_back(cluster)
    assert cluster.starts() == [(1, None)]


def test_what_is_started_while_a_plan_is_made_is_not_started_again(cluster: Planning) -> None:
    """A leader records and starts an attempt after the plan has observed the runners, but before it has read the log."""
    leave(cluster)
    spec = cluster.job("job")
    cluster.record("job", Attempt(1, 1), AttemptStarted(avro.spec_digest(spec)))
    cluster.go()
    observe, asked = cluster.runner.observe, list[int]()

    def begins_meanwhile() -> Any:
        found = observe()
        if not asked:
            cluster.runner.start("job", 1, SPEC.graph, None, {})
        asked.append(1)
        return found

    cluster.runner.observe = begins_meanwhile  # type: ignore[method-assign]
    runners, blobs = {"memory": cluster.runner}, cluster.blobs
    (row,) = plan(cluster.source(), runners, lambda: blobs, NO_POOLS, 20).jobs
    assert (row.action, row.why) == ("nothing", "attempt 1 runs")
    assert len(asked) == 2


def test_strays_are_stopped_and_what_is_only_remembered_is_forgotten(cluster: Planning) -> None:
    leave(cluster)
    cluster.runner.start("ghost", 2, SPEC.graph, None, {})
    cluster.runner.start("past", 1, SPEC.graph, None, {})
    cluster.runner.end("past", 1)
    told = {row.job_id: (row.action, row.attempt) for row in cluster.plan().jobs}
    assert told == {"ghost": ("stop", 2), "past": ("forget", 0)}
    come_back(cluster, 20)
    assert cluster.runner.observe() == []


def test_a_job_that_nobody_has_admitted_waits_for_that(cluster: Planning) -> None:
    cluster.job("job")
    assert (cluster.row().action, cluster.row().why) == ("wait", "the projector has not admitted its spec")


def test_a_runner_that_does_not_answer_is_named_and_its_jobs_wait(cluster: Planning) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.up = False
    found = cluster.plan()
    assert found.silent == {"memory": "the runner in memory does not answer"}
    why = "the memory runner does not answer: the runner in memory does not answer"
    assert [(row.action, row.why) for row in found.jobs] == [("wait", why)]


def test_pools_and_the_start_rate_are_reckoned_as_a_leader_would(cluster: Planning) -> None:
    leave(cluster)
    for name in ("a", "b", "c"):
        cluster.job(name, replace(SPEC, slots=2))
    cluster.job("free", replace(SPEC, namespace="elsewhere"))
    cluster.go()
    pools = Pools([Pool("p", 3, frozenset({"default"}))])
    found = cluster.plan(pools)
    assert [row.job_id for row in found.jobs if row.action == "start"] == ["a", "free"]
    why = {row.job_id: row.why for row in found.jobs if row.action == "wait"}
    assert why["c"] == "waiting for slots: needs 2, 1 of 3 free in pool p, behind 1 other"
    assert found.pools == (PoolUse("p", 3, 0, 2, 2),)
    assert [row.why for row in cluster.plan(starts_max=3).jobs if row.action == "wait"] == ["start rate"]
    cluster.reconciler_settings = {"pools": pools}
    come_back(cluster)
    assert cluster.alive() == {("a", 1), ("free", 1)}
    assert cluster.plan(pools).pools == (PoolUse("p", 3, 2, 0, 2),)


# -- a plan changes nothing --------------------------------------------------------------------------------------------


def test_a_plan_beside_a_working_leader_harms_nobody(cluster: Planning) -> None:
    for name in ("a", "b"):
        cluster.job(name)
        for _ in range(6):
            cluster.go(1)
            cluster.plan()
    assert cluster.alive() == {("a", 1), ("b", 1)} and cluster.r.epoch == 1


def test_no_blob_store_is_opened_unless_something_is_to_be_started(cluster: Planning) -> None:
    def store() -> NoReturn:
        raise AssertionError("a start that must not happen")

    cluster.job("job")
    cluster.go()
    assert plan(cluster.source(), {"memory": cluster.runner}, store, NO_POOLS, 20).jobs[0].action == "nothing"


def test_a_log_that_stands_still_is_said_to(cluster: Planning) -> None:
    transaction = cluster.log.begin("foreign", cluster.log.init("foreign"), 1_000.0)
    from ledger.ports import Event

    cluster.log.produce(transaction, Event(EVENTS, 0, b"foreign", b"?", ()))
    cluster.clock.sleep = cluster.clock.advance
    source = cluster.source()
    with pytest.raises(Unreachable):
        plan(replace(source, patience_s=0.0), {"memory": cluster.runner}, lambda: cluster.blobs, NO_POOLS, 20)


def test_a_region_is_planned_as_it_will_restart(cluster: Planning) -> None:
    member = replace(SPEC, region="prices")
    cluster.r = cluster.new_reconciler()
    for job_id in ("a", "b", "c"):
        cluster.job(job_id, replace(member, name=job_id))
    cluster.go()
    for job_id in ("a", "b", "c"):
        cluster.runner.checkpoint(job_id, 1, 1, consistency="noon")
        cluster.runner.checkpoint(job_id, 1, 2, consistency="one")
    cluster.go(1)
    cluster.runner.kill("b", 1)
    cluster.deliver()
    cluster.p.step()
    why = "region prices restarts together: b: attempt 1 failed: killed by SIGKILL"
    row = cluster.row("a")
    assert (row.action, row.why, row.then) == ("stop", why, "start attempt 2 together with region prices")
    assert cluster.row("b").action == "wait" and "restart delay" in cluster.row("b").why
    for job_id in ("a", "c"):
        cluster.runner.stop(job_id, 1, "stopped")
    cluster.deliver()
    for _ in range(6):
        cluster.p.step()
        cluster.clock.advance(1.0)
    del cluster.runner.stored["/memory/c/1/chk-2"]
    rows = [cluster.row(job_id) for job_id in ("a", "b", "c")]
    assert [(row.action, str(row.restore_point)) for row in rows] == [("start", "1/1")] * 3
    assert rows[0].why == f"{why}; from consistency label noon"
    cluster.runner.unknown_storage = True
    assert {cluster.row(job_id).action for job_id in ("a", "b", "c")} == {"wait"}

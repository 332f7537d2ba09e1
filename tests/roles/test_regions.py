"""Regions, with the real roles on memory adapters: a failure restarts the members of its region once, and no other job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core.model.facts import AttemptStarted, IntentKind, JobSubmitted, RestartKind, RestartPolicy, Together
from ledger.core.model.registers import Attempt, parse_key
from ledger.core.plan.pools import Pool, Pools
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import PARTITIONS, SPEC

MEMBERS = ("a", "b", "c")
MEMBER = replace(SPEC, region="prices")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return led(Cluster(tmp_path))


def led(cluster: Cluster, spec: JobSubmitted = MEMBER) -> Cluster:
    """Starts three members of a region and one other job."""
    cluster.go(4)
    for job_id in MEMBERS:
        cluster.job(job_id, replace(spec, name=job_id))
    cluster.job("alone", replace(SPEC, name="alone"))
    cluster.go()
    assert {cluster.state(job_id) for job_id in (*MEMBERS, "alone")} == {"RUNNING"}
    return cluster


def cut(cluster: Cluster, label: str, id_: int, *jobs: str, n: int = 1) -> None:
    for job_id in jobs:
        cluster.runner.checkpoint(job_id, n, id_, consistency=label)
    cluster.go(2)


def records(cluster: Cluster, job_id: str) -> dict[int, Together | None]:
    """Attempt -> the region's part of its effective record."""
    found = {}
    for key, value in sorted(cluster.values().items()):
        match parse_key(key):
            case (owner, Attempt(n, _)) if owner == job_id:
                found[n] = avro.decode(AttemptStarted, value).together
    return found


def refused(cluster: Cluster, job_id: str, n: int) -> dict[str, str]:
    """Restore point -> reason, for the restore points that an attempt's record skipped."""
    (key,) = (key for key in cluster.values() if key.startswith(f"{job_id}/attempt/{n}/".encode()))
    return {str(one.restore_point): one.reason for one in avro.decode(AttemptStarted, cluster.values()[key]).refused}


def outcomes(cluster: Cluster, job_id: str) -> list[str]:
    return sorted(r for r in cluster.registers(job_id) if r.startswith("ended/"))


def test_a_failed_member_takes_its_region_back_to_the_newest_label_that_all_have(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "one", 2, "a", "b")  # c has no checkpoint with this label
    cut(cluster, "", 3, "c")
    cluster.runner.kill("b", 1)
    cluster.go(20)
    for job_id in MEMBERS:
        assert cluster.state(job_id) == "RUNNING"
        assert cluster.starts(job_id) == [(1, None), (2, "1/1")]
    assert outcomes(cluster, "a") == ["ended/1/stopped/agent-memory"] == outcomes(cluster, "c")
    assert outcomes(cluster, "b") == ["ended/1/failed/agent-memory"]
    assert cluster.starts("alone") == [(1, None)]
    assert refused(cluster, "c", 2) == {"1/3": "newer than the cut of its region"}
    told = records(cluster, "a")[2]
    assert told == Together(
        {"b": 2, "c": 2}, "noon",
        "region prices restarts together: b: attempt 1 failed: killed by SIGKILL; from consistency label noon",
    )  # fmt: skip
    entries = [cluster.entry(job_id) for job_id in MEMBERS]
    assert [entry and entry.failures for entry in entries] == [0, 1, 0]  # the others lose none of their budget


def test_without_a_label_in_common_each_begins_from_its_newest_and_says_so(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, "a", "b")
    cut(cluster, "", 4, "c")
    cluster.runner.kill("a", 1)
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1"), (2, "1/1"), (2, "1/4")]
    told = records(cluster, "c")[2]
    assert told is not None and told.consistency == ""
    assert told.reason.endswith("no consistency label in common: each from its newest")


def test_a_label_counts_only_where_every_member_has_a_sound_restore_point(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "one", 2, *MEMBERS)
    del cluster.runner.stored["/memory/c/1/chk-2"]
    cluster.runner.kill("a", 1)
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1")] * 3
    del cluster.runner.stored["/memory/c/1/chk-1"]
    cluster.runner.kill("a", 2)
    cluster.go(30)
    assert cluster.state("c") == "QUARANTINED"  # none of its restore points is sound: the others go on without it
    assert [cluster.starts(job_id)[-1] for job_id in ("a", "b")] == [(3, "1/1")] * 2
    told = records(cluster, "a")[3]
    assert told is not None and "no consistency label is sound in all of them (noon)" in told.reason


def test_one_whose_restore_point_vanishes_before_its_start_says_that_it_begins_elsewhere(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "", 2, "c")
    hand_out = cluster.r._executor.submit

    def losing(tasks: Any) -> None:
        if any((task.verb, task.job_id) == ("prepare", "c") for task in tasks):
            cluster.runner.stored.pop("/memory/c/1/chk-1", None)
        hand_out(tasks)

    cluster.r._executor.submit = losing
    cluster.runner.kill("b", 1)
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1"), (2, "1/1"), (2, "1/2")]
    told = records(cluster, "c")[2]
    assert refused(cluster, "c", 2) == {"1/1": "missing or damaged"}
    assert told is not None and told.consistency == ""
    assert told.reason.endswith("from consistency label noon; but its own restore point there is not sound any more")


def test_storage_that_does_not_answer_makes_all_of_them_wait(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    cluster.runner.unknown_storage = True
    cluster.runner.kill("a", 1)
    cluster.go(20)
    assert not cluster.alive() & {(job_id, n) for job_id in MEMBERS for n in (1, 2)}
    assert any("verified" in cluster.r.waits[job_id] for job_id in MEMBERS)
    cluster.runner.unknown_storage = False
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1")] * 3


def test_nobody_starts_before_all_can_and_says_for_whom_it_waits(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path), replace(MEMBER, restart_policy=RestartPolicy(RestartKind.FIXED_DELAY, 3, 30.0)))
    cluster.runner.kill("b", 1)
    cluster.go(12)
    assert {job_id for job_id, _ in cluster.alive()} == {"alone"}
    assert cluster.r.waits["a"] == "region prices restarts together: b: restart delay"
    assert cluster.r.waits["b"] == "restart delay"
    cluster.go(60)
    assert {job_id for job_id, _ in cluster.alive()} == {"alone", *MEMBERS}
    assert [len(cluster.starts(job_id)) for job_id in MEMBERS] == [2, 2, 2]


def test_they_wait_for_slots_together(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path, pools=Pools([Pool("p", 4)])))
    cluster.runner.obedient = False
    cluster.runner.kill("b", 1)
    cluster.go(8)
    cluster.job("new", replace(SPEC, name="new", priority=9))  # b's slot is free, and the new job has a higher priority
    cluster.go(8)
    assert ("new", 1) in cluster.alive()
    for job_id in ("a", "c"):
        cluster.runner.end(job_id, 1)
    cluster.go(12)
    assert {job_id for job_id, _ in cluster.alive()} == {"alone", "new"}
    assert cluster.r.waits["a"] == (
        "region prices starts together: waiting for slots: needs 3, 2 of 4 free in pool p"
    )  # fmt: skip
    cluster.runner.obedient = True
    cluster.runner.end("alone", 1)
    cluster.go(12)
    assert {job_id for job_id, _ in cluster.alive()} == {"new", *MEMBERS}


def test_a_quarantined_member_stops_nobody_and_takes_all_back_when_it_returns(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path), replace(MEMBER, restart_policy=RestartPolicy(RestartKind.NONE)))
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "", 2, "a", "c")
    cluster.runner.kill("b", 1)
    cluster.go(20)
    assert cluster.state("b") == "QUARANTINED"
    assert {("a", 1), ("c", 1)} < cluster.alive()
    cluster.intend("b", IntentKind.RETRY, attempt=1)
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1")] * 3
    cluster.go(20)
    assert [len(cluster.starts(job_id)) for job_id in MEMBERS] == [2, 2, 2]


def test_a_suspended_or_finished_member_is_left_alone_and_left_out(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, "a", "c")
    cluster.intend("a", IntentKind.SUSPEND)
    cluster.go(6)
    assert cluster.state("a") == "SUSPENDED"
    cluster.runner.end("c", 1)
    cluster.go(6)
    cluster.runner.kill("b", 1)
    cluster.go(20)
    assert cluster.starts("b") == [(1, None), (2, None)]
    assert cluster.state("a") == "SUSPENDED" and cluster.state("c") == "none"
    cluster.intend("a", IntentKind.RUN, rev=2)
    cluster.go(20)
    assert cluster.starts("a")[-1] == (2, "1/1")
    assert len(cluster.starts("b")) == 2  # a resume is no failure


def test_a_retry_that_names_where_to_begin_is_obeyed_and_the_others_follow(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path), replace(MEMBER, restart_policy=RestartPolicy(RestartKind.FIXED_DELAY, 3, 600.0)))
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "one", 2, *MEMBERS)
    cluster.runner.kill("b", 1)
    cluster.go(8)
    cluster.intend("b", IntentKind.RETRY, attempt=1, from_="1/1")
    cluster.go(20)
    assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(2, "1/1")] * 3


def test_to_be_resumed_is_no_failure(cluster: Cluster) -> None:
    cluster.intend("b", IntentKind.SUSPEND)
    cluster.go(8)
    cluster.intend("b", IntentKind.RUN, rev=2)
    cluster.go(20)
    assert len(cluster.starts("b")) == 2
    assert len(cluster.starts("a")) == 1


def test_the_rest_of_those_that_start_together_begins_at_the_same_cut_under_any_leader(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    cut(cluster, "", 2, "c")
    hand_out = cluster.r._executor.submit

    def without_c(tasks: Any) -> None:
        hand_out([task for task in tasks if (task.verb, task.job_id) != ("prepare", "c")])

    cluster.r._executor.submit = without_c
    cluster.runner.kill("b", 1)
    cluster.go(20)
    assert {("a", 2), ("b", 2)} < cluster.alive()
    assert cluster.starts("c") == [(1, None)]
    cut(cluster, "one", 1, "a", "b", n=2)
    cluster.r = cluster.new_reconciler()
    cluster.go(20)
    assert [cluster.starts(job_id) for job_id in MEMBERS] == [[(1, None), (2, "1/1")]] * 3
    assert records(cluster, "c")[2] == replace(records(cluster, "a")[2] or Together(), beside={"a": 2, "b": 2})


def test_members_of_other_namespaces_and_without_a_region_are_no_members(cluster: Cluster) -> None:
    cluster.job("far", replace(MEMBER, name="far", namespace="other"))
    cluster.go(8)
    cluster.runner.kill("a", 1)
    cluster.go(20)
    assert len(cluster.starts("far")) == len(cluster.starts("alone")) == 1


def test_a_member_whose_runner_is_silent_is_waited_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    away = MemoryRunner(cluster.clock, writer="agent-away", partitions=PARTITIONS)
    cluster.elections["reconciler"].holder = None
    cluster.r = cluster.reconciler({"memory": cluster.runner, "away": away}, cluster.blobs)
    cluster.go(4)
    cluster.job("a", replace(MEMBER, name="a"))
    cluster.job("b", replace(MEMBER, name="b", runner="away"))
    cluster.go(8)
    for event in away.pending():
        cluster.raw_event(event)
        away.acknowledge("b", [event.key])
    cluster.go(4)
    away.up = False
    cluster.runner.kill("a", 1)
    cluster.go(12)
    assert cluster.starts("a") == [(1, None)]
    assert "b is to stop" in cluster.r.waits["a"]


def test_a_member_that_keeps_failing_is_answered_once_each_time(cluster: Cluster) -> None:
    cut(cluster, "noon", 1, *MEMBERS)
    for n in (1, 2, 3):
        cluster.runner.kill("b", n)
        cluster.go(20)
        assert [cluster.starts(job_id)[-1] for job_id in MEMBERS] == [(n + 1, "1/1")] * 3
    cluster.runner.kill("b", 4)  # its budget of three is used up: it stays down, and the others keep running
    cluster.go(20)
    assert cluster.state("b") == "QUARANTINED"
    assert {("a", 4), ("c", 4)} < cluster.alive()


def killed_at(cluster: Cluster, moment: int) -> None:
    """Kills the current reconciler at its n-th external action: before or after a commit, before or after a task."""
    r, seen = cluster.r, 0
    submit, commit = r._executor.submit, r._term._writer.commit

    def step() -> None:
        nonlocal seen
        seen += 1
        if seen == moment:
            raise KeyboardInterrupt

    def committing(events: Any) -> Any:
        step()
        offsets = commit(events)
        step()
        return offsets

    def handing_out(tasks: Any) -> None:
        for task in tasks:
            step()
            submit([task])
            step()

    r._executor.submit, r._term._writer.commit = handing_out, committing


def test_a_reconciler_killed_anywhere_in_between_is_followed_to_the_same_end(tmp_path: Path) -> None:
    moment, died = 0, True
    while died:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        cluster = led(Cluster(folder))
        cut(cluster, "noon", 1, *MEMBERS)
        cut(cluster, "one", 2, "a", "b")
        cluster.runner.kill("b", 1)
        cluster.deliver()
        killed_at(cluster, moment)
        try:
            cluster.go(20)
            died = False
        except KeyboardInterrupt:
            cluster.r = cluster.new_reconciler()
            cluster.go(20)
        for job_id in MEMBERS:
            assert cluster.state(job_id) == "RUNNING", f"killed at {moment}"
            assert [point for _, point in cluster.starts(job_id)] == [None, "1/1"], f"killed at {moment}"
            entry = cluster.entry(job_id)
            assert entry is not None and entry.failures == (job_id == "b"), f"killed at {moment}"
        assert len(cluster.starts("alone")) == 1
    assert moment > 20

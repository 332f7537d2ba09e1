"""Slots, with the real roles on memory adapters: stale jobs make way for live ones, and no pool is ever overfull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.adapters.memory.executor import QueuedExecutor
from ledger.adapters.memory.runner import MemoryRunner
from ledger.adapters.memory.stream import MemoryRecoveryStream
from ledger.core.model.facts import AttemptEnded, IntentKind, JobSubmitted
from ledger.core.model.registers import Ended, Spec, partition_of
from ledger.core.plan.pools import Pool, Pools
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, PARTITIONS, SPEC

ONE_SLOT = Pools([Pool("p", 1)])


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """All jobs share one slot."""
    return led(Cluster(tmp_path, pools=ONE_SLOT))


def led(cluster: Cluster) -> Cluster:
    cluster.go(4)
    return cluster


def go_watching(cluster: Cluster, see: Callable[[], Any], rounds: int = 12) -> None:
    for _ in range(rounds):
        cluster.go(1)
        see()


def at_most(cluster: Cluster, slots: int) -> Callable[[], None]:
    def see() -> None:
        assert len(cluster.alive()) <= slots

    return see


def recorded_and_lost(cluster: Cluster) -> None:
    """The reconciler dies after it recorded an attempt and before it submitted the start. Another one takes over."""

    def submit(tasks: Any) -> None:
        if any(task.verb == "start" for task in tasks):
            raise KeyboardInterrupt
        original(tasks)

    original = cluster.r._executor.submit
    cluster.r._executor.submit = submit
    with pytest.raises(KeyboardInterrupt):
        cluster.go(20)
    cluster.r = cluster.new_reconciler()


# -- incident 000 ------------------------------------------------------------------------------------------------------


def test_incident_000_a_stale_job_never_keeps_a_slot_that_a_live_one_waits_for(cluster: Cluster) -> None:
    """In the incident, a failover restarted a finished job, which took the slots. The live job, which had checkpoints,
    failed again and again for lack of slots. Here the finished job is never restarted, and a stray attempt of it is
    stopped before anything starts. The live job waits without a failure and resumes from its checkpoint."""
    spec = cluster.job("live")
    cluster.go()
    cluster.runner.checkpoint("live", 1, 69256)
    cluster.runner.checkpoint("live", 1, 69257)
    cluster.go(2)
    cluster.runner.obedient = False
    cluster.runner.start("stale", 1, spec.graph, None, {})  # a stray attempt of it still runs
    stale = cluster.job("stale")
    cluster.record("stale", Ended(1, "finished", "agent-old"), AttemptEnded("it was over for weeks"))
    cluster.runner.kill("live", 1)
    cluster.r = cluster.new_reconciler()
    cluster.go()
    assert cluster.alive() == {("stale", 1)} and cluster.runner.attempt("stale", 1).order == "stopped"
    assert cluster.starts("live") == [(1, None)] and cluster.state("live") == "RESTARTING"
    assert cluster.r.waits["live"] == "waiting for slots: needs 1, 0 of 1 free in pool p"
    cluster.runner.end("stale", 1)
    cluster.record("stale", Spec(avro.spec_digest(stale)), stale)  # a late copy, which might mislead the next leader
    cluster.r = cluster.new_reconciler()
    go_watching(cluster, at_most(cluster, 1))
    assert cluster.starts("live") == [(1, None), (2, "1/69257")] and cluster.alive() == {("live", 2)}
    entry = cluster.entry("live")
    assert entry is not None and entry.failures <= 1
    assert cluster.registers("stale") == {"result/FINISHED"} and len(cluster.starts("stale")) == 1
    assert "live" not in cluster.r.waits


def test_a_superseded_attempt_keeps_its_slots_until_it_is_gone(tmp_path: Path) -> None:
    """Another writer records attempt 1 as lost. The next attempt waits for its slot, and no other job gets it
    meanwhile."""
    cluster = led(Cluster(tmp_path, pools=Pools([Pool("p", 2)])))
    cluster.job("job", replace(SPEC, slots=2))
    cluster.go()
    cluster.runner.obedient = False
    cluster.record("job", Ended(1, "lost", "reconciler-77"), AttemptEnded("wrong"))
    cluster.job("other")
    cluster.go()
    assert cluster.alive() == {("job", 1)} and cluster.runner.attempt("job", 1).order == "stopped"
    assert cluster.r.waits["other"] == "waiting for slots: needs 1, 0 of 2 free in pool p"
    cluster.runner.checkpoint("job", 1, 1)
    cluster.runner.end("job", 1)
    cluster.go()
    assert cluster.alive() in ({("job", 2)}, {("other", 1)})


def test_an_attempt_that_was_given_up_by_force_keeps_no_slot(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.obedient = False
    cluster.intend("job", IntentKind.RETRY, attempt=1, force=True)
    cluster.go(20)
    assert [n for n, _ in cluster.starts()] == [1, 2]
    assert cluster.runner.attempt("job", 1).order == "stopped"


# -- strays ------------------------------------------------------------------------------------------------------------


def test_a_stray_holds_a_slot_until_it_is_stopped_and_leaves_a_record(cluster: Cluster) -> None:
    cluster.runner.obedient = False
    cluster.runner.start("ghost", 3, SPEC.graph, None, {})
    cluster.mute = True
    cluster.job("live")
    cluster.go()
    assert cluster.alive() == {("ghost", 3)} and "ended/3/stopped/reconciler-1" not in cluster.registers("ghost")
    cluster.runner.up = False
    cluster.go(2)  # the attempt still holds its slot while the runner does not answer
    cluster.runner.up = True
    cluster.runner.end("ghost", 3)
    cluster.mute = False
    cluster.go()
    assert cluster.r.counters["strays_stopped"] == 1
    assert cluster.alive() == {("live", 1)} and [a.job_id for a in cluster.runner.observe()] == ["live"]
    record = avro.decode(AttemptEnded, cluster.values()[b"ghost/ended/3/stopped/reconciler-1"])
    assert record.cause.startswith("an orphan:")
    assert cluster.entry("ghost") is None


def test_what_is_forgotten_after_an_ordinary_end_leaves_no_record(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.end("job", 1)
    cluster.go()
    assert cluster.registers("job") == {"result/FINISHED"} and cluster.runner.observe() == []
    keys = {record.key() for p in range(PARTITIONS) for record in cluster.log.records(EVENTS, p)}
    assert not any(b"ended/1/stopped" in (key or b"") for key in keys)


# -- no pool is overfull -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True])
def test_there_is_never_more_than_the_pool_has(tmp_path: Path, slow: bool) -> None:
    cluster = led(Cluster(tmp_path, pools=Pools([Pool("p", 3)])))
    cluster.runner.slow_starts = slow
    for i in range(5):
        cluster.job(f"job-{i}")
    go_watching(cluster, at_most(cluster, 3))
    assert len(cluster.alive()) == 3 and len(cluster.r.waits) >= 2
    cluster.runner.slow_starts = False
    cluster.runner.finish_starts()
    recovered = cluster.r = cluster.new_reconciler()
    go_watching(cluster, at_most(cluster, 3))
    assert recovered.epoch == 2 and len(cluster.alive()) == 3
    for _ in range(4):
        for job_id, n in sorted(cluster.alive()):
            cluster.runner.end(job_id, n)
        go_watching(cluster, at_most(cluster, 3))
    assert all(cluster.registers(f"job-{i}") == {"result/FINISHED"} for i in range(5))
    assert all(len(cluster.starts(f"job-{i}")) == 1 for i in range(5))


def queued(cluster: Cluster) -> QueuedExecutor:
    """An executor whose tasks wait until the test performs them."""
    executor = cluster.r._executor = cluster.r._term._executor = QueuedExecutor({"memory": cluster.runner}, cluster.blobs)
    return executor


def test_a_start_that_is_being_prepared_has_its_slot(cluster: Cluster) -> None:
    executor = queued(cluster)
    cluster.job("a")
    cluster.job("b")
    cluster.go()
    assert [(task.verb, task.job_id) for task in executor.waiting] == [("prepare", "a")]
    assert cluster.r.waits == {"b": "waiting for slots: needs 1, 0 of 1 free in pool p"}


def test_a_start_that_is_recorded_and_not_published_yet_has_its_slot(cluster: Cluster) -> None:
    """The outcome of the start is unknown: the attempt may begin at any moment."""
    executor = queued(cluster)
    cluster.job("a")
    cluster.job("b")
    cluster.go()
    executor.perform(executor.waiting[0])
    for _ in range(5):  # without steps of the projector
        cluster.r.step()
    assert [(task.verb, task.job_id) for task in executor.waiting] == [("start", "a")]
    late = executor.waiting[0]
    executor.lose(late)
    for _ in range(5):
        cluster.r.step()
    assert executor.waiting == [] and cluster.r.waits == {"b": "waiting for slots: needs 1, 0 of 1 free in pool p"}


def test_what_a_predecessor_recorded_has_its_slot_though_the_runner_knows_nothing_of_it(cluster: Cluster) -> None:
    cluster.job("job-a")
    recorded_and_lost(cluster)
    cluster.job("job-b", replace(SPEC, priority=9))
    go_watching(cluster, at_most(cluster, 1))
    assert cluster.alive() == {("job-a", 1)}


def test_nothing_starts_in_a_pool_before_every_partition_is_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that holds the slot may be in a record that is not read yet."""
    by_partition = {partition_of(f"job-{i}", PARTITIONS): f"job-{i}" for i in range(20)}
    held, wanting = by_partition[0], by_partition[1]
    cluster.job(held)
    recorded_and_lost(cluster)
    shut = True
    take = MemoryRecoveryStream.take
    kept: list[Any] = []

    def only_some(self: MemoryRecoveryStream, timeout_s: float) -> list[Any]:
        records = [*kept, *take(self, timeout_s)]
        kept[:] = [r for r in records if shut and r.partition() == 0]
        return [r for r in records if r not in kept]

    monkeypatch.setattr(MemoryRecoveryStream, "take", only_some)
    cluster.job(wanting, replace(SPEC, priority=9))
    cluster.go()
    assert cluster.alive() == set()
    assert cluster.r.waits[wanting] == "the recovery set is not read up to this reconciler's claim"
    shut = False
    go_watching(cluster, at_most(cluster, 1))
    assert cluster.alive() == {(held, 1)}


def test_a_silent_runner_keeps_its_slots_until_it_answers(cluster: Cluster) -> None:
    other = MemoryRunner(cluster.clock, partitions=PARTITIONS, writer="agent-other")

    def with_both() -> Any:
        cluster.elections["reconciler"].holder = None
        runners = {"memory": cluster.runner, "other": other}
        return cluster.reconciler(runners, cluster.blobs, pools=ONE_SLOT)

    cluster.r = with_both()
    cluster.job("job")
    cluster.go()
    cluster.runner.up = False
    cluster.mute = True
    cluster.job("waiting", replace(SPEC, runner="other"))
    cluster.go()
    cluster.r = with_both()  # the new leader has no earlier report of the runner
    cluster.go()
    assert other.observe() == []
    assert cluster.r.waits["waiting"] == "waiting for slots: needs 1, 0 of 1 free in pool p"
    cluster.runner.up = True
    cluster.runner.end("job", 1)
    cluster.mute = False
    cluster.go()
    assert [a.job_id for a in other.observe() if a.alive] == ["waiting"]


# -- which jobs wait, and for how long ---------------------------------------------------------------------------------


def test_a_big_job_gets_its_slots_in_the_end(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path, pools=Pools([Pool("p", 2)])))
    cluster.job("a")
    cluster.job("b")
    cluster.go()
    cluster.job("c-big", replace(SPEC, slots=2))
    cluster.job("d")
    cluster.runner.end("a", 1)
    cluster.go()
    assert cluster.alive() == {("b", 1)}  # d could start, but would overtake
    assert cluster.r.waits["d"] == "waiting for slots: needs 1, 1 of 2 free in pool p, behind 1 other"
    cluster.runner.end("b", 1)
    cluster.go()
    assert cluster.alive() == {("c-big", 1)}


def test_a_job_whose_start_can_not_be_made_now_lets_others_go_first(tmp_path: Path) -> None:
    cluster = led(Cluster(tmp_path, pools=Pools([Pool("p", 1)])))
    spec: JobSubmitted = replace(SPEC, priority=9)
    cluster.job("first", spec)
    cluster.go()
    cluster.runner.checkpoint("first", 1, 3)
    cluster.runner.unknown_storage = True
    cluster.runner.kill("first", 1)
    cluster.go()
    assert cluster.r.waits["first"].startswith("restore point 1/3 can't be verified")
    cluster.job("second")
    cluster.go()
    assert cluster.alive() == {("second", 1)}
    cluster.runner.unknown_storage = False
    cluster.job("third")
    cluster.go()
    cluster.runner.end("second", 1)
    cluster.go()
    assert cluster.alive() == {("first", 2)}  # the job has its place in the queue again


def test_starts_beyond_the_rate_come_with_the_next_pass(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, starts_max=1)
    for name in ("a", "b"):
        cluster.job(name)
    told: list[dict[str, str]] = []
    cluster.r._tell = told.append
    cluster.go()
    assert {"b": "start rate"} in told and cluster.alive() == {("a", 1), ("b", 1)}

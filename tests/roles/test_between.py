"""Log, entry and runner are read at different moments. A reconciler acts only when they are consistent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ledger.core.model.facts import AttemptEnded, IntentKind, OnStall, RestartKind, RestartPolicy, StallPolicy
from ledger.core.model.registers import Ended, partition_of
from ledger.ports import StartAnswer
from tests.support.roles.cluster import VERBS, Cluster, starts
from tests.support.roles.world import PARTITIONS, SPEC, run

AT_ONCE = replace(SPEC, restart_policy=RestartPolicy(RestartKind.FIXED_DELAY, 3, 0.0))
WATCHED = replace(SPEC, stall_policy=StallPolicy(10.0, 3, OnStall.RESTART))
OLD = {"job": "the entry is older than this reconciler's claim"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    return cluster


def attempts(cluster: Cluster) -> set[str]:
    return {register for register in cluster.registers("job") if register.startswith("attempt/")}


# -- the claim is a barrier --------------------------------------------------------------------------------------------


def test_nothing_is_planned_from_an_entry_that_is_older_than_the_claim(tmp_path: Path) -> None:
    """A predecessor may have recorded an attempt that the entry does not show yet."""
    cluster = Cluster(tmp_path)
    cluster.job("job")
    run(cluster.p)
    assert cluster.state("job") == "CREATED"
    cluster.step("reconciler", 10)
    assert cluster.r.epoch == 1 and cluster.r.waits == OLD
    assert attempts(cluster) == set() == set(cluster.runner.starts)
    cluster.go()
    assert cluster.state("job") == "RUNNING"


def test_an_entry_that_ends_right_before_the_claim_is_older_than_the_claim(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.job("job")
    run(cluster.p)
    ask = cluster.r._ask

    def asks_late(*given: Any) -> Any:
        """Lets the projector read and publish between the reconciler's last read and its claim."""
        cluster.r._ask = ask
        cluster.clock.advance(1.0)
        cluster.p.step()
        return ask(*given)

    cluster.r._ask = asks_late
    cluster.step("reconciler", 10)
    partition = partition_of("job", PARTITIONS)
    assert cluster.r.published.as_of("job", partition) == cluster.r._term.barrier[partition]
    assert cluster.r.waits == OLD and attempts(cluster) == set()


def test_what_a_predecessor_recorded_is_seen_before_anything_is_recorded_again(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.hold("start")
    late = cluster.until("start", "projector", "reconciler")
    cluster.r = cluster.new_reconciler()
    cluster.step("reconciler", 10)
    assert attempts(cluster) == {"attempt/1/1"}
    cluster.perform(late)
    cluster.let_go()
    cluster.go()
    assert starts(cluster) == [(1, None)] and attempts(cluster) == {"attempt/1/1"}


# -- an entry that has not caught up -----------------------------------------------------------------------------------


def test_a_start_waits_until_its_entry_holds_all_that_the_log_held_at_the_fence(cluster: Cluster) -> None:
    """The fence returns no new facts, because the agent has just sent its last facts itself."""
    cluster.job("job", AT_ONCE)
    cluster.go()
    cluster.runner.checkpoint("job", 1, 1)
    cluster.go(2)
    cluster.record("job", Ended(1, "lost", "reconciler-77"), AttemptEnded("somebody else's word"))
    cluster.runner.checkpoint("job", 1, 2)
    cluster.runner.kill("job", 1)
    cluster.hold("fence")
    fence = cluster.until("fence", "projector", "reconciler")
    cluster.step("agent")
    cluster.perform(fence)
    cluster.hold()
    cluster.step("reconciler", 10)
    assert starts(cluster) == [(1, None)]
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/2")]


def marked(cluster: Cluster) -> None:
    """A job runs, and its entry is marked as stalled. The reconciler has not read that yet."""
    cluster.job("job", WATCHED)
    cluster.go()
    stalls(cluster)


def stalls(cluster: Cluster) -> None:
    for _ in range(40):
        cluster.step("projector")
        cluster.clock.advance(1.0)
    entry = cluster.entry("job")
    assert entry is not None and entry.stalled


def is_well(cluster: Cluster) -> bool:
    return not cluster.runner.attempt("job", 1).order and starts(cluster) == [(1, None)]


def test_what_looks_wrong_is_left_alone_until_its_entry_holds_all_that_the_log_held_then(cluster: Cluster) -> None:
    """The progress that the entry lacks is in the log already, so the fence does not return it."""
    marked(cluster)
    cluster.runner.checkpoint("job", 1, 1)
    cluster.step("agent")
    cluster.step("reconciler", 10)
    assert is_well(cluster)
    assert cluster.r.waits == {"job": "attempt 1 makes no progress"}
    cluster.go()
    assert is_well(cluster) and cluster.r.waits == {}


def test_what_looks_wrong_again_is_confirmed_anew(cluster: Cluster) -> None:
    """The end of the log at the earlier suspicion must not be used for a new one."""
    marked(cluster)
    for checkpoint in (1, 2):
        cluster.runner.checkpoint("job", 1, checkpoint)
        cluster.step("agent")
        cluster.step("reconciler", 10)
        assert is_well(cluster)
        assert cluster.r.waits == {"job": "attempt 1 makes no progress"}
        cluster.go()
        assert is_well(cluster) and cluster.r.waits == {}
        stalls(cluster)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/2")]


def test_what_looks_wrong_is_confirmed_though_others_go_on_writing(cluster: Cluster) -> None:
    """One read of the log's end is enough: entries that are always a pass late catch up with it."""
    marked(cluster)
    partition = partition_of("job", PARTITIONS)
    take, batches = cluster.r._stream.take, [[]]

    def a_pass_late(timeout_s: float) -> list[Any]:
        batches.append(take(timeout_s))
        return batches.pop(0)

    cluster.r._stream.take = a_pass_late
    for _ in range(10):
        cluster.clock.advance(1.0)
        cluster.step("projector")
        cluster.raw(b"~noop", None, partition)
        cluster.step("reconciler")
    assert cluster.runner.attempt("job", 1).order


def test_what_a_fence_brings_keeps_a_job_from_being_stopped_until_its_entry_holds_that(cluster: Cluster) -> None:
    """The agent could not send its facts. The reconciler relays them, so the entry is older than these facts."""
    marked(cluster)
    cluster.hold("fence")
    fence = cluster.until("fence", "projector", "reconciler")
    cluster.runner.checkpoint("job", 1, 1)
    cluster.perform(fence)
    cluster.hold()
    cluster.step("reconciler", 10)
    assert is_well(cluster) and "checkpoint/1/1" in cluster.registers("job")
    cluster.go()
    assert is_well(cluster)


def test_a_start_that_was_prepared_for_an_entry_that_has_changed_is_not_recorded(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.hold("prepare")
    prepare = cluster.until("prepare", "projector", "reconciler")
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.step("projector", 2)
    cluster.step("reconciler", 2)
    cluster.perform(prepare)
    cluster.hold()
    cluster.step("reconciler", 3)
    assert attempts(cluster) == set()
    cluster.go()
    assert cluster.state("job") == "SUSPENDED" and starts(cluster) == []


# -- starts while a job ends -------------------------------------------------------------------------------------------


def finished(cluster: Cluster) -> Any:
    """A job whose attempt has finished and that is about to be cleaned. Returns its graph and the waiting clean task."""
    spec = cluster.job("job")
    cluster.go()
    cluster.runner.end("job", 1)
    cluster.hold("clean")
    return spec.graph, cluster.until("clean", "agent", "projector", "reconciler")


def test_a_job_is_not_retired_while_anything_of_it_runs(cluster: Cluster) -> None:
    """The start of an unrecorded attempt reaches the runner after the reconciler has observed it."""
    graph, clean = finished(cluster)
    cluster.runner.obedient = False
    cluster.runner.start("job", 2, graph, None, {})
    cluster.perform(clean)
    cluster.step("reconciler", 2)
    assert cluster.alive() == {("job", 2)} and cluster.blobs.exists(graph)
    assert not any(register.startswith("result/") for register in cluster.registers("job"))
    cluster.runner.end("job", 2)
    cluster.let_go()
    cluster.go(20)
    assert cluster.registers("job") == {"result/FINISHED"} and cluster.runner.observe() == []


def test_a_start_that_comes_while_its_job_is_cleaned_is_fenced(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start reaches the runner right after the runner reported that nothing runs. It is refused then."""
    graph, clean = finished(cluster)
    observe, answers = cluster.runner.observe, []

    def then_a_start_comes() -> Any:
        answer = observe()
        answers.append(cluster.runner.start("job", 2, graph, None, {}))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(cluster.runner, "observe", then_a_start_comes)
        cluster.perform(clean)
    assert answers == [StartAnswer.FENCED] and cluster.alive() == set()


def closing(cluster: Cluster) -> Any:
    """A job that is canceled between two attempts. Returns its graph and the waiting task that fences the next attempt,
    before its end is recorded."""
    spec = cluster.job("job")
    cluster.go()
    cluster.runner.kill("job", 1)
    cluster.intend("job", IntentKind.CANCEL)
    cluster.hold("fence")
    fence = cluster.until("fence", "agent", "projector", "reconciler")
    assert fence.n == 2
    return spec.graph, fence


def ends_of(cluster: Cluster, n: int) -> set[str]:
    return {register for register in cluster.registers("job") if register.startswith(f"ended/{n}/")}


def test_a_job_is_not_closed_before_its_next_attempt_is_fenced(cluster: Cluster) -> None:
    _, fence = closing(cluster)
    cluster.runner.up = False
    cluster.perform(fence)
    cluster.hold()
    cluster.step("reconciler", 5)
    assert ends_of(cluster, 2) == set() and cluster.state("job") == "CANCELLING"
    cluster.runner.up = True
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"}


def test_a_job_is_not_closed_over_an_attempt_that_its_fence_brings_to_light(cluster: Cluster) -> None:
    graph, fence = closing(cluster)
    cluster.runner.start("job", 2, graph, None, {})
    cluster.runner.end("job", 2)
    cluster.perform(fence)
    cluster.step("reconciler", 5)
    assert ends_of(cluster, 2) == {"ended/2/finished/agent-memory"}
    cluster.let_go()
    cluster.go(20)
    assert cluster.registers("job") == {"result/FINISHED"}


# -- any order of steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_whoever_goes_next_a_job_begins_again_from_its_newest_checkpoint(cluster: Cluster, seed: int) -> None:
    random = Random(seed)
    cluster.job("job", AT_ONCE)
    newest: list[str | None] = [None]
    for n in (1, 2, 3):
        for _ in range(60):
            cluster.draw(random, 10)
            if ("job", n) in cluster.alive():
                break
        for id_ in range(1, random.randint(2, 5)):
            cluster.runner.checkpoint("job", n, id_)
            newest[n:] = [f"{n}/{id_}"]
            cluster.draw(random, random.randint(0, 6))
        if random.random() < 0.5:
            cluster.r = cluster.new_reconciler()
        cluster.runner.end("job", n, "finished" if n == 3 else "failed")
    cluster.draw(random, 50)
    cluster.let_go()
    cluster.go(20)
    assert starts(cluster) == [(n, newest[n - 1]) for n in (1, 2, 3)]
    assert cluster.registers("job") == {"result/FINISHED"} and cluster.waiting(*VERBS) == []

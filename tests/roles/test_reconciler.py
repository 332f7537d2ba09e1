"""The reconciler on memory adapters, with the real projector: start, restart, settle, close, retire, quarantine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.core.explain import explain
from ledger.core.fold.job import Job
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKind,
    IntentKind,
    JobResult,
    RestartKind,
    RestartPolicy,
    RestorePoint,
    SavepointAsked,
)  # fmt: skip
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Ask, Attempt, Ended, Spec
from ledger.errors import Fenced, Unreachable
from ledger.ports import TaskOutcome, TaskStatus
from ledger.roles.reconciler.flow_steps import Flow, JobFlow
from tests.support.roles.cluster import Cluster, starts
from tests.support.roles.world import SPEC


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    return cluster


def test_a_job_is_started_finishes_and_is_retired(cluster: Cluster) -> None:
    spec = cluster.job("job")
    cluster.go()
    assert cluster.state("job") == "RUNNING" and starts(cluster) == [(1, None)]
    cluster.runner.end("job", 1)
    cluster.go()
    assert cluster.state("job") == "none"
    assert cluster.registers("job") == {"result/FINISHED"}
    assert not cluster.blobs.exists(spec.graph)
    assert cluster.runner.observe() == []  # forgotten


def test_a_failed_attempt_is_restarted_from_its_newest_checkpoint(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.runner.checkpoint("job", 1, 7)
    cluster.runner.kill("job", 1)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/7")]
    assert cluster.state("job") == "RUNNING"


def test_a_damaged_checkpoint_is_refused_with_its_reason(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    bad = cluster.runner.checkpoint("job", 1, 7)
    del cluster.runner.stored[bad.location]
    cluster.runner.reasons[bad.location] = "damaged: the content of state/7 is not what was recorded"
    cluster.runner.kill("job", 1)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/3")]
    held = {k.removeprefix(b"job/"): v for k, v in cluster.values().items() if k.startswith(b"job/")}
    job = Job("job", held, avro.read)
    record = job.attempt(2)
    assert record is not None and [str(one.restore_point) for one in record.refused] == ["1/7"]
    (remark,) = [one for one in explain(job).remarks if one.register.startswith("attempt/2/")]
    assert remark.text == "restore point 1/7 was refused: damaged: the content of state/7 is not what was recorded"
    assert not remark.ordinary


def test_a_start_recorded_from_an_old_entry_is_followed_by_one_from_what_is_left(cluster: Cluster) -> None:
    """The start is forced: the previous attempt still runs and writes checkpoints until the recorded one is pruned."""
    cluster.job("job")
    cluster.go()
    for id_ in range(1, 6):
        cluster.runner.checkpoint("job", 1, id_)
    cluster.deliver()
    for _ in range(3):
        cluster.p.step()
    assert {"checkpoint/1/1", "checkpoint/1/5"} & cluster.registers("job") == {"checkpoint/1/5"}
    cluster.record("job", Attempt(2, 1), AttemptStarted(avro.spec_digest(SPEC), RestorePoint(1, 1, "gone")))
    cluster.record("job", Ended(2, "failed", "agent-1"), AttemptEnded("its restore point is not there"))
    cluster.runner.kill("job", 1)
    cluster.go()
    assert starts(cluster)[1:] == [(3, "1/5")] and cluster.state("job") == "RUNNING"


def test_a_savepoint_is_asked_for_once_and_its_ask_goes_when_it_is_there(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.record("job", Ask("u"), SavepointAsked("before the upgrade"))
    cluster.go()
    assert cluster.runner.attempt("job", 1).asks == ["u"]
    assert cluster.r.counters["asksavepoint"] == 1
    cluster.runner.checkpoint("job", 1, 4, kind=CheckpointKind.SAVEPOINT)
    cluster.go()
    entry = cluster.entry("job")
    assert entry.asks == () and entry.restore_points[0].kind is CheckpointKind.SAVEPOINT
    assert "ask/u" not in cluster.registers("job")


def test_an_ask_that_the_first_attempt_did_not_answer_is_put_to_the_next(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.record("job", Ask("u"), SavepointAsked())
    cluster.go()
    cluster.runner.kill("job", 1)
    cluster.go()
    assert cluster.runner.attempt("job", 2).asks == ["u"]


def test_a_runner_that_does_not_answer_is_asked_again(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    asked = cluster.runner.savepoint
    cluster.runner.savepoint = lambda *_: (_ for _ in ()).throw(Unreachable("no answer"))  # type: ignore[method-assign]
    cluster.record("job", Ask("u"), SavepointAsked())
    cluster.go()
    cluster.runner.savepoint = asked  # type: ignore[method-assign]
    cluster.go()
    assert cluster.runner.attempt("job", 1).asks == ["u"]


def test_a_job_is_suspended_with_a_savepoint_and_resumed_from_it(cluster: Cluster) -> None:
    cluster.runner.obedient = False
    cluster.job("job")
    cluster.go()
    cluster.intend("job", IntentKind.SUSPEND, attempt=1, savepoint=True)
    cluster.go()
    assert cluster.runner.attempt("job", 1).savepoint_ordered
    cluster.runner.checkpoint("job", 1, 4, kind=CheckpointKind.SAVEPOINT)
    cluster.runner.end("job", 1)
    cluster.go()
    cluster.intend("job", IntentKind.RUN, rev=2)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/4")]


def test_storage_that_does_not_answer_makes_the_start_wait(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.runner.kill("job", 1)
    cluster.runner.unknown_storage = True
    cluster.go(20)
    assert cluster.state("job") == "RESTARTING" and starts(cluster) == [(1, None)]
    cluster.runner.unknown_storage = False
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/3")]


def test_no_valid_checkpoint_quarantines_and_never_begins_from_scratch(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.runner.stored.clear()
    cluster.runner.kill("job", 1)
    cluster.go(20)
    entry = cluster.entry("job")
    assert entry is not None and entry.state is JobState.QUARANTINED and "no restore point verifies" in entry.reason
    cluster.intend("job", IntentKind.RETRY, attempt=entry.attempt, from_="scratch")
    cluster.go()
    assert starts(cluster) == [(1, None), (entry.attempt + 1, None)]


def test_a_poison_graph_is_quarantined_alone(cluster: Cluster) -> None:
    cluster.runner.refusals["poison"] = "the graph can't be unpacked"
    cluster.job("poison")
    cluster.job("good")
    cluster.go(20)
    entry = cluster.entry("poison")
    assert entry is not None and entry.state is JobState.QUARANTINED and "can't be unpacked" in entry.reason
    assert cluster.state("good") == "RUNNING" and cluster.r.epoch == 1


def test_a_missing_graph_and_an_unknown_runner_are_verdicts(cluster: Cluster) -> None:
    cluster.job("no-graph")
    cluster.blobs.delete_all("no-graph")
    cluster.job("no-runner", replace(SPEC, runner="mainframe"))
    cluster.go(20)
    graph, runner = cluster.entry("no-graph"), cluster.entry("no-runner")
    assert graph is not None and graph.state is JobState.QUARANTINED and "missing from the blob store" in graph.reason
    assert runner is not None and runner.state is JobState.QUARANTINED and "no runner 'mainframe'" in runner.reason


def test_a_budget_that_is_used_up_quarantines(cluster: Cluster) -> None:
    cluster.job("job")
    for n in range(1, 5):
        cluster.go()
        cluster.runner.kill("job", n)
    cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and entry.state is JobState.QUARANTINED and "used up" in entry.reason
    assert [n for n, _ in starts(cluster)] == [1, 2, 3, 4]


RATE = replace(SPEC, restart_policy=RestartPolicy(RestartKind.FAILURE_RATE, 0, 1.0, failures_per_interval=2))


def test_a_failure_rate_survives_leaders_and_counts_by_when_it_failed(cluster: Cluster) -> None:
    cluster.job("job", RATE)
    cluster.go()
    for n in (1, 2):
        cluster.runner.end("job", n, "failed", "boom", ran_for_s=1.0)
        cluster.elections["projector"].holder = None
        cluster.p, cluster.r = cluster.projector(f"p{n + 1}"), cluster.new_reconciler()
        cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and (entry.state, entry.attempt) == (JobState.RUNNING, 3)
    record = avro.decode(AttemptStarted, cluster.values()[b"job/attempt/2/2"])
    assert record.recorded_at is not None and len(record.failure_times) == 1
    assert len(entry.failure_times) == 2 and entry.failure_times[1] == record.recorded_at + 1.0
    cluster.runner.end("job", 3, "failed", "boom", ran_for_s=1.0)
    cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and entry.state is JobState.QUARANTINED
    assert entry.reason.endswith("more than 2 failures within 60 s")
    cluster.intend("job", IntentKind.RETRY, attempt=3)
    cluster.go()
    for n in (4, 5):
        cluster.runner.end("job", n, "failed", "boom", ran_for_s=1.0)
        cluster.go()
    assert starts(cluster)[-1][0] == 6, "a retry resets the count of failures"


def test_a_failure_rate_forgives_what_is_an_interval_ago(cluster: Cluster) -> None:
    cluster.job("job", RATE)
    cluster.go()
    for n in range(1, 6):
        cluster.clock.advance(61.0)
        cluster.runner.end("job", n, "failed", "boom", ran_for_s=61.0)
        cluster.go()
    assert cluster.state("job") == "RUNNING" and starts(cluster)[-1][0] == 6


@pytest.mark.parametrize(("actor", "by"), [("ann", " by ann"), ("", "")])
def test_the_result_keeps_the_reason_of_a_cancel_and_who_asked(cluster: Cluster, actor: str, by: str) -> None:
    cluster.job("job")
    cluster.go()
    cluster.intend("job", IntentKind.CANCEL, actor=actor)
    cluster.runner.end("job", 1, "canceled", "killed by SIGTERM")
    cluster.go(20)
    assert result(cluster).reason == f"canceled{by}: test (attempt 1 canceled: killed by SIGTERM)"


def test_the_result_says_the_reason_of_a_cancel_once_where_no_attempt_ran(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.intend("job", IntentKind.CANCEL, actor="ann")
    cluster.go(20)
    assert result(cluster).reason == "attempt 1 canceled: test"


def test_cancel_stops_settles_closes_and_retires(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.intend("job", IntentKind.CANCEL)
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and cluster.runner.observe() == []
    assert attempts_of_the_result(cluster) == 1


def test_cancel_of_a_job_that_never_started(cluster: Cluster) -> None:
    cluster.runner.up = False
    cluster.job("job")
    cluster.go()
    cluster.intend("job", IntentKind.CANCEL)
    cluster.go()
    cluster.runner.up = True
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and starts(cluster) == []
    assert attempts_of_the_result(cluster) == 0


def test_a_result_counts_no_attempt_that_was_closed_before_it_began(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.go()
    cluster.intend("job", IntentKind.CANCEL, rev=2)
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and starts(cluster) == [(1, None)]
    assert attempts_of_the_result(cluster) == 1


def attempts_of_the_result(cluster: Cluster) -> int:
    return result(cluster).attempts


def result(cluster: Cluster) -> JobResult:
    (value,) = (value for key, value in cluster.values().items() if b"/result/" in key)
    return avro.decode(JobResult, value)


def test_suspend_and_resume_from_the_checkpoint(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 5)
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.go()
    entry = cluster.entry("job")
    assert entry is not None and entry.state is JobState.SUSPENDED and entry.outcome == "stopped"
    cluster.intend("job", IntentKind.RUN, rev=2)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/5")] and entry.failures == 0


def test_a_mute_agent_is_relayed_once_and_the_job_goes_on(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.mute = True
    cluster.runner.checkpoint("job", 1, 5)
    cluster.runner.kill("job", 1)
    cluster.go(20)
    assert starts(cluster) == [(1, None), (2, "1/5")]


def test_a_runner_that_does_not_answer_loses_nothing(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.up = False
    cluster.go(20)
    assert cluster.state("job") == "RUNNING"
    cluster.runner.up = True
    cluster.go()
    assert cluster.state("job") == "RUNNING" and starts(cluster) == [(1, None)]


def test_a_start_whose_caller_gave_up_is_not_done_twice(cluster: Cluster) -> None:
    cluster.runner.slow_starts = True
    cluster.job("job")
    cluster.go()
    cluster.runner.slow_starts = False
    cluster.runner.finish_starts()
    cluster.go()
    assert starts(cluster) == [(1, None)] and cluster.state("job") == "RUNNING"


def test_a_new_reconciler_starts_nothing_twice_and_claims_the_next_epoch(cluster: Cluster) -> None:
    for i in range(5):
        cluster.job(f"job-{i}")
    cluster.go()
    cluster.r = cluster.new_reconciler()
    cluster.go()
    assert cluster.r.epoch == 2 and len(cluster.runner.starts) == 5


def test_a_stale_reconciler_is_fenced_and_starts_nothing(cluster: Cluster) -> None:
    """A reconciler has not learned that its lease ended. Another one takes over just before it records an attempt."""
    old = cluster.r
    cluster.job("job")
    cluster.hold("prepare")
    prepare = cluster.until("prepare", "projector", "reconciler")
    cluster.perform(prepare)
    results = old._executor.results

    def another_takes_over() -> Any:
        cluster.r = cluster.new_reconciler()
        cluster.r.step()
        return results()

    old._executor.results = another_takes_over
    old._parts.leadership.force = True
    cluster.hold("prepare", "start")
    old.step()
    assert (old.epoch, cluster.r.epoch) == (0, 2)
    assert cluster.waiting("start") == [] and "attempt/1/1" not in cluster.registers("job")
    old._parts.leadership.force = False
    cluster.let_go()
    cluster.go()
    assert "attempt/1/2" in cluster.registers("job") and starts(cluster) == [(1, None)]


def crash_between(cluster: Cluster, verb: str) -> None:
    """The reconciler dies just before it submits a task of this kind."""

    def submit(tasks: Any) -> None:
        if any(task.verb == verb for task in tasks):
            raise KeyboardInterrupt
        original(tasks)

    original = cluster.r._executor.submit
    cluster.r._executor.submit = submit
    with pytest.raises(KeyboardInterrupt):
        cluster.go(20)
    cluster.r = cluster.new_reconciler()


def test_recorded_but_not_started_is_started_as_the_same_attempt(cluster: Cluster) -> None:
    cluster.job("job")
    crash_between(cluster, "start")
    cluster.go()
    assert starts(cluster) == [(1, None)] and cluster.state("job") == "RUNNING"


def test_a_crash_before_and_after_cleaning_resurrects_nothing(cluster: Cluster) -> None:
    spec = cluster.job("job")
    cluster.go()
    cluster.runner.end("job", 1)
    crash_between(cluster, "clean")
    assert cluster.state("job") == "FINISHED"
    cluster.blobs.delete_all("job")  # the predecessor had done this step
    cluster.go()
    assert cluster.registers("job") == {"result/FINISHED"} and starts(cluster) == [(1, None)]
    assert not cluster.blobs.exists(spec.graph)


def test_a_lost_attempt_is_fenced_before_its_successor_starts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer records attempt 1 as lost while it runs. Attempt 1 is stopped and drained before attempt 2 starts."""
    fence, fenced = cluster.runner.fence, list[tuple[int, int]]()

    def fence_told(job_id: str, n: int) -> Any:
        fenced.append((n, len(starts(cluster))))
        return fence(job_id, n)

    monkeypatch.setattr(cluster.runner, "fence", fence_told)
    cluster.job("job")
    cluster.go()
    cluster.runner.obedient = False
    cluster.record("job", Ended(1, "lost", "reconciler-77"), AttemptEnded("wrong"))
    cluster.go()
    assert cluster.runner.attempt("job", 1).order == "stopped" and starts(cluster) == [(1, None)]
    cluster.runner.checkpoint("job", 1, 9)
    cluster.runner.end("job", 1)
    cluster.go()
    assert starts(cluster) == [(1, None), (2, "1/9")]
    assert (1, 1) in fenced, "the first fence was up to attempt 1, the only started one"


def test_force_goes_on_without_the_runners_word(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.obedient = False
    entry = cluster.entry("job")
    assert entry is not None
    cluster.intend("job", IntentKind.RETRY, attempt=1, force=True)
    cluster.go()
    assert [n for n, _ in starts(cluster)] == [1, 2]


def test_a_stray_attempt_is_stopped_and_forgotten(cluster: Cluster) -> None:
    cluster.runner.start("ghost", 1, SPEC.graph, None, {})
    cluster.mute = True
    cluster.go()
    assert [a for a in cluster.runner.observe() if a.job_id == "ghost"] == []


def test_an_external_restore_point_is_the_first_one(cluster: Cluster) -> None:
    cluster.runner.stored["/backup/chk-9"] = 1
    cluster.job("job", replace(SPEC, restore_from=RestorePoint(0, 0, "/backup/chk-9")))
    cluster.go()
    assert starts(cluster) == [(1, "/backup/chk-9")]


def test_a_flow_that_breaks_harms_its_job_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.roles.reconciler import starting

    original = starting.start

    def start(flow: JobFlow, *rest: Any) -> Flow:
        if flow.entry.job_id == "bad":
            raise RuntimeError("a bug that only this job meets")
        yield from original(flow, *rest)

    monkeypatch.setattr(starting, "start", start)
    cluster.job("bad")
    cluster.job("good")
    cluster.go()
    assert cluster.state("good") == "RUNNING" and cluster.r.epoch == 1
    assert cluster.r.counters["flows_broken"] > 0


def test_a_late_copy_of_a_retired_jobs_facts_resurrects_nothing(cluster: Cluster) -> None:
    spec = cluster.job("job")
    cluster.go()
    cluster.runner.end("job", 1)
    cluster.go()
    cluster.record("job", Spec(avro.spec_digest(spec)), spec)
    cluster.record("job", Ended(1, "failed", "agent-memory"), AttemptEnded("late"))
    cluster.go()
    assert cluster.registers("job") == {"result/FINISHED"} and starts(cluster) == [(1, None)]


def test_a_forced_cancel_is_retired_while_the_runner_is_silent(cluster: Cluster) -> None:
    spec = cluster.job("job")
    cluster.go()
    cluster.runner.up = False
    cluster.intend("job", IntentKind.CANCEL, attempt=1, force=True)
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and not cluster.blobs.exists(spec.graph)
    cluster.runner.up = True  # the host was not lost after all: its attempt is a stray
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and cluster.runner.observe() == []


@pytest.mark.parametrize("alive", [True, False], ids=["alive by its word", "not alive"])
def test_a_forced_cancel_is_retired_while_the_runner_can_answer_for_other_jobs_only(
    cluster: Cluster, alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner lists the attempt, but every call for its job fails, as with an agent whose job folder is damaged."""
    spec = cluster.job("job")
    cluster.go()
    if not alive:
        cluster.mute = True
        cluster.runner.end("job", 1)

    def damaged(job_id: str, *_: Any) -> Any:
        raise Unreachable(f"the folder of {job_id} is damaged")

    with monkeypatch.context() as patch:
        for call in ("stop", "fence", "dispose"):
            patch.setattr(cluster.runner, call, damaged)
        cluster.intend("job", IntentKind.CANCEL, attempt=1)
        cluster.go(20)
        assert cluster.state("job") == "CANCELLING", "without --force the cancel waits for the runner's report"
        cluster.intend("job", IntentKind.CANCEL, rev=2, attempt=1, force=True)
        cluster.go(20)
        assert cluster.registers("job") == {"result/CANCELED"} and not cluster.blobs.exists(spec.graph)
    cluster.go(20)
    assert cluster.registers("job") == {"result/CANCELED"} and cluster.runner.observe() == []


def test_a_forced_retry_leaves_the_old_attempt_until_the_runner_answers_then_stops_it(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.obedient = False
    cluster.intend("job", IntentKind.RETRY, attempt=1, force=True)
    cluster.go(20)
    assert [n for n, _ in starts(cluster)] == [1, 2]
    assert cluster.runner.attempt("job", 1).order == "stopped"


def test_what_a_job_waits_for_is_told(cluster: Cluster) -> None:
    told: list[dict[str, str]] = []
    cluster.r._tell = cluster.r._term._tell = told.append
    cluster.runner.up = False
    cluster.job("job")
    cluster.go()
    assert told[-1] == {"job": "the memory runner does not answer: the runner in memory does not answer"}
    cluster.runner.up = True
    cluster.go()
    assert told[-1] == {}


def test_who_leads_no_more_says_of_no_job_what_it_waits_for(cluster: Cluster) -> None:
    told: list[dict[str, str]] = []
    cluster.r._tell = cluster.r._term._tell = told.append
    cluster.runner.up = False
    cluster.job("job")
    cluster.go()
    assert told[-1].keys() == {"job"}
    cluster.elections["reconciler"].holder = object()
    cluster.step("reconciler")
    assert cluster.r.epoch == 0
    assert told[-1] == cluster.r.waits == {}


def test_a_job_that_is_not_to_start_any_more_does_not_wait_for_that(cluster: Cluster) -> None:
    cluster.job("job")
    cluster.go()
    cluster.runner.checkpoint("job", 1, 1)
    cluster.runner.unknown_storage = True
    cluster.runner.kill("job", 1)
    cluster.go()
    assert cluster.r.waits["job"].startswith("restore point 1/1 can't be verified")
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.go(3, seconds=0.2)
    assert cluster.state("job") == "SUSPENDED"
    assert cluster.r.waits == {}


def test_an_outcome_of_an_earlier_term_is_nothing_to_a_later_flow(cluster: Cluster) -> None:
    """A task that was submitted before the fence answers after it, when the job has a new flow."""
    held: list[Any] = []
    submit, results = cluster.r._executor.submit, cluster.r._executor.results
    cluster.r._executor.submit = held.extend
    cluster.job("job")
    cluster.go()
    early = held[0]
    cluster.r.step_down(Fenced("test"))
    cluster.go(6)
    assert cluster.r.epoch == 2 and len(held) == 2
    late = held[1]
    wrong = TaskOutcome(TaskStatus.REFUSED, reason="this is for another")
    cluster.r._executor.results = lambda: [(early, wrong)]
    cluster.go(2)
    assert [task.verb for task in held] == ["prepare", "prepare"]  # the refusal had no effect
    cluster.r._executor.submit, cluster.r._executor.results = submit, results
    submit([late])
    cluster.go()
    assert starts(cluster) == [(1, None)] and cluster.state("job") == "RUNNING"

"""The verb `plan`, and what jobs wait for according to this host's reconciler, as people and scripts see them."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.adapters.memory.runner import MemoryRunner
from ledger.app import waiting_reasons
from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, CheckpointCompleted
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Running
from ledger.errors import Unreachable
from tests.support.roles.world import GRAPH, PARTITIONS

D = "d" * 64
WAITS = "waiting for slots: needs 1, 0 of 1 free in pool p, behind 2 others"


@pytest.fixture
def runner(shell: Any) -> MemoryRunner:
    made = MemoryRunner(shell.clock, partitions=PARTITIONS)
    shell.replaced["runners"] = lambda: {"subprocess": made}
    return made


def failed(shell: Any, runner: MemoryRunner, name: str) -> str:
    """A job with two checkpoints, the newer one damaged, whose attempt failed a while ago."""
    job_id = shell.submit(name, "--restart", "fixed-delay:3:1s")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, instance=runner.writer))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    runner.start(job_id, 1, GRAPH, None, {})  # the runner has to remember the attempt
    runner.end(job_id, 1, "failed")
    shell.record(job_id, Checkpoint(1, 4), CheckpointCompleted("/chk-4"))
    shell.record(job_id, Checkpoint(1, 5), CheckpointCompleted("/chk-5"))
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1", 5, 2.5))
    runner.stored["/chk-4"] = 1
    shell.now(job_id)
    shell.clock.advance(5.0)
    return str(job_id)


def test_the_table_says_what_is_done_to_whom_and_why(shell: Any, runner: MemoryRunner) -> None:
    job_id = failed(shell, runner, "etl")
    shell.submit("new")
    head, *lines = shell.good("plan").splitlines()
    assert head.split() == ["ACTION", "NAME", "STATE", "ATTEMPT", "RESTORE", "ID", "WHY"]
    (line,) = [line for line in lines if job_id in line]
    assert line.split()[:5] == ["start", "etl", "RESTARTING", "2", "1/4"]
    assert line.endswith("attempt 1 failed: exit code 1; refused 1/5: missing or damaged")
    (line,) = [line for line in lines if " new " in line]
    assert line.split()[:5] == ["start", "new", "CREATED", "1", "scratch"] and line.endswith("it was never started")
    assert lines[-1] == "2 start; 0 jobs are as they should be"


def test_a_quarantined_job_is_not_as_it_should_be(shell: Any, runner: MemoryRunner) -> None:
    job_id = shell.submit("bad", "--restart", "none")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, instance=runner.writer))
    runner.start(job_id, 1, GRAPH, None, {})
    runner.end(job_id, 1, "failed")
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    shell.now(job_id)
    assert shell.good("plan").splitlines()[-1] == (
        "nothing to do; 0 jobs are as they should be; 1 job is QUARANTINED: jobledger explain JOB says why"
    )


def test_of_a_job_that_restores_by_itself_the_table_does_not_say_scratch(shell: Any, runner: MemoryRunner) -> None:
    shell.submit("stream", "--restore", "external")
    line = shell.good("plan").splitlines()[1]
    assert line.split()[:5] == ["start", "stream", "CREATED", "1", "external"]


def test_machines_get_it_all_in_one_object(shell: Any, runner: MemoryRunner) -> None:
    job_id = failed(shell, runner, "etl")
    told = shell.json("plan")
    assert list(told) == ["jobs", "pools", "silent", "as_of"]
    (row,) = told["jobs"]
    assert list(row) == [
        "job_id", "name", "namespace", "runner", "state", "action", "attempt", "why", "restore_point", "refused", "then",
        "deletes", "pool", "slots", "external",
    ]  # fmt: skip
    assert (row["action"], row["restore_point"]["location"]) == ("start", "/chk-4")
    assert shell.good("plan", "-o", "name").split() == [job_id]


def test_what_another_agent_holds_waits_and_is_no_loss(shell: Any, runner: MemoryRunner) -> None:
    job_id = shell.submit("etl")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, instance="agent-far"))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.now(job_id)
    (row,) = shell.json("plan")["jobs"]
    held = "attempt 1 is held by agent-far, which this reconciler can't reach (agent-memory answers)"
    assert (row["action"], row["why"], row["then"]) == ("wait", held, "")


def test_pools_of_the_settings_are_reckoned_with(shell: Any, runner: MemoryRunner) -> None:
    for name in ("a", "b"):
        shell.submit(name, "--slots", "2")
    told = shell.run("plan", LEDGER_POOLS__P__SLOTS="3").stdout
    assert "waiting for slots: needs 2, 1 of 3 free in pool p" in told
    assert told.splitlines()[-1] == "pool p: 0 of 3 slots held, 2 more by this plan, 1 waiting"


def test_a_plan_is_told_with_exit_code_0_whatever_it_says_and_3_if_nobody_answers(
    shell: Any, runner: MemoryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.submit("etl")
    runner.up = False
    told = shell.run("plan")
    assert told.exit_code == 0 and "wait" in told.stdout
    assert "the subprocess runner does not answer" in told.stderr

    def away(*_: Any) -> Any:
        raise Unreachable("No answer from Kafka.")

    monkeypatch.setattr(shell.log, "reader", away)
    assert shell.run("plan").exit_code == 3


def test_what_a_job_waits_for_is_seen_in_list_show_and_explain(shell: Any) -> None:
    job_id = shell.submit("etl", "--slots", "1")
    path = shell.folder / "run" / "waits.json"
    waiting_reasons.tell(path, {job_id: WAITS})
    assert WAITS in shell.good("list", "-o", "wide")
    assert f"WAITS      {WAITS}" in shell.good("show", "etl")
    assert f"the reconciler of this host waits: {WAITS}" in shell.good("explain", "etl")
    assert shell.json("show", "etl")["slots"] == 1 and "waits" not in shell.json("show", "etl")


def test_a_plan_of_the_past_believes_the_log(shell: Any, runner: MemoryRunner, tmp_path: Any) -> None:
    job_id = failed(shell, runner, "etl")
    other = shell.submit("runs")
    shell.record(other, Attempt(1, 1), AttemptStarted(D, instance=runner.writer))
    shell.record(other, Running(1), AttemptRunning("18"))
    shell.now(other)
    shell.clock.advance(5.0)
    file = str(tmp_path / "then.zip")
    shell.good("audit", "bundle", "--to", file, "--reason", "r")
    shell.clock.advance(60.0)
    shell.good("cancel", job_id, "--reason", "enough")
    now = {row["job_id"]: row["action"] for row in shell.json("plan")["jobs"]}
    assert now[job_id] == "retire" or now[job_id] != "start"
    assert now[other] == "settle", "the runner does not know the attempt"
    for words in (("--as-of", "62s"), ("--bundle", file)):
        then = {row["job_id"]: row for row in shell.json("plan", *words)["jobs"]}
        assert (then[job_id]["action"], then[job_id]["restore_point"]["id"]) == ("start", 5), (
            "the checkpoint counts as valid"
        )
        assert then[other]["action"] == "nothing", "attempts that ran according to the log count as running"


@pytest.mark.parametrize("verb", ["suspend", "cancel"])
def test_in_the_past_too_what_is_to_stop_runs_until_it_has_ended(shell: Any, runner: MemoryRunner, verb: str) -> None:
    job_id = shell.submit("etl")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D))
    shell.record(job_id, Running(1), AttemptRunning("18"))
    shell.good(verb, job_id, "--reason", "enough")
    shell.now(job_id)
    (row,) = shell.json("plan", "--as-of", "0s")["jobs"]
    assert (row["action"], row["attempt"]) == ("stop", 1)
    shell.record(job_id, Ended(1, "stopped", "agent-a"), AttemptEnded())
    shell.now(job_id)
    (row,) = shell.json("plan", "--as-of", "0s")["jobs"]
    assert row["action"] == ("nothing" if verb == "suspend" else "close")

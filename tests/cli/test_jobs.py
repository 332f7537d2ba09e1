"""The verbs that change jobs, as people and scripts see them."""

from __future__ import annotations

import json
import sys

import pytest

from ledger.adapters.runners.subprocess.graph import unpack
from ledger.cli import parsing
from ledger.core.model.facts import (
    AttemptEnded,
    CheckpointCompleted,
    FailureRule,
    JobResult,
    OnExhausted,
    OnStall,
    RestartKind,
    RestartPolicy,
    StallPolicy,
)
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Checkpoint, Ended, Result
from ledger.errors import UsageError
from ledger.util.ids import uuid7

# -- submit --------------------------------------------------------------------------------------------------------------


def test_the_last_line_of_submit_is_the_id_of_an_admitted_job(shell, monkeypatch):
    monkeypatch.setattr("ledger.cli.output.is_terminal", lambda stream: stream is sys.stdout)
    told = shell.good("submit", "--name", "etl", "--namespace", "prod", "--", "python", "etl.py")
    *_, last = told.splitlines()
    assert "prod/etl is admitted" in told
    assert shell.now(last).name == "etl"


def test_a_script_gets_the_id_alone_and_the_rest_stands_on_stderr(shell):
    told = shell.run("submit", "--name", "etl", "--", "true")
    assert shell.now(told.stdout.removesuffix("\n")).name == "etl"
    assert told.stderr == "default/etl is admitted\n"


@pytest.mark.parametrize(("given", "value"), [("team=data", "data"), ("team==data", "data"), ("team=a==b", "a==b")])
def test_a_label_is_given_as_it_is_selected(shell, given, value):
    assert shell.now(shell.submit("etl", "-l", given)).labels == {"team": value}


def test_submit_o_name_is_the_id_and_nothing_else(shell):
    told = shell.good("submit", "-o", "name", "--", "true")
    assert len(told.split()) == 1
    assert shell.now(told.strip()).name == "true"


def test_submit_o_json_is_one_object(shell):
    told = json.loads(shell.good("submit", "-o", "json", "--id", "job-1", "--", "true"))
    assert told == {"job_id": "job-1"}


def test_what_is_submitted_is_what_was_said(shell):
    (shell.folder / "etl.py").write_text("print(1)")
    (shell.folder / "data").mkdir()
    (shell.folder / "data" / "a.csv").write_text("1,2")
    job_id = shell.good(
        "submit", "--name", "etl", "--namespace", "prod", "--restart", "fixed-delay:3:10s", "--priority", "7",
        "--region", "prices", "--graph", str(shell.folder / "etl.py"), "--graph", str(shell.folder / "data"),
        "--env", "A=1", "--env", "B=x=y",
        "--from", str(shell.folder / "chk-9"), "-o", "name", "--", "python", "etl.py", "--fast", "-o", "json",
    ).strip()  # fmt: skip
    entry = shell.now(job_id)
    assert (entry.runner, entry.namespace, entry.priority, entry.region) == ("subprocess", "prod", 7, "prices")
    assert [p.location for p in entry.restore_points] == [str(shell.folder / "chk-9")]
    shell.blobs.fetch(entry.graph, shell.folder / "blob")
    graph = unpack(shell.folder / "blob", shell.folder / "unpacked")
    assert graph.command == ("python", "etl.py", "--fast", "-o", "json")
    assert graph.environment == {"A": "1", "B": "x=y"}
    assert (shell.folder / "unpacked" / "data" / "a.csv").read_text() == "1,2"


def test_limits_labels_and_the_runner_are_said_by_flags(shell):
    job_id = shell.good(
        "submit", "-l", "team=data", "--label", "tier=", "--memory", "512M", "--stop-grace", "1m", "--runner", "slurm",
        "-o", "name", "--", "true",
    ).strip()  # fmt: skip
    entry = shell.now(job_id)
    assert (dict(entry.labels), entry.runner) == ({"team": "data", "tier": ""}, "slurm")
    shell.blobs.fetch(entry.graph, shell.folder / "blob")
    graph = unpack(shell.folder / "blob", shell.folder / "unpacked")
    assert (graph.memory_bytes, graph.stop_grace_s) == (512 << 20, 60.0)
    assert job_id in shell.good("list", "-l", "team=data,tier=", "-o", "name")


def test_without_such_flags_a_job_has_none_and_the_usual_grace(shell):
    job_id = shell.good("submit", "--memory", "0", "-o", "name", "--", "true").strip()
    shell.blobs.fetch(shell.now(job_id).graph, shell.folder / "blob")
    graph = unpack(shell.folder / "blob", shell.folder / "unpacked")
    assert (graph.memory_bytes, graph.stop_grace_s, shell.now(job_id).labels) == (None, 10.0, {})


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--memory", "lots"], "--memory: lots is no size"),
        (["--memory", "1K"], "--memory 1K: a memory limit of 1024 bytes is less than"),
        (["--stop-grace", "2h"], "--stop-grace 2h: stop_grace_s is 7200"),
        (["--label", "team"], "--label takes NAME=VALUE, not 'team'"),
        (["--label", "team=a,b"], "--label takes NAME=VALUE"),
        (["--label", "a b=c"], "--label takes NAME=VALUE"),
        (["--runner", "outside"], "run by its own producer"),
        (["--runner", "a/b"], "--runner takes letters"),
    ],
)
def test_wrong_limits_and_labels_are_wrong_usage(shell, flags, told):
    answer = shell.run("submit", *flags, "--", "true")
    assert answer.exit_code == 2
    assert told in " ".join(answer.stderr.split())


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("1", 1), ("2K", 2048), ("3M", 3 << 20), ("1G", 1 << 30), ("5MiB", 5 << 20)]
)
def test_sizes(text, size):
    assert parsing.size_bytes(text, "--memory") == size


def test_the_command_may_stand_without_dashes(shell):
    job_id = shell.good("submit", "-o", "name", "sleep", "--help").strip()
    assert shell.now(job_id).name == "sleep"


def test_submitting_the_same_again_is_success_and_another_is_exit_5(shell):
    one = ["submit", "--id", "job-1", "--name", "etl", "-o", "name"]
    assert shell.good(*one, "--", "true") == shell.good(*one, "--", "true") == "job-1\n"
    told = shell.run(*one, "--", "false")
    assert told.exit_code == 5
    assert "Another spec is admitted" in told.stderr and "hint:" in told.stderr


def test_unique_is_exit_5_as_long_as_one_of_that_name_is_not_over(shell):
    job_id = shell.submit("etl")
    told = shell.run("submit", "--name", "etl", "--unique", "--", "true")
    assert told.exit_code == 5 and job_id in told.stderr
    shell.submit("etl")
    shell.submit("etl", "--namespace", "other", "--unique")


def test_without_a_projector_submit_is_exit_4_and_names_the_id_to_ask_for(shell):
    shell.working = False
    told = shell.run("submit", "--id", "job-1", "--", "true")
    assert (told.exit_code, told.stdout) == (4, "")
    assert "--id job-1" in told.stderr


def test_no_blob_is_left_in_the_folder_for_temporary_files(shell, monkeypatch, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    shell.submit()
    shell.working = False
    shell.run("submit", "--", "true")
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(("outcome", "state", "code"), [("finished", "FINISHED", 0), ("failed", "QUARANTINED", 1)])
def test_submit_wait(shell, outcome, state, code):
    step = shell.step

    def end_it() -> None:
        step()
        if shell.entry("job-1") is not None:
            shell.record("job-1", Ended(1, outcome, "agent-a"), AttemptEnded("exit code x"))

    shell.step = end_it
    told = shell.run("submit", "--id", "job-1", "--restart", "none", "--wait", "--", "true")
    assert told.exit_code == code
    assert told.stdout == "job-1\n"
    assert state in told.stderr and "exit code x" in told.stderr


def test_who_submits_again_what_is_over_is_told_so(shell):
    one = ["submit", "--id", "job-1", "--name", "etl", "--restart", "none"]
    shell.good(*one, "--", "true")
    assert "etl is admitted" in shell.run(*one, "--", "true").stderr
    shell.record("job-1", Ended(1, "failed", "agent-a"), AttemptEnded("exit code 3"))
    shell.step()
    told = shell.run(*one, "--", "true")
    assert told.stderr.startswith("default/etl is QUARANTINED: attempt 1 failed: exit code 3") and told.stdout == "job-1\n"
    assert json.loads(shell.good(*one, "-o", "json", "--", "true"))["state"] == "QUARANTINED"


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--restart", "always", "--", "true"], ["--env", "A", "--", "true"], ["--name", "a/b", "--", "true"],
        ["--namespace", "", "--", "true"], ["--id", "a/b", "--", "true"], ["--graph", "/no/such/file", "--", "true"],
        ["--priority", "high", "--", "true"],
        ["--region", "a region", "--", "true"],
    ],
)  # fmt: skip
def test_wrong_usage_of_submit_is_exit_2_and_changes_nothing(shell, arguments):
    before = shell.values()
    assert shell.run("submit", *arguments).exit_code == 2
    assert shell.values() == before


def rate(failures, interval_s, delay_s):
    return RestartPolicy(
        RestartKind.FAILURE_RATE, delay_s=delay_s, failures_per_interval=failures, failure_rate_interval_s=interval_s
    )


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (None, RestartPolicy()),
        ("none", RestartPolicy(RestartKind.NONE)),
        ("fixed-delay", RestartPolicy(RestartKind.FIXED_DELAY, 1, 1.0)),
        ("fixed-delay:5", RestartPolicy(RestartKind.FIXED_DELAY, 5, 1.0)),
        ("fixed-delay:0:500ms", RestartPolicy(RestartKind.FIXED_DELAY, 0, 0.5)),
        ("fixed-delay:3:10m", RestartPolicy(RestartKind.FIXED_DELAY, 3, 600.0, 600.0)),
        ("exponential-delay", RestartPolicy(RestartKind.EXPONENTIAL_DELAY)),
        ("failure-rate", rate(1, 60.0, 1.0)),
        ("failure-rate:5", rate(5, 60.0, 1.0)),
        ("failure-rate:5:10m", rate(5, 600.0, 1.0)),
        ("failure-rate:5:10m:30s", rate(5, 600.0, 30.0)),
        ("exponential-delay:10:2:1h", RestartPolicy(RestartKind.EXPONENTIAL_DELAY, 10, 2.0, 3600.0)),
    ],
)
def test_restart_policies(text, policy):
    assert parsing.restart_policy(text) == policy
    assert policy.on_exhausted is OnExhausted.QUARANTINE


@pytest.mark.parametrize(
    "text",
    ["", "None", "none:1", "fixed-delay:", "fixed-delay:-1", "fixed-delay:1:2:3", "fixed-delay:1:soon", "fixed-delay:1:-2s",
     "exponential-delay:1:2m:1m", "exponential-delay:1:2:3:4", "failure-rate:0", "failure-rate:101", "failure-rate:x",
     "failure-rate:1:0",
     "failure-rate:1:2:3:4"],
)  # fmt: skip
def test_what_is_no_restart_policy(text):
    with pytest.raises(UsageError):
        parsing.restart_policy(text)


def test_failure_rules_of_submit(shell):
    job_id = shell.submit(
        "etl", "--permanent-exit-code", "64", "--permanent-pattern", "No such (table|column)",
        "--failure-label", "oom=137", "--failure-label", "net=timed? out", "--failure-label", "bad=x=y",
        "--permanent-label", "bad",
    )  # fmt: skip
    assert shell.now(job_id).failure_rules == (
        FailureRule("bad", None, "x=y", True),
        FailureRule("permanent", 64, "", True),
        FailureRule("permanent", None, "No such (table|column)", True),
        FailureRule("oom", 137), FailureRule("net", None, "timed? out"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--permanent-exit-code", "0"], "1 to 255"), (["--permanent-exit-code", "256"], "1 to 255"),
        (["--permanent-exit-code", "many"], "--permanent-exit-code"),
        (["--permanent-pattern", "("], "( is no regular expression"),
        (["--permanent-pattern", ""], "needs an exit code or a pattern"),
        (["--permanent-pattern", "x" * 1001], "more than 1000 characters"),
        (["--failure-label", "oom"], "LABEL=CODE or LABEL=REGEX"), (["--failure-label", "o m=1"], "label"),
        (["--failure-label", "oom=0"], "1 to 255"), (["--permanent-label", "oom"], "no --failure-label"),
        (["--stalled-after", "3"], "--checkpoint-interval"), (["--on-stall", "restart"], "--checkpoint-interval"),
        (["--checkpoint-interval", "soon"], "soon"), (["--checkpoint-interval", "0"], "more than 0"),
        (["--checkpoint-interval", "1m", "--stalled-after", "0"], "intervals_max"),
        (["--checkpoint-interval", "1m", "--on-stall", "cry"], "mark or restart"),
    ],
)  # fmt: skip
def test_wrong_rules_are_exit_2_and_say_why(shell, flags, said):
    before = shell.values()
    told = shell.run("submit", *flags, "--", "true")
    assert told.exit_code == 2
    assert said in " ".join((told.stdout + told.stderr).replace("│", "").split())
    assert shell.values() == before


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        ((None, None, None), StallPolicy()),
        (("30s", None, None), StallPolicy(30.0, 3, OnStall.MARK)),
        (("1m", 5, "restart"), StallPolicy(60.0, 5, OnStall.RESTART)),
    ],
)
def test_stall_policies(arguments, policy):
    assert parsing.stall_policy(*arguments) == policy


def test_restore_points_from_outside(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parsing.restore_point(None) is None
    assert parsing.restore_point("s3://b/chk").location == "s3://b/chk"
    assert parsing.restore_point("chk-1").location == str(tmp_path / "chk-1")


# -- intents -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "suspend", "savepoint", "resume", "retry"])
@pytest.mark.parametrize("reason", [[], ["--reason", " "]])
def test_every_changing_verb_asks_for_a_reason(shell, verb, reason):
    shell.submit("etl")
    before = shell.values()
    told = shell.run(verb, "etl", *reason)
    assert told.exit_code == 2 and "reason" in told.stderr
    assert shell.values() == before


def test_suspend_resume_cancel(shell):
    job_id = shell.submit("etl")
    assert shell.json("suspend", "etl", "--reason", "night")["state"] == "SUSPENDED"
    assert shell.json("resume", job_id[:8], "--reason", "morning")["intent"]["reason"] == "morning"
    assert shell.good("cancel", "default/etl", "--reason", "wrong data", "-o", "name") == f"{job_id}\n"
    assert shell.now(job_id).state == JobState.CANCELLING
    told = shell.run("suspend", job_id, "--reason", "no")
    assert told.exit_code == 5


@pytest.mark.parametrize("verb", ["cancel", "suspend", "savepoint", "resume", "retry"])
def test_nothing_is_wanted_of_a_job_that_is_retired(shell, verb):
    job_id = shell.submit("etl")
    shell.record(job_id, Result("FINISHED"), JobResult("etl", "default", "memory", "d" * 64, "", 1.0, 1))
    for _ in range(5):
        shell.step()
    for ref in (job_id, "default/etl"):
        told = shell.run(verb, ref, "--reason", "too late")
        assert told.exit_code == 5 and "is over and retired" in told.stderr


def test_a_second_cancel_is_done_whether_the_job_is_retired_or_not(shell):
    job_id = shell.submit("etl")
    shell.good("cancel", job_id, "--reason", "enough")
    shell.good("cancel", job_id, "--reason", "enough")
    shell.record(job_id, Ended(1, "canceled", "reconciler-1"), AttemptEnded())
    shell.now(job_id)
    assert shell.json("cancel", job_id, "--reason", "enough")["state"] == "CANCELED"
    shell.record(job_id, Result("CANCELED"), JobResult("etl", "default", "memory", "d" * 64, "", 1.0, 1))
    for _ in range(5):
        shell.step()
    told = shell.json("cancel", job_id, "--reason", "enough")
    assert (told["job_id"], told["state"]) == (job_id, "CANCELED")


@pytest.mark.parametrize(
    ("verb", "first"), [("resume", []), ("retry", []), ("retry", ["suspend"]), ("savepoint", ["suspend"])]
)
def test_a_verb_in_the_wrong_state_is_refused(shell, verb, first):
    shell.submit("etl")
    for one in first:
        shell.good(one, "etl", "--reason", "first")
    assert shell.run(verb, "etl", "--reason", "x").exit_code == 5


def test_a_savepoint_before_it_stops_stands_in_the_intent(shell):
    shell.submit("etl")
    assert shell.json("suspend", "etl", "--reason", "night", "--savepoint")["intent"]["savepoint"] is True


def test_a_savepoint_that_does_not_come_is_an_unknown_outcome(shell):
    shell.submit("etl")
    told = shell.run("savepoint", "etl", "--reason", "upgrade", "--timeout", "0.5")
    assert told.exit_code == 4 and "SIGUSR1" in told.stderr


def test_force_stands_in_the_intent(shell):
    shell.submit("etl")
    assert shell.json("cancel", "etl", "--reason", "agent is gone", "--force")["intent"]["force"] is True


def test_retry_from_a_restore_point(shell):
    job_id = shell.submit("etl", "--restart", "none")
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    assert shell.now(job_id).state == JobState.QUARANTINED
    told = shell.json("retry", "etl", "--reason", "fixed", "--from", "scratch")
    assert (told["state"], told["next_attempt"], told["intent"]["from"]) == ("RESTARTING", 2, "scratch")
    assert shell.run("retry", "etl", "--reason", "fixed", "--from", "1/9").exit_code == 2


def test_a_job_that_nobody_knows_is_exit_1_and_an_ambiguous_name_exit_2_with_the_ids(shell):
    told = shell.run("cancel", "nobody", "--reason", "x")
    assert (told.exit_code, told.stdout) == (1, "")
    ids = [shell.submit("etl"), shell.submit("etl")]
    told = shell.run("cancel", "etl", "--reason", "x")
    assert told.exit_code == 2
    assert all(job_id in told.stderr for job_id in ids)


@pytest.mark.parametrize(("outcome", "state", "code"), [("finished", "FINISHED", 0), ("canceled", "CANCELED", 1)])
def test_wait_says_how_it_ended_and_its_code_says_whether_well(shell, outcome, state, code):
    job_id = shell.submit("etl")
    shell.record(job_id, Ended(1, outcome, "agent-a"), AttemptEnded("said so"))
    shell.now(job_id)
    told = shell.run("wait", "etl", "-o", "json")
    assert told.exit_code == code
    assert json.loads(told.stdout)["state"] == state


def test_no_variable_is_taken_for_a_flag(shell):
    told = shell.run("submit", "--id", "job-7", "--", "true", LEDGER_SUBMIT_ID="job-8", LEDGER_OUTPUT="name")
    assert told.stdout == "job-7\n"
    assert shell.run("submit", "--", "true", LEDGER_SUBMIT_ID="job-8", LEDGER_OUTPUT="name").stdout != "job-8\n"


def test_default_ids_tell_their_age(shell):
    from ledger.cli.rendering import submitted_at

    assert submitted_at(uuid7(1_700_000_000.5, bytes(10))) == 1_700_000_000.5
    assert submitted_at("job-1") is None
    assert submitted_at("123e4567-e89b-42d3-a456-426614174000") is None


@pytest.mark.parametrize(("flags", "retention"), [([], "DELETE"), (["keep"], "KEEP"), (["DELETE"], "DELETE")])
def test_what_becomes_of_checkpoints_is_said_at_submission(shell, flags, retention):
    told = [f"--checkpoint-retention={flag}" for flag in flags]
    assert shell.now(shell.submit("etl", *told)).checkpoint_retention == retention


def test_a_retention_that_is_none_is_wrong_usage(shell):
    assert shell.run("submit", "--checkpoint-retention", "unknown", "--", "true").exit_code == 2


def test_what_a_policy_counts_is_called_retries() -> None:
    """The first start does not count: fixed-delay:2 allows three attempts."""
    with pytest.raises(UsageError) as caught:
        parsing.restart_policy("fixed-delay:many")
    assert "many is no number of retries" in str(caught.value)
    assert "fixed-delay[:RETRIES[:DELAY]]" in caught.value.hint and "ATTEMPTS" not in caught.value.hint


def test_a_fact_of_a_job_that_nobody_submitted_has_no_effect_and_explain_shows_it(shell):
    """docs/RECORDER.md says so about `record`."""
    shell.record("job-7", Checkpoint(2, 31), CheckpointCompleted("s3://bucket/load/31"))
    shell.step()
    assert shell.entry("job-7") is None
    told = shell.good("explain", "job-7")
    assert "job-7 is not a job of the ledger" in told and "no spec of this job is admitted" in told

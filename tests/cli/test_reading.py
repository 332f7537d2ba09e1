"""The verbs that read: tables for people, JSON with the schemas' names for machines, exit codes for scripts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    JobResult,
    RestorePoint,
)  # fmt: skip
from ledger.core.model.published import EPOCH_HEADER
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Result, Running, key_of, partition_of
from ledger.errors import Unreachable
from ledger.ports import Candidate, Event
from ledger.reader.rejects import RejectsTopic
from tests.support.jobs_world import D, busy, table
from tests.support.operated import EVENTS, RECOVERY, REJECTS
from tests.support.roles.world import PARTITIONS

SCHEMAS = Path(__file__).parent.parent.parent / "schemas"


def retire(shell: Any, job_id: str, name: str = "etl") -> None:
    shell.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded())
    result = JobResult(name, "default", "subprocess", D, "all rows read", 1.0, 1, {"a": "b"}, RestorePoint(1, 5, "/chk-5"))
    shell.record(job_id, Result("FINISHED"), result)
    for _ in range(6):
        shell.step()


# -- JSON has the schemas' names -----------------------------------------------------------------------------------------


def same_names(value: Any, schema: Any) -> None:
    """Checks that every record in a value has exactly the fields of its schema."""
    if isinstance(schema, list):
        if value is not None:
            same_names(value, next(branch for branch in schema if branch != "null"))
    elif isinstance(schema, dict) and schema["type"] == "record":
        assert sorted(value) == sorted(field["name"] for field in schema["fields"])
        for field in schema["fields"]:
            same_names(value[field["name"]], field["type"])
    elif isinstance(schema, dict) and schema["type"] == "array":
        for inner in value:
            same_names(inner, _known(schema["items"]))


_NAMED: dict[str, Any] = {}


def _known(schema: Any) -> Any:
    return _NAMED.get(schema, schema) if isinstance(schema, str) else schema


def schema_of(fact: str) -> Any:
    newest = sorted((SCHEMAS / fact).glob("*.avsc"))[-1]
    return json.loads(newest.read_text())


def test_the_json_of_an_entry_has_the_fields_of_its_schema(shell):
    busy(shell)
    shell.good("suspend", "etl", "--reason", "night")
    for entry in (shell.json("show", "etl"), *shell.json("list")):
        record = entry.pop("record")
        assert list(record) == ["partition", "offset", "time_s", "ce_time_s", "skew"]
        same_names(entry, schema_of("recovery_entry"))
        assert entry["restore_points"] and entry["base"] and entry["intent"]["from"] == "latest"
    assert [e["state"] for e in shell.json("list")] == ["SUSPENDED"]


def test_the_json_of_a_retired_job_is_its_id_its_state_and_its_result(shell):
    job_id = shell.submit("etl")
    retire(shell, job_id)
    (row,) = shell.json("list", "--all")
    assert row == shell.json("show", "etl") == shell.json("show", job_id)
    assert (row.pop("job_id"), row.pop("state")) == (job_id, "FINISHED")
    same_names(row, schema_of("job_result"))


def test_the_json_of_history_has_the_facts_with_the_fields_of_their_schemas(shell):
    job_id = busy(shell)
    shell.good("suspend", "etl", "--reason", "night")
    schemas = {
        "spec": "job_submitted", "admitted": "job_admitted", "attempt": "attempt_started", "running": "attempt_running",
        "checkpoint": "checkpoint_completed", "ended": "attempt_ended", "intent": "intent_declared",
    }  # fmt: skip
    rows = shell.json("history", job_id)
    assert {row["register"].partition("/")[0] for row in rows} == set(schemas)
    for row in rows:
        same_names(row["fact"], schema_of(schemas[row["register"].partition("/")[0]]))
    assert list(rows[0]) == [
        "partition", "offset", "time_s", "key", "register", "tombstone", "readable", "fact", "event_id", "source", "type",
        "ce_time_s", "actor", "sequence", "epoch", "skew", "redacted",
    ]  # fmt: skip


# -- list ----------------------------------------------------------------------------------------------------------------


def test_the_table_begins_with_the_name_and_ends_with_the_age(shell):
    job_id = busy(shell)
    text = shell.good("list")
    (row,) = table(text)
    assert list(row) == ["NAME", "NAMESPACE", "STATE", "ATTEMPT", "RESTORE", "ID", "AGE"]
    assert (row["NAME"], row["STATE"], row["RESTORE"], row["ID"]) == ("etl", "RESTARTING", "1/5", job_id)
    wide = shell.good("list", "-o", "wide").splitlines()[0].split()
    assert (wide[0], wide[-1]) == ("NAME", "AGE")
    assert {"FAILURES", "LABELS", "REASON", "WAITS"} <= set(wide) and len(wide) <= 12


def on_terminal(monkeypatch, columns: int) -> None:
    monkeypatch.setattr("ledger.cli.output.is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize("columns", [80, 100])
def test_a_list_fits_the_terminal_and_its_ids_name_jobs(shell, monkeypatch, columns):
    jobs = [busy(shell, f"job-{n}") for n in range(3)] + [quarantined(shell)]
    on_terminal(monkeypatch, columns)
    for arguments in (["list"], ["list", "--state", "quarantined"], ["plan"], ["diff", "--from", "1h"], ["gc"]):
        text = shell.run(*arguments, COLUMNS=str(columns)).stdout
        assert all(len(line) <= columns for line in text.splitlines()), text
    rows = table(shell.run("list", COLUMNS=str(columns)).stdout)
    assert {shell.json("show", row["ID"])["job_id"] for row in rows} == set(jobs)
    reason = " ".join(shell.run("list", "--state", "quarantined", COLUMNS=str(columns)).stdout.split())
    assert "Traceback: … ValueError: no table; restart policy used up" in reason


def test_what_is_wrong_comes_first_and_programs_get_the_order_of_ids(shell):
    fine, restarting, bad = shell.submit("fine"), busy(shell, "again"), quarantined(shell)
    stuck = shell.submit("stuck")
    shell.record(stuck, Attempt(1, 1), AttemptStarted(D))
    shell.record(stuck, Running(1), AttemptRunning("18"))
    shell.good("cancel", stuck, "--reason", "no longer needed")
    shell.now(fine)
    first = [(row["NAME"], row["STATE"]) for row in table(shell.good("list"))]
    assert first == [("bad", "QUARANTINED"), ("again", "RESTARTING"), ("fine", "CREATED"), ("stuck", "CANCELLING")]
    shell.clock.advance(3 * 3600)
    second = [(row["NAME"], row["STATE"]) for row in table(shell.good("list"))]
    assert second == [("bad", "QUARANTINED"), ("stuck", "CANCELLING,3h"), ("again", "RESTARTING"), ("fine", "CREATED")]
    in_order = sorted([fine, restarting, bad, stuck])
    assert [row["job_id"] for row in shell.json("list")] == in_order
    assert shell.good("list", "-o", "name").split() == in_order


def test_lists_are_sorted_as_asked_in_every_format(shell):
    for name in ("b", "c", "a"):
        shell.submit(name)
    assert [row["NAME"] for row in table(shell.good("list", "--sort", "name"))] == ["a", "b", "c"]
    assert [row["name"] for row in shell.json("list", "--sort", "name")] == ["a", "b", "c"]
    assert shell.run("list", "--sort", "colour").exit_code == 2
    for key in ("trouble", "namespace", "state", "age", "id"):
        assert len(shell.json("list", "--all", "--sort", key)) == 3


def test_jobs_of_a_namespace_are_listed_alone(shell):
    one, other = shell.submit("one", "-n", "prod"), shell.submit("two")
    assert shell.good("list", "-n", "prod", "-o", "name").split() == [one]
    assert shell.good("list", "--namespace", "default", "-o", "name").split() == [other]
    assert shell.run("list", "-n", "empty").stderr == "no jobs with this namespace or label\n"
    assert shell.json("list", "-l", "team=data") == []
    assert {row["job_id"] for row in shell.json("list", "-l", "team!=data")} == {one, other}


def test_names_are_ids_for_scripts(shell):
    ids = {shell.submit("a"), shell.submit("b")}
    assert set(shell.good("list", "-o", "name").split()) == ids
    assert {json.loads(line)["job_id"] for line in shell.good("list", "-o", "jsonl").splitlines()} == ids


def test_retired_jobs_are_listed_with_all_only(shell):
    gone, there = shell.submit("gone"), shell.submit("there")
    retire(shell, gone, "gone")
    assert shell.good("list", "-o", "name").split() == [there]
    assert set(shell.good("list", "--all", "-o", "name").split()) == {gone, there}
    (row,) = [row for row in table(shell.good("list", "--all")) if row["ID"] == gone]
    assert (row["NAME"], row["STATE"], row["RESTORE"], row["ATTEMPT"]) == ("gone", "FINISHED", "1/5", "1")


CAUSE = "exit code 1: Traceback:\n  line 7\nValueError: no table"


def quarantined(shell: Any, name: str = "bad", cause: str = CAUSE) -> str:
    job_id = shell.submit(name, "--restart", "none")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded(cause, None, 2.5))
    assert shell.now(job_id).state is JobState.QUARANTINED
    return job_id


def test_only_jobs_in_the_states_that_are_asked_for_are_listed_with_their_reasons(shell):
    bad, restarting, fine, gone = quarantined(shell), busy(shell), shell.submit("fine"), shell.submit("gone")
    retire(shell, gone, "gone")
    shell.now(fine)
    assert shell.good("list", "--state", "Quarantined", "-o", "name").split() == [bad]
    assert [row["job_id"] for row in shell.json("list", "--state", "QUARANTINED")] == [bad]
    both = shell.good("list", "--state", "quarantined", "--state", "restarting", "-o", "name").split()
    assert set(both) == {bad, restarting}
    assert shell.good("list", "--all", "--state", "finished", "--state", "created", "-o", "name").split() == [fine, gone]
    text = shell.good("list", "--state", "quarantined")
    assert "REASON" in text.splitlines()[0]
    assert "attempt 1 failed: exit code 1: Traceback: … ValueError: no table; restart policy used up" in text


def test_no_job_in_a_state_is_no_error_and_no_such_state_is_one(shell):
    told = shell.run("list", "--state", "failing", "--state", "quarantined")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no jobs in state FAILING or QUARANTINED\n")
    for word in ("broken", "unknown", ""):
        told = shell.run("list", "--state", word)
        assert told.exit_code == 2 and "quarantined" in told.stderr and "suspended" in told.stderr


def test_watch_of_a_state_tells_what_comes_into_it_and_what_leaves_it(shell):
    was, fine = quarantined(shell, "was"), shell.submit("fine")
    comes = shell.submit("comes", "--restart", "none")
    shell.now(comes)
    changes = [
        lambda: shell.record(fine, Attempt(1, 1), AttemptStarted(D)), shell.step,
        lambda: shell.record(comes, Ended(1, "failed", "agent-a"), AttemptEnded("bad")), shell.step,
        lambda: shell.record(was, Attempt(2, 1), AttemptStarted(D)), shell.step,
        lambda: shell.record(was, Running(2), AttemptRunning("18")), shell.step,
    ]  # fmt: skip
    lines = watched(shell, "list", "-w", "--state", "quarantined", "-o", "jsonl", changes=changes).splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["name"], row["state"]) for row in rows] == [
        ("was", "QUARANTINED"), ("comes", "QUARANTINED"), ("was", "RUNNING"),
    ]  # fmt: skip


def test_no_jobs_is_no_error_and_told_beside_the_answer(shell):
    told = shell.run("list")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no jobs\n")
    assert shell.json("list") == []


def test_an_entry_that_cannot_be_read_is_told(shell):
    job_id = shell.submit("etl")
    shell.now(job_id)
    shell.working = False
    header = (EPOCH_HEADER, str(shell.leader.epoch).encode())
    shell.log.append([Event(RECOVERY, partition_of(job_id, PARTITIONS), job_id.encode(), b"damaged", (header,))])
    told = shell.run("list", "-o", "name")
    assert (told.stdout, told.stderr) == ("", f"the entry of {job_id} can't be read by this version\n")


def publish(shell: Any, entry: RecoveryEntry) -> None:
    header = (EPOCH_HEADER, str(shell.leader.epoch).encode())
    shell.log.append([Event(RECOVERY, entry.partition, entry.job_id.encode(), avro.encode(entry), (header,))])


def watched(shell: Any, *arguments: str, changes: list[Any]) -> str:
    """The output of a verb that runs for ever, while `changes` are made: one each time that the verb sleeps."""
    todo = [*changes, *[shell.step] * 6]

    def sleep(seconds: float) -> None:
        shell.clock.advance(seconds)
        if not todo:
            raise KeyboardInterrupt
        todo.pop(0)()
        shell.step()

    shell.clock.sleep = sleep
    told = shell.run(*arguments)
    assert told.exit_code == 130
    return told.stdout


def test_watch_prints_the_list_and_then_each_change_once(shell):
    job_id = shell.submit("etl")
    shell.now(job_id)
    running = [
        lambda: shell.record(job_id, Attempt(1, 1), AttemptStarted(D)),
        shell.step,
        lambda: shell.record(job_id, Ended(1, "finished", "agent-a"), AttemptEnded()),
        shell.step,
        lambda: retire(shell, job_id),
    ]
    lines = [line.split() for line in watched(shell, "list", "-w", changes=running).splitlines()]
    assert [line[2] for line in lines] == ["STATE", "CREATED", "RUNNING", "FINISHED", "RETIRED"]


def test_watch_in_jsonl_is_one_object_a_change(shell):
    job_id = shell.submit("etl")
    shell.now(job_id)
    changes = [
        lambda: shell.record(job_id, Attempt(1, 1), AttemptStarted(D)), shell.step,
        lambda: publish(shell, replace(shell.entry(job_id), as_of=1000)), lambda: retire(shell, job_id),
    ]  # fmt: skip
    rows = [json.loads(line) for line in watched(shell, "list", "-w", "-o", "jsonl", changes=changes).splitlines()]
    states = [row["state"] for row in rows]
    assert states[:2] == ["CREATED", "RUNNING"]
    assert states.count("RUNNING") == 1  # a new as_of alone is no change
    assert rows[-1]["retired"] is True and rows[-1]["job_id"] == job_id


# -- show, history, explain ------------------------------------------------------------------------------------------------


def test_show_tells_a_line_for_each_thing(shell):
    job_id = busy(shell)
    lines = dict(line.split(maxsplit=1) for line in shell.good("show", "etl").splitlines())
    assert (lines["NAME"], lines["STATE"], lines["ID"]) == ("etl", "RESTARTING", job_id)
    assert shell.good("show", "etl", "-o", "name") == f"{job_id}\n"


def test_show_and_explain_of_a_quarantined_job_say_why_in_full_and_what_can_be_done(shell):
    job_id = quarantined(shell)
    text = shell.good("show", "bad")
    assert "REASON     attempt 1 failed: exit code 1: Traceback:\n             line 7\n           ValueError: no t" in text
    verbs = f"jobledger retry {job_id} --reason TEXT, or jobledger cancel {job_id} --reason TEXT"
    assert f"WAITS      an operator: {verbs}" in text
    assert f"LOGS       jobledger logs {job_id}" in text
    lines = shell.good("explain", "bad").splitlines()
    assert lines[1:7] == [
        "  reason: attempt 1 failed; restart policy used up after 1 failures in a row",
        "  attempt 1 failed after 2s, by its runner's word:",
        "    exit code 1: Traceback:", "      line 7", "    ValueError: no table",
        f"  what it printed: jobledger logs {job_id} --attempt 1",
    ]  # fmt: skip
    assert "  waits for: an operator: retry or cancel" in lines
    [failure] = shell.json("explain", "bad")["failures"]
    assert failure == {
        "attempt": 1, "outcome": "failed", "by_runner": True, "ran_for_s": 2.5,
        "cause": CAUSE,
    }  # fmt: skip


def test_a_verdict_is_told_with_the_failure_before_it(shell):
    job_id = busy(shell)
    shell.record(job_id, Ended(2, "failed-permanent", "reconciler-3"), AttemptEnded("no restore point verifies"))
    lines = shell.good("explain", "etl").splitlines()
    assert lines[1:5] == [
        "  reason: attempt 2 failed-permanent: no restore point verifies",
        "  attempt 1 failed after 2s, by its runner's word:",
        "    exit code 1",
        f"  what it printed: jobledger logs {job_id} --attempt 1",
    ]


def test_what_a_job_printed_drives_no_terminal(shell):
    quarantined(shell, cause="exit code 1: \x1b[2J\x1b]0;title\x07\n\x9b31mred\r\n\u202eend")
    for text in (shell.good("show", "bad"), shell.good("explain", "bad"), shell.good("list", "--state", "quarantined")):
        assert all(char.isprintable() or char == "\n" for char in text)


def test_a_job_that_nobody_admitted_has_a_history_and_an_explanation_but_nothing_to_show(shell):
    shell.working = False
    shell.record("job-1", Running(1), AttemptRunning("17"))
    told = shell.run("show", "job-1")
    assert told.exit_code == 1 and "explain job-1" in told.stderr
    assert "not a job of the ledger" in shell.good("explain", "job-1")
    assert len(shell.json("history", "job-1")) == 1
    assert shell.run("history", "nobody").exit_code == 1


def test_history_in_the_order_of_the_log_with_what_matters(shell):
    job_id = busy(shell)
    shell.raw(key_of(job_id, Checkpoint(1, 4)).encode(), None, partition_of(job_id, PARTITIONS))
    text = shell.good("history", "etl")
    lines = text.splitlines()
    assert lines[0].split() == ["OFFSET", "TIME", "REGISTER", "FACT", "ACTOR", "EPOCH"]
    offsets = [int(line.split()[0]) for line in lines[1:]]
    assert offsets == sorted(offsets)
    assert "cause=exit code 1 checkpoint=5 ran_for_s=2.5" in text
    assert "base=/outside/chk refused=/outside/chk: gone" in text
    assert "engine_id=17" in text and "(removed)" in lines[-1]


def test_history_on_a_narrow_terminal_has_whole_times_and_facts(shell, monkeypatch):
    job_id = shell.submit()
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, None, (), 0, (1.5,)))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    shell.record(job_id, Ended(1, "failed", "agent-there-1234"), AttemptEnded("killed by signal 9", 5, 2.5))
    shell.now(job_id)
    on_terminal(monkeypatch, 80)
    monkeypatch.setattr("time.time", shell.clock.time)
    head, *lines = shell.run("history", job_id, COLUMNS="80").stdout.splitlines()
    assert head.split() == ["OFFSET", "TIME", "REGISTER", "FACT"]
    assert all(len(line) <= 80 for line in lines)
    (line,) = [line for line in lines if " ended/1/failed/agent-there-1234 " in line]
    assert "cause=killed by signal 9" in line
    assert re.fullmatch(r"[0-9]{2}:[0-9]{2}:[0-9]{2}", line.split()[1])
    assert re.fullmatch(r"spec/[0-9a-f]{12}…", lines[0].split()[2])
    assert "ACTOR" in shell.run("history", job_id, COLUMNS="300").stdout


def test_history_follows(shell):
    job_id = busy(shell)
    before = len(shell.json("history", job_id))
    more = [lambda: shell.record(job_id, Running(2), AttemptRunning("18"))]
    lines = watched(shell, "history", "-f", job_id, "-o", "jsonl", changes=more).splitlines()
    assert len(lines) == before + 1
    assert json.loads(lines[-1])["register"] == "running/2"


def test_explain_tells_state_rule_evidence_and_what_it_waits_for(shell):
    job_id = busy(shell)
    text = shell.good("explain", "etl")
    entry = shell.now(job_id)
    offset = next(r["offset"] for r in shell.json("history", job_id) if r["register"].startswith("ended"))
    where = f"[{entry.partition}]@{offset}"
    assert text.splitlines()[0] == f"default/etl ({job_id}) is RESTARTING, in the recovery set"
    assert "  reason: attempt 1 failed: exit code 1" in text
    assert "  rule 12: the last attempt ended, and the next one follows" in text
    assert f"    ended/1/failed/agent-a  at {where}, " in text
    assert "  waits for: its restart delay of 10 s, until 20" in text
    assert "    1/5  /chk-5  (completed by attempt 1, the highest that has one)" in text
    assert "    /outside/chk  /outside/chk  (restore_from of the spec)" in text
    assert f"  published: RESTARTING, as of [{entry.partition}]@" in text
    assert "behind" not in text


def test_show_and_explain_say_which_agent_holds_the_attempt(shell):
    job_id = shell.submit("etl")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D, instance="agent-a"))
    shell.now(job_id)
    assert "  its newest attempt is held by: agent-a" in shell.good("explain", job_id).splitlines()
    assert shell.json("explain", job_id)["instance"] == shell.json("show", job_id)["instance"] == "agent-a"
    assert "agent-a" in shell.good("show", job_id)


def test_explain_shows_anomalies_and_a_projector_that_is_behind(shell):
    job_id = busy(shell)
    shell.working = False
    shell.raw(key_of(job_id, Running(2)).encode(), b"\xc3\x01 damaged", partition_of(job_id, PARTITIONS))
    text = shell.good("explain", "etl")
    assert "anomaly: running/2" in text and "can't be read" in text and "(without effect)" in text
    assert "the projector is behind" in text
    told = shell.json("explain", "etl")
    assert told["as_of"] < told["end"]
    assert [r["register"] for r in told["remarks"]] == ["attempt/1/1", "running/2"]
    assert told["because"][0]["actor"] == "" and told["because"][0]["offset"] is not None


def test_explain_does_not_take_the_stamp_of_an_earlier_start_for_that_of_the_next(shell):
    job_id = busy(shell)
    assert shell.now(job_id).due_at is not None
    shell.working = False
    shell.record(job_id, Attempt(2, 1), AttemptStarted(D))
    shell.record(job_id, Ended(2, "failed", "agent-a"), AttemptEnded("again"))
    assert shell.json("explain", "etl")["waits_for"] == "the reconciler to start attempt 3"


def test_explain_of_a_job_that_runs_says_so_and_why_its_last_attempt_ended(shell):
    job_id = shell.submit("etl")
    assert "rule 9: the job was not started yet" in shell.good("explain", "etl")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    first = shell.good("explain", "etl")
    assert "rule 7: no end of the last attempt is known" in first and "attempt 1 failed" not in first
    cause = "exit code 1: Traceback:\nValueError: no table"
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded(cause, None, 75.0))
    shell.record(job_id, Attempt(2, 1), AttemptStarted(D))
    shell.record(job_id, Running(2), AttemptRunning("18"))
    text = shell.good("explain", "etl")
    assert "  attempt 1 failed after 1m: exit code 1: Traceback: … ValueError: no table" in text.splitlines()


def test_explain_says_where_a_job_waits_for_a_reconciler_and_none_leads(shell):
    shell.submit("etl")
    assert "waits for: the reconciler to start attempt 1; no reconciler leads" in shell.good("explain", "etl")
    shell.replaced["candidates"] = lambda _: [Candidate("r", 1, 0.0, leads=True)]
    assert "no reconciler leads" not in shell.good("explain", "etl")

    def silent(*_):
        raise Unreachable("no answer")

    shell.replaced["candidates"] = silent
    assert "no reconciler leads" not in shell.good("explain", "etl")
    shell.replaced["candidates"] = lambda _: []
    assert "no reconciler leads" in shell.good("explain", "etl")
    assert "no reconciler leads" not in shell.good("explain", "etl", "--as-of", "0s")


def many_checkpoints(shell):
    """A job with a run of checkpoints, some removed, a savepoint among them, and a second attempt."""
    job_id = shell.submit("etl")
    shell.record(job_id, Attempt(1, 1), AttemptStarted(D))
    shell.record(job_id, Running(1), AttemptRunning("17"))
    for id_ in range(1, 31):
        kind = CheckpointKind.SAVEPOINT if id_ == 20 else CheckpointKind.CHECKPOINT
        shell.record(job_id, Checkpoint(1, id_), CheckpointCompleted(f"/chk-{id_}", 10, kind=kind))
        shell.now(job_id)
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("bad"))
    shell.record(job_id, Attempt(2, 1), AttemptStarted(D))
    for id_ in (31, 32):
        shell.record(job_id, Checkpoint(2, id_), CheckpointCompleted(f"/chk-{id_}", 10))
    shell.now(job_id)
    return job_id


def test_runs_of_checkpoints_are_a_line_each(shell):
    job_id = many_checkpoints(shell)
    told = shell.run("history", job_id)
    lines = [line for line in told.stdout.splitlines() if "checkpoint/" in line]
    registers = [line.split()[2] for line in lines]
    for register in ("checkpoint/1/1…19", "checkpoint/1/20", "checkpoint/1/21…30", "checkpoint/2/31…32"):
        assert registers.count(register) == 1, registers
    assert "19 checkpoints, the last at 20" in told.stdout and " removed, the last at 20" in told.stdout
    assert len(lines) < 10
    assert "--all-records" in told.stderr
    every = shell.json("history", job_id)
    assert len(shell.good("history", job_id, "--all-records").splitlines()) == 1 + len(every) > 40
    assert len([row for row in every if row["register"].startswith("checkpoint/1/")]) > 30


def test_what_happened_and_what_changed_fold_checkpoints_too(shell):
    many_checkpoints(shell)
    partition = shell.json("history", "etl")[0]["partition"]
    since = f"events[{partition}]@0"
    steps = shell.good("replay", "--from", since)
    assert "checkpoint/1/1…19" in steps and len(steps.splitlines()) < 20
    assert len(shell.good("replay", "--from", since, "--all-records").splitlines()) > 40
    assert len(shell.json("replay", "--from", since)) > 40
    (_, line) = shell.good("diff", "--from", since).splitlines()
    assert line.split()[0] == "etl" and "RUNNING/2" in line and "ended/1/failed/agent-a: bad" in line
    assert len(shell.good("diff", "--from", since, "-o", "wide").splitlines()) < 20
    assert len(shell.good("diff", "--from", since, "--all-records").splitlines()) > 40


def test_explain_of_a_retired_job(shell):
    job_id = shell.submit("etl")
    retire(shell, job_id)
    assert shell.good("explain", "etl").splitlines()[:2] == [
        f"default/etl ({job_id}) is FINISHED, not in the recovery set", "  reason: all rows read",
    ]  # fmt: skip


# -- rejects and replay ----------------------------------------------------------------------------------------------------


def test_one_reject_that_nobody_could_print_does_not_hide_the_others(shell):
    """Anybody who can write to the topic may add such a reject, and it stays for a month."""
    fields = {"topic": "t", "partition": 0, "offset": 1, "time_ms": 5, "key": None, "value_head": None, "sha256": "",
              "size": 0, "reason": "x", "headers": []}  # fmt: skip
    texts = [{"reason": "\ud800"}, {"headers": [["\udfff", ""]]}, {"topic": "\ud800"}]
    odd = [{}, {"time_ms": 10**400}, {"size": 10**400}, *texts]
    for number, change in enumerate(odd):
        event = Event(REJECTS, 0, b"%d" % number, json.dumps({**fields, **change}).encode())
        shell.log.append([event])
    assert len(shell.json("rejects")) == len(odd) - 2
    assert "\\ud800" in shell.good("rejects")


def test_rejects_tell_place_and_reason(shell):
    assert shell.run("rejects").stderr == "no rejects\n"
    rejects = RejectsTopic(REJECTS, EVENTS)
    shell.log.append([rejects.held(1, b"job-1/spec/x", b"\xff\x00", 17, "no such register")])
    (row,) = [line.split(maxsplit=4) for line in shell.good("rejects").splitlines()[1:]]
    assert row == [f"{EVENTS}/1/17", "-", "job-1/spec/x", "2", "no such register"]
    (told,) = shell.json("rejects")
    assert (told["place"], told["key"], told["size"]) == (f"{EVENTS}/1/17", "job-1/spec/x", 2)
    assert told["value_head"] == "\\xff\x00"


def test_replay_is_exit_0_if_all_agrees_and_1_with_the_differences_if_not(shell):
    job_id = busy(shell)
    assert "1 job compared, 0 differ" in shell.good("replay")
    assert shell.json("replay") == {"compared": 1, "differences": [], "behind": [], "dropped": {}}
    entry = shell.now(job_id)
    shell.working = False
    publish(shell, replace(entry, state=JobState.RUNNING))
    told = shell.run("replay")
    assert told.exit_code == 1
    assert f"{job_id}  RUNNING/1  RESTARTING/1  state" in told.stdout
    told = shell.run("replay", "-o", "json")
    assert told.exit_code == 1
    (difference,) = json.loads(told.stdout)["differences"]
    assert difference["differs"] == ["state"]
    same_names(difference["published"], schema_of("recovery_entry"))
    same_names(difference["folded"], schema_of("recovery_entry"))


def test_replay_without_a_projector_does_not_know(shell):
    job_id = busy(shell)
    shell.working = False
    shell.record(job_id, Running(2), AttemptRunning("18"))
    told = shell.run("replay")
    assert told.exit_code == 4 and job_id in told.stderr


def test_records_without_effect_are_told(shell):
    shell.submit("etl")
    shell.log.append([Event(RECOVERY, 0, b"zombie", b"x", ((EPOCH_HEADER, b"99"),))])
    assert "1 unclaimed" in shell.run("replay").stderr

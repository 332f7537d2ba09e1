"""`replay --what-if`: the fold of the log compared with the fold without some records."""

from __future__ import annotations

import pytest

from ledger.core.model.facts import AttemptEnded, AttemptRunning, AttemptStarted, CheckpointCompleted, JobResult
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Result, Running
from ledger.util import times
from tests.support.jobs_world import Shell
from tests.support.odd_headers import ODD, OddHeaders
from tests.support.operated import EVENTS


@pytest.fixture
def job(shell: Shell) -> str:
    """A job that ran, completed two checkpoints, and was finished by mistake."""
    job = shell.submit("etl")
    shell.record(job, Attempt(1, 1), AttemptStarted("0" * 64))
    shell.record(job, Running(1), AttemptRunning("pid 1"))
    for id_ in (1, 2):
        shell.record(job, Checkpoint(1, id_), CheckpointCompleted(f"/chk-{id_}"))
    shell.clock.advance(60.0)
    shell.record(job, Ended(1, "finished", "agent-a"), AttemptEnded("exit 0"))
    return job


def events(shell: Shell, job: str) -> dict[str, dict]:
    return {row["register"]: row for row in shell.json("history", job)}


def drop(record: dict) -> str:
    return f"drop {record['key']}@{record['offset']}"


def test_a_job_that_is_over_would_run(shell: Shell, job: str) -> None:
    end = events(shell, job)["ended/1/finished/agent-a"]
    told = shell.run("replay", "--what-if", drop(end))
    assert told.exit_code == 0, told.output
    head, line = (text.split("  ") for text in told.stdout.splitlines())
    assert "AS IT IS" in told.stdout and "WITHOUT" in told.stdout
    assert [word for word in line if word][:3] == [job, "FINISHED/1", "RUNNING/1"]
    assert "state" in told.stdout
    assert f"without events[{end['partition']}]@{end['offset']}" in told.stderr
    assert head


def test_several_records_together(shell: Shell, job: str) -> None:
    """Without the end and the newer checkpoint, the job would continue from the older one."""
    found = events(shell, job)
    other = shell.submit("other")
    drops = [drop(found[name]) for name in ("ended/1/finished/agent-a", "checkpoint/1/2")]
    (changed,) = shell.json("replay", "--what-if", drops[0], "--what-if", drops[1])
    assert changed["job_id"] == job != other
    assert (changed["before"]["state"], changed["after"]["state"]) == ("FINISHED", "RUNNING")
    assert [point["id"] for point in changed["after"]["restore_points"]] == [1]
    assert [record["register"] for record in changed["records"]] == ["checkpoint/1/2", "ended/1/finished/agent-a"]


def test_without_its_admission_it_is_no_job(shell: Shell, job: str) -> None:
    (changed,) = shell.json("replay", "--what-if", f"drop {events(shell, job)['admitted']['event_id']}")
    assert changed["before"]["state"] == "FINISHED"
    assert changed["after"] is None


def test_an_event_that_was_sent_twice_is_left_out_twice(shell: Shell, job: str) -> None:
    sent = events(shell, job)["admitted"]
    record = next(r for r in shell.log.records(EVENTS, sent["partition"]) if r.offset() == sent["offset"])
    shell.raw(record.key() or b"", record.value(), sent["partition"], headers=record.headers())
    (changed,) = shell.json("replay", "--what-if", f"drop {sent['event_id']}")
    assert [one["key"] for one in changed["records"]] == [sent["key"]] * 2
    assert shell.json("replay", "--what-if", drop(sent)) == [], "the other copy is still in the log"


def test_what_has_no_effect_makes_no_difference(shell: Shell, job: str) -> None:
    first = drop(events(shell, job)["running/1"])
    shell.record(job, Running(1), AttemptRunning("pid 1"))
    told = shell.run("replay", "--what-if", first)
    assert (told.exit_code, told.stdout) == (0, "")
    assert "nothing would be different" in told.stderr
    assert shell.json("replay", "--what-if", first) == []


def test_in_the_past_too(shell: Shell, job: str) -> None:
    found = events(shell, job)
    then = times.rfc3339(shell.clock.time() - 30)
    (changed,) = shell.json("replay", "--as-of", then, "--what-if", drop(found["checkpoint/1/2"]))
    assert changed["before"]["state"] == changed["after"]["state"] == "RUNNING"
    assert len(changed["before"]["restore_points"]) == 2
    late = shell.run("replay", "--as-of", then, "--what-if", drop(found["ended/1/finished/agent-a"]))
    assert late.exit_code == 1, "at that moment the record was not written yet"


@pytest.mark.parametrize(("what", "code"), [
    ("drop never-seen", 1), ("drop job/running/1@5", 1), ("drop", 2), ("keep x", 2), ("drop a b", 2), ("", 2),
])  # fmt: skip
def test_what_is_not_there_is_told(shell: Shell, job: str, what: str, code: int) -> None:
    told = shell.run("replay", "--what-if", what)
    assert told.exit_code == code
    assert ("There is no record" if code == 1 else "drop EVENT_ID") in told.stderr


def test_a_key_that_is_no_text_can_be_named(shell: Shell, job: str) -> None:
    """The shell passes bytes that are no UTF-8 in this form."""
    partition = shell.source().partition_of(job)
    shell.raw(b"\xff/x", b"junk", partition)
    offset = shell.log.records(EVENTS, partition)[-1].offset()
    told = shell.run("replay", "--what-if", f"drop \udcff/x@{offset}")
    assert (told.exit_code, told.stdout) == (0, "")
    told = shell.run("replay", "--what-if", f"drop \udcff/x@{offset + 1}")
    assert told.exit_code == 1
    assert "with the key \\xff/x" in told.stderr


def test_among_records_whose_headers_can_not_be_read_an_event_is_found(
    shell: Shell, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = events(shell, job)["admitted"]["event_id"]
    shell.raw(b"odd/no register", b"x", 0, headers=ODD)
    odd = OddHeaders(shell.log)
    shell.replaced["event_log"] = lambda: odd
    (changed,) = shell.json("replay", "--what-if", f"drop {event_id}")
    assert changed["after"] is None
    nowhere = shell.run("list", "--as-of", "never-seen")
    assert nowhere.exit_code == 1 and "no record of the event" in nowhere.stderr


def test_of_a_retired_job_it_is_told_that_a_result_stands(shell: Shell, job: str) -> None:
    other = shell.submit("other")
    shell.record(job, Result("FINISHED"), JobResult("etl", "default", "subprocess", "0" * 64, "", 1.0, 1))
    told = shell.run("replay", "--what-if", drop(events(shell, job)["running/1"]))
    assert told.exit_code == 0
    assert f"{job} is FINISHED and retired: a result stands, which outlives what was left out" in told.stderr
    told = shell.run("replay", "--what-if", drop(events(shell, job)["result/FINISHED"]))
    assert "a result stands" not in told.stderr
    assert "a result stands" not in shell.run("replay", "--what-if", drop(events(shell, other)["admitted"])).stderr

"""Both clocks on every answer; and the published state next to the state by the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger.adapters import avro, cloudevents
from ledger.core.model.facts import AttemptRunning, AttemptStarted
from ledger.core.model.registers import Attempt, Running, key_of, partition_of
from ledger.ports import Event
from ledger.util import times
from tests.support.jobs_world import Shell
from tests.support.operated import EVENTS
from tests.support.roles.world import PARTITIONS


def now(shell: Shell) -> str:
    return times.rfc3339(shell.clock.time())


def wrong_clock(shell: Shell, job: str, ahead_s: float) -> None:
    """Records an attempt whose writer's clock is wrong."""
    key = key_of(job, Attempt(1, 1))
    headers = cloudevents.headers(
        "AttemptStarted", event_id="skewed", source="test", subject=job, key=key, time_s=shell.clock.time() + ahead_s,
        sequence=1,
    )  # fmt: skip
    value = avro.encode(AttemptStarted("d" * 64))
    shell.log.append([Event(EVENTS, partition_of(job, PARTITIONS), key.encode(), value, headers)])


def with_a_wrong_clock(shell: Shell) -> str:
    job = shell.submit("etl")
    wrong_clock(shell, job, 3600.0)
    shell.record(job, Running(1), AttemptRunning("17"))
    shell.now(job)
    return job


def test_history_has_both_times_and_tells_which_can_t_be(shell: Shell) -> None:
    job = with_a_wrong_clock(shell)
    rows: list[Any] = shell.json("history", job)
    skewed = next(row for row in rows if row["event_id"] == "skewed")
    assert (skewed["skew"], round(skewed["ce_time_s"] - skewed["time_s"])) == ("ahead", 3600)
    assert {row["skew"] for row in rows if row is not skewed} == {""}
    wide = shell.good("history", job, "-o", "wide").splitlines()[0].split()
    assert {"TIME", "CE_TIME", "SKEW"} <= set(wide)
    assert shell.good("history", job).count(", ahead)") == 1, "also in a narrow table"


def test_evidence_has_the_time_of_the_log_and_its_writer_s(shell: Shell) -> None:
    job = with_a_wrong_clock(shell)
    rows = {row["register"]: row for row in shell.json("history", job)}
    told = shell.json("explain", job)
    for one in (*told["because"], *told["remarks"]):
        assert [one[name] for name in ("time_s", "ce_time_s", "skew")] == [
            rows[one["register"]][name] for name in ("time_s", "ce_time_s", "skew")
        ]
    assert "ahead" in {one["skew"] for one in told["because"]}
    assert shell.good("explain", job).count("implausibly ahead") == 1


def test_a_picture_tells_of_a_clock_that_went_wrong(shell: Shell, tmp_path: Path) -> None:
    job = with_a_wrong_clock(shell)
    file = tmp_path / "life.svg"
    shell.good("history", job, "--timeline", str(file))
    assert file.read_text().count("attempt/1/1 by its writer") == 1
    shell.good("history", job, "--timeline", str(file), "--as-of", "0s")
    assert "implausibly ahead" in file.read_text()


def test_a_list_tells_when_each_entry_was_published_by_both_clocks(shell: Shell) -> None:
    job = shell.submit("etl")
    shell.clock.advance(60.0)
    shell.good("suspend", job, "--reason", "night")
    (row,) = shell.json("list")
    assert row["record"] == shell.json("show", job)["record"]
    assert row["record"]["skew"] == "" and row["record"]["time_s"] <= shell.clock.time()
    shown = shell.good("show", job)
    assert "PUBLISHED" in shown and "CE_TIME" in shown
    assert shell.json("list", "--as-of", "30s") == [] or shell.json("list", "--as-of", "30s")[0]["record"] != row["record"]


def test_what_was_published_then_beside_what_the_log_said_then(shell: Shell) -> None:
    job = shell.submit("etl")
    shell.now(job)
    shell.clock.advance(5.0)
    same = shell.json("show", job, "--as-of", now(shell))
    assert (same["log"]["differs"], same["log"]["entry"]["state"]) == ([], "CREATED")
    shell.clock.advance(5.0)
    shell.working = False  # the leader publishes nothing
    shell.record(job, Attempt(1, 1), AttemptStarted("d" * 64))
    shell.clock.advance(5.0)
    then = now(shell)
    shell.clock.advance(5.0)
    shell.working = True
    shell.now(job)
    asked = shell.run("show", job, "--as-of", then, "-o", "json")
    told = shell.json("show", job, "--as-of", then)
    said = told["log"]
    assert (told["state"], said["entry"]["state"]) == ("CREATED", "RUNNING")
    assert "state" in said["differs"] and said["behind"] == said["end"] - said["as_of"] > 0
    assert told["vector"] in asked.stderr, "the same offsets as in the note"
    assert shell.json("show", job, "--as-of", told["vector"]) == told
    text = shell.good("show", job, "--as-of", then)
    assert "RUNNING/1; what was published differs" in text and "1 offset behind" in text
    why = shell.json("explain", job, "--as-of", then)
    assert "state" in why["differs"] and why["published_state"] == "CREATED" and why["vector"] == told["vector"]
    assert "the log says otherwise" in shell.good("explain", job, "--as-of", then)
    assert "log" not in shell.json("show", job), "in the present there is no comparison"


def test_a_job_that_the_leader_had_not_come_to_is_shown_as_that(shell: Shell) -> None:
    job = shell.submit("etl")
    record = next(row for row in shell.json("history", job) if row["register"] == "admitted")
    moment = f"events[{record['partition']}]@{record['offset']},recovery[{record['partition']}]@-1"
    told = shell.json("show", job, "--as-of", moment)
    assert (told["state"], told["log"]["entry"]["state"], told["log"]["differs"]) == ("UNPUBLISHED", "CREATED", ["entry"])
    assert "LOG SAID" in shell.good("show", job, "--as-of", moment)


def test_a_replay_of_the_past_tells_its_offsets_in_json(shell: Shell) -> None:
    shell.submit("etl")
    shell.clock.advance(5.0)
    ran = shell.run("replay", "--as-of", "1s", "-o", "json")
    assert ran.exit_code == 0
    told = shell.json("replay", "--as-of", "1s")["vector"]
    assert told in ran.stderr and told.startswith("events[0]@")
    assert "vector" not in shell.json("replay")

"""The verb `savepoint` with its two companions, and intervals as people give and see them."""

from __future__ import annotations

import pytest

from ledger.core.model.facts import AttemptEnded, SavepointPolicy  # fmt: skip
from ledger.core.model.registers import Ended
from tests.support.jobs_world import running


def test_savepoint_without_a_word_asks_wherever_the_flags_stand(shell):
    shell.submit("etl")
    for words in (["etl"], ["ask", "etl"]):
        told = shell.run("savepoint", *words, "--reason", "upgrade", "--timeout", "0.5")
        assert told.exit_code == 4 and "is requested" in told.stderr
    told = shell.run("savepoint", "--timeout", "0.5", "--reason", "upgrade", "etl")
    assert told.exit_code == 4 and "is requested" in told.stderr
    told = shell.run("savepoint", "etl", LEDGER_SAVEPOINT_REASON="upgrade")
    assert told.exit_code == 2 and "--reason" in told.stderr


def test_savepoints_are_listed(shell):
    job_id = running(shell)
    rows = shell.json("savepoint", "list", "etl")
    assert [(r["job_id"], r["savepoint"], r["periodic"], r["state"], r["size"], r["location"]) for r in rows] == [
        (job_id, "1/2", True, "offered", 20, "/x/2"), (job_id, "1/3", False, "offered", 30, "/x/3"),
    ]  # fmt: skip
    assert shell.good("savepoint", "list", "etl", "-o", "name") == "1/2\n1/3\n"
    assert "periodic" in shell.good("savepoint", "list", "etl")
    other = shell.submit("other")
    assert "has no savepoints" in shell.run("savepoint", "list", other).stderr
    assert shell.run("savepoint", "list", "nobody").exit_code == 1


def test_dispose_records_first_and_says_if_it_is_not_deleted_yet(shell):
    """No reconciler runs here."""
    job_id = running(shell)
    assert shell.run("savepoint", "dispose", "etl", "1/2").exit_code == 2, "it requires a reason"
    assert shell.run("savepoint", "dispose", "etl", "1/1", "--reason", "full").exit_code == 2, "1/1 is a checkpoint"
    told = shell.run("savepoint", "dispose", "etl", "1/2", "--reason", "full", "--timeout", "0.5")
    assert told.exit_code == 4 and "disposed of, but was not deleted" in told.stderr
    assert [r["state"] for r in shell.json("savepoint", "list", "etl")] == ["given up", "offered"]
    assert [p["id"] for p in shell.json("show", "etl")["restore_points"]] == [3, 1]
    assert "savepoint 1/2 is given up" in shell.good("explain", "etl")
    assert shell.run("replace", "etl", "--from", "1/2").exit_code == 2, "no attempt starts from a disposed savepoint"
    shell.record(job_id, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    assert shell.run("retry", "etl", "--reason", "x", "--from", "1/2").exit_code == 2


def test_an_interval_is_shown_wherever_a_job_is(shell):
    job_id = running(shell, "--savepoint-interval", "10m", "--savepoint-keep", "3")
    shell.now(job_id)
    entry = shell.json("show", "etl")
    assert entry["savepoint_policy"] == {"interval_s": 600.0, "keep_max": 3} and entry["savepoint_at"]
    assert "every 600 s, keeps 3, the next at" in shell.good("show", "etl")
    assert "every 600 s, the newest 3 are kept; the next request at" in shell.good("explain", "etl")
    assert "savepoint" not in shell.good("show", shell.submit("other")).lower()


@pytest.mark.parametrize(
    "options", [["--savepoint-interval", "0"], ["--savepoint-interval", "0.5s"], ["--savepoint-interval", "often"],
                ["--savepoint-keep", "3"], ["--savepoint-interval", "1h", "--savepoint-keep", "0"]],
)  # fmt: skip
def test_intervals_that_nobody_can_follow(shell, options):
    before = shell.values()
    assert shell.run("submit", *options, "--", "true").exit_code == 2
    assert shell.values() == before


def test_a_replacement_has_the_interval_of_the_old_one_unless_it_says_another(shell):
    running(shell, "--savepoint-interval", "10m")
    one = shell.good("replace", "etl", "-o", "name").strip()
    assert shell.client().spec(one).savepoint_policy == SavepointPolicy(600.0)
    shell.good("cancel", one, "--reason", "another")
    two = shell.good("replace", "etl", "--savepoint-interval", "1m", "--savepoint-keep", "2", "-o", "name").strip()
    assert shell.client().spec(two).savepoint_policy == SavepointPolicy(60.0, 2)

"""`cancel` and `retry` of all jobs that -n and -l select."""

from __future__ import annotations

import json

import pytest

from ledger.core.model.facts import AttemptEnded
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Ended
from ledger.errors import Refused, Unreachable
from ledger.operations.client import Client
from tests.support.jobs_world import Shell

WHY = ("--reason", "an outage")


@pytest.fixture
def four(shell: Shell) -> dict[str, str]:
    """Name -> id: a and b have the label team=data, b and c are quarantined, d is in another namespace."""
    ids = {}
    for name, more in (
        ("a", ("-l", "team=data")), ("b", ("-l", "team=data")), ("c", ()), ("d", ("-n", "dev", "-l", "team=data")),
    ):  # fmt: skip
        ids[name] = shell.submit(name, "--restart", "none", *more)
    for name in "bc":
        shell.record(ids[name], Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
        shell.now(ids[name])
    return ids


def states(shell: Shell, ids: dict[str, str]) -> dict[str, str]:
    return {name: str(shell.now(job_id).state) for name, job_id in ids.items()}


def test_all_selected_jobs_are_canceled_and_no_others(shell: Shell, four: dict[str, str]) -> None:
    told = shell.json("cancel", "-l", "team=data", "-n", "default", *WHY, "--yes")
    assert {(row["job_id"], row["name"], row["state"]) for row in told} == {
        (four["a"], "a", "CANCELLING"), (four["b"], "b", "CANCELLING")
    }  # fmt: skip
    assert states(shell, four) == {"a": "CANCELLING", "b": "CANCELLING", "c": "QUARANTINED", "d": "CREATED"}
    again = shell.run("cancel", "-l", "team=data", "-n", "default", *WHY, "--yes")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "no job to cancel" in again.stderr
    assert shell.json("cancel", "-l", "team=data", "-n", "default", *WHY, "--yes") == []


def test_a_retry_of_many_concerns_the_quarantined_alone(shell: Shell, four: dict[str, str]) -> None:
    told = shell.good("retry", "-n", "default", *WHY, "--yes", "-o", "name")
    assert sorted(told.split()) == sorted([four["b"], four["c"]])
    assert states(shell, four) == {"a": "CREATED", "b": "RESTARTING", "c": "RESTARTING", "d": "CREATED"}


def test_without_yes_they_are_listed_and_nothing_is_done_where_nobody_can_answer(
    shell: Shell, four: dict[str, str]
) -> None:
    before = states(shell, four)
    told = shell.run("cancel", "-l", "team", *WHY)
    assert told.exit_code == 2
    assert "would cancel 3 jobs" in told.stderr and "--yes" in told.stderr
    for name, place in (("a", "default"), ("b", "default"), ("d", "dev")):
        assert f"{four[name]}  {place}/{name}  {before[name]}" in told.stderr
    assert states(shell, four) == before


@pytest.mark.parametrize(("answer", "code", "state"), [(True, 0, "CANCELLING"), (False, 1, "CREATED")])
def test_people_are_asked(
    shell: Shell, four: dict[str, str], monkeypatch: pytest.MonkeyPatch, answer: bool, code: int, state: str
) -> None:
    asked = []
    monkeypatch.setattr("ledger.cli.bulk.sys", type("sys", (), {"stdin": type("in_", (), {"isatty": lambda: True})}))
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or answer)
    told = shell.run("cancel", "-n", "dev", *WHY)
    assert told.exit_code == code
    assert asked == ["Cancel 1 job?"] and f"{four['d']}  dev/d" in told.stderr
    assert shell.now(four["d"]).state == JobState(state)


def test_what_fails_for_one_is_told_and_the_others_go_on(
    shell: Shell, four: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Client.declare

    def declare(self, job_id, *arguments, **how):
        if job_id == four["a"]:
            raise Refused("it is pinned to the wall")
        return real(self, job_id, *arguments, **how)

    monkeypatch.setattr(Client, "declare", declare)
    told = shell.run("cancel", "-l", "team", *WHY, "--yes", "-o", "json")
    assert told.exit_code == 1
    rows = {row["name"]: (row["state"], row.get("error")) for row in json.loads(told.stdout)}
    assert rows == {
        "a": ("CREATED", "it is pinned to the wall"), "b": ("CANCELLING", None), "d": ("CANCELLING", None)
    }  # fmt: skip
    assert "failed for 1 of 3 jobs" in told.stderr


def test_when_kafka_does_not_answer_the_rest_is_not_tried(
    shell: Shell, four: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def declare(self, job_id, *arguments, **how):
        asked.append(job_id)
        raise Unreachable("no broker answers")

    monkeypatch.setattr(Client, "declare", declare)
    told = shell.run("cancel", "-l", "team", *WHY, "--yes", "-o", "json")
    assert told.exit_code == 1 and len(asked) == 1
    assert [row["error"] for row in json.loads(told.stdout)] == ["no broker answers", "not tried", "not tried"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cancel", *WHY], "Say which job"),
        (["cancel", "etl", "-n", "prod", *WHY], "not both"),
        (["retry", *WHY], "Say which job"),
        (["retry", "-n", "prod", "--from", "1/3", *WHY], "--from 1/3 is of one job"),
        (["retry", "-n", "prod", "--reason", " "], "--reason says why"),
    ],
)
def test_what_can_not_be_meant_is_wrong_usage(shell: Shell, arguments: list[str], told: str) -> None:
    answer = shell.run(*arguments)
    assert answer.exit_code == 2
    assert told in answer.stderr

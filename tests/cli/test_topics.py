"""The verbs `topics create|check`: their output for people is complete, and on stdout."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from ledger.adapters.kafka import topics
from ledger.adapters.kafka.topics import Problem
from ledger.cli import app

PROBLEM = Problem("ledger.events", "cleanup.policy", "delete", "compact", "facts would go", "kafka-configs.sh " + "x" * 200)


def check(monkeypatch: pytest.MonkeyPatch, problems: list[Problem], *arguments: str) -> Result:
    monkeypatch.setattr(topics, "check_topics", lambda *_: problems)
    return CliRunner().invoke(app, ["topics", "check", "-b", "localhost:1", *arguments])


def test_a_problem_says_why_it_matters_and_gives_the_whole_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done = check(monkeypatch, [PROBLEM])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [str(PROBLEM)]


def test_programs_get_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(check(monkeypatch, [PROBLEM], "-o", "json").stdout) == [PROBLEM._asdict()]


def test_that_all_is_well_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    done = check(monkeypatch, [])
    assert (done.exit_code, done.stdout) == (0, "all topics are as they must be\n")


def test_that_there_is_nothing_to_make_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "create_topics", lambda *_: [])
    done = CliRunner().invoke(app, ["topics", "create", "-b", "localhost:1"])
    assert (done.exit_code, done.stdout) == (0, "all topics are there\n")

"""The examples in --help: each verb has some, each is valid, and those that need no server run here."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from ledger.cli import app
from ledger.cli.examples import EXAMPLES, verbs
from ledger.core.model.facts import AttemptEnded
from ledger.core.model.registers import Ended
from tests.support.jobs_world import Shell, running, seal
from tests.support.pages import Command, problems_of

LINES = [(verb, line) for verb, lines in EXAMPLES.items() for line in lines]
#: These start servers or need them. The first steps, scenarios and tests on real Kafka run them, with other addresses.
ON_SERVERS = {
    "up", "down", "demo", "serve projector", "serve reconciler", "serve agent", "serve archiver", "topics create",
    "topics check", "archive restore", "archive status", "archive expire",
}  # fmt: skip
#: These wait for a reconciler or agent, which this ledger lacks (exit code 4 after their timeout), or answer no (1).
UNANSWERED = {"savepoint ask": 4, "savepoint dispose": 4, "logs": 1, "leader": 1, "wait": 1}
#: Commands that run before the example, so that it has something to work on.
BEFORE = {
    "resume": ("suspend etl --reason x",),
    "apply": (),
    "audit verify": ("audit anchor --to anchors.json",),
    "audit unpin": ("audit pin --job etl --reason x",),
}


def test_each_verb_has_examples_and_its_help_shows_them(shell: Shell) -> None:
    names = [verb for verb, _ in verbs(app)]
    assert sorted(names) == sorted(EXAMPLES) and all(EXAMPLES.values())
    for verb, lines in EXAMPLES.items():
        words = " ".join(shell.good(*verb.split(), "--help").split())
        for line in lines:
            assert f"jobledger {line}" in words, verb


@pytest.mark.parametrize(("verb", "line"), LINES, ids=[line for _, line in LINES])
def test_each_example_can_be_typed(verb: str, line: str) -> None:
    assert problems_of(Command(f"jobledger {line}", whole=True)) == []
    assert line.split()[0] == verb.split()[0]


@pytest.mark.parametrize(("verb", "line"), [one for one in LINES if one[0] not in ON_SERVERS])
def test_each_example_runs(shell: Shell, verb: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    shell.replaced["runners"] = dict
    Path("etl.py").write_text("print()")
    Path("jobs").mkdir()
    Path("jobs/nightly.toml").write_text('name = "nightly"\ncommand = ["true"]\n')
    job = running(shell, "-l", "team=data")
    if verb in ("retry", "wait"):
        shell.record(job, Ended(1, "failed-permanent", "agent-a"), AttemptEnded("exit code 1", 3, 2.5))
        shell.now(job)
    seal(shell)
    shell.clock.advance(3 * 3600.0)
    for before in BEFORE.get(verb, ()):
        assert shell.run(*shlex.split(before)).exit_code == 0
    words = shlex.split(line)
    if "PIN" in words:
        words[words.index("PIN")] = shell.json("audit", "pins")[0]["pin"]
    if "EVENT_ID" in words:
        words[words.index("EVENT_ID")] = shell.json("history", "etl")[0]["event_id"]
    if verb.startswith("savepoint ") and verb != "savepoint list":
        words += ["--timeout", "0.5"]
    told: Any = shell.run(*words)
    assert told.exit_code == (0 if "--all" in words else UNANSWERED.get(verb, 0)), told.output

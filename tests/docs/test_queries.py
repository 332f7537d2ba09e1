"""The queries of the runbook, run unchanged on a ledger in memory and its archive."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.model.facts import AttemptEnded, AttemptStarted
from ledger.core.model.registers import Attempt, Ended
from tests.support.jobs_world import Shell, seal
from tests.support.pages import ROOT, blocks


def lines() -> Iterator[list[str]]:
    for block in blocks((ROOT / "docs" / "RUNBOOK.md").read_text()):
        if block.info == "sh queries":
            yield from (shlex.split(line, comments=True) for line in block.lines)


def test_the_questions_of_the_runbook_have_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    monkeypatch.chdir(tmp_path)
    shell = Shell(tmp_path)
    job = shell.submit("etl")
    shell.record(job, Attempt(1, 1), AttemptStarted("0" * 64))
    shell.record(job, Ended(1, "failed", "agent-a"), AttemptEnded("exit code 1"))
    shell.good("suspend", job, "--reason", "a pause")
    seal(shell)
    records = {row["register"]: row for row in shell.json("history", job)}
    end = records["ended/1/failed/agent-a"]
    names = {
        "JOB": job, "KEY@OFFSET": f"{end['key']}@{end['offset']}", "EVENT_ID": records["admitted"]["event_id"],
    }  # fmt: skip
    answers = {}
    for words in lines():
        assert words[0] == "jobledger"
        words = words[1 : words.index(">")] if ">" in words else words[1:]
        for name, value in names.items():
            words = [word.replace(name, value) for word in words]
        told = shell.run(*words)
        assert told.exit_code == 0, f"{words}\n{told.output}"
        answers[" ".join(words)] = told.stdout
    assert len(answers) > 10

    def answer(words: str) -> str:
        return next(text for asked, text in answers.items() if words in asked)

    assert "SUSPEND" in answer("IntentDeclared")
    assert answer("outcome = 'failed'").split() == ["job_id,n,cause", f"{job},1,exit", "code", "1"]
    assert json.loads(answer("FROM checkpoints")) == []
    assert "SUSPENDED" in answer("drop")
    assert (tmp_path / "life.svg").exists() and (tmp_path / "life.html").exists()

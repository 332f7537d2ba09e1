"""`up` in JSON: what its log holds, and what `up --detach` tells of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.adapters.embedded.detach import texts_of


def up(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of a folder whose broker has no port that it could have: it ends with an error before any server is started."""
    (folder / "broker").mkdir(parents=True, exist_ok=True)
    (folder / "broker" / "ports.json").write_text("no JSON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    return subprocess.run(
        [sys.executable, "-m", "ledger", "up", "--dir", str(folder), "--broker-only", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip


def test_each_line_of_the_log_is_an_object_also_the_error_that_ends_it(tmp_path: Path) -> None:
    code, told = (run := up(tmp_path)).returncode, run.stderr.splitlines()
    assert code and told[0].startswith("error: ")
    detached = up(tmp_path, "--detach")
    lines = [json.loads(line) for line in (tmp_path / "log" / "up.log").read_text().splitlines()]
    assert (lines[-1]["process"], lines[-1]["level"]) == ("up", "error")
    assert f"error: {lines[-1]['event']}" == told[0]
    assert detached.returncode == code
    assert detached.stderr.splitlines() == [*told, f"log: {tmp_path / 'log' / 'up.log'}"]


def test_a_log_for_people_stays_one(tmp_path: Path) -> None:
    (tmp_path / "ledger.toml").write_text('[log]\nformat = "console"\n')
    told = up(tmp_path, "--detach").stderr.splitlines()
    assert (tmp_path / "log" / "up.log").read_text().splitlines() == told[:-1]


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ('{"event": "ready: broker b", "level": "info"}', ["ready: broker b"]),
        ('{"event": "no", "level": "error", "hint": "do"}', ["error: no", "hint: do"]),
        ('{"event": "no", "level": "critical", "hint": ""}', ["error: no"]),
        ("Traceback (most recent call last):", ["Traceback (most recent call last):"]),
        ("3", ["3"]), ("{}", ["{}"]), ("", [""]),
    ],
)  # fmt: skip
def test_a_line_of_the_log_as_it_is_told(line: str, texts: list[str]) -> None:
    assert texts_of(line) == texts

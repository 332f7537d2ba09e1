"""`up` in JSON: the contents of its log, and the answer of `up --detach`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.util.processes import texts_of


def up(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `up` in a folder with a damaged file of ports, so it fails before it starts a server."""
    (folder / "broker").mkdir(parents=True, exist_ok=True)
    (folder / "broker" / "ports.json").write_text("no JSON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEDGER_")}
    return subprocess.run(
        [sys.executable, "-m", "ledger", "up", "--dir", str(folder), "--broker-only", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip


@pytest.mark.slow
def test_each_line_of_the_log_is_an_object_also_the_error_that_ends_it(tmp_path: Path) -> None:
    code, told = (run := up(tmp_path)).returncode, run.stderr.splitlines()
    assert code and told[0].startswith("error: ")
    detached = up(tmp_path, "--detach")
    lines = [json.loads(line) for line in (tmp_path / "log" / "up.log").read_text().splitlines()]
    assert (lines[-1]["process"], lines[-1]["level"]) == ("up", "error")
    assert f"error: {lines[-1]['event']}" == told[0]
    assert detached.returncode == code
    assert detached.stderr.splitlines() == [*told, f"log: {tmp_path / 'log' / 'up.log'}"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_error_that_ends_a_role_is_a_line_of_its_log(tmp_path: Path) -> None:
    def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ledger", "serve", "reconciler", "--dir", str(tmp_path), "-b", "127.0.0.1:1", *arguments,
             "-X", "security.protocol=none"],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environment},
        )  # fmt: skip

    run = serve("--name", "reconciler-1")
    (line,) = [json.loads(line) for line in run.stderr.splitlines()]
    assert (run.returncode, line["process"], line["level"]) == (2, "reconciler-1", "error")
    plain = serve(LEDGER_LOG__FORMAT="console")
    assert (plain.returncode, plain.stderr.splitlines()[0]) == (2, f"error: {line['event']}")

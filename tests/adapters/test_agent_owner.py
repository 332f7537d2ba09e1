"""An agent's folder that holds jobs is refused to any ledger but its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.adapters.runners.subprocess.owner import NAME, record, require_own
from ledger.app import agent_folder
from ledger.app.ledger import Ledger
from ledger.app.wiring import SettingsAdapters
from ledger.cli import app
from ledger.config.config import Config, load_config
from ledger.errors import ConfigError

EVENTS = "ledger.events"


def with_job(folder: Path) -> Path:
    (folder / "jobs" / "a-job").mkdir(parents=True)
    return folder


def test_jobs_of_another_ledger_are_refused_with_both_ids_and_what_to_do(tmp_path: Path) -> None:
    record(with_job(tmp_path), EVENTS, "first")
    require_own(tmp_path, EVENTS, "first")
    with pytest.raises(ConfigError, match=r"id first, but the topic of these settings has id second") as raised:
        require_own(tmp_path, EVENTS, "second")
    assert str(tmp_path / NAME) in raised.value.hint


def test_a_folder_without_jobs_is_anybodys(tmp_path: Path) -> None:
    record(tmp_path, EVENTS, "first")
    require_own(tmp_path, EVENTS, "second")
    record(tmp_path, EVENTS, "second")
    with pytest.raises(ConfigError):
        require_own(with_job(tmp_path), EVENTS, "first")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_folder_of_an_older_release_or_with_a_damaged_file_is_taken(tmp_path: Path, text: bytes) -> None:
    (with_job(tmp_path) / NAME).write_bytes(text)
    require_own(tmp_path, EVENTS, "now")
    record(tmp_path, EVENTS, "now")
    with pytest.raises(ConfigError):
        require_own(tmp_path, EVENTS, "other")


def test_a_broker_that_gives_no_ids_is_not_held_against_anybody(tmp_path: Path) -> None:
    record(with_job(tmp_path), EVENTS, "first")
    require_own(tmp_path, EVENTS, "")
    record(tmp_path, EVENTS, "")
    require_own(tmp_path, EVENTS, "first")
    with pytest.raises(ConfigError):
        require_own(tmp_path, EVENTS, "second")


@pytest.mark.parametrize("role", ["agent", "reconciler"])
def test_roles_do_not_start_beside_jobs_of_another_ledger(
    tmp_path: Path, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(with_job(tmp_path / "agent"), EVENTS, "first")
    log: Any = SimpleNamespace(topic_ids=lambda topics: dict.fromkeys(topics, "second"))
    monkeypatch.setattr("ledger.app.agent_folder.agent_sender", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("ledger.app.roles_main.require_topics", lambda *_: None)
    environment = {"LEDGER_DIR": str(tmp_path), "LEDGER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}

    def opened(config: Config) -> Ledger:
        adapters: Any = SettingsAdapters(config)
        adapters.event_log = lambda: log
        return Ledger(config, adapters)

    told = CliRunner().invoke(app, ["serve", role], env=environment, obj=opened)
    assert told.exit_code == 2
    assert "belong to another ledger" in told.output
    ledger = opened(load_config(tmp_path))
    agent_folder.adopt_agent_folder(ledger)
    agent_folder.require_agent_folder(ledger)

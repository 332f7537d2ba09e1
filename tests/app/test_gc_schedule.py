"""The leading reconciler collects garbage on schedule, in parallel with its passes, and logs every outcome."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.app.gc_schedule import Collections, Command, command_of
from ledger.config.config import load_config
from tests.support.waiting import until

ROW = {"kind": "blob", "job_id": "lost", "where": "graphs/lost/x", "size": 7, "evidence": "nobody knows it"}
ANSWER = {"orphans": [ROW], "spared": [], "young": 2, "deleted": [ROW], "left": [{**ROW, "why": "put again"}]}


def python(script: str) -> Command:
    return Command((sys.executable, "-I", "-c", script), dict(os.environ))


def heard(logs: list[Any], event: str) -> list[Any]:
    return [line for line in logs if line["event"] == event]


def test_what_was_deleted_is_told_in_the_log() -> None:
    with capture_logs() as logs, Collections(python(f"print({json.dumps(json.dumps(ANSWER))})"), lambda: True, 0.05):
        until(lambda: heard(logs, "garbage"))
    line = heard(logs, "collected")[0]
    assert (line["job_id"], line["where"], line["evidence"]) == ("lost", "graphs/lost/x", "nobody knows it")
    assert heard(logs, "left")[0]["reason"] == "put again"
    told = heard(logs, "garbage")[0]
    assert (told["deleted"], told["left"], told["young"], told["bytes"]) == (1, 1, 2, 7)


def test_only_who_leads_collects(tmp_path: Path) -> None:
    sign, leads = tmp_path / "sign", threading.Event()
    asked: list[bool] = []

    def leading() -> bool:
        asked.append(leads.is_set())
        return leads.is_set()

    command = python(f"open({str(sign)!r}, 'w'); print('{{}}')")
    with capture_logs(), Collections(command, leading, 0.02):
        until(lambda: len(asked) > 3)
        assert not sign.exists()
        leads.set()
        until(sign.exists)


def test_an_interval_of_0_is_never() -> None:
    with Collections(
        python("raise SystemExit(1)"), lambda: pytest.fail("no question about leadership expected"), 0.0
    ) as collections:
        assert not collections._thread.is_alive()


@pytest.mark.parametrize("script", ["raise SystemExit('the store is away')", "print('no json')"])
def test_one_that_fails_is_told_and_the_next_one_comes(script: str) -> None:
    with capture_logs() as logs, Collections(python(script), lambda: True, 0.02):
        until(lambda: len(heard(logs, "not_collected")) > 1)


@pytest.mark.slow
def test_the_end_of_the_role_ends_what_is_under_way(tmp_path: Path) -> None:
    sign = tmp_path / "pid"
    command = python(
        f"import os, time; f = open({str(sign)!r} + '-', 'w'); f.write(str(os.getpid())); f.close()\n"
        f"os.rename({str(sign)!r} + '-', {str(sign)!r}); time.sleep(600)"
    )
    with capture_logs(), Collections(command, lambda: True, 0.02) as collections:
        until(sign.exists)
    until(lambda: not collections._thread.is_alive())
    assert not Path(f"/proc/{sign.read_text()}").exists()


def test_a_bucket_may_be_shared_so_there_somebody_must_ask_for_it(tmp_path: Path) -> None:
    assert load_config(tmp_path).gc_interval_s == 3600.0
    bucket = {"adapter": "s3", "bucket": "b"}
    assert load_config(tmp_path, blobs=bucket).gc_interval_s == 0.0
    assert load_config(tmp_path, blobs=bucket, reconciler={"gc_interval_s": 60.0}).gc_interval_s == 60.0
    assert load_config(tmp_path, reconciler={"gc_interval_s": 0}).gc_interval_s == 0.0


def test_the_command_has_the_settings_of_the_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_FAILPOINT", "submit.stored:kill")
    config = load_config(tmp_path, topics={"prefix": "x."}, reconciler={"gc_grace_s": 7200.0})
    command = command_of(config)
    assert command.argv[1:] == ("-m", "ledger", "gc", "--apply", "-o", "json")
    given = {name: value for name, value in command.environment.items() if name.startswith("LEDGER_")}
    assert given["LEDGER_DIR"] == str(tmp_path) and given["LEDGER_TOPICS__PREFIX"] == "x."
    assert float(given["LEDGER_RECONCILER__GC_GRACE_S"]) == 7200.0 and "LEDGER_FAILPOINT" not in given

"""The agent keeps the logs of pinned jobs, however many there are."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.adapters.clock import SystemClock
from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.runners.subprocess import log_retention
from ledger.adapters.runners.subprocess.agent import Agent
from ledger.adapters.runners.subprocess.digests import Limits
from ledger.adapters.runners.subprocess.events import EventMaker, Sequences
from ledger.adapters.runners.subprocess.folders import MarkedAttempt, Phase
from ledger.adapters.runners.subprocess.holds import Holds
from ledger.adapters.runners.subprocess.jobs import AgentJob
from ledger.cli import app
from ledger.core.fold.fold import HISTORY
from tests.support.host import printed_by

pytestmark = pytest.mark.slow


def test_until_somebody_knows_every_job_is_held() -> None:
    answers: list[list[str] | Exception] = [OSError("no answer"), ["job-1"], [], OSError("no answer"), ["job-2"]]

    def ask() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    holds = Holds(ask)
    seen = [(holds("job-1"), holds("job-2"))]
    while answers:
        holds.refresh()
        seen.append((holds("job-1"), holds("job-2")))
    assert seen == [(True, True), (True, True), (True, False), (False, False), (True, True), (False, True)]


def test_log_retention_of_a_held_job_neither_go_nor_count(tmp_path: Path) -> None:
    held = {"job-0", "job-1"}
    for i in range(6):
        printed_by(tmp_path, f"job-{i}", 1, str(i))
        log_retention.keep(tmp_path, f"job-{i}", jobs_max=2, held=held.__contains__)
        os.utime(tmp_path / log_retention.PAST / f"job-{i}", (i, i))
    assert sorted(path.name for path in (tmp_path / log_retention.PAST).iterdir()) == ["job-0", "job-1", "job-4", "job-5"]
    held.clear()
    log_retention.keep(tmp_path, "job-5", jobs_max=2, held=held.__contains__)
    assert sorted(path.name for path in (tmp_path / log_retention.PAST).iterdir()) == ["job-4", "job-5"]


def test_attempts_of_a_held_job_keep_their_logs_until_it_is_held_no_more(tmp_path: Path) -> None:
    held = {"job"}
    maker = EventMaker("agent-a", 4, SystemClock(), lambda: "id", Sequences(tmp_path / "sequences.json"))
    job = AgentJob("job", tmp_path / "jobs" / "job", maker, held.__contains__)
    for n in range(1, HISTORY + 4):
        printed_by(tmp_path, "job", n, str(n))
        job.attempts[n] = MarkedAttempt("job", n, job.run_folder(n), phase=Phase.ENDED)
    job._prune()
    assert all(log_retention.log_folder(tmp_path, "job", n).is_dir() for n in range(1, HISTORY + 4))
    held.clear()
    job._prune()
    assert sorted(job.attempts) == list(range(4, HISTORY + 4))
    assert not log_retention.log_folder(tmp_path, "job", 3).exists() and 3 in job.past


def test_an_agent_asks_on_behalf_of_its_jobs(tmp_path: Path) -> None:
    class Sender:
        partitions = 4

    sender: Any = Sender()
    held = {"job"}
    agent = Agent(
        tmp_path / "agent", FileBlobs(tmp_path / "blobs"), sender, SystemClock(), new_id=lambda: "id",
        held=held.__contains__,
    )  # fmt: skip
    try:
        with agent._jobs.locked("job") as job:
            assert job._held("job") and not job._held("other")
        assert agent._held("job")
    finally:
        agent.close()


@pytest.mark.parametrize("adapter", ["", "file"])
def test_serve_agent_learns_from_the_archive_what_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: str
) -> None:
    seen: list[Holds | None] = []

    class Sender:
        def close(self) -> None: ...

    monkeypatch.setattr("ledger.app.agent_folder.agent_sender", lambda _: Sender())
    monkeypatch.setattr("ledger.app.agent_folder.claim_agent_folder", lambda _: None)
    monkeypatch.setattr("ledger.cli.serve._begin", lambda *_, **__: threading.Event())

    def run_agent(*_: object, held: Holds | None, limits: Limits) -> None:
        assert limits == Limits(bytes_per_s=7, wait_s=2.5)
        seen.append(held)

    monkeypatch.setattr("ledger.adapters.runners.subprocess.server.run_agent", run_agent)
    environment = {"LEDGER_DIR": str(tmp_path), "LEDGER_ARCHIVE__ADAPTER": adapter}
    environment |= {"LEDGER_AGENT__DIGEST_BYTES_PER_S": "7", "LEDGER_AGENT__DIGEST_WAIT_S": "2.5"}
    told = CliRunner().invoke(app, ["serve", "agent"], env=environment)
    assert told.exit_code == 0, told.output
    (holds,) = seen
    if adapter:
        assert holds is not None and holds("job")
        holds.refresh()
        assert not holds("job")
        FolderObjects(tmp_path / "archive").create("pinned/job-job/p/pin.json", b"{}")
        holds.refresh()
        assert holds("job") and not holds("other")
    else:
        assert holds is None

"""The commands of the README run unchanged on real servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.core.model.recovery import JobState, RecoveryEntry
from tests.support.folder import JOBLEDGER, Folder
from tests.support.pages import ROOT, blocks

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(420)]

README = blocks((ROOT / "README.md").read_text())
STEPS = ["\n".join(b.lines) for b in README if b.info == "sh first-steps"]
(WORKER,) = [b for b in blocks((ROOT / "docs" / "JOBS.md").read_text()) if b.info == "sh worker"]
(OWN_KAFKA,) = ["\n".join(b.lines) for b in README if b.info == "sh own-kafka"]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path / "ledger")
    try:
        yield folder
    finally:
        folder.clear()


def test_the_first_steps_of_the_readme_and_the_worker_of_the_page_for_jobs(ledger: Folder, tmp_path: Path) -> None:
    def typed(step: str, *, both: bool = False) -> str:
        """Runs a step in a shell and returns its stdout. both: stderr comes first."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "LEDGER_DIR": str(ledger.path), "PATH": f"{JOBLEDGER.parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}\n{ledger.story()}"
        return done.stderr * both + done.stdout

    submit, kill, look, end = STEPS
    job_id = typed(submit).split()[-1]

    def counting() -> RecoveryEntry | None:
        entry = ledger.entry(job_id)
        return entry if entry and entry.state is JobState.RUNNING and len(entry.restore_points) >= 3 else None

    ledger.until(counting, "three checkpoints")
    seen = typed(kill)
    assert "counter" in seen and "RUNNING" in seen and "in the recovery set" in seen

    def back() -> RecoveryEntry | None:
        entry = ledger.entry(job_id)
        own = entry is not None and entry.restore_points and entry.restore_points[0].attempt == 2
        return entry if entry and entry.attempt == 2 and own else None

    entry = ledger.until(back, "attempt 2 has a checkpoint of its own")
    assert entry.base is not None and entry.base.attempt == 1
    told = typed(look).splitlines()
    assert told[0] == f"counted to {entry.base.id + 1}", "the counter continues from its checkpoint"
    assert any("ended/1/failed/agent-" in line for line in told)

    shutil.copy(ROOT / "docs" / "jobs" / "worker.py", tmp_path)
    told = typed("\n".join(WORKER.lines), both=True)
    assert "default/sums is FINISHED" in told
    assert told.splitlines()[-1] == f"the sum of 400 numbers is {sum(range(401))}"

    seen = typed(end)
    assert "CANCEL" in seen
    ledger.until(lambda: not ledger.processes(), "all processes of the ledger have ended")


@pytest.mark.kafka
def test_the_roles_on_a_kafka_of_ones_own(bootstrap: str, prefix: str, tmp_path: Path) -> None:
    """The shell runs in its own session (setsid), so that its background processes end with the test."""
    default, own = tmp_path / "another", tmp_path / "own-ledger"
    environment = {
        **os.environ, "HOME": str(tmp_path), "LEDGER_DIR": str(default), "BROKERS": bootstrap,
        "LEDGER_TOPICS__PREFIX": prefix, "PATH": f"{JOBLEDGER.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    output = tmp_path / "output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", OWN_KAFKA], cwd=tmp_path, env=environment, start_new_session=True,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        code = shell.wait(240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert code == 0, output.read_text()
    assert "FINISHED" in output.read_text()
    assert own.is_dir() and not default.exists(), "the folder of another ledger is left alone"

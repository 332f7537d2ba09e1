"""`replace` on real servers: new code continues from a savepoint of the old job, and code that does not work is
abandoned."""

from __future__ import annotations

import sys

import pytest

from ledger.core.model.recovery import JobState, RecoveryEntry
from tests.support.folder import TICKER, Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

PYTHON = sys.executable


def is_in(folder: Folder, job_id: str, state: JobState) -> RecoveryEntry | None:
    """The entry of the job, if it is in this state and its attempt is known to run."""
    entry = folder.entry(job_id)
    return entry if entry is not None and entry.state is state and entry.known else None


def test_new_code_takes_over_and_bad_code_is_given_up(shared_ledger: Folder) -> None:
    folder = shared_ledger
    folder.ticker("old")
    folder.until(lambda: (entry := folder.entry("old")) and entry.restore_points, "the old job has a checkpoint")
    again = ("replace", "old", "--id", "new", "--reason", "release 2", "--", PYTHON, "-c", TICKER, str(folder.enough))
    folder.run(*again)
    assert folder.run(*again).stdout.splitlines()[-1] == "new"

    def taken_over() -> bool:
        alive = folder.alive()
        assert not {"old", "new"} <= alive.keys()
        old = folder.entry("old")  # None if it is retired already
        return "new" in alive and (old is None or old.state is JobState.CANCELED)

    folder.until(taken_over, "the new job has replaced the old one", timeout_s=150)
    new = folder.until(lambda: is_in(folder, "new", JobState.RUNNING), "the new job's entry is RUNNING")
    assert new.base is not None and "/old/" in new.base.location
    words = f"begins at {int(new.base.location.rpartition('-')[2])}"
    folder.until(lambda: words in folder.run("logs", "new").stdout, words)

    bad = ("--id", "bad", "--restart", "none", "--wait")
    told = folder.run("replace", "new", *bad, "--", PYTHON, "-c", "raise SystemExit(3)", expect=1)
    assert "given up, it is QUARANTINED" in told.stdout and "exit code 3" in told.stdout
    back = folder.until(lambda: is_in(folder, "new", JobState.RUNNING), "the job that was to be replaced runs again")
    assert back.attempt == 2 and back.base is not None and back.base.attempt == 1
    for job in ("bad", "new"):
        folder.run("cancel", job, "--reason", "seen")

"""The output of attempts is kept when the agent forgets their job, for a bounded number of jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess import log_retention
from ledger.adapters.runners.subprocess.attempt_output import read
from ledger.adapters.runners.subprocess.folders import log_paths
from tests.support.host import printed_by

pytestmark = pytest.mark.slow


def test_logs_are_found_before_and_after_the_job_is_forgotten(tmp_path: Path) -> None:
    printed_by(tmp_path, "job", 1, "one")
    printed_by(tmp_path, "job", 2, "two")
    before = list(read(tmp_path, "job", 2))
    log_retention.keep(tmp_path, "job")
    log_retention.keep(tmp_path, "job")
    assert not list((tmp_path / "jobs").rglob("*.log"))
    assert list(read(tmp_path, "job", 2)) == before == [("stdout", b"two")]
    assert [path.read_text() for path in log_paths(tmp_path, "job", 1)] == ["one"]


def test_the_logs_that_are_past_the_longest_go_first(tmp_path: Path) -> None:
    for i in range(5):
        printed_by(tmp_path, f"job-{i}", 1, str(i))
        log_retention.keep(tmp_path, f"job-{i}", jobs_max=9)
        os.utime(tmp_path / log_retention.PAST / f"job-{i}", (i, i))
    printed_by(tmp_path, "job-5", 1, "5")
    log_retention.keep(tmp_path, "job-5", jobs_max=2)
    assert sorted(path.name for path in (tmp_path / log_retention.PAST).iterdir()) == ["job-4", "job-5"]

"""The output of the last attempt or another one, also while it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.runners.subprocess import attempt_output
from ledger.core.model.facts import AttemptStarted, JobResult
from ledger.core.model.registers import Attempt, Result
from ledger.errors import NotFound
from tests.support.jobs_world import D, busy


@pytest.fixture
def printed_by(shell):
    def put(job_id: str, n: int, ended: bool = True, **files: str) -> Path:
        attempt = shell.folder / "agent" / "jobs" / job_id / "attempts" / str(n)
        (attempt / "logs").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (attempt / "logs" / name.replace("_", ".")).write_text(text)
        (attempt / "progress.json").write_text(json.dumps({"ended": ended}))
        return attempt

    return put


def test_logs_of_the_last_attempt_or_another(shell, printed_by):
    job_id = busy(shell)
    shell.record(job_id, Attempt(2, 1), AttemptStarted(D))
    printed_by(job_id, 1, stdout_log="one\n", stderr_log="bad\n")
    printed_by(job_id, 2, stdout_log_1="two, ", stdout_log="too\n", supervisor_log="not of the job")
    told = shell.run("logs", "etl")
    assert (told.stdout, told.stderr) == ("two, too\n", "")
    told = shell.run("logs", "etl", "--attempt", "1")
    assert (told.stdout, told.stderr) == ("one\n", "bad\n")


def test_logs_of_a_retired_job_are_those_of_its_last_attempt(shell, printed_by):
    """The topic holds only the result of the job."""
    job_id = shell.submit("etl")
    result = JobResult("etl", "default", "subprocess", D, "", 1.0, 2)
    shell.record(job_id, Result("FINISHED"), result)
    printed_by(job_id, 1, stdout_log="one\n")
    printed_by(job_id, 2, stdout_log="two\n")
    for asked in (["logs", job_id], ["logs", job_id, "-f"]):
        assert shell.run(*asked).stdout == "two\n"
    assert shell.run("logs", job_id, "--attempt", "1").stdout == "one\n"


def test_of_a_job_that_was_over_before_it_was_started_nobody_waits_for_logs(shell):
    job_id = shell.submit("etl")
    shell.record(job_id, Result("CANCELED"), JobResult("etl", "default", "subprocess", D, "", 1.0, 0))
    told = shell.run("logs", job_id, "-f")
    assert told.exit_code == 1 and "over before it was started" in told.stderr


def test_logs_that_are_not_here_and_of_a_job_that_was_not_started(shell):
    busy(shell)
    told = shell.run("logs", "etl", "--attempt", "3")
    assert told.exit_code == 1 and "no logs of attempt 3" in told.stderr
    shell.submit("new")
    told = shell.run("logs", "new")
    assert told.exit_code == 1 and "not been started" in told.stderr


def test_a_follower_waits_for_the_files_reads_on_over_a_cut_and_ends_with_the_attempt(printed_by, tmp_path):
    clock = ManualClock()
    steps = iter([
        lambda: printed_by("j", 1, ended=False, stdout_log="one\n"),
        lambda: printed_by("j", 1, ended=False, stdout_log="one\ntwo\n"),
        lambda: printed_by("j", 1, ended=False, stdout_log="3\n"),  # rotated: truncated and written again
        lambda: printed_by("j", 1, ended=True, stdout_log="3\n4\n", stderr_log="bad\n"),
    ])  # fmt: skip
    move = clock.advance
    clock.sleep = lambda seconds: (move(seconds), next(steps)())
    found = list(attempt_output.read(tmp_path / "agent", "j", 1, clock))
    assert [data for stream, data in found if stream == "stdout"] == [b"one\n", b"two\n", b"3\n", b"4\n"]
    assert [data for stream, data in found if stream == "stderr"] == [b"bad\n"]


def test_following_an_attempt_that_is_over_ends_at_once(printed_by, tmp_path):
    printed_by("j", 1, ended=True, stdout_log="all\n")
    clock = ManualClock()
    assert list(attempt_output.read(tmp_path / "agent", "j", 1, clock)) == [("stdout", b"all\n")]
    assert clock.monotonic() == 0


def test_a_follower_gives_up_if_no_file_appears(tmp_path):
    clock = ManualClock()
    with pytest.raises(NotFound):
        list(attempt_output.read(tmp_path, "j", 1, clock))
    assert clock.monotonic() >= attempt_output.APPEAR_S

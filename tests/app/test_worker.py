"""A job from inside: `ledger.job()`. For the agent's side see tests/adapters/runners/test_workers.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ledger
from ledger.adapters.runners.subprocess.supervisor import checkpoints, procs
from ledger.app import worker
from ledger.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint folder of attempt 2 of a job."""
    path = tmp_path / "checkpoints"
    path.mkdir()
    monkeypatch.setenv("LEDGER_CHECKPOINT_DIR", str(path))
    monkeypatch.setenv("LEDGER_JOB_ID", "job-1")
    monkeypatch.setenv("LEDGER_ATTEMPT", "2")
    monkeypatch.delenv("LEDGER_RESTORE_FROM", raising=False)
    return path


def save(job: ledger.RunningJob, text: str = "state", **how: object) -> None:
    with job.checkpoint(**how) as folder:  # type: ignore[arg-type]
        (folder / "state").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- identity and restore point of the job -----------------------------------------------------------------------------


def test_it_knows_what_it_is_and_where_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger.job() as job:
        assert (job.id, job.attempt, job.restored) == ("job-1", 2, None)
    monkeypatch.setenv("LEDGER_RESTORE_FROM", str(folder / "chk-7"))
    with ledger.job() as job:
        assert job.restored == folder / "chk-7"


def test_a_program_that_the_ledger_did_not_start_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEDGER_CHECKPOINT_DIR", raising=False)
    with pytest.raises(UsageError, match="did not start this program") as error:
        ledger.job()
    assert error.value.__notes__ == [error.value.hint]
    assert "fallback" in error.value.hint


def test_tried_by_hand_it_goes_on_from_its_newest_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LEDGER_CHECKPOINT_DIR", raising=False)
    folder = tmp_path / "by" / "hand"
    with ledger.job(fallback=folder) as job:
        assert (job.id, job.attempt, job.restored) == ("", 0, None)
        for _ in range(10):
            save(job)
    with ledger.job(fallback=folder) as job:
        assert job.restored == folder / "chk-10"
        save(job)
    assert "chk-11" in names(folder)


def test_the_fallback_is_nothing_where_the_ledger_started_the_program(folder: Path, tmp_path: Path) -> None:
    with ledger.job(fallback=tmp_path / "other") as job:
        save(job)
    assert names(folder) == ["chk-1"]
    assert not (tmp_path / "other").exists()


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_are_numbered_on_from_the_restored_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_RESTORE_FROM", "/elsewhere/sav-41@nightly")
    with ledger.job() as job:
        save(job)
        save(job, number=100)
        save(job, label="nightly")
    assert names(folder) == ["chk-100", "chk-101@nightly", "chk-42"]
    assert (folder / "chk-42" / "state").read_text() == "state"


def test_a_program_that_enters_twice_numbers_on(folder: Path) -> None:
    with ledger.job() as job:
        save(job, number=5)
    with ledger.job() as job:
        save(job)
    assert names(folder) == ["chk-5", "chk-6"]


def test_a_number_may_be_below_that_of_another_attempt_but_has_to_rise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_RESTORE_FROM", "/elsewhere/chk-41")
    with ledger.job() as job:
        save(job, number=0)
        for number in (0, -1, worker.ID_MAX + 1):
            with pytest.raises(UsageError, match="can't follow checkpoint 0"):
                save(job, number=number)
        save(job, number=worker.ID_MAX)
    assert names(folder) == ["chk-0", f"chk-{worker.ID_MAX}"]


@pytest.mark.parametrize("label", ["a b", "a/b", "x" * 129, "é"])
def test_a_wrong_label_is_refused(folder: Path, label: str) -> None:
    with ledger.job() as job, pytest.raises(UsageError, match="not a label"):
        save(job, label=label)
    assert names(folder) == []


def test_a_state_that_could_not_be_written_is_no_checkpoint(folder: Path) -> None:
    with ledger.job() as job:
        with pytest.raises(ZeroDivisionError), job.checkpoint() as part:
            (part / "half").write_text("half")
            assert names(folder) == [".part-1"]
            _ = 1 / 0
        assert names(folder) == []
        save(job)
    assert names(folder) == ["chk-1"]


def test_a_checkpoint_within_a_checkpoint_is_refused(folder: Path) -> None:
    with ledger.job() as job, job.checkpoint(), pytest.raises(UsageError, match="inside another"), job.checkpoint():
        pass
    assert names(folder) == ["chk-1"]


def test_everything_is_on_disk_before_the_name_is_and_the_name_before_the_call_returns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(fd: int) -> None:
        done.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), folder))
        real_fsync(fd)

    def rename(path: Path, target: Path) -> Path:
        done.append(f"rename {target.name}")
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    with ledger.job() as job, job.checkpoint() as part:
        (part / "deep").mkdir()
        (part / "deep" / "file").write_text("x")
        (part / "link").symlink_to("nowhere")
    assert sorted(done[:-2]) == [".part-1", ".part-1/deep", ".part-1/deep/file"]
    assert done[-2:] == ["rename chk-1", "."]


def test_threads_that_write_checkpoints_write_one_after_the_other(folder: Path) -> None:
    with ledger.job() as job:
        threads = [threading.Thread(target=save, args=(job,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert names(folder) == sorted(f"chk-{n}" for n in range(1, 9))


@given(
    st.from_regex(r"\A(chk|sav|chx)-0?[0-9]{0,20}(@[a-zA-Z0-9._:+ /-]{0,3})?\n?\Z"),
)
def test_it_names_checkpoints_as_the_supervisor_reads_them(name: str) -> None:
    found = worker._NAME.match(name)
    ours = int(found[1]) if found and int(found[1]) <= worker.ID_MAX else None
    theirs = checkpoints.parse(name)
    assert ours == (theirs and theirs[0])


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_is_asked_for_is_the_next_checkpoint_and_only_that(folder: Path) -> None:
    with ledger.job() as job:
        assert not job.checkpoint_due(3600)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert job.savepoint_asked
        assert job.checkpoint_due(3600)
        save(job)
        assert not job.savepoint_asked
        save(job)
    assert names(folder) == ["chk-2", "sav-1"]


def test_a_savepoint_asked_for_while_a_checkpoint_is_written_is_the_one_after(folder: Path) -> None:
    with ledger.job() as job:
        with job.checkpoint():
            os.kill(os.getpid(), signal.SIGUSR1)
        assert job.savepoint_asked
        save(job)
    assert names(folder) == ["chk-1", "sav-2"]


def test_a_savepoint_that_failed_is_still_asked_for(folder: Path) -> None:
    with ledger.job() as job:
        os.kill(os.getpid(), signal.SIGUSR1)
        with pytest.raises(OSError), job.checkpoint():
            raise OSError("no space")
        save(job)
    assert names(folder) == ["sav-1"]


def test_a_checkpoint_is_due_when_the_newest_is_old_enough(folder: Path) -> None:
    with ledger.job() as job:
        assert job.checkpoint_due(0)
        assert not job.checkpoint_due(3600)


def test_a_stop_that_is_asked_for_is_no_finish(folder: Path) -> None:
    """Any process may have sent SIGTERM, and exit code 0 would end the job for ever."""
    with pytest.raises(SystemExit) as ended, ledger.job() as job:
        assert not job.stopping
        os.kill(os.getpid(), signal.SIGTERM)
        assert job.stopping
        assert job.checkpoint_due(3600)
        save(job)
    assert ended.value.code == 143
    assert names(folder) == ["chk-1"]


@pytest.mark.parametrize(("said", "code"), [(0, 143), (None, 143), (3, 3)])
def test_an_exit_code_of_its_own_counts_unless_it_means_finished(folder: Path, said: int | None, code: int) -> None:
    with pytest.raises(SystemExit) as ended, ledger.job():
        os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(said)
    assert ended.value.code == code


def test_an_error_is_raised_as_it_is(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), ledger.job():
        os.kill(os.getpid(), signal.SIGTERM)
        _ = 1 / 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_wait_ends_with_a_request(folder: Path, number: int) -> None:
    """If the signal did not wake it up, this test would run into its time limit."""
    with suppress(SystemExit), ledger.job() as job:
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        job.wait(100_000)
        assert job.stopping or job.savepoint_asked


def test_a_wait_without_a_request_lasts(folder: Path) -> None:
    with ledger.job() as job:
        before = time.monotonic()
        job.wait(0.05)
        assert time.monotonic() - before >= 0.05


def test_handlers_are_put_back(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    with ledger.job() as job:
        assert signal.getsignal(signal.SIGTERM) != before[0]
        with pytest.raises(UsageError, match="entered already"), job:
            pass
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)) == before
    with pytest.raises(UsageError, match="inside its with block"):
        job.wait(1)


def test_a_job_without_savepoints_is_not_asked_for_any(folder: Path) -> None:
    """The supervisor sends the signal only to processes that have a handler."""
    before = signal.getsignal(signal.SIGUSR1)
    with ledger.job(savepoints=False):
        assert signal.getsignal(signal.SIGUSR1) is before
        assert not procs.catches(os.getpid(), signal.SIGUSR1)
        assert procs.catches(os.getpid(), signal.SIGTERM)


def test_it_is_entered_in_the_main_thread(folder: Path) -> None:
    raised: list[BaseException] = []

    def enter() -> None:
        try:
            ledger.job().__enter__()
        except UsageError as error:
            raised.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "main thread" in str(raised[0])


def test_it_is_light() -> None:
    heavy = ("confluent_kafka", "fastavro", "pydantic", "typer", "structlog", "rich", "logging", "subprocess")
    code = f"import sys, ledger; ledger.job; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    run = subprocess.run([sys.executable, "-ISc", f"import sys; sys.path.insert(0, {os.getcwd()!r}); {code}"],
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert run.stdout.strip() == "[]"

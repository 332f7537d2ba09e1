"""The job's output stays within its bound, and the newest part is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.supervisor.logs import Log

pytestmark = pytest.mark.slow

BYTES_MAX = 10


def opened(folder: Path, files: int = 3) -> Log:
    return Log(str(folder / "log"), BYTES_MAX, files)


def says(log: Log, text: str) -> None:
    """Writes as the job does, through the descriptor that it inherited."""
    os.write(log.fd, text.encode())
    log.rotate()


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_what_is_within_the_bound_is_left_alone(tmp_path: Path) -> None:
    log = opened(tmp_path)
    says(log, "0123456789")
    assert texts(tmp_path) == {"log": "0123456789"}


def test_a_file_that_is_too_large_is_copied_aside_with_its_newest_bytes_and_cut_to_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    says(log, "abc0123456789")
    assert texts(tmp_path) == {"log": "", "log.1": "0123456789"}


def test_the_job_goes_on_at_the_new_end(tmp_path: Path) -> None:
    log = opened(tmp_path)
    says(log, "01234567890")
    says(log, "next")
    assert texts(tmp_path)["log"] == "next"


def test_older_files_move_up_and_the_oldest_goes(tmp_path: Path) -> None:
    log = opened(tmp_path, files=4)
    for digit in "12345":
        says(log, digit * 11)
    assert texts(tmp_path) == {"log": "", "log.1": "5" * 10, "log.2": "4" * 10, "log.3": "3" * 10}


def test_a_second_file_is_kept_whatever_is_asked_for(tmp_path: Path) -> None:
    log = opened(tmp_path, files=1)
    for digit in "12":
        says(log, digit * 11)
    assert texts(tmp_path) == {"log": "", "log.1": "2" * 10}


def test_where_nothing_can_be_copied_the_bound_holds_all_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.1").mkdir()
    (tmp_path / "log.2").mkdir()
    (tmp_path / "log.2" / "full").touch()
    log = opened(tmp_path)
    says(log, "1" * 11)
    assert (tmp_path / "log").read_text() == ""
    assert "old lines are lost" in "".join(capfd.readouterr())


def test_what_the_job_printed_is_its_owners_alone(tmp_path: Path) -> None:
    log = opened(tmp_path)
    says(log, "1" * 11)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"log": 0o600, "log.1": 0o600}


def test_a_log_that_is_there_is_gone_on_with(tmp_path: Path) -> None:
    os.write(opened(tmp_path).fd, b"before ")
    os.write(opened(tmp_path).fd, b"after")
    assert texts(tmp_path) == {"log": "before after"}

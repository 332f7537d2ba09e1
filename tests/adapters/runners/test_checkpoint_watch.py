"""When a checkpoint folder is listed, and the facts that are reported about its contents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.supervisor import watch
from ledger.adapters.runners.subprocess.supervisor.watch import LISTING_S, SETTLING_S, CheckpointWatch

pytestmark = pytest.mark.slow

NOW_S = 1000.0


def checkpoint(folder: Path, name: str) -> None:
    (folder / name).write_text("data")


def ids(watching: CheckpointWatch, now: float = NOW_S) -> list[int]:
    """The ids of the new checkpoints. Each is noted as the newest, as the supervisor does."""
    found = []
    for fact in watching.news(now):
        watching.newest = fact["id"]
        found.append(fact["id"])
    return found


def touched(folder: Path, time_ns: int) -> None:
    os.utime(folder, ns=(time_ns, time_ns))


def test_it_is_listed_when_it_changed_and_for_a_while_after(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path))
    touched(tmp_path, 1)
    assert watching.changed(NOW_S)
    ids(watching)
    for later_s, listed in ((SETTLING_S, True), (SETTLING_S + 0.1, False)):
        assert watching.changed(NOW_S + later_s) is listed
    touched(tmp_path, 2)
    assert watching.changed(NOW_S + 3.0)


def test_it_is_listed_now_and_then_even_if_it_seems_unchanged(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path))
    watching.changed(NOW_S)
    ids(watching)
    assert not watching.changed(NOW_S + LISTING_S - 0.1)
    assert watching.changed(NOW_S + LISTING_S)
    ids(watching, NOW_S + LISTING_S)
    assert not watching.changed(NOW_S + LISTING_S + 0.1)


def test_a_folder_whose_clock_goes_back_has_changed(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path))
    touched(tmp_path, 10**18)
    watching.changed(NOW_S)
    ids(watching)
    touched(tmp_path, 1)
    assert watching.changed(NOW_S + 3.0)


def test_a_folder_that_is_not_there_is_not_listed_and_nothing_is_new(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path / "gone"))
    assert not watching.changed(NOW_S)
    assert ids(watching) == []


def test_each_checkpoint_is_told_once_in_rising_order(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path))
    for name in ("chk-10", "chk-9", "sav-11"):
        checkpoint(tmp_path, name)
    assert ids(watching) == [9, 10, 11]
    checkpoint(tmp_path, "chk-12")
    assert ids(watching) == [12]


def test_what_was_not_taken_note_of_is_told_again(tmp_path: Path) -> None:
    watching = CheckpointWatch(str(tmp_path))
    checkpoint(tmp_path, "chk-1")
    for _ in range(2):
        assert [fact["id"] for fact in watching.news(NOW_S)] == [1]


def test_what_is_not_above_the_newest_is_ignored_and_said_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    watching = CheckpointWatch(str(tmp_path))
    checkpoint(tmp_path, "chk-5")
    assert ids(watching) == [5]
    checkpoint(tmp_path, "chk-4")
    for _ in range(2):
        assert ids(watching) == []
    said = "".join(capfd.readouterr())
    assert said.count("ignored") == said.count("chk-4 is not above the newest checkpoint 5") == 1


def test_a_job_that_goes_on_so_does_not_fill_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LINES_MAX", 2)
    watching = CheckpointWatch(str(tmp_path))
    watching.newest = 9
    for id_ in range(5):
        checkpoint(tmp_path, f"chk-{id_}")
        assert ids(watching) == []
    assert "".join(capfd.readouterr()).count("ignored") == 2

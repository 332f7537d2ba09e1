"""`down --jobs` stops every job that it can, and names the jobs that it can't stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.embedded import down as module
from ledger.embedded.down import down
from ledger.errors import OutcomeUnknown, Unreachable
from ledger.ports import ObservedAttempt


class Two:
    """A runner of two jobs. Stopping the job `deaf` fails."""

    def __init__(self, silent: bool = False) -> None:
        self.alive, self.silent = {"deaf", "well"}, silent

    def observe(self) -> list[ObservedAttempt]:
        if self.silent:
            raise Unreachable("it does not answer")
        return [ObservedAttempt(job_id, 1, True, "") for job_id in sorted(self.alive)]

    def stop(self, job_id: str, n: int, outcome: str) -> None:
        assert (n, outcome) == (1, "stopped")
        if job_id == "deaf":
            raise Unreachable("its folder is damaged")
        self.alive.remove(job_id)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of processes that `down` stopped, in order."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "up.lock").touch()
    (tmp_path / "broker").mkdir()
    kinds: list[str] = []

    def stop(_folder: Path, _say: Callable[[str], None], kind: str = "all") -> None:
        kinds.append(kind)

    monkeypatch.setattr(module, "_stop", stop)
    return kinds


@pytest.mark.parametrize("purge", [False, True])
def test_what_cant_be_stopped_is_named_and_all_else_is_stopped(tmp_path: Path, stopped: list[str], purge: bool) -> None:
    runner: Any = Two()
    silent: Any = Two(silent=True)
    runners = {"silent": silent, "subprocess": runner}
    with pytest.raises(Unreachable, match=r"attempt 1 of deaf \(its folder is damaged\)") as told:
        down(tmp_path, say=lambda _: None, runners=lambda: runners, jobs=True, purge=purge)
    assert "the jobs of runner silent, which does not answer" in str(told.value)
    assert runner.alive == {"deaf"} and stopped == ["reconciler", "projector", "all"]
    assert (tmp_path / "broker").exists() and purge == ("was not deleted" in str(told.value))


def test_an_attempt_that_goes_on_after_its_order_is_named(
    tmp_path: Path, stopped: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner: Any = Two()
    monkeypatch.setattr(runner, "stop", lambda *_: None)
    monkeypatch.setattr(module, "JOBS_S", 0.0)
    with pytest.raises(OutcomeUnknown, match=r"attempt 1 of deaf \(it still runs 0 s after the order to stop\)"):
        down(tmp_path, say=lambda _: None, runners=lambda: {"subprocess": runner}, jobs=True)
    assert stopped == ["reconciler", "projector", "all"]

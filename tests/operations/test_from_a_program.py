"""The program in docs/JOBS.md that submits a job and waits runs unchanged."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.graph import unpack
from ledger.core.model.facts import AttemptEnded
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Ended
from tests.support.operated import Operated
from tests.support.pages import ROOT

PROGRAM = ROOT / "docs" / "jobs" / "from_a_program.py"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operated:
    made = Operated(tmp_path)
    monkeypatch.setattr("ledger.connect", lambda **_: made.client())
    return made


@pytest.fixture
def main() -> Callable[..., int]:
    return runpy.run_path(str(PROGRAM))["main"]


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("canceled", 1)])
def test_it_says_how_the_job_ended(
    world: Operated, main: Callable[..., int], capsys: pytest.CaptureFixture[str], outcome: str, code: int
) -> None:
    other = world.started("other")
    step, seen = world.step, []

    def end_it() -> None:
        step()
        for entry in world.published().entries.values():
            if entry.job_id != other and not entry.terminal:
                seen.append(entry)
                world.record(entry.job_id, Ended(1, outcome, "agent-a"), AttemptEnded("exit code x"))

    world.step = end_it  # type: ignore[method-assign]
    assert main(60.0, "python", PROGRAM.name) == code
    told = capsys.readouterr().out
    assert f"{seen[0].job_id} is {outcome.upper()}: " in told
    assert "still to be brought back: prod/other, CREATED" in told
    assert (seen[0].name, dict(seen[0].labels)) == ("nightly", {"team": "data"})
    world.blobs.fetch(seen[0].graph, world.folder / "blob")
    graph = unpack(world.folder / "blob", world.folder / "unpacked")
    assert (graph.command, graph.environment) == (("python", PROGRAM.name), {"COLOUR": "blue"})
    assert (world.folder / "unpacked" / PROGRAM.name).read_text() == PROGRAM.read_text()


def test_it_cancels_what_takes_too_long(
    world: Operated, main: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(2.0, "sleep", "1000") == 1
    (entry,) = world.client().entries().values()
    assert (entry.state, entry.reason) == (JobState.CANCELLING, "took longer than 2 s")
    assert f"{entry.job_id} is canceled" in capsys.readouterr().out

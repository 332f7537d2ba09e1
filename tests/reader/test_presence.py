"""The reports of the role instances on a host about themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.memory.clock import ManualClock
from ledger.reader.presence import HEARTBEAT_S, LEFT_S, Presence, present, sweep
from ledger.util.processes import identity, pid_namespace

HERE = {"role": "projector", "who": "projector-a-1", "leads": True, "epoch": 3, "lease_left_s": None, "leaderless_s": 0.0}


def test_it_is_told_while_it_runs_and_not_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "candidates" / "projector-a-1.json"
    presence = Presence(path, lambda: HERE, ManualClock(1000.0))
    presence.step()
    (said,) = present(path.parent, "projector")
    assert (said["who"], said["epoch"], said["pid"], said["at"]) == ("projector-a-1", 3, os.getpid(), 1000.0)
    assert present(path.parent, "reconciler") == []
    with presence:
        assert len(present(path.parent, "projector")) == 1
    assert not path.exists()
    assert present(path.parent, "projector") == []


def test_it_is_written_anew_only_when_it_has_changed_or_a_lease_runs(tmp_path: Path) -> None:
    path, how, clock = tmp_path / "projector-a-1.json", dict[str, Any](HERE), ManualClock(1000.0)
    presence = Presence(path, lambda: how, clock)

    def at() -> float:
        presence.step()
        clock.advance(1.0)
        return float(json.loads(path.read_text())["at"])

    assert [at(), at()] == [1000.0, 1000.0]
    how["leaderless_s"] = 1.0
    assert at() == 1000.0
    clock.advance(HEARTBEAT_S)
    assert at() == 1003.0 + HEARTBEAT_S, "others see by it that the instance is alive"
    how["epoch"] = 4
    assert [at(), at()] == [1004.0 + HEARTBEAT_S] * 2
    how["lease_left_s"] = 6.0
    assert [at(), at()] == [1006.0 + HEARTBEAT_S, 1007.0 + HEARTBEAT_S]


def test_what_the_dead_left_is_not_read_and_swept_by_the_next(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        who = identity(child.pid)
        assert who is not None
        path = tmp_path / "projector-a-2.json"
        path.write_text(json.dumps({**HERE, **who._asdict(), "at": 1.0}))
        assert len(present(tmp_path, "projector")) == 1
        path.write_text(json.dumps({**HERE, **who._asdict(), "start_time": 1, "at": 1.0}))
        assert present(tmp_path, "projector") == [], "another process has its pid"
        path.write_text(json.dumps({**HERE, **who._asdict(), "at": 1.0}))
    finally:
        child.kill()
        child.wait()
    assert present(tmp_path, "projector") == []
    assert path.exists()
    sweep(tmp_path, 1.0)
    assert not path.exists()


def test_a_process_of_another_namespace_counts_while_it_is_fresh_and_is_not_swept(tmp_path: Path) -> None:
    """A pid is only valid in its own pid namespace. Another container may use the same pid for another process."""
    who = identity(os.getpid())
    assert who is not None
    path = tmp_path / "projector-b-7.json"
    there = {**HERE, **who._asdict(), "pid": 7, "pid_namespace": "pid:[1]", "at": 1000.0}
    path.write_text(json.dumps(there))
    assert len(present(tmp_path, "projector", 1010.0)) == 1
    assert present(tmp_path, "projector", 1020.0) == [], "its last report is too old"
    assert present(tmp_path, "projector") == []
    sweep(tmp_path, 1020.0)
    assert path.exists(), "the process may be alive"
    sweep(tmp_path, 1000.0 + LEFT_S + 1)
    assert not path.exists()
    path.write_text(json.dumps({**there, "pid_namespace": pid_namespace()}))
    assert present(tmp_path, "projector", 1010.0) == [], "in our own namespace a pid can be checked"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"role": "projector"}', '{"pid": "x"}'])
def test_scribble_is_no_candidate(tmp_path: Path, text: str) -> None:
    (tmp_path / "projector-a-3.json").write_text(text)
    assert present(tmp_path, "projector") == []


def test_one_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    looks = []

    def look() -> dict[str, Any]:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("for once")
        return HERE

    presence = Presence(tmp_path / "projector-a-4.json", look, ManualClock())
    presence._over.wait = lambda _: len(looks) > 2 and presence._over.set()  # type: ignore[assignment,return-value,func-returns-value]
    presence._run()
    assert len(looks) == 3 and (tmp_path / "projector-a-4.json").exists()


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Presence(tmp_path / "file" / "projector-a-5.json", lambda: HERE, ManualClock()).step()

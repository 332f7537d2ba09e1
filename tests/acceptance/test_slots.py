"""Slots on the real stack, and `jobledger plan` beside it.

Incident 000: after a failover the job that was long over ran again and had the slots; the live one, which had checkpoints,
could only fail for want of them. Here: the same hour, with one slot.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.runners.subprocess.graph import pack
from ledger.app.ledger import Ledger
from ledger.core.model.recovery import JobState
from ledger.ports import StartAnswer
from tests.support.folder import Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1200)]

#: Does not go when it is asked to: only when it is killed.
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PATIENCE_S = 180.0


def plan(folder: Folder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.run("plan", "-o", "json").stdout)
    return found


def planned(folder: Folder, job_id: str) -> list[tuple[str, int, str]]:
    return [(row["action"], row["attempt"], row["why"]) for row in plan(folder)["jobs"] if row["job_id"] == job_id]


def start_stale(folder: Folder, job_id: str) -> None:
    """A leader of long ago brings the job back by the runner alone, from a graph that had stayed behind."""
    blob = pack([sys.executable, "-c", STUBBORN], folder=folder.path.parent)
    graph = Ledger.open(folder.config).blobs.put(job_id, Path(blob))
    runner = Ledger.open(folder.config).runners["subprocess"]
    answer = folder.until(lambda: runner.start(job_id, 1, graph, None, {}), "it is started")
    assert answer in (StartAnswer.STARTED, StartAnswer.ALREADY), "already: a first answer came too late"


def everything(folder: Folder) -> tuple[dict[Any, int], dict[str, tuple[int, int]]]:
    """Ends of all topics; name -> size and time of every file that is not one of the servers' own."""
    topics = folder.config.topics
    reader = Ledger.open(folder.config).event_log.reader([topics.events, topics.recovery, topics.rejects])
    ends = dict(reader.high_watermarks())
    reader.close()
    files = (path for part in ("agent", "blobs") for path in (folder.path / part).rglob("*") if path.is_file())
    return ends, {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_incident_000_the_live_job_gets_its_slot_from_the_stale_one(own_folder: Folder) -> None:
    folder = own_folder
    folder.path.mkdir(parents=True)
    (folder.path / "ledger.toml").write_text("[pools.everything]\nslots = 1\n")
    folder.up("--projectors", "1")
    folder.submit("stale", "true")
    folder.until(lambda: folder.retired("stale"), "the old job is over and retired", PATIENCE_S)
    folder.ticker("live")
    folder.until(lambda: (e := folder.entry("live")) and e.restore_points, "the live job has checkpoints", PATIENCE_S)

    reconciler = folder.pid("reconciler-1")
    os.kill(reconciler, signal.SIGSTOP)  # it leads, and does nothing any more
    os.kill(int(folder.running()["live"][1].split()[0]), signal.SIGKILL)
    start_stale(folder, "stale")
    folder.until(lambda: "stale" in folder.alive(), "the stale job has the slot")
    [(action, attempt, why)] = planned(folder, "stale")
    assert (action, attempt) == ("stop", 1) and why.startswith("an orphan"), "the next leader will stop it"
    seen = [set(folder.alive())]
    os.kill(reconciler, signal.SIGKILL)

    def goes_on() -> bool:
        seen.append(set(folder.alive()))
        assert len(seen[-1]) <= 1, f"one slot, and at once: {seen[-1]}"
        entry = folder.entry("live")
        return entry is not None and entry.attempt == 2 and entry.known

    folder.until(goes_on, "the live job runs again", PATIENCE_S)
    assert {"stale"} in seen, "the stale one was there first"
    entry = folder.entry("live")
    assert entry is not None and entry.state is JobState.RUNNING
    assert entry.base is not None and entry.base.attempt == 1, "from its checkpoint"
    assert entry.failures == 1, "the kill; for want of slots it did not fail"

    def told() -> bool:
        history = folder.run("history", "stale", "-o", "json").stdout
        return "ended/1/stopped/reconciler-" in history and "an orphan" in history

    folder.until(told, "why it was stopped is told", PATIENCE_S)

    folder.submit("huge", "true", options=("--slots", "2"))
    folder.submit("next", "true")
    folder.until(lambda: "needs 2" in folder.run("explain", "huge").stdout, "the wait is told")
    waits = "waiting for slots: needs 1, 0 of 1 free in pool everything"
    folder.until(lambda: waits in folder.run("explain", "next").stdout, "that of the next one too")
    folder.enough.touch()  # the live one finishes: its slot goes to the next, and the one that can't fit holds up nobody
    folder.until(lambda: folder.retired("live") and folder.retired("next"), "both are over", PATIENCE_S)

    found: dict[str, Any] = {}

    def changes_nothing() -> bool:
        """The agent tidies up behind jobs for a while; once it has, a plan that wrote anything would differ each time."""
        before = everything(folder)
        found.update(plan(folder))
        return before == everything(folder)

    folder.until(changes_nothing, "a plan is made, and nothing has changed", PATIENCE_S)
    assert [(row["job_id"], row["action"]) for row in found["jobs"]] == [("huge", "wait")]
    assert found["pools"] == [{"name": "everything", "slots": 1, "held": 0, "starting": 0, "waiting": 1}]
    assert folder.run("plan").stdout.splitlines()[-1] == "pool everything: 0 of 1 slots held, 1 waiting"

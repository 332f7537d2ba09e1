"""Slots on the real stack, and the output of `jobledger plan`.

Incident 000: after a failover a job that was long over ran again and took the slots. The live job, which had
checkpoints, failed because it got none. The test repeats that hour with one slot.
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

#: A program that ignores SIGTERM: only SIGKILL ends it.
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PATIENCE_S = 180.0


def plan(folder: Folder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.run("plan", "-o", "json").stdout)
    return found


def planned(folder: Folder, job_id: str) -> list[tuple[str, int, str]]:
    return [(row["action"], row["attempt"], row["why"]) for row in plan(folder)["jobs"] if row["job_id"] == job_id]


def start_stale(folder: Folder, job_id: str) -> None:
    """Starts the job through the runner alone, as a stale leader would, from a graph that was left behind."""
    blob = pack([sys.executable, "-c", STUBBORN], folder=folder.path.parent)
    graph = Ledger.open(folder.config).blobs.put(job_id, Path(blob))
    runner = Ledger.open(folder.config).runners["subprocess"]
    answer = folder.until(lambda: runner.start(job_id, 1, graph, None, {}), "the stale job is started")
    assert answer in (StartAnswer.STARTED, StartAnswer.ALREADY), (
        "already: an earlier start succeeded, but its answer came too late"
    )


def everything(folder: Folder) -> tuple[dict[Any, int], dict[str, tuple[int, int]]]:
    """The end offsets of all topics; name -> size and time of every file of the agent and the blob store."""
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
    os.kill(reconciler, signal.SIGSTOP)  # it still leads, but does nothing
    os.kill(int(folder.running()["live"][1].split()[0]), signal.SIGKILL)
    start_stale(folder, "stale")
    folder.until(lambda: "stale" in folder.alive(), "the stale job has the slot")
    [(action, attempt, why)] = planned(folder, "stale")
    assert (action, attempt) == ("stop", 1) and why.startswith("an orphan"), "the next leader would stop it"
    seen = [set(folder.alive())]
    os.kill(reconciler, signal.SIGKILL)

    def goes_on() -> bool:
        seen.append(set(folder.alive()))
        assert len(seen[-1]) <= 1, f"one slot, but more than one job: {seen[-1]}"
        entry = folder.entry("live")
        return entry is not None and entry.attempt == 2 and entry.known

    folder.until(goes_on, "the live job runs again", PATIENCE_S)
    assert {"stale"} in seen, "the stale job ran first"
    entry = folder.entry("live")
    assert entry is not None and entry.state is JobState.RUNNING
    assert entry.base is not None and entry.base.attempt == 1, "the job continued from its checkpoint"
    assert entry.failures == 1, "only the kill counts as a failure, not the missing slot"

    def told() -> bool:
        history = folder.run("history", "stale", "-o", "json").stdout
        return "ended/1/stopped/reconciler-" in history and "an orphan" in history

    folder.until(told, "the reason of the stop is in the history", PATIENCE_S)

    folder.submit("huge", "true", options=("--slots", "2"))
    folder.submit("next", "true")
    folder.until(lambda: "needs 2" in folder.run("explain", "huge").stdout, "explain shows the wait")
    waits = "waiting for slots: needs 1, 0 of 1 free in pool everything"
    folder.until(lambda: waits in folder.run("explain", "next").stdout, "explain shows the wait of the next job")
    # the live job finishes: the next job gets its slot, and the job that can't fit makes no other wait
    folder.enough.touch()
    folder.until(lambda: folder.retired("live") and folder.retired("next"), "both jobs are over", PATIENCE_S)

    found: dict[str, Any] = {}

    def changes_nothing() -> bool:
        """Whether a plan wrote nothing. For a while the agent still cleans up after jobs; later only the plan could
        cause changes."""
        before = everything(folder)
        found.update(plan(folder))
        return before == everything(folder)

    folder.until(changes_nothing, "a plan is made, and nothing has changed", PATIENCE_S)
    assert [(row["job_id"], row["action"]) for row in found["jobs"]] == [("huge", "wait")]
    assert found["pools"] == [{"name": "everything", "slots": 1, "held": 0, "starting": 0, "waiting": 1}]
    assert folder.run("plan").stdout.splitlines()[-1] == "pool everything: 0 of 1 slots held, 1 waiting"

"""The remains of a killed submitter on real servers are collected, also by the installed command, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.adapters.clock import SystemClock
from ledger.adapters.local.blobs import FileBlobs
from ledger.app.ledger import Ledger
from ledger.operations.collecting import DeletionLog, collect
from tests.support.folder import JOBLEDGER, Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]
LATER_S = 3 * 86_400.0


class Later(SystemClock):
    """A clock that is three days ahead: no test can wait for the grace of the garbage collection."""

    def time(self) -> float:
        return super().time() + LATER_S


def killed_at(folder: Folder, point: str, job_id: str) -> None:
    done = subprocess.run(
        [JOBLEDGER, "submit", "--dir", str(folder.path), "--id", job_id, "--name", job_id, "--", "true"],
        env={**os.environ, "LEDGER_FAILPOINT": f"{point}:kill"}, capture_output=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == -9


def graphs(folder: Folder) -> set[str]:
    return {path.parent.name for path in Path(folder.path, "blobs", "graphs").glob("*/*")}


def test_what_killed_submitters_leave_is_found_and_what_runs_stays(shared_ledger: Folder) -> None:
    folder = shared_ledger
    others = graphs(folder)
    folder.ticker("gc-live")
    folder.until(lambda: folder.running().get("gc-live"), "gc-live runs")
    killed_at(folder, "submit.unstored", "gc-nothing")
    killed_at(folder, "submit.stored", "gc-lost")
    assert graphs(folder) - others == {"gc-live", "gc-lost"}
    told = json.loads(folder.run("gc", "--apply", "-o", "json").stdout)
    assert (told["young"], told["orphans"], told["deleted"], told["spared"]) == (1, [], [], []), (
        "the grace of a day has not passed"
    )

    config, clock = folder.config, Later()
    source = replace(Ledger.open(config).source(), clock=clock)
    blobs = FileBlobs(config.dir / "blobs", now=clock.time)
    found = collect(source, Ledger.open(config).runners, blobs, DeletionLog(config.collected_file, "test", clock.time))
    (orphan,) = found.deleted
    assert orphan.item.job_id == "gc-lost" and orphan.evidence.startswith("no register of this job in the log up to ")
    assert (found.left, found.spared, found.silent) == ((), (), {})
    assert graphs(folder) - others == {"gc-live"} and "gc-live" in folder.alive()
    assert [json.loads(line)["job_id"] for line in config.collected_file.read_text().splitlines()] == ["gc-lost"]
    folder.ticker("gc-lost")
    assert graphs(folder) - others == {"gc-live", "gc-lost"}, "the id can still be used"
    for job in ("gc-live", "gc-lost"):
        folder.run("cancel", job, "--reason", "seen")
    folder.until(lambda: not {"gc-live", "gc-lost"} & folder.alive().keys(), "both jobs end")

"""Incident 004: nobody could say which parts restart when a part dies.

In the incident, people asked: If a TaskManager dies, which component restarts its tasks? If the JobManager fails, do all
TaskManagers fail? Can one recover without ZooKeeper, "when all job managers go down"? If one task fails, is the whole job
restarted, with its healthy tasks? How does one restart only the necessary tasks? The answers were folklore and differed.

Here the answer is a table, docs/FAILURES.md. This test goes through it on one host without ZooKeeper, with one leader at a
time. There are two jobs of a region, which depend on each other, and one independent job. One part after the other dies,
and then everything.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ledger.core.model.recovery import JobState, RecoveryEntry
from tests.scenarios.keeping import keep
from tests.support.folder import Folder
from tests.support.waiting import in_time

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
REGION, ALONE = ("prices", "orders"), "alone"
JOBS = (*REGION, ALONE)
LEDGER = ("broker", "agent", "projector-1", "projector-2", "reconciler-1")
#: A job that counts. For each new label in its file, it completes a checkpoint with that label.
COUNTER = """
import os, sys, time
said, folder, last = sys.argv[1], os.environ["LEDGER_CHECKPOINT_DIR"], ""
count = int(open(os.environ["LEDGER_RESTORE_FROM"]).read()) if "LEDGER_RESTORE_FROM" in os.environ else 0
print("begins at", count, flush=True)
while True:
    label = open(said).read() if os.path.exists(said) else ""
    if label != last:
        open(folder + "/.part", "w").write(str(count))
        os.rename(folder + "/.part", folder + "/chk-%d@%s" % (count, label))
        last = label
    time.sleep(0.05)
    count += 1
"""


class Jobs(Folder):
    def up(self, *arguments: str) -> None:
        self.run("up", "--detach", *arguments, timeout_s=PATIENCE_S)

    def submit_all(self) -> None:
        for job_id in JOBS:
            region = ("--region", "market") if job_id in REGION else ()
            self.submit(job_id, sys.executable, "-I", "-S", "-c", COUNTER, str(self.said(job_id)), options=region)

    def said(self, job_id: str) -> Path:
        return self.path.parent / job_id

    def checkpoint(self, label: str, *jobs: str) -> None:
        for job_id in jobs:
            part = self.said(job_id).with_suffix(".part")
            part.write_text(label)
            part.rename(self.said(job_id))

        def known() -> bool:
            return all(label in self.job(job_id).consistency[:1] for job_id in jobs)

        self.until(known, f"the checkpoint {label} is in the log", PATIENCE_S)

    def job(self, job_id: str) -> RecoveryEntry:
        entry = self.entry(job_id)
        assert entry is not None
        return entry

    def run_attempts(self, **attempts: int) -> dict[str, tuple[int, str]]:
        """Waits until exactly these attempts run, and returns them."""

        def so() -> dict[str, tuple[int, str]] | None:
            found = self.running()
            entries = self.published().entries
            known = all(entries[job_id].state is JobState.RUNNING and entries[job_id].known for job_id in attempts)
            return found if known and {job_id: n for job_id, (n, _) in found.items()} == attempts else None

        return self.until(so, f"these run: {attempts}", PATIENCE_S)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    made = Jobs(tmp_path_factory.mktemp("restarts") / "ledger")
    try:
        made.up("--projectors", "2")
        yield made
    finally:
        made.clear()


def supervisor_of(pid: str) -> psutil.Process:
    parent = psutil.Process(int(pid)).parent()
    assert parent is not None
    return parent


def test_incident_004_what_dies_and_what_restarts(folder: Jobs) -> None:
    folder.submit_all()
    before = folder.run_attempts(prices=1, orders=1, alone=1)
    folder.checkpoint("noon", *JOBS)
    folder.checkpoint("one", "orders", ALONE)  # prices has no checkpoint with this label

    # -- a job of a region dies: only its region goes back, to the last cut that all its members have
    os.kill(int(before["prices"][1]), signal.SIGKILL)
    after = folder.run_attempts(prices=2, orders=2, alone=1)
    assert after[ALONE] == before[ALONE]
    for job_id in REGION:
        entry = folder.job(job_id)
        assert entry.together is not None and entry.together.consistency == "noon"
        assert entry.base is not None and entry.base.location.endswith("@noon")
        begins = f"begins at {entry.base.id}"
        folder.until(lambda job_id=job_id, begins=begins: begins in folder.run("logs", job_id, "--attempt", "2").stdout,
                     f"{job_id} prints its restore point")  # fmt: skip
    assert (folder.job("prices").failures, folder.job("orders").failures) == (1, 0)
    why = "region market restarts together: prices: attempt 1 failed: killed by SIGKILL"
    assert why in folder.run("explain", "orders").stdout
    assert "ended/1/stopped/" in folder.run("history", "orders").stdout

    # -- a supervisor dies: its job dies with it, and resumes from its newest checkpoint
    supervisor_of(after[ALONE][1]).send_signal(signal.SIGKILL)
    before, after = after, folder.run_attempts(prices=2, orders=2, alone=2)
    assert {job_id: after[job_id] for job_id in REGION} == {job_id: before[job_id] for job_id in REGION}
    base = folder.job(ALONE).base
    assert base is not None and base.location.endswith("@one")

    # -- all processes of the ledger die, leaders included: no job notices, and `up` is enough to repair it
    processes = [psutil.Process(folder.pid(process)) for process in ("up", *LEDGER)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a process may end because another one ended
            process.kill()
    _, left = psutil.wait_procs(processes, timeout=60)
    in_time(not left, "not within 60 s: the end of all processes")
    assert all(psutil.pid_exists(int(pid)) for _, pid in after.values())
    folder.up("--projectors", "2")
    assert folder.run_attempts(prices=2, orders=2, alone=2) == after
    folder.checkpoint("two", *JOBS)

    # -- everything dies, jobs included: all resume from their newest checkpoints, the region from one cut
    folder.kill_everything()
    folder.up("--projectors", "2")
    folder.run_attempts(prices=3, orders=3, alone=3)
    for job_id in JOBS:
        base = folder.job(job_id).base
        assert base is not None and base.location.endswith("@two"), job_id
    told = folder.job("orders").together
    assert told is not None and told.consistency == "two" and told.beside == {"prices": 3}
    folder.run("replay")
    keep("004", "what restarts when what dies", folder.config)

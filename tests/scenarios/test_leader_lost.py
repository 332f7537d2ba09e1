"""Incident 001: a leader failed, and all running jobs were lost with it.

In the incident, the leading JobManager kept its job graphs in memory. A standby was elected and knew no job. The remedy was
a store of graphs with references in ZooKeeper, so that a new leader finds exactly the jobs to bring back. Jobs then started
from scratch; checkpoints were to follow later.

Here both leaders die, and then the whole host. The log alone says which jobs to recover. The graphs are in the blob store,
the references are records, and jobs resume from their checkpoints.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ledger.app.ledger import Ledger
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.reader.claims import read_claims
from tests.scenarios.keeping import keep
from tests.support.folder import Folder

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

PATIENCE_S = 300.0
JOBS = ("orders", "prices", "users")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    made = Folder(tmp_path_factory.mktemp("lost") / "ledger")
    try:
        made.run("up", "--detach", "--projectors", "2", timeout_s=PATIENCE_S)
        yield made
    finally:
        made.clear()


def epochs(folder: Folder) -> dict[str, int]:
    found: dict[str, int] = {}
    for claim in read_claims(Ledger.open(folder.config).source()):
        found[claim.role] = max(claim.epoch, found.get(claim.role, 0))
    return found


def to_be_recovered(folder: Folder) -> dict[str, RecoveryEntry]:
    return {job_id: entry for job_id, entry in folder.published().entries.items() if entry.in_recovery_set}


def graphs(folder: Folder) -> dict[str, str]:
    return {job_id: entry.graph.uri for job_id, entry in to_be_recovered(folder).items() if entry.graph}


def test_incident_001_a_new_leader_knows_every_job(folder: Folder) -> None:
    for job_id in JOBS:
        folder.ticker(job_id)
    folder.submit("done", "true")
    folder.run("wait", "done")

    def have_checkpoints() -> bool:
        found = to_be_recovered(folder)
        return all(job_id in found and found[job_id].restore_points for job_id in JOBS)

    folder.until(have_checkpoints, "all have checkpoints", PATIENCE_S)
    before, known, led = folder.running(), graphs(folder), epochs(folder)
    assert set(known) == set(JOBS)

    # -- both leaders die: others lead, know the same jobs, and restart none of them
    pids = {process: folder.pid(process) for process in ("projector-1", "projector-2", "reconciler-1")}
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    folder.until(
        lambda: all(epochs(folder)[role] > epoch for role, epoch in led.items()), "other instances lead", PATIENCE_S
    )
    assert graphs(folder) == known
    folder.submit("next", "true")
    folder.run("wait", "next")
    assert folder.running() == before, "no job noticed"

    # -- everything dies: the jobs are known from the log, and resume from their checkpoints
    folder.kill_everything()
    folder.run("up", "--detach", "--projectors", "2", timeout_s=PATIENCE_S)

    def back() -> bool:
        found = to_be_recovered(folder)
        return all(found[job_id].state is JobState.RUNNING and found[job_id].known and found[job_id].attempt == 2
                   for job_id in JOBS)  # fmt: skip

    folder.until(back, "all jobs are back", PATIENCE_S)
    assert graphs(folder) == known, "exactly the same jobs with the same graphs, and no finished ones"
    for job_id, entry in to_be_recovered(folder).items():
        assert entry.base is not None and entry.base.attempt == 1, f"{job_id} starts from a checkpoint"
    folder.run("replay")
    keep("001", "both leaders died, then the host", folder.config)

"""The shipped ledger in memory: its roles run the real code, and jobs are restarted."""

from __future__ import annotations

import pytest

from ledger.core.model.facts import IntentKind
from ledger.core.model.recovery import JobState
from ledger.errors import OutcomeUnknown
from ledger.testing import MiniCluster


@pytest.fixture
def cluster() -> MiniCluster:
    return MiniCluster()


def running(cluster: MiniCluster, job_id: str, attempt: int) -> bool:
    entry = cluster.entry(job_id)
    return entry is not None and entry.state == JobState.RUNNING and entry.attempt == attempt


def retired(cluster: MiniCluster, job_id: str) -> bool:
    return cluster.entry(job_id) is None


def test_a_killed_job_comes_back_from_its_newest_checkpoint(cluster: MiniCluster) -> None:
    job = cluster.submit("etl")
    cluster.until(lambda: running(cluster, job, 1))
    point = cluster.runner.checkpoint(job, 1, 7)
    cluster.runner.kill(job, 1)
    cluster.until(lambda: running(cluster, job, 2))
    assert [start[:2] for start in cluster.runner.starts] == [(job, 1), (job, 2)]
    base = cluster.runner.attempt(job, 2).base
    assert base is not None and base.location == point.location
    assert set(cluster.ledger.entries().recovery_set()) == {job}


@pytest.mark.parametrize("role", ["projector", "reconciler"])
def test_a_leader_that_is_killed_interrupts_no_job(cluster: MiniCluster, role: str) -> None:
    job = cluster.submit("etl")
    cluster.until(lambda: running(cluster, job, 1))
    cluster.kill(role)
    cluster.start(role)
    cluster.step(5.0)
    assert running(cluster, job, 1) and len(cluster.runner.starts) == 1
    cluster.runner.end(job, 1, "finished")
    cluster.until(lambda: retired(cluster, job))
    assert len(cluster.runner.starts) == 1


def test_a_finished_job_stays_finished_whoever_leads(cluster: MiniCluster) -> None:
    job = cluster.submit("etl")
    cluster.until(lambda: running(cluster, job, 1))
    cluster.runner.end(job, 1, "finished")
    for role in ("projector", "reconciler"):
        cluster.kill(role)
        cluster.start(role)
    cluster.until(lambda: retired(cluster, job))
    cluster.step(60.0)
    assert len(cluster.runner.starts) == 1 and not cluster.ledger.entries()


def test_the_roles_work_while_the_client_waits(cluster: MiniCluster) -> None:
    job = cluster.submit("etl")
    client = cluster.ledger.client()
    cluster.until(lambda: running(cluster, job, 1))
    entry = client.declare(job, IntentKind.CANCEL, reason="a test")
    assert entry.job_id == job and client.wait(job, 30.0).state == JobState.CANCELED


def test_nothing_is_admitted_while_no_projector_runs(cluster: MiniCluster) -> None:
    cluster.kill("projector")
    with pytest.raises(OutcomeUnknown, match="not admitted within 30 s"):
        cluster.submit("etl", job_id="job-1")
    cluster.start("projector")
    assert cluster.submit("etl", job_id="job-1") == "job-1"  # a repeated submit
    cluster.until(lambda: running(cluster, "job-1", 1))


def test_a_condition_that_never_holds_ends_by_the_clusters_clock(cluster: MiniCluster) -> None:
    with pytest.raises(TimeoutError, match="within 60 s"):
        cluster.until(lambda: False)
    with pytest.raises(ValueError, match="a projector runs already"):
        cluster.start("projector")

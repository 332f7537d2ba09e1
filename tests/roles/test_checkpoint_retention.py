"""Which checkpoints are deleted when a job is over, and when it is suspended. Savepoints always stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import CheckpointKind, CheckpointRetention, IntentKind, JobResult, OnExhausted, RestartKind
from ledger.core.model.facts import RestartPolicy as Policy
from ledger.core.model.registers import Result, parse_key
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import SPEC

DELETE, KEEP = CheckpointRetention.DELETE, CheckpointRetention.KEEP
FAILS = Policy(RestartKind.NONE, on_exhausted=OnExhausted.FAIL)


def over(cluster: Cluster, how: str, retention: CheckpointRetention) -> tuple[str, str]:
    """Brings a job with a checkpoint and a savepoint to its end. Returns their locations."""
    cluster.job("job", replace(SPEC, restart_policy=FAILS, checkpoint_retention=retention))
    cluster.go()
    point = cluster.runner.checkpoint("job", 1, 1)
    saved = cluster.runner.checkpoint("job", 1, 2, kind=CheckpointKind.SAVEPOINT)
    cluster.go()
    if how in ("CANCELED", "SUSPENDED"):
        cluster.intend("job", IntentKind.CANCEL if how == "CANCELED" else IntentKind.SUSPEND)
    else:
        cluster.runner.end("job", 1, "finished" if how == "FINISHED" else "failed", "boom")
    cluster.go(30)
    return point.location, saved.location


def result(cluster: Cluster) -> tuple[str, JobResult]:
    ((state, value),) = [
        (parsed[1].state, value)
        for key, value in cluster.values().items()
        if (parsed := parse_key(key)) and isinstance(parsed[1], Result)
    ]
    return state, avro.decode(JobResult, value)


@pytest.mark.parametrize("how", ["FINISHED", "CANCELED", "FAILED"])
def test_delete_takes_the_checkpoints_and_leaves_the_savepoint_which_its_result_names(tmp_path: Path, how: str) -> None:
    cluster = Cluster(tmp_path)
    point, saved = over(cluster, how, DELETE)
    state, said = result(cluster)
    assert state == how and said.restore_point is not None and said.restore_point.location == saved
    assert point not in cluster.runner.stored and saved in cluster.runner.stored


@pytest.mark.parametrize("how", ["FINISHED", "CANCELED", "FAILED"])
def test_keep_leaves_them_and_its_result_names_the_newest(tmp_path: Path, how: str) -> None:
    cluster = Cluster(tmp_path)
    point, saved = over(cluster, how, KEEP)
    state, said = result(cluster)
    assert state == how and said.restore_point is not None and said.restore_point.location == saved
    assert {point, saved} <= cluster.runner.stored.keys()


@pytest.mark.parametrize("retention", [DELETE, KEEP])
def test_a_suspended_job_is_not_over_and_keeps_all_of_them(tmp_path: Path, retention: CheckpointRetention) -> None:
    cluster = Cluster(tmp_path)
    point, saved = over(cluster, "SUSPENDED", retention)
    assert cluster.state("job") == "SUSPENDED" and {point, saved} <= cluster.runner.stored.keys()
    cluster.intend("job", IntentKind.RUN, rev=2)
    cluster.go(30)
    assert cluster.starts()[-1] == (2, "1/2")


def test_a_quarantined_job_is_not_over_either(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.job("job", replace(SPEC, restart_policy=Policy(RestartKind.NONE), checkpoint_retention=DELETE))
    cluster.go()
    point = cluster.runner.checkpoint("job", 1, 1)
    cluster.runner.end("job", 1, "failed", "boom")
    cluster.go(30)
    assert cluster.state("job") == "QUARANTINED" and point.location in cluster.runner.stored


@pytest.mark.parametrize("retention", [DELETE, KEEP])
def test_a_retry_of_what_is_over_already_passes_over_no_checkpoint(tmp_path: Path, retention: CheckpointRetention) -> None:
    """The retry names an older checkpoint. The result still names the newest one, or all are deleted."""
    cluster = Cluster(tmp_path)
    cluster.job("job", replace(SPEC, checkpoint_retention=retention))
    cluster.go()
    older, newest = (cluster.runner.checkpoint("job", 1, id_) for id_ in (1, 2))
    cluster.intend("job", IntentKind.RETRY, attempt=1, from_="1/1")
    cluster.runner.end("job", 1)
    cluster.go(30)
    state, said = result(cluster)
    assert state == "FINISHED"
    if retention is KEEP:
        assert said.restore_point is not None and said.restore_point.location == newest.location
    else:
        assert said.restore_point is None and not {older.location, newest.location} & cluster.runner.stored.keys()

"""Jobs that restore by themselves, with the real roles on memory adapters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger.core.model.facts import IntentDeclared, IntentKind, RestoreBy, StallPolicy
from ledger.core.model.registers import Intent
from tests.support.roles.cluster import Cluster, starts
from tests.support.roles.world import SPEC

EXTERNAL = replace(SPEC, restore=RestoreBy.EXTERNAL)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_it_is_restarted_from_nothing_of_ours_even_if_its_markers_are_gone(cluster: Cluster) -> None:
    """With `restore: ledger` the job would be quarantined, because it must never start silently from scratch."""
    for job_id, spec in (("job", EXTERNAL), ("other", SPEC)):
        cluster.job(job_id, spec)
        cluster.go()
        marker = cluster.runner.checkpoint(job_id, 1, 3)
        cluster.go()
        del cluster.runner.stored[marker.location]
        cluster.runner.kill(job_id, 1)
        cluster.go()
    assert starts(cluster) == [(1, None), (2, None)]
    assert (cluster.state("job"), cluster.state("other")) == ("RUNNING", "QUARANTINED")


def test_a_marker_is_progress(cluster: Cluster) -> None:
    cluster.job("job", replace(EXTERNAL, stall_policy=StallPolicy(10.0, 1)))
    cluster.go()
    for id_ in range(4):
        cluster.go(1, 8.0)
        cluster.runner.checkpoint("job", 1, id_)
        cluster.go(1)
    assert not cluster.entry("job").stalled
    cluster.go(4, 8.0)
    assert cluster.entry("job").stalled


def test_a_retry_that_names_a_place_all_the_same_begins_from_nothing_of_ours(cluster: Cluster) -> None:
    """A foreign program may write such a retry. The ledger's own commands refuse it."""
    cluster.job("job", EXTERNAL)
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.runner.checkpoint("job", 1, 4)
    cluster.runner.kill("job", 1)
    cluster.record("job", Intent(1, "u"), IntentDeclared(IntentKind.RETRY, 1, "1/3"))
    cluster.go()
    assert starts(cluster) == [(1, None), (2, None)]


def test_a_job_that_replaces_it_begins_from_nothing_of_ours_either(cluster: Cluster) -> None:
    cluster.job("job", EXTERNAL)
    cluster.go()
    cluster.runner.checkpoint("job", 1, 3)
    cluster.job("new", replace(EXTERNAL, replaces="job"))
    for _ in range(20):
        cluster.go(1)
    assert starts(cluster, "new") == [(1, None)]

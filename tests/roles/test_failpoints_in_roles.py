"""If a flow of the reconciler ends at a failpoint, nothing is done twice and nothing is left behind (incident 001)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.util import failpoints
from tests.support.roles.cluster import Cluster, starts
from tests.support.roles.world import RECONCILER, Killed


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.mark.parametrize("point", RECONCILER)
def test_a_reconciler_that_ends_there_is_followed_by_one_that_goes_on(point: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    reached = []

    def end(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Killed

    failpoints.hit = end
    spec = cluster.job("job")
    for at in range(60):
        if at == 20:
            cluster.runner.end("job", 1)
        try:
            cluster.go(1)
        except Killed:
            cluster.r = cluster.new_reconciler()
    assert reached and cluster.r.epoch == 2
    assert starts(cluster) == [(1, None)], "the attempt started once"
    assert cluster.state("job") == "none" and cluster.registers("job") == {"result/FINISHED"}
    assert not cluster.blobs.exists(spec.graph)
    assert cluster.runner.observe() == []


@pytest.mark.parametrize("point", RECONCILER)
def test_a_flow_that_fails_there_is_taken_up_by_the_next_pass(point: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    failpoints.arm(f"{point}:raise@1")
    cluster.job("job")
    cluster.go(20)
    cluster.runner.end("job", 1)
    cluster.go(20)
    assert cluster.r.epoch == 1 and cluster.r.counters["flows_broken"] == 1
    assert starts(cluster) == [(1, None)]
    assert cluster.registers("job") == {"result/FINISHED"}

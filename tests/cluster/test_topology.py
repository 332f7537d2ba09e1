"""The whole topology: it starts, a job runs on it, and its health checks report failures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Network
from tests.cluster.network import KAFKA
from tests.support.waiting import until

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.open(tmp_path_factory.mktemp("whole")) as cluster:
        cluster.start()
        cluster.start_roles()
        yield cluster


def healthy(cluster: Cluster, name: str, kind: str) -> bool:
    """The result of a health check, as a container engine would run it: inside, with its time limit. A late answer is a
    failure."""
    health = cluster.topology.health[kind]
    given = health["command"]
    try:
        if given[0] == "jobledger":
            return cluster.run(*given[1:], host=name, timeout_s=health["timeout_s"]).returncode == 0
        command = cluster.network.hosts[name].command(given)
        return subprocess.run(command, capture_output=True, check=False, timeout=health["timeout_s"]).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.timeout(300)
def test_the_front_door_brings_it_up_and_takes_it_down(tmp_path: Path):
    """The first test of this file: a second cluster beside the whole one would be too much for two cores."""
    with Network.open(tmp_path / "here"):
        pass  # skips on a machine without test networks
    command = [sys.executable, "-m", "tests.cluster", "--no-roles", str(tmp_path / "it")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        try:
            assert run.stdout is not None
            told = [run.stdout.readline() for _ in range(4)]
            assert told[0].startswith("up in "), told
            namespace = re.findall(r"/run/netns/(\S+)", told[-1])
            assert len(namespace) == 1
            run.terminate()
            assert run.wait(150) == 0
        finally:
            run.kill()
    assert not Path("/run/netns", namespace[0]).exists()


@pytest.mark.timeout(300)
def test_a_job_is_submitted_runs_and_finishes(whole: Cluster):
    assert sorted(whole.roles) == ["agent-1", "projector-1", "projector-2", "reconciler-1", "reconciler-2"]
    done = whole.run("submit", "--name", "hello", "--", sys.executable, "-c", "print('it ran')")
    assert done.returncode == 0, done.stderr
    done = whole.run("wait", "hello", timeout_s=240)
    said = "".join(node.printed.read_text()[-2000:] for node in whole.roles.values())
    assert done.returncode == 0, done.stdout + done.stderr + said
    assert "it ran" in whole.run("logs", "hello").stdout
    assert all(node.alive() for node in whole.roles.values())


@pytest.mark.timeout(400)
def test_health_checks_tell_the_sick_from_the_sound(whole: Cluster):
    until(lambda: all(healthy(whole, name, "zookeeper") for name in whole.zookeeper.nodes))
    until(lambda: healthy(whole, "projector-2", "roles"))
    alone, *others = whole.zookeeper.nodes
    for name in others:
        whole.zookeeper.nodes[name].kill()
    until(lambda: not healthy(whole, alone, "zookeeper"))  # it runs, but has no quorum
    assert whole.zookeeper.nodes[alone].alive()
    for name in others:
        whole.zookeeper.nodes[name].start()
    until(lambda: all(healthy(whole, name, "zookeeper") for name in whole.zookeeper.nodes))
    whole.roles["projector-2"].cut(KAFKA)
    assert not healthy(whole, "projector-2", "roles")
    whole.roles["projector-2"].heal(KAFKA)
    until(lambda: healthy(whole, "projector-2", "roles"))

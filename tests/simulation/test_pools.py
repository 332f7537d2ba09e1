"""Walks with several pools, and with jobs that take more than one slot. The checker detects an overfull pool."""

from __future__ import annotations

from collections import Counter

import pytest

from ledger.core.model.facts import JobSubmitted
from ledger.core.model.registers import Spec
from tests.simulation import codec
from tests.simulation.walk import Walk
from tests.simulation.world import World, quiet


@pytest.mark.slow
def test_the_walks_start_jobs_of_both_pools_and_of_several_slots() -> None:
    started: Counter[str] = Counter()
    with quiet() as said:
        for seed in range(1, 41):
            walk = Walk(seed, said)
            if walk.world.slots is None:
                walk.world.close()
                continue
            walk.run()
            for job_id in {run.job_id for run in walk.world.evidence.ran if run.kind == "start"}:
                started[f"{walk.world.namespace(job_id)} {walk.world.takes(job_id)}"] += 1
    assert started.keys() >= {"default 1", "default 2", "apart 1"}, started


def test_a_job_says_what_it_takes() -> None:
    world = World(slots=3)
    specs = {job_id: world.submitted(job_id, world.put(job_id), varied=True) for job_id in ("job-4", "job-5")}
    assert [(spec.namespace, spec.slots, spec.priority) for spec in specs.values()] == [("apart", 1, 1), ("default", 2, 2)]
    digest = codec.spec_digest(specs["job-5"])
    assert isinstance(codec.read(Spec(digest), codec.encode(specs["job-5"])), JobSubmitted)
    world.close()


def test_too_much_in_a_pool_is_found_and_not_what_runs_in_the_other() -> None:
    world = World(slots=2)
    for job_id in ("job-1", "job-4"):
        world.runner.start(job_id, 1, world.put(job_id), None, {})
    assert world.overfull() == []
    world.runner.start("job-5", 1, world.put("job-5"), None, {})
    assert "of default" in world.overfull()[0]
    world.close()


def test_what_a_fenced_leader_got_into_the_log_is_no_mistake_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    with quiet() as said:
        world = Walk(1, said).world
        monkeypatch.setattr(world, "slots", 2)
        monkeypatch.setattr(world, "alive", lambda: [("job-1", 2), ("job-2", 2), ("job-3", 1)])
        assert "the pool of default is overfull" in str(world.overfull())
        world.late = {("job-3", 1)}
        assert world.overfull() == []
        world.close()

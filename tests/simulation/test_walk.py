"""Random walks by seed. `make simulate SEED=… N=…` runs any number of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, RECOVERY, quiet
from tests.support import repetitions
from tests.support.mutants import mutated

SEEDS = 40
TOGETHER = 8
MANY = int(os.environ.get("LEDGER_SIMULATION_SEEDS", "2000"))


@pytest.fixture(autouse=True)
def said() -> Iterator[list[str]]:
    with quiet() as said:
        yield said


def fail(seed: int, said: list[str]) -> str:
    report = Walk(seed, said).run()
    return "\n".join([report.line, report.drawn, *report.findings[:10]]) if report.findings else ""


@pytest.mark.parametrize("first", repetitions.one_fast(range(1, SEEDS + 1, TOGETHER)))
def test_walks_end_well(first: int, said: list[str]) -> None:
    assert [failed for seed in range(first, first + TOGETHER) if (failed := fail(seed, said))] == []


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.skipif(not repetitions.DEEP, reason="make acceptance: some minutes")
@pytest.mark.timeout(3600)
def test_many_walks_end_well(said: list[str]) -> None:
    first = 1_000 + repetitions.FIRST
    print(f"{MANY} walks, the first of seed {first}")
    assert [failed for seed in range(first, first + MANY) if (failed := fail(seed, said))] == []


def test_a_seed_is_a_walk(said: list[str]) -> None:
    """The same seed gives the same records at the same offsets, with the same bytes."""
    walks = []
    for _ in range(2):
        walk = Walk(7, said)
        report = walk.run()
        walks.append((walk.world.evidence.copies[EVENTS], walk.world.evidence.copies[RECOVERY], report.happened))
    assert walks[0] == walks[1]
    assert len(walks[0][0]) > 20


@pytest.mark.slow
def test_the_walks_do_what_they_are_for(said: list[str]) -> None:
    """The walks reach all situations that they are for: starts, ends, retirements, several terms, every fault."""
    ran, retired, terms, happened = [], 0, 0, set()
    for seed in range(1, 21):
        walk = Walk(seed, said)
        happened |= walk.run().happened.keys()
        ran += walk.world.evidence.ran
        retired += len(walk.world.retired())
        terms += sum((r.key or b"").startswith(b"~claim") for r in walk.world.evidence.copies[RECOVERY])
    assert min(sum(r.kind == kind for r in ran) for kind in ("start", "checkpoint", "end")) > 20
    assert max(r.n for r in ran) > 2
    assert retired > 20
    assert terms > 60
    assert {"crash", "granted to another", "second leader", "compaction", "stale transaction", "no answer"} <= happened


@pytest.mark.slow
def test_a_failure_prints_the_line_that_replays_it() -> None:
    mutant = "whoever-answers-is-believed"  # a mutant that many walks detect
    command = [sys.executable, "-m", "tests.simulation", "--seed", "1", "-n", "12", "--mutant", mutant]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if line.startswith("make simulate SEED="))
    seed = int(line.split("SEED=")[1].split()[0])
    assert f"N=1 MUTANT={mutant}" in line
    with quiet() as said, mutated(mutant):
        assert fail(seed, said) != ""

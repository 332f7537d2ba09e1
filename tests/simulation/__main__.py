"""`make simulate SEED=… N=…` runs N random walks from that seed on. A failed walk prints the command that replays it."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter

from tests.simulation.walk import STEPS, Walk
from tests.simulation.world import quiet
from tests.support.mutants import MUTANTS, mutated

SHOWN = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=200, help="how many seeds, from --seed on")
    parser.add_argument("--steps", type=int, default=STEPS, help="until everything heals")
    parser.add_argument("--mutant", choices=[*MUTANTS], help="a mutation of the code that the checkers must detect")
    given = parser.parse_args()
    began, happened, failed = time.monotonic(), Counter(), 0
    with quiet() as said, mutated(given.mutant) if given.mutant else contextlib.nullcontext():
        for seed in range(given.seed, given.seed + given.n):
            report = Walk(seed, said).run(given.steps)
            happened.update(report.happened)
            if report.findings:
                failed += 1
                steps = "" if given.steps == STEPS else f" STEPS={given.steps}"
                mutant = f" MUTANT={given.mutant}" if given.mutant else ""
                print(f"{report.line}{steps}{mutant}    # {len(report.findings)} found")
                print(f"    drawn: {report.drawn}")
                for finding in report.findings[:SHOWN] if given.n == 1 else report.findings[:1]:
                    print(f"    {finding}")
    took_s = time.monotonic() - began
    print(f"{given.n} walks of {given.steps} steps, {failed} failed, {took_s:.1f} s, {given.n / took_s:.0f} a second")
    print("faults: " + ", ".join(f"{name} {n}" for name, n in sorted(happened.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

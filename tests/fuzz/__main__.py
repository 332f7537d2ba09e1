"""Prints a line for each target. Exit code 1: a target failed."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.run import Found, fuzz
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Feeds corrupted inputs to every reader.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=[*TARGETS], help="may be repeated; default: all")
    parser.add_argument("--block", type=int, default=0, help="the first block, as printed by a failure")
    given = parser.parse_args()
    failed = 0
    for name in given.target or TARGETS:
        try:
            print(fuzz(name, given.inputs, given.seed, given.block), flush=True)
        except Found as found:
            print(found, flush=True)
            failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

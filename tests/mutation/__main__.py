from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutation import lists
from tests.mutation.mutant import ROOT, listed
from tests.mutation.page import PAGE, page
from tests.mutation.results import read, write
from tests.mutation.runner import NotRun, Result, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Runs tests on mutants of the code.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; default: all of them")
    parser.add_argument("--list", dest="lists", action="append", metavar="LIST", help="only the mutants of this list")
    parser.add_argument("--jobs", type=int, default=2, help="mutants run at the same time (default: 2)")
    parser.add_argument("--record", action="store_true", help="record which test killed each mutant, and how soon")
    parser.add_argument("--page", action="store_true", help=f"only write {PAGE} anew")
    asked = parser.parse_args()
    every = listed()
    if asked.page:
        (ROOT / PAGE).write_text(page(every, {name: read(name) for name in every}))
        return 0
    chosen = {name: mutants for name, mutants in every.items() if not asked.lists or name in asked.lists}
    known = {mutant.name for mutants in chosen.values() for mutant in mutants}
    if unknown := {*asked.names} - known | {*(asked.lists or ())} - every.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))} in {Path(lists.__path__[0]).relative_to(ROOT)}")
    survived: list[Result] = []
    for name, mutants in chosen.items():
        picked = [mutant for mutant in mutants if not asked.names or mutant.name in asked.names]
        if not picked:
            continue
        try:
            results = run(picked, ROOT, asked.jobs, lambda result: print(_said(result), flush=True))
        except (NotRun, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        survived += [result for result in results if not result.killer]
        if asked.record:
            write(name, [mutant.name for mutant in mutants], results)
    print(f"{len(survived)} survived" + "".join(f"\n  {result.name}" for result in survived))
    return 1 if survived else 0


def _said(result: Result) -> str:
    return f"{result.name:60} {result.seconds:6.1f} s  {result.killer or 'SURVIVED'}"


if __name__ == "__main__":
    sys.exit(main())

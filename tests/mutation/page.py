"""Generates docs/MUTANTS.md: all mutants, the tests that killed them, and how soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.mutation.mutant import Mutant
from tests.mutation.runner import Result

PAGE = "docs/MUTANTS.md"
_HEAD = """\
# Mutants

This page lists {total} small mistakes in the source, each with the test that detects it. The lists of mutants are in
`tests/mutation/lists/`. `python -m tests.mutation --page` generates this page from them and from the recorded results of
the last run. A run of all mutants (`make mutants`) fails if one survives. `make test` runs sixteen of them, different ones
with each commit.

To add a mutant, write it into a list with the tests that must detect it. The first command runs these tests on a copy of
the source and records which test failed. The second command regenerates this page. `make check` fails if either is missing.

    python -m tests.mutation --list LIST --record NAME
    python -m tests.mutation --page

The seconds are the duration of the whole pytest run up to the first failed test, on a busy machine with two cores. Most of
it is Python's start and imports. Guards that are removed from a running ledger, also on real servers, are in
`tests/support/mutants.py`. Weaker variants of the fold are in `tests/laws/mutants.py`.
"""


def page(every: Mapping[str, Sequence[Mutant]], results: Mapping[str, Mapping[str, Result]]) -> str:
    """The text of the page. every: list -> its mutants. results: list -> mutant -> its result."""
    parts = [_HEAD.format(total=sum(map(len, every.values())))]
    for name, mutants in every.items():
        known = results[name]
        seconds = [known[mutant.name].seconds for mutant in mutants if mutant.name in known]
        parts.append(f"\n## {name.replace('_', ' ').capitalize()}\n")
        if seconds:
            parts.append(f"\n{len(mutants)} mutants; seconds: median {median(seconds):.1f}, most {max(seconds):.1f}.\n")
        parts.append("\n| mutant | source | danger | killed by | s |\n| --- | --- | --- | --- | --- |\n")
        parts += [_row(mutant, known.get(mutant.name)) for mutant in mutants]
    return "".join(parts)


def _row(mutant: Mutant, result: Result | None) -> str:
    killer, seconds = (result.killer, f"{result.seconds:.1f}") if result else ("", "")
    test = killer.partition("[")[0]
    shown = f"`{test}`" if "::" in test else test
    return f"| `{mutant.name}` | `{mutant.file}` | {mutant.danger} | {shown} | {seconds} |\n"

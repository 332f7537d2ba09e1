"""docs/MUTANTS.md: what was tried, what died where, and how soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.mutation.mutant import Mutant
from tests.mutation.runner import Result

PAGE = "docs/MUTANTS.md"
_HEAD = """\
# Mutants

{total} small mistakes, each put into the source alone, and the test that then goes red. The list is in
`tests/mutation/lists/`; this page is made from it, and from what the last run wrote down, by
`python -m tests.mutation --page`. A run of all of them (`make mutants`) fails if one survives; `make test` runs sixteen of
them, others with each commit.

To add one, write it into a list with the tests that must see it. The first command runs them on a copy of the source and
writes down which went red; the second renews this page. `make check` fails where either was forgotten.

    python -m tests.mutation --list LIST --record NAME
    python -m tests.mutation --page

The seconds are those of the whole run of pytest up to the first red test, most of it Python's start and imports, on a
machine with two cores that did other work too. Guards that are taken out of a running ledger, also on real servers, are in
`tests/support/mutants.py`; weaker variants of the fold in `tests/laws/mutants.py`.
"""


def page(every: Mapping[str, Sequence[Mutant]], results: Mapping[str, Mapping[str, Result]]) -> str:
    """every: list -> its mutants. results: list -> mutant -> what became of it."""
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

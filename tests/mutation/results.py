"""The recorded result of the last run of each mutant: lists/NAME.jsonl, one line per mutant, in the list's order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.mutation import lists
from tests.mutation.runner import Result


def read(name: str) -> dict[str, Result]:
    """Mutant -> its result. {} if the list was never run."""
    path = _path(name)
    lines = path.read_text().splitlines() if path.exists() else []
    return {result.name: result for result in (Result(**json.loads(line)) for line in lines)}


def write(name: str, mutants: Sequence[str], results: Iterable[Result]) -> None:
    """Records results. New results replace old ones; results of mutants that are no longer in the list are dropped."""
    known = read(name) | {result.name: result for result in results}
    _path(name).write_text("".join(known[mutant].line() + "\n" for mutant in mutants if mutant in known))


def _path(name: str) -> Path:
    return Path(lists.__path__[0]) / f"{name}.jsonl"

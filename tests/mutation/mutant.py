"""What a mutant is, and all that are listed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.mutation import lists

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """name: lower case with hyphens, unique. file: of the source, from the root of the project. before: text that the file
    holds exactly once; after: what takes its place. killers: node ids of pytest, at least one of which must fail.
    danger: in a few words what would become of a user's jobs."""

    name: str
    file: str
    before: str
    after: str
    killers: tuple[str, ...]
    danger: str

    def mutated(self, source: str) -> str:
        """The source with the mistake in it. Raises: ValueError if it is not where the list says, or is no Python."""
        if (found := source.count(self.before)) != 1:
            raise ValueError(f"{self.name}: {self.file} holds the text to replace {found} times, not once")
        if (text := source.replace(self.before, self.after)) == source:
            raise ValueError(f"{self.name} changes nothing")
        try:
            same = ast.dump(ast.parse(text)) == _dumped(source)
        except SyntaxError as error:
            raise ValueError(f"{self.name} is no Python: {error}") from error
        if same:
            raise ValueError(f"{self.name} changes no code")
        return text


@lru_cache(maxsize=32)  # most files have several mutants
def _dumped(source: str) -> str:
    return ast.dump(ast.parse(source))


def listed() -> Mapping[str, tuple[Mutant, ...]]:
    """List (a module of `tests/mutation/lists`) -> its mutants, each module a tuple MUTANTS."""
    names = sorted(module.name for module in pkgutil.iter_modules(lists.__path__))
    return {name: importlib.import_module(f"{lists.__name__}.{name}").MUTANTS for name in names}

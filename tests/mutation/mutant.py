"""The class of mutants, and all listed mutants."""

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
    """An edit of one source file. name: lower case with hyphens, unique. file: path from the root of the project. before:
    text that the file holds exactly once. after: its replacement. killers: node ids of pytest; at least one of them must
    fail. danger: in a few words, the effect on a user's jobs."""

    name: str
    file: str
    before: str
    after: str
    killers: tuple[str, ...]
    danger: str

    def mutated(self, source: str) -> str:
        """The edited source. Raises: ValueError if `before` is not in it exactly once, or the result is no Python."""
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
    """Name of a list (a module of `tests/mutation/lists`) -> its mutants, the tuple MUTANTS of the module."""
    names = sorted(module.name for module in pkgutil.iter_modules(lists.__path__))
    return {name: importlib.import_module(f"{lists.__name__}.{name}").MUTANTS for name in names}

"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801
    """A property that is computed once: functools.cached_property without its lock. The lock costs more than most of
    the fold (Python < 3.12)."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, owner: Any, _: type | None = None) -> T:
        value = owner.__dict__[self._name] = self._compute(owner)
        return value

"""Whether an older version of a schema can hold a value: then the value is written with it.

So a fact that uses nothing new has the same bytes, hence the same digest, whatever release writes it, and a reader of an
earlier release still reads it. Works on what `tests/schemas` allows from version to version: fields with defaults at the
end of a record, symbols at the end of an enum. Source: docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Fits = Callable[[Any], bool]
Named = dict[str, dict[str, Any]]


def fits_in(older: dict[str, Any], newer: dict[str, Any]) -> Fits:
    """A test of plain values of `newer` (both as in their files): does `older` hold all that they say?"""
    return _fits(older, newer, {}, {}) or (lambda _: True)


def _fits(old: Any, new: Any, old_named: Named, new_named: Named) -> Fits | None:
    """None where the two are the same, so that a value need not be walked."""
    old, new = _named(old, old_named), _named(new, new_named)
    if isinstance(new, list):
        return _within(_fits(old[1], new[1], old_named, new_named), lambda value: () if value is None else (_bare(value),))
    match new.get("type") if isinstance(new, dict) else None:
        case "enum":
            symbols = frozenset(old["symbols"])
            return None if symbols.issuperset(new["symbols"]) else lambda value: str(value) in symbols
        case "array":
            return _within(_fits(old["items"], new["items"], old_named, new_named), lambda value: value)
        case "map":
            return _within(_fits(old["values"], new["values"], old_named, new_named), lambda value: value.values())
        case "record":
            return _record(old, new, old_named, new_named)
    return None


def _within(fits: Fits | None, parts: Callable[[Any], Iterable[Any]]) -> Fits | None:
    return None if fits is None else lambda value: all(map(fits, parts(value)))


def _record(old: dict[str, Any], new: dict[str, Any], old_named: Named, new_named: Named) -> Fits | None:
    inherited = [
        (field["name"], fits)
        for before, field in zip(old["fields"], new["fields"], strict=False)
        if (fits := _fits(before["type"], field["type"], old_named, new_named)) is not None
    ]
    added = [(field["name"], field["default"]) for field in new["fields"][len(old["fields"]) :]]
    if not inherited and not added:
        return None
    return lambda value: (
        all(value[name] == default for name, default in added) and all(fits(value[name]) for name, fits in inherited)
    )


def _named(schema: Any, named: Named) -> Any:
    """What a schema is, where it may be only the name of one that stands before it in its file."""
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    return schema


def _bare(value: Any) -> Any:
    """The value of a union: a record comes with its name, so that the writer need not look for it."""
    return value[1] if isinstance(value, tuple) else value

"""Tests whether an older version of a schema can hold a value, so that `avro` can write the value with that version.

A fact that uses no new field then has the same bytes and digest in every release, and earlier releases can read the
fact. Covers the changes that `tests/schemas` allows between versions: new fields with defaults at the end of a record,
new symbols at the end of an enum. Source: docs/decisions/0015."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Fits = Callable[[Any], bool]
Named = dict[str, dict[str, Any]]


def fits_in(older: dict[str, Any], newer: dict[str, Any]) -> Fits:
    """A function that returns whether the schema `older` can hold a plain value of `newer` without loss. Both schemas
    are as in their files."""
    return _fits(older, newer, {}, {}) or (lambda _: True)


def _fits(old: Any, new: Any, old_named: Named, new_named: Named) -> Fits | None:
    """A test, or None if every value of `new` fits, so that the value need not be traversed."""
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
    """The schema itself. In place of a schema, a file may give only the name of one defined earlier in it."""
    if isinstance(schema, str):
        return named.get(schema.rpartition(".")[2], schema)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    return schema


def _bare(value: Any) -> Any:
    """The value inside a union. A record is paired with its schema name, so that the encoder need not try the
    branches."""
    return value[1] if isinstance(value, tuple) else value

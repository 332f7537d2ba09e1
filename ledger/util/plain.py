"""Converts values to plain dicts and lists for JSON. The keys are the field names of the Avro schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """The value with dataclasses and named tuples as dicts, tuples as lists, and enums as their values. A dataclass
    field `from_` becomes `from`."""
    if type(value) in _PLAIN:  # most values
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.removesuffix("_"): to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_plain(inner) for name, inner in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value

"""Converts dataclasses to plain values (dict, list, str, …) and back, field by field, for the codec `avro`.

The conversion of a class is derived once from its type hints; then no type hint is examined for a value. A field
`from_` is named `from` outside Python. A symbol that an enum does not know becomes UNKNOWN. A number that is not finite
is refused in both directions: NaN never equals itself."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from ledger.adapters.schemas import NAMESPACE

Build = Callable[[dict[str, Any]], Any]
Flatten = Callable[[Any], dict[str, Any]]
Convert = Callable[[Any], Any]


def plain_name(field_name: str) -> str:
    """The name of a field outside Python."""
    return field_name.removesuffix("_")


@cache
def builder(kind: type) -> Build:
    """A function from plain values to an instance of `kind`. Errors that a wrong value causes pass through.

    A missing field gets its default: values of an older schema lack newer fields. The function fills the slots itself,
    because the `__init__` of a frozen dataclass takes three times as long.

    Raises: TypeError if `kind` is not a dataclass with slots, or has a `__post_init__`."""
    if not hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} needs slots=True and no __post_init__")
    hints = typing.get_type_hints(kind)
    required, plain, special = [], [], []
    for f in fields(kind):
        put, name, convert = getattr(kind, f.name).__set__, plain_name(f.name), _in(hints[f.name])
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if convert is not None:
            special.append((put, name, convert, default))
        elif default is MISSING:
            required.append((put, name))
        else:
            plain.append((put, name, default))
    new = object.__new__

    def build(values: dict[str, Any]) -> Any:
        out: Any = new(kind)
        for put, name in required:
            put(out, values[name])
        for put, name, default in plain:
            put(out, values.get(name, default))
        for put, name, convert, default in special:
            put(out, convert(values[name]) if default is MISSING or name in values else default)
        return out

    return build


@cache
def flattener(kind: type) -> Flatten:
    """A function from an instance of `kind` to plain values. Mapping keys are sorted, so equal values give equal
    bytes."""
    hints = typing.get_type_hints(kind)
    plain, special = [], []
    for f in fields(kind):
        get, convert = getattr(kind, f.name).__get__, _out(hints[f.name])
        if convert is None:
            plain.append((plain_name(f.name), get))
        else:
            special.append((plain_name(f.name), get, convert))

    def flatten(value: Any) -> dict[str, Any]:
        values = {name: get(value) for name, get in plain}
        for name, get, convert in special:
            values[name] = convert(get(value))
        return values

    return flatten


def _in(hint: Any) -> Convert | None:
    """The conversion from a plain value to the type of the hint; None if the value needs none."""
    if hint is float:
        return _finite
    if (inner := _optional(hint)) is not None:
        return _unless_none(_in(inner))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        convert = _in(args[0])
        return tuple if convert is None else lambda values: tuple(map(convert, values))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        known, unknown = {member.value: member for member in hint}, hint("UNKNOWN")
        return lambda symbol: known.get(symbol, unknown)
    return builder(hint) if _is_record(hint) else None


def _out(hint: Any) -> Convert | None:
    """The conversion from the type of the hint to a plain value; None if the value needs none."""
    if hint is float:
        return _finite
    if (inner := _optional(hint)) is not None:
        return _unless_none(_named(inner) if _is_record(inner) else _out(inner))
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        convert = _out(args[0])
        return list if convert is None else lambda values: list(map(convert, values))
    if origin is Mapping:
        return lambda values: dict(sorted(values.items()))
    return flattener(hint) if _is_record(hint) else None


def _named(kind: type) -> Convert:
    """The conversion of a record in a union: pairs it with its schema name, so that the encoder need not try each
    branch."""
    flatten, name = flattener(kind), f"{NAMESPACE}.{kind.__name__}"
    return lambda value: (name, flatten(value))


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _optional(hint: Any) -> Any:
    """X for the hint `X | None`; None for any other hint."""
    if not isinstance(hint, types.UnionType):
        return None
    (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    return inner


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number")
    return number

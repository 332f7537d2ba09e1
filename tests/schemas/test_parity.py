"""The dataclasses of the core agree with the newest schemas: names, order, types, symbols and defaults."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from operator import itemgetter
from typing import Any

import pytest

from tests.schemas.examples import plain
from tests.schemas.versions import ALL, KIND_OF

_PRIMITIVE = {str: "string", int: "long", float: "double", bool: "boolean"}


def schema_of(hint: Any) -> Any:
    """The Avro schema of a type hint; for named types only the parts that the code determines."""
    if hint in _PRIMITIVE:
        return _PRIMITIVE[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return ["null", schema_of(args[0])]
    if origin is tuple:
        return {"type": "array", "items": schema_of(args[0])}
    if origin is Mapping:
        return {"type": "map", "values": schema_of(args[1])}
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return {
            "type": "record",
            "name": hint.__name__,  # type: ignore[union-attr]
            "fields": [
                {"name": f.name.removesuffix("_"), "type": schema_of(hints[f.name]), **default_of(f)} for f in fields(hint)
            ],
        }
    assert issubclass(hint, StrEnum), hint
    return {"type": "enum", "name": hint.__name__, "symbols": [m.value for m in hint], "default": "UNKNOWN"}


def default_of(field: Field[Any]) -> dict[str, Any]:
    if field.default is not MISSING:
        return {"default": plain(field.default)}
    return {"default": field.default_factory()} if field.default_factory is not MISSING else {}


def bare(schema: Any, named: dict[str, Any]) -> Any:
    """The schema without doc and namespace, with every reference by name replaced by the referenced type.

    The default of a record field keeps the form in which it was first written, even if the record got fields later. Here
    these fields are added to it."""
    if isinstance(schema, str):
        return named.get(schema.removeprefix("io.jobledger."), schema)
    if isinstance(schema, list):
        return [bare(branch, named) for branch in schema]
    out = {key: value for key, value in schema.items() if key not in ("doc", "namespace")}
    for key in out.keys() & {"type", "items", "values"}:
        if key != "type" or not isinstance(out[key], str):
            out[key] = bare(out[key], named)
    if "fields" in out:
        out["fields"] = [{**f, "type": bare(f["type"], named)} for f in (bare_field(f) for f in out["fields"])]
        for field in out["fields"]:
            if isinstance(field.get("default"), dict) and isinstance(field["type"], dict) and "fields" in field["type"]:
                field["default"] = {f["name"]: f["default"] for f in field["type"]["fields"]} | field["default"]
    if "name" in out and out.get("type") in ("record", "enum"):
        named[out["name"]] = out
    return out


def bare_field(field: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key != "doc"}


@pytest.mark.parametrize("fact", ALL)
def test_the_newest_schema_is_the_dataclass(fact: str) -> None:
    """The class of an entry groups its fields for people; the schema has them in the order of their introduction."""
    schema, of_class = bare(ALL[fact][-1].schema, {}), schema_of(KIND_OF[fact])
    if fact == "recovery_entry":
        for one in (schema, of_class):
            one["fields"].sort(key=itemgetter("name"))
    assert schema == of_class


def test_a_type_that_several_facts_share_is_the_same_in_all() -> None:
    """Each schema file is self-contained, so nested types are in several files. Only this test keeps them equal."""
    seen: dict[str, Any] = {}
    for found in ALL.values():
        named: dict[str, Any] = {}
        bare(found[-1].schema, named)
        for name, schema in named.items():
            assert seen.setdefault(name, schema) == schema, name
    assert "RestorePoint" in seen

"""The rules for a schema, and for changes from one version to the next.

Avro's own compatibility is necessary but not sufficient: it accepts a changed logicalType, namespace, default, doc or
field order, and most of these changes don't even change the fingerprint. So there is one more rule: nothing existing
changes; fields and symbols are only added at the end. The tests here apply the rules to every pair of versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

NAMESPACE = "io.jobledger"
DOC_CHARS_MAX = 160
_GROWING = {"fields", "symbols"}


def avro_problems(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    """The reasons, by Apache Avro's checker, why `reader` can't read all data of `writer`; [] if it can."""
    result = ReaderWriterCompatibilityChecker().get_compatibility(_parse(reader), _parse(writer))
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    return [f"{location}: {message}" for location, message in zip(result.locations, result.messages, strict=False)] or [
        "incompatible"
    ]


def freeze_problems(old: Any, new: Any, place: str = "") -> list[str]:
    """The places where `new` changes a part of `old` instead of only adding at the end; [] if there are none."""
    if isinstance(old, dict) and isinstance(new, dict):
        out = [f"{place}/{name}: removed" for name in old.keys() - new.keys()]
        out += [f"{place}/{name}: added" for name in new.keys() - old.keys()]
        for name in old.keys() & new.keys():
            if name in _GROWING:
                out += _grown(old[name], new[name], f"{place}/{name}")
            else:
                out += freeze_problems(old[name], new[name], f"{place}/{name}")
        return out
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [p for i, pair in enumerate(zip(old, new, strict=True)) for p in freeze_problems(*pair, f"{place}/{i}")]
    return [] if old == new and type(old) is type(new) else [f"{place}: {old!r} became {new!r}"]


def _grown(old: list[Any], new: list[Any], place: str) -> list[str]:
    out = [] if len(new) >= len(old) else [f"{place}: {len(old) - len(new)} removed"]
    for i, (before, after) in enumerate(zip(old, new, strict=False)):
        out += freeze_problems(before, after, f"{place}/{i}")
    for field in new[len(old) :]:
        if isinstance(field, dict) and "default" not in field:
            out.append(f"{place}/{field.get('name')}: a new field needs a default")
    return out


def soundness_problems(schema: dict[str, Any]) -> list[str]:
    """The places where a schema breaks the rules for all schemas of the project; [] if there are none."""
    out = [] if schema.get("namespace") == NAMESPACE else [f"namespace is {schema.get('namespace')!r}"]
    for place, node in walk(schema):
        out += [f"{place}: {problem}" for problem in _node_problems(node)]
    return out


def _node_problems(node: Any) -> Iterator[str]:
    if isinstance(node, list) and not (len(node) == 2 and node[0] == "null"):
        yield f"a union other than [null, X]: {json.dumps(node)[:80]}"
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    if kind == "enum":
        if node["symbols"][0] != "UNKNOWN":
            yield "the first symbol is not UNKNOWN"
        if node.get("default") != "UNKNOWN":
            yield "the default is not UNKNOWN"
    if kind == "record" and not node["fields"]:
        yield "a record of no bytes: a short value could claim any number of such records"
    if kind in ("fixed", "error", "null"):
        yield f"{kind} is not used"
    if kind in ("record", "enum") and not node.get("doc"):
        yield "no doc"
    if "logicalType" in node:
        yield "a logicalType: times are seconds as doubles, sizes and numbers are longs"
    for field in node.get("fields", ()):
        if not 0 < len(field.get("doc", "")) <= DOC_CHARS_MAX:
            yield f"{field['name']}: doc of 1 to {DOC_CHARS_MAX} characters"
        if isinstance(field["type"], list) and field.get("default", 0) is not None:
            yield f"{field['name']}: an optional field needs the default null"


def walk(schema: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, type) for every type in a schema."""
    yield place, schema
    if isinstance(schema, list):
        for branch in schema:
            yield from walk(branch, place)
    elif isinstance(schema, dict):
        for field in schema.get("fields", ()):
            yield from walk(field["type"], f"{place}/{field['name']}")
        for inner in ("items", "values"):
            if inner in schema:
                yield from walk(schema[inner], f"{place}/{inner}")
        if isinstance(schema.get("type"), dict | list):
            yield from walk(schema["type"], place)


def _parse(schema: dict[str, Any]) -> avro.schema.Schema:
    return avro.schema.parse(json.dumps(schema))

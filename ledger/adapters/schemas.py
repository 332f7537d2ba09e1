"""The Avro schemas: `schemas/<fact>/<NNNN>.avsc`, every version ever written, found by fingerprint.

A file is never edited (tests/schemas): the log keeps records that were written with its schema. The wheel contains the
folder as `ledger/schemas`; in a source checkout the folder is next to the package. Source: docs/PROTOCOL.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from ledger.errors import ConfigError

NAMESPACE = "io.jobledger"


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One version of one fact's schema. fact: the record's name. fingerprint: CRC-64-AVRO, little-endian. raw: the
    schema as in its file. parsed: the schema as fastavro takes it."""

    fact: str
    version: int
    fingerprint: bytes
    raw: dict[str, Any]
    parsed: Any


def schema_folder() -> Path:
    """The folder of the schemas: in the installed package, else in the source checkout.

    Raises: ConfigError if neither has the folder."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "schemas", package.parent / "schemas"):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"no schemas in {package / 'schemas'} or {package.parent / 'schemas'}",
        hint="The installation is incomplete: install jobledger again.",
    )


def load(folder: Path) -> Iterator[Schema]:
    """All schemas in a folder, the versions of each fact in ascending order."""
    for path in sorted(folder.glob("*/[0-9][0-9][0-9][0-9].avsc")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        yield Schema(raw["name"], int(path.stem), fingerprint_of(raw), raw, parse_schema(raw, named_schemas={}))


def fingerprint_of(schema: dict[str, Any]) -> bytes:
    """The fingerprint of a schema: CRC-64-AVRO of its parsing canonical form, little-endian (as fastavro's hex already
    is)."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


@cache
def by_fingerprint() -> Mapping[bytes, Schema]:
    """The schemas by fingerprint: every version of every fact; the versions of each fact in ascending order."""
    return {schema.fingerprint: schema for schema in load(schema_folder())}


@cache
def versions() -> Mapping[str, list[Schema]]:
    """The schemas by fact name: all versions of each fact's schema, ascending."""
    found: dict[str, list[Schema]] = {}
    for schema in by_fingerprint().values():
        found.setdefault(schema.fact, []).append(schema)
    return found

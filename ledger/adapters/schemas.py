"""The Avro schemas: `schemas/<fact>/<NNNN>.avsc`, every version ever written, found by fingerprint.

A file is never edited (tests/schemas): the log keeps what was written with it. The wheel carries the folder as
`ledger/schemas`; in a source checkout it lies beside the package. Source: docs/PROTOCOL.md.
"""

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
    """One version of one fact's schema. `fact` is the record's name, `fingerprint` CRC-64-AVRO, little-endian. raw: as in
    the file; parsed: for fastavro."""

    fact: str
    version: int
    fingerprint: bytes
    raw: dict[str, Any]
    parsed: Any


def schema_folder() -> Path:
    """Where the schemas lie: inside the installed package, else in the source checkout.

    Raises: ConfigError if they are in neither place."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "schemas", package.parent / "schemas"):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"no schemas in {package / 'schemas'} or {package.parent / 'schemas'}",
        hint="The installation is incomplete: install jobledger again.",
    )


def load(folder: Path) -> Iterator[Schema]:
    """Every version in a folder, each fact's in rising order."""
    for path in sorted(folder.glob("*/[0-9][0-9][0-9][0-9].avsc")):
        raw = json.loads(path.read_text(encoding="utf-8"))
        yield Schema(raw["name"], int(path.stem), fingerprint_of(raw), raw, parse_schema(raw, named_schemas={}))


def fingerprint_of(schema: dict[str, Any]) -> bytes:
    """CRC-64-AVRO of the parsing canonical form, little-endian (fastavro's hex is that already)."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


@cache
def by_fingerprint() -> Mapping[bytes, Schema]:
    """Every version of every fact, each fact's in rising order."""
    return {schema.fingerprint: schema for schema in load(schema_folder())}


@cache
def versions() -> Mapping[str, list[Schema]]:
    """Fact name -> all versions of its schema, rising."""
    found: dict[str, list[Schema]] = {}
    for schema in by_fingerprint().values():
        found.setdefault(schema.fact, []).append(schema)
    return found

"""The schema files of the repository, read without the product's code. They are the source of truth of tests/schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from ledger.adapters.avro import KINDS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "schemas"
GOLDEN = Path(__file__).parent / "golden"


class Version(NamedTuple):
    fact: str
    number: int
    schema: dict[str, Any]


def snake(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


KIND_OF: dict[str, type] = {snake(kind.__name__): kind for kind in KINDS}


def versions(fact: str) -> list[Version]:
    """All versions of a fact, in ascending order."""
    return [
        Version(fact, int(path.stem), json.loads(path.read_text(encoding="utf-8")))
        for path in sorted((FOLDER / fact).glob("*.avsc"))
    ]


ALL: dict[str, list[Version]] = {path.name: versions(path.name) for path in sorted(FOLDER.iterdir())}
EVERY: list[Version] = [version for all_of_fact in ALL.values() for version in all_of_fact]


def name_of(version: Version) -> str:
    return f"{version.fact}-{version.number:04}"


def schema_path(version: Version) -> Path:
    return FOLDER / version.fact / f"{version.number:04}.avsc"

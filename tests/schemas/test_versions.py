"""New code reads old bytes, and old classes read values of a newer schema. Two schema folders are made for these tests."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from ledger.adapters import avro as codec
from ledger.adapters import schemas
from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, RestorePoint
from tests.schemas.versions import FOLDER

NOW = json.loads((FOLDER / "checkpoint_completed" / "0001.avsc").read_text(encoding="utf-8"))


def framed(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A value as another program encodes it that knows only this schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return b"\xc3\x01" + schemas.fingerprint_of(schema) + out.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the schemas, which the codec reads. Tests add versions of CheckpointCompleted to it."""
    for path in FOLDER.rglob("*.avsc"):
        target = tmp_path / path.relative_to(FOLDER)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(schemas, "schema_folder", lambda: tmp_path)
    _forget()
    yield tmp_path / "checkpoint_completed"
    _forget()


def _forget() -> None:
    for cached in (schemas.by_fingerprint, schemas.versions, codec._readers, codec._writers):
        cached.cache_clear()


def write(folder: Path, *versions: dict[str, Any]) -> None:
    for number, schema in enumerate(versions, 1):
        (folder / f"{number:04}.avsc").write_text(json.dumps(schema), encoding="utf-8")


def field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return next(f for f in schema["fields"] if f["name"] == name)


def test_a_value_of_an_older_schema_gets_the_defaults(folder: Path) -> None:
    old = copy.deepcopy(NOW)
    old["fields"] = [f for f in old["fields"] if f["name"] in ("location", "base")]
    point = field(old, "base")["type"][1]
    point["fields"] = [f for f in point["fields"] if f["name"] in ("attempt", "id", "location")]
    write(folder, old, NOW)
    value = framed(old, {"location": "x", "base": {"attempt": 1, "id": 2, "location": "y"}})
    assert codec.decode(CheckpointCompleted, value) == CheckpointCompleted("x", base=RestorePoint(1, 2, "y"))
    assert codec.decode(CheckpointCompleted, framed(old, {"location": "x"})) == CheckpointCompleted("x")


LATER: dict[str, tuple[Any, dict[str, Any]]] = {
    "size": (0, {"size": 1}),
    "digest": ("", {"digest": "d"}),
    "base": (None, {"base": RestorePoint(1, 2, "y")}),
    "kind": ("CHECKPOINT", {"kind": CheckpointKind.SAVEPOINT}),
    "ask": (None, {"ask": "a"}),
}


@pytest.mark.parametrize("name", LATER)
def test_a_value_is_written_with_the_oldest_schema_that_holds_it(folder: Path, name: str) -> None:
    """So the same fact has the same bytes in every release, and old readers can read facts without new fields."""
    old = copy.deepcopy(NOW)
    old["fields"] = old["fields"][:1]
    write(folder, old, NOW)
    plain, new = CheckpointCompleted("x"), CheckpointCompleted("x", **LATER[name][1])
    assert codec.encode(plain) == framed(old, {"location": "x"})
    assert codec.encode(new)[2:10] == schemas.fingerprint_of(NOW)
    assert (codec.decode(CheckpointCompleted, codec.encode(plain)), codec.decode(CheckpointCompleted, codec.encode(new))) == (
        plain, new,
    )  # fmt: skip


def test_of_three_versions_the_one_in_the_middle_may_be_enough(folder: Path) -> None:
    first, second = copy.deepcopy(NOW), copy.deepcopy(NOW)
    first["fields"], second["fields"] = NOW["fields"][:1], NOW["fields"][:2]
    write(folder, first, second, NOW)
    facts = [CheckpointCompleted("x"), CheckpointCompleted("x", 5), CheckpointCompleted("x", 5, "d")]
    wanted = [schemas.fingerprint_of(schema) for schema in (first, second, NOW)]
    assert [codec.encode(fact)[2:10] for fact in facts] == wanted


def test_what_a_nested_record_or_enum_got_later_counts_too(folder: Path) -> None:
    old = copy.deepcopy(NOW)
    point = field(old, "base")["type"][1]
    point["fields"] = [f for f in point["fields"] if f["name"] != "digest"]
    point["fields"][-1]["type"]["symbols"].remove("SAVEPOINT")
    new = copy.deepcopy(NOW)
    inner = field(new, "base")["type"][1]["fields"]
    inner.append(inner.pop([f["name"] for f in inner].index("digest")))  # as if it had been added last
    write(folder, old, new)

    def version(base: RestorePoint | None) -> int:
        value = codec.encode(CheckpointCompleted("x", base=base))
        assert codec.decode(CheckpointCompleted, value) == CheckpointCompleted("x", base=base)
        return schemas.by_fingerprint()[value[2:10]].version

    assert version(None) == 1
    assert version(RestorePoint(1, 2, "y", 3)) == 1
    assert version(RestorePoint(1, 2, "y", 3, "d")) == 2
    assert version(RestorePoint(1, 2, "y", kind=CheckpointKind.SAVEPOINT)) == 2


def test_avros_own_resolution_says_the_same(folder: Path) -> None:
    """The codec uses only the writer's schema and takes defaults from the classes. This test resolves by both schemas."""
    old = copy.deepcopy(NOW)
    old["fields"] = old["fields"][:2]
    write(folder, old, NOW)
    value = framed(old, {"location": "x", "size": 7})
    resolved = fastavro.schemaless_reader(
        io.BytesIO(value[10:]), fastavro.parse_schema(copy.deepcopy(old)), fastavro.parse_schema(copy.deepcopy(NOW))
    )
    fact = codec.decode(CheckpointCompleted, value)
    assert {name: getattr(fact, name) for name in resolved} == resolved  # type: ignore[union-attr, arg-type]


def test_a_symbol_that_the_code_does_not_know_is_unknown(folder: Path) -> None:
    """Fail-closed: the core quarantines a job with an UNKNOWN symbol and never guesses its meaning."""
    new = copy.deepcopy(NOW)
    field(field(new, "base")["type"][1], "kind")["type"]["symbols"].append("INCREMENTAL")
    write(folder, NOW, new)
    base = {"attempt": 1, "id": 2, "location": "y", "kind": "INCREMENTAL"}
    value = framed(new, {"location": "x", "kind": "INCREMENTAL", "base": base})
    fact = codec.decode(CheckpointCompleted, value)
    assert fact.kind is CheckpointKind.UNKNOWN
    assert fact.base is not None
    assert fact.base.kind is CheckpointKind.UNKNOWN


def test_a_symbol_that_the_newest_schema_does_not_know_is_unknown(folder: Path) -> None:
    """Avro's own resolution between two schemas does the same. The enum's default exists for this."""
    other = copy.deepcopy(NOW)
    field(field(other, "base")["type"][1], "kind")["type"]["symbols"].append("INCREMENTAL")
    write(folder, other, NOW)
    value = framed(other, {"location": "x", "kind": "INCREMENTAL"})
    assert codec.decode(CheckpointCompleted, value).kind is CheckpointKind.UNKNOWN


def test_a_field_that_the_code_does_not_know_is_passed_over(folder: Path) -> None:
    new = copy.deepcopy(NOW)
    new["fields"].append({"name": "files", "doc": "x", "type": {"type": "array", "items": "string"}, "default": []})
    write(folder, NOW, new)
    value = framed(new, {"location": "x", "files": ["a", "b"]})
    assert codec.decode(CheckpointCompleted, value) == CheckpointCompleted("x")


def test_a_value_of_a_schema_that_is_not_there_says_so(folder: Path) -> None:
    new = copy.deepcopy(NOW)
    new["fields"].append({"name": "files", "doc": "x", "type": "long", "default": 0})
    with pytest.raises(codec.Undecodable, match="is not known: written by a newer version, or damaged"):
        codec.decode(CheckpointCompleted, framed(new, {"location": "x"}))

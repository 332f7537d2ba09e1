"""Every version of a schema reads every other one, and existing parts of a schema never change."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any

import avro.schema
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from ledger.adapters import schemas
from tests.schemas.rules import avro_problems, freeze_problems, soundness_problems
from tests.schemas.versions import ALL, EVERY, FOLDER, KIND_OF, name_of

Schema = dict[str, Any]


def test_each_fact_has_its_folder_and_versions_without_a_gap() -> None:
    assert set(ALL) == set(KIND_OF)
    for fact, found in ALL.items():
        assert [v.number for v in found] == list(range(1, len(found) + 1)), fact
        assert {v.schema["name"] for v in found} == {KIND_OF[fact].__name__}


def test_nothing_else_lies_among_the_schemas() -> None:
    files = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(f"{v.fact}/{v.number:04}.avsc" for v in EVERY)


@pytest.mark.parametrize("version", EVERY, ids=name_of)
def test_a_schema_is_sound(version: Any) -> None:
    assert soundness_problems(version.schema) == []


@pytest.mark.parametrize("fact", ALL)
def test_every_version_reads_every_other(fact: str) -> None:
    pairs = [*permutations(ALL[fact], 2), *((v, v) for v in ALL[fact])]
    for reader, writer in pairs:
        assert avro_problems(reader.schema, writer.schema) == [], f"{fact}: {reader.number} reads {writer.number}"


@pytest.mark.parametrize("fact", ALL)
def test_of_what_exists_nothing_changes(fact: str) -> None:
    for old, new in combinations(ALL[fact], 2):
        assert freeze_problems(old.schema, new.schema) == [], f"{fact}: {old.number} to {new.number}"


def test_fingerprints_tell_all_versions_of_all_facts_apart() -> None:
    """The product finds each version by the fingerprint that Apache Avro's library computes."""
    found = {
        avro.schema.parse(path.read_text(encoding="utf-8")).fingerprint("CRC-64-AVRO"): path
        for path in FOLDER.rglob("*.avsc")
    }
    assert len(found) == len(EVERY)
    assert set(schemas.by_fingerprint()) == set(found)


# -- the rules detect forbidden evolutions -----------------------------------------------------------------------------


def base() -> Schema:
    return copy.deepcopy(next(v.schema for v in EVERY if v.fact == "checkpoint_completed"))


def field(schema: Schema, name: str) -> Schema:
    return next(f for f in schema["fields"] if f["name"] == name)


def restore_point(schema: Schema) -> Schema:
    inner: Schema = field(schema, "base")["type"][1]
    return inner


def kind(schema: Schema) -> Schema:
    inner: Schema = field(restore_point(schema), "kind")["type"]
    return inner


def added(**rest: Any) -> Schema:
    return {"name": "x", "doc": "x", "type": "long", **rest}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def _drop(s: Schema) -> None:
    s["fields"].remove(field(s, "location"))


def _rename(s: Schema) -> None:
    field(s, "location").update(name="place", aliases=["location"])


def _swap(s: Schema) -> None:
    s["fields"][1], s["fields"][2] = s["fields"][2], s["fields"][1]


# (title, evolution, whether Avro's checker detects it in at least one direction)
BAD: list[tuple[str, Callable[[Schema], Any], bool]] = [
    ("an essential field goes", _drop, True),
    ("a field with a default goes", lambda s: s["fields"].remove(field(s, "size")), False),
    ("a new field has no default", lambda s: s["fields"].append(added()), True),
    ("a long becomes a string", lambda s: field(s, "size").update(type="string", default=""), True),
    ("a long becomes a double", lambda s: field(s, "size").update(type="double", default=0.0), True),
    ("a string becomes optional", lambda s: field(s, "location").update(type=["null", "string"]), True),
    ("a union grows", lambda s: field(s, "ask")["type"].append("long"), True),
    ("a union is turned round", lambda s: field(s, "ask")["type"].reverse(), False),
    ("a field is renamed with an alias", _rename, True),
    ("a symbol goes and the enum has no default", lambda s: (kind(s).pop("default"), kind(s)["symbols"].pop()), True),
    ("a symbol goes", lambda s: kind(s)["symbols"].pop(), False),
    ("a symbol comes in between", lambda s: kind(s)["symbols"].insert(1, "NEW"), False),
    ("an enum loses its default", lambda s: kind(s).pop("default"), False),
    ("a nested field goes", lambda s: restore_point(s)["fields"].pop(0), True),
    ("a logicalType comes", lambda s: field(s, "size").update(type=MILLIS), False),
    ("the namespace changes", lambda s: s.update(json.loads(json.dumps(s).replace("io.jobledger", "io.other"))), False),
    ("the record's name changes", lambda s: s.update(name="Checkpointed"), True),
    ("fields change their order", _swap, False),
    ("a field's doc changes", lambda s: field(s, "size").update(doc="Kilobytes."), False),
    ("a default changes", lambda s: field(s, "size").update(default=1), False),
]  # fmt: skip


@pytest.mark.parametrize(("change", "found_by_avro"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_evolution_is_found(change: Callable[[Schema], Any], found_by_avro: bool) -> None:
    old, new = base(), base()
    change(new)
    assert freeze_problems(old, new)
    assert bool(avro_problems(old, new) or avro_problems(new, old)) == found_by_avro


def test_a_default_of_another_type_is_found() -> None:
    """For Python 0 and False are equal, for Avro they are not."""
    old, new = base(), base()
    field(new, "size").update(default=False)
    assert old == new
    assert freeze_problems(old, new)


GOOD: list[tuple[str, Callable[[Schema], Any]]] = [
    ("nothing changes", lambda s: None),
    ("a field with a default at the end", lambda s: s["fields"].append(added(default=0))),
    ("a symbol at the end", lambda s: kind(s)["symbols"].append("INCREMENTAL")),
    ("a nested field at the end", lambda s: restore_point(s)["fields"].append(added(default=7))),
]  # fmt: skip


@pytest.mark.parametrize("change", [g[1] for g in GOOD], ids=[g[0] for g in GOOD])
def test_a_good_evolution_passes(change: Callable[[Schema], Any]) -> None:
    old, new = base(), base()
    change(new)
    assert freeze_problems(old, new) == []
    assert avro_problems(old, new) == avro_problems(new, old) == []
    assert soundness_problems(new) == []


def test_avros_fingerprint_is_blind_to_what_the_freeze_forbids() -> None:
    """This is why the freeze is needed: two schemas with different meanings but one fingerprint can't be distinguished."""
    old, new = base(), base()
    field(new, "size").update(doc="Kilobytes.", default=1)
    assert _fingerprint(old) == _fingerprint(new)
    assert freeze_problems(old, new)


def _fingerprint(schema: Schema) -> str:
    return str(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


UNSOUND: list[tuple[str, Callable[[Schema], Any]]] = [
    ("UNKNOWN is not the first symbol", lambda s: kind(s)["symbols"].reverse()),
    ("an enum has no default", lambda s: kind(s).pop("default")),
    ("an enum has another default", lambda s: kind(s).update(default="CHECKPOINT")),
    ("a union of three", lambda s: field(s, "ask")["type"].append("long")),
    ("an optional field without a default", lambda s: field(s, "ask").pop("default")),
    ("a field without a doc", lambda s: field(s, "size").pop("doc")),
    ("an array of nothing", lambda s: field(s, "size").update(type={"type": "array", "items": {"type": "null"}})),
    ("another namespace", lambda s: s.update(namespace="io.other")),
    ("a logicalType", lambda s: field(s, "size").update(type=MILLIS)),
]  # fmt: skip


@pytest.mark.parametrize("change", [u[1] for u in UNSOUND], ids=[u[0] for u in UNSOUND])
def test_an_unsound_schema_is_found(change: Callable[[Schema], Any]) -> None:
    schema = base()
    change(schema)
    assert soundness_problems(schema)

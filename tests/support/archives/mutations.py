"""Damage by an attacker, a disk or an operator's error: each mutation changes one thing in an archive's objects.

A mutation returns the partition and the offset of the first record that is not proved any more. None: there was nothing
to change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ledger.archive.format import merkle, parquet
from ledger.archive.format.chain import Manifest
from ledger.archive.format.segments import leaves_of, pack
from ledger.archive.store.archive import Archive
from ledger.ports import MemoryRecord
from tests.support.archives.given import TOPIC, read_out

Objects = dict[str, bytes]
Struck = tuple[int, int] | None
Mutation = Callable[[random.Random, Archive, Objects], Struck]


def flipped(drawn: random.Random, data: bytes) -> bytes:
    """The data with one bit flipped."""
    found = bytearray(data)
    found[drawn.randrange(len(found))] ^= 1 << drawn.randrange(8)
    return bytes(found)


NAMELESS = {"name": None, "value": b"x"}  # a header


def with_cell(data: bytes, column: str, row: int, value: object) -> bytes:
    """The Parquet file with one cell changed."""
    table = pq.read_table(pa.BufferReader(data))
    cells, kind = table.column(column).to_pylist(), table.schema.field(column).type
    cells[row] = value
    sink = pa.BufferOutputStream()
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, pa.field(column, kind), pa.array(cells, kind)), sink)
    return bytes(sink.getvalue())


def spoiled(drawn: random.Random, objects: Objects, name: str) -> Iterator[tuple[str, Objects]]:
    """Damages one object in two ways: flips a bit of it, and deletes it. Yields (description, all objects) for each."""
    yield f"flip {name}", {**objects, name: flipped(drawn, objects[name])}
    yield f"drop {name}", {other: data for other, data in objects.items() if other != name}


def flip_a_bit(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    manifest = _one(drawn, archive)
    sequence, name = _object(drawn, manifest)
    objects[name] = flipped(drawn, objects[name])
    return manifest.partition, sequence


def drop_an_object(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    manifest = _one(drawn, archive)
    at, name = _object(drawn, manifest)
    del objects[name]
    return manifest.partition, at


def swap_two_objects(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    one, other = _one(drawn, archive), _one(drawn, archive)
    if one == other:
        return None
    objects[one.records], objects[other.records] = objects[other.records], objects[one.records]
    if one.partition == other.partition:
        return one.partition, min(one.first, other.first)
    return one.partition, one.first


def put_one_object_in_place_of_another(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    one, other = _one(drawn, archive), _one(drawn, archive)
    if one == other:
        return None
    objects[one.records], objects[one.leaves] = objects[other.records], objects[other.leaves]
    return one.partition, one.first


def alter_a_record(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    def alter(records: list[MemoryRecord], i: int) -> int:
        old = records[i]
        records[i] = MemoryRecord(
            TOPIC, old.partition(), old.offset(), old.key(), (old.value() or b"") + b"!", tuple(old.headers() or ()),
            old.timestamp()[1],
        )  # fmt: skip
        return old.offset()

    return _rewrite(drawn, archive, objects, alter)


def drop_a_record(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    return _rewrite(drawn, archive, objects, lambda records, i: records.pop(i).offset())


def repeat_a_record(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    def repeat(records: list[MemoryRecord], i: int) -> int:
        records.insert(i, records[i])
        return records[i].offset()

    return _rewrite(drawn, archive, objects, repeat)


def insert_a_record(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    def insert(records: list[MemoryRecord], i: int) -> int:
        old = records[i]
        records.insert(i + 1, MemoryRecord(TOPIC, old.partition(), old.offset() + 1, b"job-1/admitted", None, (), 1))
        return old.offset() + 1

    return _rewrite(drawn, archive, objects, insert)


def swap_two_records(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    def swap(records: list[MemoryRecord], i: int) -> int:
        j = (i + 1) % len(records)
        i, j = min(i, j), max(i, j)
        first = records[i].offset()
        records[i], records[j] = records[j], records[i]
        return first

    return _rewrite(drawn, archive, objects, swap)


def alter_a_column(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    """Changes a column with parsed data of a record, not the record's own bytes."""
    manifest = _one(drawn, archive)
    objects[manifest.records] = with_cell(objects[manifest.records], "actor", drawn.randrange(manifest.count), "somebody")
    return manifest.partition, manifest.first


def empty_a_cell(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    """Removes a required value. No archiver writes such a file, so readers must check what they read."""
    manifest = _one(drawn, archive)
    column, empty = drawn.choice([("offset", None), ("timestamp", None), ("headers", [None]), ("headers", [NAMELESS])])
    objects[manifest.records] = with_cell(objects[manifest.records], column, drawn.randrange(manifest.count), empty)
    return manifest.partition, manifest.first


def alter_a_manifest(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    """Changes a manifest but keeps it canonical; its Merkle root still fits the objects."""
    manifest = _one(drawn, archive)
    name = f"manifests/{TOPIC}/{manifest.partition}/{manifest.sequence:012}.json"
    objects[name] = objects[name].replace(b'"written_by":"test"', b'"written_by":"Test"')
    return manifest.partition, manifest.first


def drop_a_manifest(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    manifest = _one(drawn, archive)
    del objects[f"manifests/{TOPIC}/{manifest.partition}/{manifest.sequence:012}.json"]
    return manifest.partition, manifest.first


def cut_off_the_end(drawn: random.Random, archive: Archive, objects: Objects) -> Struck:
    """Removes the newest manifests and their objects without a trace. Only an anchor proves that they existed."""
    manifest = _one(drawn, archive)
    for later in list(archive.manifests(TOPIC, manifest.partition))[manifest.sequence :]:
        for name in (later.records, later.leaves, f"manifests/{TOPIC}/{later.partition}/{later.sequence:012}.json"):
            del objects[name]
    return manifest.partition, manifest.first


MUTATIONS: tuple[Mutation, ...] = (
    flip_a_bit, drop_an_object, swap_two_objects, put_one_object_in_place_of_another, alter_a_record, drop_a_record,
    repeat_a_record, insert_a_record, swap_two_records, alter_a_column, empty_a_cell, alter_a_manifest, drop_a_manifest,
    cut_off_the_end,
)  # fmt: skip


def _one(drawn: random.Random, archive: Archive) -> Manifest:
    place = drawn.choice(archive.partitions())
    return drawn.choice(list(archive.manifests(*place)))


def _object(drawn: random.Random, manifest: Manifest) -> tuple[int, str]:
    sequence = f"manifests/{TOPIC}/{manifest.partition}/{manifest.sequence:012}.json"
    return manifest.first, drawn.choice([manifest.records, manifest.leaves, sequence])


def _rewrite(
    drawn: random.Random, archive: Archive, objects: Objects, change: Callable[[list[MemoryRecord], int], int]
) -> Struck:
    """Changes the records of one object and writes the file as an archiver would. Half of the time the list of leaves is
    rewritten too, so that both agree."""
    manifest = _one(drawn, archive)
    records = parquet.read(objects[manifest.records], TOPIC, manifest.partition)
    offset = change(records, drawn.randrange(len(records)))
    objects[manifest.records] = parquet.encode(records, read_out)
    if drawn.random() < 0.5:
        leaves = leaves_of(records)
        assert merkle.root([leaf.hash for leaf in leaves]).hex() != manifest.root
        objects[manifest.leaves] = pack(leaves)
        return manifest.partition, manifest.first
    return manifest.partition, offset

"""Reads the records that an archive has sealed, without the ledger's code: the Parquet files that its manifests name.

An archive is a folder or a bucket: `s3://bucket/prefix`, with Arrow's options `?endpoint_override=…&region=…`.
Credentials come from the usual places of AWS's tools. Objects:

- `manifests/<topic>/<partition>/<number>.json`: format 1 names a file of records and its SHA-256; format 2 is a note, whose
  `records` names a JSON object with a `kind`.
- `joined/<topic>/<partition>/…jsonl.gz`: the manifests of a compacted day, one per line. It counts if a note of kind
  `joined` names it. Then the note's file of records replaces the files of all these manifests.
- A note of kind `rewritten` lists in `objects` the files that replace files of records, because records expired or values
  were redacted. The latest note about a file counts.

Objects that nothing names are not part of the archive and are not read.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

RECORDS, NOTE = 1, 2


class Unreadable(Exception):
    """An object or archive can't be read. The message names it and its location."""


class File(NamedTuple):
    """A Parquet file with records of one partition, and the digest that was sealed."""

    partition: int
    name: str
    sha256: str


class Objects:
    """The objects in a folder or bucket. Their names have `/` between the parts."""

    def __init__(self, where: str) -> None:
        """where: a path or URI. Raises: Unreadable if it is neither a folder nor a bucket."""
        self.where = where
        try:
            self._fs, self._root = fs.FileSystem.from_uri(where if "://" in where else Path(where).absolute().as_uri())
        except (OSError, ValueError, pa.ArrowException) as error:
            raise Unreadable(f"{where}: {error}") from error

    def names(self, prefix: str) -> list[str]:
        """The names that begin with the prefix, in order."""
        root = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._fs.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise Unreadable(f"{self.where}: {error}") from error
        return sorted(one.path.removeprefix(f"{self._root}/") for one in found if one.type is fs.FileType.File)

    def read(self, name: str) -> bytes:
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}", compression=None) as stream:  # else by its suffix
                return bytes(stream.read())
        except (OSError, pa.ArrowException) as error:
            raise Unreadable(f"{name} in {self.where}: {error}. Run: jobledger audit verify") from error

    def file(self, file: File) -> bytes:
        """The content of the file. Raises: Unreadable if its digest differs from the sealed one."""
        data = self.read(file.name)
        if sha256(data).hexdigest() != file.sha256:
            raise Unreadable(f"{file.name} in {self.where} differs from what was sealed. Run: jobledger audit verify")
        return data


def files(objects: Objects, topic: str) -> Iterator[File]:
    """Each current file of records, once. Raises: Unreadable."""
    manifests = objects.names(f"manifests/{topic}/")
    if not manifests:
        raise Unreadable(f"{objects.where} holds no sealed records of {topic}. Check the archive and the topic's prefix.")
    for partition in sorted({int(name.split("/")[2]) for name in manifests}):
        yield from _of(objects, topic, partition)


def _of(objects: Objects, topic: str, partition: int) -> Iterator[File]:
    singles = [_parsed(name, objects.read(name)) for name in objects.names(f"manifests/{topic}/{partition}/")]
    notes = _notes(objects, partition, singles)
    rewritten = {one["records"]: one for note in notes if note["kind"] == "rewritten" for one in note["objects"]}
    covered = -1

    def file(one: dict[str, Any]) -> File:
        now = rewritten.get(one["records"])
        return File(partition, *((one["records"], one["records_sha256"]) if now is None
                                 else (now["object"], now["object_sha256"])))  # fmt: skip

    said = [note for note in notes if note["kind"] == "joined"]
    for note in sorted(said, key=lambda note: (note["first_sequence"], -note["last_sequence"])):
        if note["first_sequence"] > covered:
            covered = note["last_sequence"]
            singles = [one for one in singles if not note["first_sequence"] <= one["sequence"] <= covered]
            yield file(note)
    for one in singles:
        if one["format"] == RECORDS:
            yield file(one)


def _notes(objects: Objects, partition: int, singles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The contents of all notes of a chain, in order, including those in compacted listings that a note names."""
    found: dict[int, dict[str, Any]] = {}
    left = singles
    while left:
        new = {one["sequence"]: one for one in left if one["format"] == NOTE and one["sequence"] not in found}
        said = {number: _parsed(one["records"], objects.read(one["records"])) for number, one in new.items()}
        found |= said
        listings = [(note["manifests"], note["manifests_sha256"]) for note in said.values() if note["kind"] == "joined"]
        left = [one for name, digest in listings for one in _unpacked(name, objects.file(File(partition, name, digest)))]
    return [note for _, note in sorted(found.items())]


def _parsed(name: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or not ("kind" in found or found["format"] in (RECORDS, NOTE)):
            raise ValueError("neither a known manifest nor a note")
    except (ValueError, KeyError) as error:
        raise Unreadable(f"{name}: {error}. Run: jobledger audit verify") from error
    return found


def _unpacked(name: str, data: bytes) -> list[dict[str, Any]]:
    try:
        return [_parsed(name, line) for line in gzip.decompress(data).splitlines()]
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{name}: {error}. Run: jobledger audit verify") from error

"""What an archive has sealed, read without the ledger's code: the Parquet files that its manifests name.

An archive is a folder or a bucket (`s3://bucket/prefix`, with `?endpoint_override=…&region=…` as Arrow takes them;
credentials come as AWS's tools take them). Objects:

- `manifests/<topic>/<partition>/<number>.json`: format 1 names a file of records and its SHA-256; format 2 is a note, whose
  `records` names a JSON object with a `kind`.
- `joined/<topic>/<partition>/…jsonl.gz`: the manifests of a day that was joined, a line each. It counts if a note of kind
  `joined` names it, and then so does the one file that holds the records of all of them.
- A note of kind `rewritten` names, of `objects`, what is read in the place of a file of records: some of them
  expired, or values were redacted. The latest one about a file counts.

What nothing names is nobody's, and is not read.
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
    """What can't be read, and where it is."""


class File(NamedTuple):
    """A Parquet file of one partition's records."""

    partition: int
    name: str
    sha256: str


class Objects:
    """What lies in a folder or bucket, by names with `/`."""

    def __init__(self, where: str) -> None:
        """Raises: Unreadable if it is none."""
        self.where = where
        try:
            self._fs, self._root = fs.FileSystem.from_uri(where if "://" in where else Path(where).absolute().as_uri())
        except (OSError, ValueError, pa.ArrowException) as error:
            raise Unreadable(f"{where}: {error}") from error

    def names(self, prefix: str) -> list[str]:
        """Those that begin with it, in order."""
        root = f"{self._root}/{prefix}".rstrip("/")
        try:
            found = self._fs.get_file_info(fs.FileSelector(root, allow_not_found=True, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise Unreadable(f"{self.where}: {error}") from error
        return sorted(one.path.removeprefix(f"{self._root}/") for one in found if one.type is fs.FileType.File)

    def read(self, name: str) -> bytes:
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}", compression=None) as stream:  # else by its ending
                return bytes(stream.read())
        except (OSError, pa.ArrowException) as error:
            raise Unreadable(f"{name} in {self.where}: {error}. Run: jobledger audit verify") from error

    def file(self, file: File) -> bytes:
        """As it was sealed."""
        data = self.read(file.name)
        if sha256(data).hexdigest() != file.sha256:
            raise Unreadable(f"{file.name} in {self.where} is not what was sealed. Run: jobledger audit verify")
        return data


def files(objects: Objects, topic: str) -> Iterator[File]:
    """Each file of records that counts, once. Raises: Unreadable."""
    manifests = objects.names(f"manifests/{topic}/")
    if not manifests:
        raise Unreadable(f"There is nothing sealed of {topic} in {objects.where}. Is it the archive, and that the topic?")
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
    """What all notes of a chain say, in order: also those that lie in a joined listing, if a note names that."""
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
            raise ValueError("neither a manifest that this program knows, nor a note")
    except (ValueError, KeyError) as error:
        raise Unreadable(f"{name}: {error}. Run: jobledger audit verify") from error
    return found


def _unpacked(name: str, data: bytes) -> list[dict[str, Any]]:
    try:
        return [_parsed(name, line) for line in gzip.decompress(data).splitlines()]
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"{name}: {error}. Run: jobledger audit verify") from error

"""Unpacks an untrusted job graph. Runs as a separate program and needs only the standard library.

`python -I -S -E unpacking.py <blob> <new folder> <seconds>`; exit code 0, or 1 with the reason as the last line."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tarfile
from pathlib import Path, PurePosixPath

MANIFEST = "ledger-graph.json"
MANIFEST_BYTES_MAX = 1 << 20
MEMBERS_MAX = 100_000
BYTES_MAX = 16 << 30
NAME_BYTES_MAX = 1024
MEMORY_BYTES_MAX = 1 << 30


class Hostile(Exception):
    """The archive holds something that is not allowed in a job graph."""


def check(member: tarfile.TarInfo) -> PurePosixPath:
    """The path of an archive member, relative to the folder. Raises: Hostile if the member is not allowed in a job
    graph."""
    if not (member.isreg() or member.isdir()):
        raise Hostile(f"{member.name!r} is neither a file nor a folder (a link or a device)")
    if member.issparse():
        raise Hostile(f"{member.name!r} is a sparse file")
    if len(os.fsencode(member.name)) > NAME_BYTES_MAX or "\0" in member.name:
        raise Hostile(f"{member.name[:80]!r} is no file name")
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Hostile(f"{member.name!r} leads out of the folder")
    return path


def unpack(blob: Path, folder: Path) -> None:
    """Unpacks the blob into the new folder. Raises: Hostile; tarfile.TarError, OSError, EOFError and whatever else
    tarfile raises on damaged archives."""
    folder.mkdir(mode=0o700)
    total = 0
    with tarfile.open(blob, mode="r:") as tar:  # "r:": not compressed, so nothing expands
        for count, member in enumerate(tar, 1):
            if count > MEMBERS_MAX:
                raise Hostile(f"more than {MEMBERS_MAX} members")
            target = folder / check(member)
            total += member.size
            if member.size < 0 or total > BYTES_MAX:
                raise Hostile(f"more than {BYTES_MAX} bytes")
            if member.name == MANIFEST and member.size > MANIFEST_BYTES_MAX:
                raise Hostile(f"{MANIFEST} is larger than {MANIFEST_BYTES_MAX} bytes")
            if member.isdir():
                target.mkdir(mode=0o755, parents=True, exist_ok=True)
                continue
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _write(tar, member, target)
    if not (folder / MANIFEST).is_file():
        raise Hostile(f"there is no {MANIFEST}")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    # O_EXCL and O_NOFOLLOW refuse a second member with the same name, and one that leads through an earlier member.
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if member.mode & 0o100 else 0o644)
    with os.fdopen(fd, "wb") as out, tar.extractfile(member) as source:  # type: ignore[union-attr]
        shutil.copyfileobj(source, out, 1 << 20)  # raises if the archive is cut short


def main(blob: str, folder: str, seconds: str) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    try:
        unpack(Path(blob), Path(folder))
    except Exception as error:  # a damaged archive makes tarfile raise nearly anything
        sys.stderr.write(f"{type(error).__name__}: {error}\n".replace("\0", " "))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

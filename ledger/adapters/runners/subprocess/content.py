"""The content of a checkpoint: path, size and SHA-256 of each file, and one digest over all files.

The manifest of a checkpoint `attempts/<n>/checkpoints/<name>` is stored in `attempts/<n>/digests/<name>.json`. It shows
which file differs, and which files need not be read again. The ledger records only the digest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterator, MutableMapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ledger.adapters.runners.subprocess.supervisor.files import JSON_BYTES_MAX, read_json, to_json

#: Prefix of the digest of a manifest. A digest without a tag is the SHA-256 of a checkpoint that is one file.
TAG = "sha256-manifest:"
BLOCK = 1 << 20
LINK = "link:"  # prefix of the SHA-256 of a symbolic link's target

#: A file with the same identity is unchanged: device, inode, size, time of the last modification in nanoseconds.
Identity = tuple[int, int, int, int]
Known = MutableMapping[Identity, str]


class ContentFile(NamedTuple):
    """A file of a checkpoint. path: within the checkpoint, "" if the checkpoint is one file. sha256: lower-case hex.
    size: in bytes."""

    path: str
    size: int
    sha256: str
    identity: Identity | None = None


class Unsteady(Exception):
    """A file changed while it was read, or is not a regular file. Such a checkpoint has no content to record."""


@dataclass(frozen=True, slots=True)
class ContentManifest:
    """The files of a checkpoint, in order of their paths."""

    files: tuple[ContentFile, ...]

    @property
    def digest(self) -> str:
        """The digest over all files: the tag, followed by the SHA-256 of the JSON array of [path, size, sha256] without
        blanks."""
        return TAG + sha256(to_json([file[:3] for file in self.files])).hexdigest()

    def remember(self, known: Known) -> None:
        for file in self.files:
            if file.identity is not None:
                known[file.identity] = file.sha256


def files_of(root: Path) -> Iterator[tuple[str, Path]]:
    """Everything in a checkpoint that is not a folder, as (path within the checkpoint, path). Raises: OSError."""
    if root.is_symlink() or not root.is_dir():
        yield "", root
        return
    for folder, folders, names in os.walk(root, onerror=_raise):
        for name in (*names, *(name for name in folders if Path(folder, name).is_symlink())):
            path = Path(folder, name)
            yield path.relative_to(root).as_posix(), path


def reading(root: Path, known: Known | None = None, block: int = BLOCK) -> Generator[int, None, ContentManifest]:
    """Reads a checkpoint and returns its manifest. After each block, yields the number of bytes read.

    known: SHA-256 of files that were read before. These files are not read again, and newly read files are added. None:
    every file is read. Raises: OSError if something can't be read; Unsteady."""
    files = []
    for name, path in sorted(files_of(root)):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(path.readlink())
            files.append(ContentFile(name, status.st_size, LINK + sha256(target).hexdigest()))
        else:
            files.append((yield from _reading_file(name, path, known, block)))
    return ContentManifest(tuple(files))


def _reading_file(name: str, path: Path, known: Known | None, block: int) -> Generator[int, None, ContentFile]:
    # Non-blocking: to open a pipe would wait for its other end.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unsteady(f"{path} is not a regular file")
        identity = _identity(status)
        if known is not None and (digest := known.get(identity)):
            return ContentFile(name, status.st_size, digest, identity)
        found = sha256()
        while data := os.read(fd, block):
            found.update(data)
            yield len(data)
        if _identity(os.fstat(fd)) != identity:
            raise Unsteady(f"{path} changed while it was read")
        if known is not None:
            known[identity] = found.hexdigest()
        return ContentFile(name, status.st_size, found.hexdigest(), identity)
    finally:
        os.close(fd)


def read(root: Path) -> ContentManifest:
    """The manifest of a checkpoint, read without pauses and without remembering files. Raises: OSError, Unsteady."""
    reader = reading(root)
    while True:
        try:
            next(reader)
        except StopIteration as finished:
            manifest: ContentManifest = finished.value
            return manifest


def different_size(root: Path, recorded: ContentManifest) -> str:
    """The first difference from the recorded manifest in paths and sizes, as text; "" = none. Reads no file. Raises:
    OSError."""
    known = {file.path: file.sha256 for file in recorded.files}
    found = [ContentFile(name, path.lstat().st_size, known.get(name, "")) for name, path in files_of(root)]
    return difference(recorded, ContentManifest(tuple(found)))


def difference(recorded: ContentManifest, found: ContentManifest) -> str:
    """The first file that differs from the recorded one, and how, as text; "" if all files are equal."""
    before, now = ({file.path: file for file in manifest.files} for manifest in (recorded, found))
    for path in sorted({*before, *now}):
        named = path or "the file"
        if path not in now:
            return f"{named} is missing"
        if path not in before:
            return f"{named} is not in the record"
        if now[path].size != before[path].size:
            return f"{named} has {now[path].size} bytes, {before[path].size} were recorded"
        if now[path].sha256 != before[path].sha256:
            return f"the content of {named} is not what was recorded"
    return ""


# -- manifests on disk -------------------------------------------------------------------------------------------------


def manifest_path(checkpoint: Path) -> Path:
    return checkpoint.parent.parent / "digests" / f"{checkpoint.name}.json"


def save(checkpoint: Path, manifest: ContentManifest) -> bool:
    """Stores the manifest of a checkpoint beside the checkpoint's folder; returns False if it has too many files to be
    stored. The write is not durable: after a power cut the digest is computed again. Raises: OSError."""
    data = to_json({"files": manifest.files})
    if len(data) > JSON_BYTES_MAX:
        return False
    path = manifest_path(checkpoint)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
    return True


def load(checkpoint: Path) -> ContentManifest | None:
    """The stored manifest of a checkpoint; None if none is stored, or it is damaged. A manifest is only an aid, so a
    damaged one counts as missing."""
    try:
        rows = (read_json(str(manifest_path(checkpoint))) or {})["files"]
        return ContentManifest(tuple(_file(*row) for row in rows))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(path: str, size: int, digest: str, identity: list[int] | None) -> ContentFile:
    if not isinstance(path, str) or not isinstance(digest, str):
        raise TypeError("not a file of a manifest")
    if identity is None:
        return ContentFile(path, int(size), digest)
    device, inode, length, mtime_ns = (int(number) for number in identity)
    return ContentFile(path, int(size), digest, (device, inode, length, mtime_ns))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _raise(error: OSError) -> None:
    raise error

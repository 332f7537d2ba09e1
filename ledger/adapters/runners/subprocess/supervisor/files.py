"""Writes and reads files that survive a crash at any moment: each file is complete or does not exist."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JSON_BYTES_MAX = 16 * 1024 * 1024


def write_durably(path: str, data: bytes) -> None:
    """Replaces the file. On return, the new content survives a power cut; before that, the old content does."""
    temporary = f"{path}.{os.getpid()}.tmp"
    _write(temporary, data)
    os.replace(temporary, path)
    sync_folder(os.path.dirname(path))


def create_once(path: str, data: bytes) -> bool:
    """Creates the file with this content, durably. Returns False if the file exists already, and does not change it.

    If several processes try at once, exactly one succeeds. No process ever reads a partial file."""
    temporary = f"{path}.{os.getpid()}.tmp"
    _write(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def to_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_json(path: str) -> dict[str, Any] | None:
    """The JSON object in the file; None if the file does not exist.

    Raises: ValueError if the content is not a JSON object; OSError if the file can't be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(JSON_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"{path} is larger than {JSON_BYTES_MAX} bytes")
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def numbered(folder: str, suffix: str = ".json") -> list[tuple[int, str]]:
    """The files `<number><suffix>` in a folder as (number, path), ascending; [] if the folder does not exist."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        stem = name.removesuffix(suffix)
        if name.endswith(suffix) and stem.isascii() and stem.isdigit():
            found.append((int(stem), os.path.join(folder, name)))
    return sorted(found)


def say(text: str) -> None:
    """Writes a line for people into the supervisor's own log. On a full disk the line is lost."""
    line = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + text + "\n"
    try:
        os.write(2, line.encode("utf-8", "replace"))
    except OSError:
        pass

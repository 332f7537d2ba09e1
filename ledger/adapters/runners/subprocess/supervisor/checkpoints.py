"""The checkpoint folder of an attempt. A file or folder renamed to `chk-<id>` or `sav-<id>` is a complete checkpoint.

`chk-<id>@<label>` belongs to the cut through several jobs that has this label (consistency). The label is part of the
name, so that the checkpoint and its label appear at the same moment. The job makes its data durable before the rename;
this module looks at names and sizes only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ID_MAX = 2**63 - 1
LABEL_CHARS_MAX = 128
_LABEL_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:+-")
_KINDS = {"chk-": "CHECKPOINT", "sav-": "SAVEPOINT"}


def parse(name: str) -> tuple[int, str] | None:
    """The id and kind in a checkpoint's file name; None for any other name. Ids are decimal without leading zeros."""
    kind, (digits, at, label) = _KINDS.get(name[:4]), name[4:].partition("@")
    if at and not (0 < len(label) <= LABEL_CHARS_MAX and _LABEL_CHARS.issuperset(label)):
        return None
    if kind is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return None
    if digits != "0" and digits[0] == "0":
        return None
    number = int(digits)
    return (number, kind) if number <= ID_MAX else None


def label_of(name: str) -> str:
    """The consistency label in a checkpoint's file name, "" = none."""
    return name.partition("@")[2]


def listed(folder: str) -> list[tuple[int, str, str]]:
    """All checkpoints in the folder as (id, kind, name), sorted by id; [] if the folder is gone.

    Raises: OSError if the folder can't be read."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((*found, name) for name in names if (found := parse(name)) is not None)


def size_of(path: str) -> int:
    """The size in bytes of a file, or of all files in a folder; links count as themselves.

    Raises: OSError if something can't be read or is missing."""
    status = os.lstat(path)
    if status.st_mode & 0o170000 != 0o040000:
        return status.st_size
    total, folders = 0, [path]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def news(folder: str, newest: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The checkpoints above `newest` as facts, ascending, and the names of checkpoints that are not above it.

    A checkpoint that vanishes while it is measured is ignored. Raises: OSError if the folder can't be read."""
    fresh, old = [], []
    for number, kind, name in listed(folder):
        if number <= newest:
            old.append(name)
            continue
        path = os.path.join(folder, name)
        try:
            size = size_of(path)
        except FileNotFoundError:
            continue
        fact = {"fact": "checkpoint", "id": number, "kind": kind, "location": path, "size": size}
        fresh.append({**fact, "consistency": label_of(name)})
        newest = number
    return fresh, old

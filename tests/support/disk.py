"""The possible contents of a folder after a power cut. A shim of `os` records what was synced, and in which order.

    disk = Disk(folder, monkeypatch)
    disk.watch(path)            from now on, notes at each step what a cut may leave of the file
    …                           the code under test
    disk.seen                   {None, b"old", …}: all contents that a cut at any step may have left
    disk.after(path)            all contents that a cut may leave now

After an fsync of a file, the disk has the file's bytes of that moment. Before it, a cut may leave anything: TORN. After an
fsync of a folder, the names in the folder are certain. Before it, a cut may leave the old names or the new ones. Source:
POSIX fsync; ext4 and XFS guarantee no other order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TORN = b"<anything>"
_STEPS = ("write", "replace", "rename", "link", "unlink", "rmdir", "mkdir")


class Disk:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root.resolve()
        self._data: dict[int, bytes] = {}  # inode -> its bytes at its last fsync
        self._names: dict[int, dict[str, int]] = {}  # inode of a folder -> its names at its last fsync
        self._held: list[int] = []  # open descriptors of synced files, so that no other file gets their inode number
        self._watched: list[Path] = []
        self.seen: set[bytes | None] = set()
        for folder, _, files in os.walk(self._root):
            self._synced(os.open(folder, os.O_RDONLY))
            for name in files:
                self._synced(os.open(Path(folder, name), os.O_RDONLY))
        fsync = os.fsync

        def synced(fd: int) -> None:
            fsync(fd)
            self._synced(os.dup(fd))
            self._step()

        monkeypatch.setattr(os, "fsync", synced)
        for name in _STEPS:
            monkeypatch.setattr(os, name, self._then(getattr(os, name)))

    def watch(self, path: Path) -> None:
        self._watched.append(path)
        self._step()

    def after(self, path: Path) -> set[bytes | None]:
        """All contents of the file that a cut may leave now; None = no file."""
        found = {None if inode is None else self._data.get(inode, TORN) for inode in self._inodes(path)}
        there = _inode(path)
        if there in self._data and path.read_bytes() != self._data[there]:
            found.add(TORN)  # overwritten in place, and not synced since
        return found

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()

    # -- implementation ------------------------------------------------------------------------------------------------

    def _then(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            answer = real(*arguments, **named)
            self._step()
            return answer

        return step

    def _step(self) -> None:
        for path in self._watched:
            self.seen |= self.after(path)

    def _synced(self, fd: int) -> None:
        self._held.append(fd)
        found, path = os.fstat(fd), f"/proc/self/fd/{fd}"
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                self._names[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._data[found.st_ino] = Path(path).read_bytes()

    def _inodes(self, path: Path) -> set[int | None]:
        """The inodes that a name may have after a cut; None = the name does not exist."""
        path = path.absolute()
        if path == self._root:
            return {_inode(path)}
        found = set[int | None]()
        for folder in self._inodes(path.parent):
            if folder is None:
                found.add(None)
                continue
            found.add(self._names.get(folder, {}).get(path.name))
            if folder == _inode(path.parent):
                found.add(_inode(path))
        return found


def _inode(path: Path) -> int | None:
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None

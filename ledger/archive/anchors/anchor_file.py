"""Anchors in a file, for who anchors (`anchoring`): what it holds is read first, so that only what grew out of its last
anchor is appended. A file is written by one at a time: who keeps anchors there by cron."""

from __future__ import annotations

from pathlib import Path

from ledger.archive.anchors import anchors
from ledger.archive.anchors.anchor_topic import Posted
from ledger.archive.format.anchor import Anchor, chain_of
from ledger.errors import UsageError


class AnchorFile:
    """What `anchor_topic.AnchorTopic` is to a topic."""

    def __init__(self, path: Path) -> None:
        self._path, self._next = path, 0

    def read(self) -> list[Posted]:
        """What an earlier call has not returned. Raises: UsageError if a line is no anchor."""
        found = anchors.read(self._path) if self._path.exists() else []
        new, self._next = found[self._next :], len(found)
        chains = [chain_of(one.anchor.head) for one in new]
        return [Posted(c.encode(), c, one.where, one.time_s, one.anchor) for c, one in zip(chains, new, strict=True)]

    def write(self, anchor: Anchor) -> None:
        """Durably. Raises: ConfigError if the file can't be written."""
        anchors.append(self._path, [anchor])

    def give_up(self, key: bytes, reason: str) -> None:
        """A file is not given up: another is begun. Raises: UsageError."""
        raise UsageError(f"What {self._path} holds of {key.decode()} can't be given up ({reason}): begin another file.")

    def close(self) -> None:
        """The next `read` begins at the beginning."""
        self._next = 0

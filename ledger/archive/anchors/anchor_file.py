"""Anchors in a file, for `anchoring`, which reads the file first and appends only anchors of chains that extend their
last anchor. Only one process at a time may write a file, such as a cron job."""

from __future__ import annotations

from pathlib import Path

from ledger.archive.anchors import anchors
from ledger.archive.anchors.anchor_topic import Posted
from ledger.archive.format.anchor import Anchor, chain_of
from ledger.errors import UsageError


class AnchorFile:
    """A file of anchors, with the methods of `anchor_topic.AnchorTopic`."""

    def __init__(self, path: Path) -> None:
        self._path, self._next = path, 0

    def read(self) -> list[Posted]:
        """The anchors that no earlier call has returned. Raises: UsageError if a line is not an anchor."""
        found = anchors.read(self._path) if self._path.exists() else []
        new, self._next = found[self._next :], len(found)
        chains = [chain_of(one.anchor.head) for one in new]
        return [Posted(c.encode(), c, one.where, one.time_s, one.anchor) for c, one in zip(chains, new, strict=True)]

    def write(self, anchor: Anchor) -> None:
        """Appends an anchor durably. Raises: ConfigError if the file can't be written."""
        anchors.append(self._path, [anchor])

    def give_up(self, key: bytes, reason: str) -> None:
        """Always raises UsageError: anchors in a file can't be given up. Begin another file instead."""
        raise UsageError(f"Anchors of {key.decode()} in {self._path} can't be given up ({reason}). Begin another file.")

    def close(self) -> None:
        """Makes the next `read` start at the beginning."""
        self._next = 0

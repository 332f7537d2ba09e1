"""Anchors in a file: heads of chains, stored where nobody who can write to the archive can change them.

Each line is one JSON object, so a file grows by appending, and each line can be mailed, printed or signed by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ledger.archive.format import anchor as anchors
from ledger.archive.format.anchor import Anchor, AnchorRecord
from ledger.archive.format.chain import Head
from ledger.errors import ConfigError, UsageError
from ledger.util.files import sync_folder


class Signer(Protocol):
    """A private key (adapters/ed25519)."""

    @property
    def key(self) -> str:
        """The fingerprint of the matching public key, hex."""

    def sign(self, data: bytes) -> bytes: ...


def made(head: Head, signer: Signer | None = None) -> Anchor:
    """The anchor of a head, signed if there is a signer."""
    return Anchor(head) if signer is None else Anchor(head, signer.key, signer.sign(anchors.signed_bytes(head)).hex())


def append(path: Path, kept: Iterable[Anchor]) -> None:
    """Appends anchors durably, one on each line, even if the file ends within a line.

    Raises: ConfigError if the file can't be written.
    """
    lines = b"".join(anchors.encode(anchor) + b"\n" for anchor in kept)
    try:
        new = not path.exists()
        with path.open("a+b") as file:
            if lines and file.tell():
                file.seek(-1, os.SEEK_END)
                lines = lines if file.read(1) == b"\n" else b"\n" + lines
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(path.absolute().parent)
    except OSError as error:
        raise ConfigError(f"Can't write anchors to {path}: {error}") from error


def read(path: Path) -> list[AnchorRecord]:
    """The anchors in a file. Raises: UsageError if there is no such file, or a line is not an anchor. No line is
    skipped: a damaged anchor no longer proves anything, and people must notice that."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Can't read anchors from {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                found.append(AnchorRecord(anchors.decode(line), where))
            except ValueError as error:
                raise UsageError(f"{where} is not an anchor: {error}") from error
    return found

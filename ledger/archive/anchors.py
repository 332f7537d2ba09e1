"""Anchors in a file: heads of chains that are kept where nobody who can write to the archive can.

One JSON object a line, so that a file grows by appending, and each line can be mailed, printed or signed by itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ledger.core.chain import Head
from ledger.errors import ConfigError, UsageError

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def append(path: Path, heads: Iterable[Head]) -> None:
    """Durably. Raises: ConfigError if the file can't be written."""
    lines = "".join(json.dumps(head._asdict(), sort_keys=True) + "\n" for head in heads)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError(f"Can't write anchors to {path}: {error}") from error


def read(path: Path) -> list[Head]:
    """Raises: UsageError if there is no such file, or a line of it is no anchor. None is left out: an anchor that was
    damaged is one that proves nothing any more, and that must be known."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Can't read anchors from {path}: {error}") from error
    return [_head(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]


def _head(line: str, where: str) -> Head:
    try:
        plain = json.loads(line)
        head = Head(**plain)
        kinds = [type(value) for value in head]
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no anchor: {error}") from error
    if kinds != [str, int, int, str, int, str] or head.sequence < 0 or head.next < 0 or not _SHA256.match(head.sha256):
        raise UsageError(f"{where} is no anchor: not topic, partition, sequence, sha256, next, topic_id as they must be.")
    return head

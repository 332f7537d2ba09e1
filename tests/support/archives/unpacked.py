"""A cache that unpacks each file of an archive once. The content depends only on the file's bytes and bounds. Without the
cache, tests that query one archive thousands of times would spend their time unpacking."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ledger.archive.format import parquet

FILES_MAX = 2000  # each has some kilobytes

_unpack = parquet.Opened.__init__


@lru_cache(FILES_MAX)
def _unpacked(data: bytes, rows_max: int | None, bytes_max: int) -> dict[str, Any]:
    made = parquet.Opened.__new__(parquet.Opened)
    _unpack(made, data, rows_max)
    return vars(made)


def _once(self: parquet.Opened, data: bytes, rows_max: int | None = None) -> None:
    vars(self).update(_unpacked(bytes(data), rows_max, parquet.UNPACKED_MAX))


def unpack_once() -> None:
    """Installs the cache for the rest of the process."""
    parquet.Opened.__init__ = _once  # type: ignore[method-assign]

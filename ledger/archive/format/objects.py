"""The port to the object store of an archive. Objects are created once, read whole and never changed. They are deleted
only when they are joined, rewritten or thinned out.

Adapters: `adapters/memory/objects`, `adapters/local/objects` (a folder), `adapters/s3/objects` (a bucket). One contract
(tests/contract/test_objects.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from ledger.errors import LedgerError, UsageError

_NAME = re.compile(r"(?!.*(?:^|/)\.)[A-Za-z0-9._-]{1,250}(?:/[A-Za-z0-9._-]{1,250}){0,9}\Z")


#: Maximum size of an object, by the prefix of its name. A larger object was not made by this program, and is not read.
BYTES_MAX = 1 << 30
_BYTES_MAX_OF = {"manifests/": 1 << 20, "bundle.json": 32 << 20, "notes/": 256 << 20}


class Unfit(LedgerError):
    """The object of that name can't be an object of an archive: it is damaged, larger than any such object, or not a
    file."""


class ObjectStat(NamedTuple):
    """The size and age of an object. bytes: its size. age_s: seconds since it was stored, by the clock of the store;
    None: the store can't tell."""

    bytes: int
    age_s: float | None


class ObjectStore(Protocol):
    """A store of objects by name. A name is a path of at most ten parts of [A-Za-z0-9._-]; no part begins with a dot.

    Raises: UsageError for an invalid name. Unreachable if the store does not answer. ConfigError if it denies access.
    """

    def create(self, name: str, data: bytes) -> bool:
        """Stores an object durably and whole; False if there is an object of that name, which is then unchanged. If
        several calls create one name at once, exactly one returns True. A call that is repeated because its answer was
        lost returns False."""

    def read(self, name: str) -> bytes | None:
        """The content of the object; None if there is none. Raises: Unfit."""

    def stat(self, name: str) -> ObjectStat | None:
        """The size and age of the object; None if there is none."""

    def delete(self, name: str) -> None:
        """Deletes the object durably. A missing object is no error."""

    def names(self, prefix: str) -> list[str]:
        """All names that begin with the prefix (empty, or parts with a `/` behind each), in order; never only some of
        them. Foreign objects whose names are invalid are left out."""


def bytes_max(name: str) -> int:
    """The maximum size of an object with that name, in bytes."""
    return next((most for begin, most in _BYTES_MAX_OF.items() if name.startswith(begin)), BYTES_MAX)


def check_size(name: str, size: int, most: int = BYTES_MAX) -> None:
    """Checks the size of an object in bytes before it is read. most: a lower limit than `bytes_max`. Raises: Unfit if
    the object is larger than the limit."""
    if size > (most := min(most, bytes_max(name))):
        raise Unfit(f"{name} has {size} bytes, and none of ours has more than {most}: it is not read.")


def is_name(name: str) -> bool:
    return len(name) <= 1000 and _NAME.match(name) is not None


def check_name(name: str) -> str:
    """The name of an object, unchanged. Raises: UsageError if the name is invalid."""
    if not is_name(name):
        raise UsageError(f"Not the name of an object: {name[:200]!r}.")
    return name


def check_prefix(prefix: str) -> str:
    """The prefix of names, unchanged. Raises: UsageError if the prefix is invalid."""
    if prefix and not (prefix.endswith("/") and check_name(prefix[:-1])):
        raise UsageError(f"Not a prefix of names: {prefix[:200]!r}.")
    return prefix

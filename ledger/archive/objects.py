"""The port to what an archive lies in: objects that are created once, read whole, never changed, and deleted
only by who joins them.

Adapters: `adapters/memory/objects`, `adapters/local/objects` (a folder), `adapters/s3/objects` (a bucket). One contract
(tests/contract/test_objects.py).
"""

from __future__ import annotations

import re
from typing import Protocol

from ledger.errors import UsageError

_NAME = re.compile(r"(?!.*(?:^|/)\.)[A-Za-z0-9._-]{1,250}(?:/[A-Za-z0-9._-]{1,250}){0,9}\Z")


class ObjectStore(Protocol):
    """Names are paths of at most ten parts of [A-Za-z0-9._-], none of which begins with a dot.

    Raises: UsageError if a name is none. Unreachable: the store did not answer. ConfigError: it does not let us."""

    def create(self, name: str, data: bytes) -> bool:
        """Stores it durably and whole; False if there is an object of that name: then nothing was changed. Of several that
        create one name at once, exactly one is told True. One whose answer was lost and who asks again is told False."""

    def read(self, name: str) -> bytes | None:
        """None: there is none."""

    def delete(self, name: str) -> None:
        """Durably. One that is not there is deleted already."""

    def names(self, prefix: str) -> list[str]:
        """The names that begin with the prefix (empty, or parts with a `/` behind each), in order. All or an exception.
        What somebody else has put there under what is no name is passed over."""


def is_name(name: str) -> bool:
    return len(name) <= 1000 and _NAME.match(name) is not None


def check_name(name: str) -> str:
    """Raises: UsageError."""
    if not is_name(name):
        raise UsageError(f"Not the name of an object: {name[:200]!r}.")
    return name


def check_prefix(prefix: str) -> str:
    """Raises: UsageError."""
    if prefix and not (prefix.endswith("/") and check_name(prefix[:-1])):
        raise UsageError(f"Not a prefix of names: {prefix[:200]!r}.")
    return prefix

"""The port to what an archive lies in: objects that are created once, read whole, never changed, and deleted
only by who joins them.

Adapters: `adapters/memory/objects`, `adapters/local/objects` (a folder), `adapters/s3/objects` (a bucket). One contract
(tests/contract/test_objects.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from ledger.errors import LedgerError, UsageError

_NAME = re.compile(r"(?!.*(?:^|/)\.)[A-Za-z0-9._-]{1,250}(?:/[A-Za-z0-9._-]{1,250}){0,9}\Z")


#: Bytes that an object has at most, by how its name begins. What is larger was not made by this program, and is not read.
BYTES_MAX = 1 << 30
_BYTES_MAX_OF = {"manifests/": 1 << 20, "bundle.json": 32 << 20, "notes/": 256 << 20}


class Unfit(LedgerError):
    """There is an object of that name that can't be one of ours: damaged, larger than any that we make, or no file."""


class ObjectStat(NamedTuple):
    """bytes: its size. age_s: seconds since it was put there, by the clock of the store; None: the store can't tell."""

    bytes: int
    age_s: float | None


class ObjectStore(Protocol):
    """Names are paths of at most ten parts of [A-Za-z0-9._-], none of which begins with a dot.

    Raises: UsageError if a name is none. Unreachable: the store did not answer. ConfigError: it does not let us."""

    def create(self, name: str, data: bytes) -> bool:
        """Stores it durably and whole; False if there is an object of that name: then nothing was changed. Of several that
        create one name at once, exactly one is told True. One whose answer was lost and who asks again is told False."""

    def read(self, name: str) -> bytes | None:
        """None: there is none. Raises: Unfit."""

    def stat(self, name: str) -> ObjectStat | None:
        """None: there is none."""

    def delete(self, name: str) -> None:
        """Durably. One that is not there is deleted already."""

    def names(self, prefix: str) -> list[str]:
        """The names that begin with the prefix (empty, or parts with a `/` behind each), in order. All or an exception.
        What somebody else has put there under what is no name is passed over."""


def bytes_max(name: str) -> int:
    """What an object of that name may have at most."""
    return next((most for begin, most in _BYTES_MAX_OF.items() if name.startswith(begin)), BYTES_MAX)


def check_size(name: str, size: int, most: int = BYTES_MAX) -> None:
    """Raises: Unfit."""
    if size > (most := min(most, bytes_max(name))):
        raise Unfit(f"{name} has {size} bytes, and none of ours has more than {most}: it is not read.")


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

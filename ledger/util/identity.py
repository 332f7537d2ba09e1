"""Who is behind an event, for audit: the operating system's user and host. What a producer says of itself is not proved."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version


def whoami() -> str:
    """`user@host`; a user id without a name gives its number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's uid without an entry in passwd
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def instance(role: str, pid: int | None = None, host: str = "") -> str:
    """`<role>-<host>-<pid>`: the one name of a process of a role, in claims, locks and lists. By default this process.

    A host that is called after its role, as in a container, is not named twice: `projector-1-7`."""
    where = host or socket.gethostname()
    where = where if where.startswith(f"{role}-") else f"{role}-{where}"
    return f"{where}-{os.getpid() if pid is None else pid}"


def versions() -> dict[str, str]:
    """Name -> version, of what a bug may depend on. What is not installed is not named."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in ("jobledger", "confluent-kafka", "fastavro", "pyarrow", "pyspark"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

"""Names of users, processes and versions, for audits. A producer reports its own user and host; nothing proves them."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version


def whoami() -> str:
    """`user@host`. If the user id has no name, its number is used."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's uid without an entry in passwd
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def instance(role: str, pid: int | None = None, host: str = "") -> str:
    """`<role>-<host>-<pid>`: the name of a role's process in claims, locks and lists. pid, host: None or "" = this
    process.

    If the host name already begins with the role, as in a container, the role is not repeated: `projector-1-7`.
    """
    where = host or socket.gethostname()
    where = where if where.startswith(f"{role}-") else f"{role}-{where}"
    return f"{where}-{os.getpid() if pid is None else pid}"


def versions() -> dict[str, str]:
    """Maps the names of Python, the system and installed packages to their versions, for bug reports."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in ("jobledger", "confluent-kafka", "fastavro", "pyarrow", "pyspark"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

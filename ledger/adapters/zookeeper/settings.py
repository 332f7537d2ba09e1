"""The settings of a connection to ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The settings of a connection to ZooKeeper. hosts: such as `zk1:2181,zk2:2181`. chroot: a path that prefixes all
    our paths, "" = none; created if missing."""

    hosts: str
    chroot: str = ""
    session_timeout_s: float = 10.0
    """The requested timeout. The servers have their own bounds, and the timeout that they grant counts."""
    auth: str = ""
    """"" = none, `digest`, or `sasl` (DIGEST-MD5). With the last two, only the same user can read or write our
    nodes."""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    tls_ca: Path | None = None
    """The only trusted authorities, as PEM. None: the system's."""
    tls_cert: Path | None = None
    """Our own certificate, as PEM, for servers that require one."""
    tls_key: Path | None = None
    tls_key_password: str = field(default="", repr=False)
    tls_verify_hostname: bool = True
    """Whether the server's certificate must contain the host name, besides being signed by a trusted authority."""

    def candidates(self, prefix: str, role: str) -> str:
        """The path of the node whose children are the candidates for a role."""
        parts = (self.chroot.strip("/"), f"{prefix}leaders", role)
        return "/" + "/".join(part for part in parts if part)

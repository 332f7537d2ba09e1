"""Where ZooKeeper is and who we are to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """hosts: `zk1:2181,zk2:2181`. chroot: a path before all of ours, "" = none; it is made if it is not there."""

    hosts: str
    chroot: str = ""
    session_timeout_s: float = 10.0
    """What is asked for. The servers have bounds of their own, and what they grant is what counts."""
    auth: str = ""
    """"" = none, `digest` or `sasl` (DIGEST-MD5). With one of them only the same user can read or write our nodes."""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    tls_ca: Path | None = None
    """Who is trusted, as PEM, and nobody else. None: whom the system trusts."""
    tls_cert: Path | None = None
    """Our own certificate, as PEM, for servers that ask for one."""
    tls_key: Path | None = None
    tls_key_password: str = field(default="", repr=False)
    tls_verify_hostname: bool = True
    """Whether the name that is dialled must be in the server's certificate. Not only the issuer."""

    def candidates(self, prefix: str, role: str) -> str:
        """The path under which the candidates for a role stand."""
        parts = (self.chroot.strip("/"), f"{prefix}leaders", role)
        return "/" + "/".join(part for part in parts if part)

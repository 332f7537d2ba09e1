"""Checks whether a role has a leader on this host: a process that holds the lock *and* has claimed an epoch."""

from __future__ import annotations

from collections.abc import Callable

from ledger.adapters.local.leadership import holder
from ledger.config.config import Config
from ledger.reader.claims import ClaimFollower
from ledger.reader.presence import present
from ledger.reader.reading import Source
from ledger.util.identity import instance


class Leaders:
    """Compares the holder of a role's lock on this host with the newest claim of the role.

    leader: role -> the pid of the lock holder on this host; None if there is none. fresh: whether the process of a pid
    was started after this object was made. A claim from before that moment belongs to an earlier process with the same
    pid.
    """

    def __init__(self, source: Source, leader: Callable[[str], int | None], fresh: Callable[[int], bool]) -> None:
        self._leader, self._fresh = leader, fresh
        self._claims = ClaimFollower(source)

    def led(self, role: str) -> bool:
        """Whether the role has a leader on this host. Raises: the errors of a `ports.Reader`."""
        pid, claimed = self._leader(role), self._claims.newest(role)
        if pid is None or claimed is None:
            return False
        claim, is_new = claimed
        return claim.writer == instance(role, pid) and (is_new or not self._fresh(pid))

    def close(self) -> None:
        self._claims.close()


def leader_on_host(config: Config, role: str) -> int | None:
    """The pid of the instance on this host that leads a role and has completed its take-over; None if there is none.
    With file locks the instance must also hold the role's lock."""
    leads = next((int(said["pid"]) for said in present(config.candidates_folder, role) if said["leads"]), None)
    if config.leadership.adapter == "file":
        held = holder(config.leader_lock(role))
        return leads if held is not None and held.pid == leads else None
    return leads

"""Who leads a role."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Standing(NamedTuple):
    """How a candidate stands, for people; nothing is decided by it.

    leads: it holds the lock now. lease_left_s: seconds until its lease ends unless renewed; None where the lease is the
    life of the process, or it does not lead. leader: who holds the lock as far as it knows, "" = nobody or unknown.
    waits_for: why it does not lead ("" if it leads), e.g. "zookeeper: no answer from zk1:2181, zk2:2181 for 12 s".
    because: why it came to lead, or lost the lead, last ("" = it never led), e.g. "the session of p1@host-a ended".
    """

    leads: bool = False
    lease_left_s: float | None = None
    leader: str = ""
    waits_for: str = ""
    because: str = ""


class Candidate(NamedTuple):
    """One who wants to lead a role, as others see it, for people.

    since: when it became a candidate, in seconds since the epoch; 0 = unknown. waits_for: as in `Standing`.
    lease_left_s: as it said last; None where the lease is the life of the process, or it does not lead, or is unknown.
    """

    who: str
    pid: int
    since: float
    leads: bool
    waits_for: str = ""
    lease_left_s: float | None = None


class Leadership(Protocol):
    """Who leads a role. The lock is advice, the epoch is law: the epoch comes from the log, not from here.

    No method blocks on a server that does not answer: what takes time happens on a thread of the adapter's own.
    """

    def acquire(self) -> bool:
        """Wants to lead from now on; True if this instance leads (or still does). Called again and again."""

    def valid(self) -> bool:
        """Whether the lease still holds at this moment, by the monotonic clock. Cheap: asked before every commit."""

    def release(self) -> None:
        """Steps down, and is no candidate until `acquire`. Idempotent; never blocks, never raises."""

    def standing(self) -> Standing:
        """Cheap, never raises."""

    def close(self) -> None:
        """Ends threads and connections, for good. Idempotent; waits a moment at most, never raises."""

"""The port to the election of a role's leader."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Standing(NamedTuple):
    """The status of a candidate, for people. No decision depends on it.

    leads: it holds the lock now. lease_left_s: seconds until its lease expires unless renewed; None if it does not
    lead, or if the lease lasts as long as the process. leader: the holder of the lock as far as known; "" if there is
    none or it is unknown. waits_for: why it does not lead ("" if it leads), as in "zookeeper: no answer from zk1:2181,
    zk2:2181 for 12 s". because: why it last became leader or lost the lead ("" if it never led), as in "the session of
    p1@host-a ended".
    """

    leads: bool = False
    lease_left_s: float | None = None
    leader: str = ""
    waits_for: str = ""
    because: str = ""


class Candidate(NamedTuple):
    """A candidate of a role as others see it, for people.

    since: when it became a candidate, in seconds since the epoch; 0 if unknown. waits_for: as in `Standing`.
    lease_left_s: how many seconds of its lease were left when it last reported; None if it does not lead, if that is
    unknown, or if the lease lasts as long as the process.
    """

    who: str
    pid: int
    since: float
    leads: bool
    waits_for: str = ""
    lease_left_s: float | None = None


class Leadership(Protocol):
    """The election of one role, as one candidate sees it. The lock is advice, the epoch is law: the epoch comes from
    the log, not from here.

    No method waits for a server: slow work runs on a thread of the adapter.
    """

    def acquire(self) -> bool:
        """Makes this instance a candidate. Returns whether the instance leads now. Call it repeatedly."""

    def valid(self) -> bool:
        """Whether the lease still holds now, by the monotonic clock. Cheap: roles call it before every commit."""

    def release(self) -> None:
        """Steps down. The instance is no candidate until the next `acquire`. Idempotent; never blocks, never raises."""

    def standing(self) -> Standing:
        """The status of this candidate. Cheap, never raises."""

    def close(self) -> None:
        """Ends threads and connections for good. Idempotent; returns within a moment, never raises."""

"""The candidacy of one instance of a role: when it may take over, why it leads, when it releases the lead.

A candidate with a valid lease takes a new epoch right after a fence, without a new election. A candidate that cannot take
over lets another try. Only the role's thread changes this object; other threads may read it (`leaderless`).
"""

from __future__ import annotations

from ledger.errors import Fenced
from ledger.ports import Clock, Leadership

HEALTHY_S = 10.0  # a term that lasted this long resets the count of failures
FENCED_MAX = 3  # take-overs and short terms in a row that may end by a fence before another candidate may try
RETRY_S = 0.5  # backoff before the second of them; doubled each time
AWAY_S = 2.0  # no candidate for so long after releasing the lead, so that another can take it


class Candidacy:
    """The candidacy of one instance of a role: it gains, keeps and loses leadership.

    epoch: of the term, 0 = the instance does not lead. terms: number of terms so far. waits_for: why the instance does
    not lead although it could hold the lock, "" = no such reason. since: when it last began or ceased to lead, in
    seconds since the epoch. forced: lead one term without the lock (decision 5).
    """

    def __init__(self, leadership: Leadership, clock: Clock, *, forced: bool = False) -> None:
        self._leadership, self._clock, self._forced = leadership, clock, forced
        self.epoch = self.terms = 0
        self.waits_for = ""
        self.since = clock.time()
        self._trying = False
        self._kept_after = ""
        self._failures = 0
        self._began_at = 0.0
        self._again_at = clock.monotonic()

    def may_lead(self) -> bool:
        """Whether the instance may take over now. Call it repeatedly; it never blocks."""
        if self._clock.monotonic() < self._again_at:
            return False
        held = self._leadership.valid()
        if not self._leadership.acquire():
            self._kept_after = self.waits_for = ""
            return False
        if not held:
            self._kept_after = ""
        self._trying, self.waits_for = True, "its take-over"
        return True

    def reason(self) -> str:
        """Why this instance leads, for people who read its claim."""
        if self._kept_after:
            return f"the same leader after: {self._kept_after}"[:1000]
        return self._leadership.standing().because or "elected"

    def require_lease(self, doing: str) -> None:
        """Checks that the lease is still valid. doing: what the lease was needed for, for the error. Raises: Fenced if
        it has ended."""
        if not self._leadership.valid():
            raise Fenced(f"the lease ended while {doing}")

    def became_leader(self, epoch: int) -> None:
        """Records that this instance has taken over. epoch: the one that it claimed."""
        self.epoch, self.terms, self.waits_for, self._trying = epoch, self.terms + 1, "", False
        self.since, self._began_at = self._clock.time(), self._clock.monotonic()

    def step_down(self, error: Exception) -> None:
        """Ends a term or a failed take-over. Keeps a valid lease for another take-over. Releases the lease if another
        take-over is useless, because the log cannot be reached or fences repeat. Never blocks."""
        now, led, tried = self._clock.monotonic(), self.epoch > 0, self._trying
        self._stop_leading()
        if not (led or tried or (self._leadership.valid() and not self._forced)):
            return  # a standby: only reading failed
        self._failures = 1 if led and now - self._began_at >= HEALTHY_S else self._failures + 1
        useless = self._failures > FENCED_MAX or not (led or isinstance(error, Fenced))
        if self._leadership.valid() and not (useless or self._forced):
            self._kept_after = str(error)
            self._wait(0.0 if self._failures == 1 else RETRY_S * 2 ** (self._failures - 2), error)
            return
        if useless:
            self._wait(AWAY_S, error)
        self._release()

    def ends(self) -> None:
        """Ends the candidacy when the process stops, so that another instance can lead at once."""
        self._stop_leading()
        self._release()

    def _stop_leading(self) -> None:
        if self.epoch:
            self.since = self._clock.time()
        self.epoch, self.waits_for, self._trying = 0, "", False

    def _release(self) -> None:
        self._forced, self._kept_after, self._failures = False, "", 0
        self._leadership.release()

    def _wait(self, seconds: float, error: Exception) -> None:
        self._again_at = self._clock.monotonic() + seconds
        self.waits_for = f"its next try, after: {error}"

"""Leadership in memory: instances in one process share an election."""

from __future__ import annotations

from ledger.ports import Standing


class MemoryElection:
    """An election with at most one leader. `end_lease` ends the leader's lease, as the expiry of a session does."""

    def __init__(self) -> None:
        self.holder: MemoryLeadership | None = None

    def end_lease(self) -> None:
        self.holder = None


class MemoryLeadership:
    """A candidate of a MemoryElection. Implements `ports.Leadership`."""

    def __init__(self, election: MemoryElection, *, who: str = "") -> None:
        self._election, self._who = election, who

    def acquire(self) -> bool:
        if self._election.holder is None:
            self._election.holder = self
        return self.valid()

    def valid(self) -> bool:
        return self._election.holder is self

    def release(self) -> None:
        if self._election.holder is self:
            self._election.holder = None

    def standing(self) -> Standing:
        holder = self._election.holder
        leader = "" if holder is None else holder._who or "another"
        return Standing(self.valid(), None, leader, "" if self.valid() else f"the lock, which {leader or 'nobody'} holds")

    def close(self) -> None:
        self.release()

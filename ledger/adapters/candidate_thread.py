"""The candidate of an election that servers decide, as a role sees it. ZooKeeper and Kafka share this code.

A role must never wait for a server. So the role states a request and reads a lease, and a thread of the candidate talks
to the server. The strategy is the part that differs: a node in ZooKeeper, or a membership in a consumer group of Kafka.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import NamedTuple

from ledger.ports import Clock, Standing

RETRY_S = 1.0  # the pause after a step that failed
CLOSE_S = 1.0  # how long `close` waits for the thread


class LeaseRequest(NamedTuple):
    """The request of a role to its candidate. wanted: whether the role wants to lead. term: rises with each release, so
    that no proof from before a release counts afterwards."""

    wanted: bool = False
    term: int = 0


class Lease(NamedTuple):
    """The right to lead. term: the term of the request that the lease answers. until: when the lease ends unless
    renewed (monotonic, seconds). since: when the leader began to lead, in seconds since the epoch."""

    term: int
    until: float
    since: float


class ElectionNotes(NamedTuple):
    """The state of the election, for people. leader: the leader's name, "" = unknown. waits_for, because: as in
    `ports.Standing`."""

    leader: str = ""
    waits_for: str = "its first look at the candidates"
    because: str = ""


class ElectionStrategy(ABC):
    """How a candidate takes part in one kind of election.

    Only the candidate's thread calls the methods, except `wake` and `outlook`. The role's thread reads the attributes.
    Each attribute is one value that is replaced as a whole, so no thread waits for a lock.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.notes = ElectionNotes()
        self.woken = threading.Event()

    def wake(self) -> None:
        """Starts the next step at once. Any thread may call this method."""
        self.woken.set()

    @abstractmethod
    def step(self, request: LeaseRequest) -> float:
        """Compares the election with the request, acts, and sets `lease` and `notes`. Returns the pause before the next
        step, in seconds; `wake` cuts it short. May raise anything: `recover` follows."""

    @abstractmethod
    def recover(self, error: Exception) -> None:
        """Drops the connection and the lease after a step that failed, and logs the error. Called while `error` is
        handled."""

    @abstractmethod
    def outlook(self, request: LeaseRequest) -> ElectionNotes:
        """The notes as of now, for a candidate without a lease. Called on the role's thread."""

    @property
    @abstractmethod
    def has_left(self) -> bool:
        """Whether no further step is needed before `end`."""

    @abstractmethod
    def end(self) -> None:
        """Gives up the lease, and ends connections. Called once, after the last step."""


class CandidateThread:
    """Implements `ports.Leadership` by a strategy and a thread. The thread starts with the first `acquire`.

    A forked child does not have the thread, so no code in the child holds the lease."""

    def __init__(self, strategy: ElectionStrategy, name: str, who: str, clock: Clock) -> None:
        """name: of the thread. who: the candidate's name, for people."""
        self._strategy, self._who, self._clock, self._pid = strategy, who, clock, os.getpid()
        self._request, self._closing = LeaseRequest(), False
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self._started = False

    # -- the role's thread ---------------------------------------------------------------------------------------------

    def acquire(self) -> bool:
        if self._closing or os.getpid() != self._pid:
            return False
        if not self._request.wanted:
            self._request = LeaseRequest(True, self._request.term)
            self._strategy.wake()
        if not self._started:
            self._started = True
            self._thread.start()
        return self.valid()

    def valid(self) -> bool:
        return self._valid_lease() is not None

    def release(self) -> None:
        if self._request.wanted:
            # From here on no answer to an earlier renewal can make this candidate lead again.
            self._request = LeaseRequest(False, self._request.term + 1)
            self._strategy.wake()

    def standing(self) -> Standing:
        lease, because = self._valid_lease(), self._strategy.notes.because
        if lease is not None:
            return Standing(True, max(0.0, lease.until - self._clock.monotonic()), self._who, "", because)
        notes = self._strategy.outlook(self._request)
        waits_for = notes.waits_for if self._request.wanted else "nothing: it is no candidate now"
        return Standing(False, None, notes.leader, waits_for, because)

    def close(self) -> None:
        if self._closing:
            return
        self.release()
        self._closing = True
        self._strategy.wake()
        if self._started and os.getpid() == self._pid:
            self._thread.join(CLOSE_S)

    def _valid_lease(self) -> Lease | None:
        lease, request = self._strategy.lease, self._request
        if lease is None or not request.wanted or lease.term != request.term or os.getpid() != self._pid:
            return None
        return lease if self._clock.monotonic() < lease.until else None

    # -- the candidate's thread ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps until `close`. A step that fails ends a connection, never the thread."""
        while not (self._closing and self._strategy.has_left):
            self._strategy.woken.clear()
            self._strategy.woken.wait(self.step())
        self._strategy.end()

    def step(self) -> float:
        """One step of the strategy. Returns the pause before the next one, in seconds."""
        try:
            return self._strategy.step(self._request)
        except Exception as error:
            self._strategy.recover(error)
            return 0.0 if self._closing else RETRY_S

"""Candidates on a real ensemble, for the tests of leadership by ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from kazoo.client import KazooClient

from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from tests.support import waiting
from tests.support.waiting import seconds_until

T = 5.0
LEASE = T * 2 / 3
PATIENCE_S = 100.0
LONG = 2 * T
"""The default session timeout, and the longest that these servers grant: a long lease leaves slack on a busy machine."""


def always(condition: Callable[[], object], for_s: float) -> None:
    ended_s = ends_after_s(condition, for_s)
    assert ended_s is None, f"after {ended_s:.2f} s"


def ends_after_s(condition: Callable[[], object], for_s: float) -> float | None:
    """The time after which the condition failed; None if it held all the time."""
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < for_s:
        if not condition():
            return passed_s
        time.sleep(0.01)
    return None


def leads_on(leader: ZooKeeperLeadership, for_s: float) -> None:
    """Checks that the leader leads for so long. If not, the machine may have been too slow, so the test is repeated."""
    ended_s = ends_after_s(leader.valid, for_s)
    waiting.in_time(ended_s is None, f"the renewals came too late: the lease ended after {ended_s} s")


class World:
    def __init__(self, settings: ZooKeeperSettings, stack: ExitStack) -> None:
        self.settings, self.path, self._stack = settings, settings.candidates("", "projector"), stack

    def candidate(self, who: str) -> ZooKeeperLeadership:
        made = ZooKeeperLeadership(self.settings, self.path, who=who)
        self._stack.callback(made.close)
        return made

    def leader(self, who: str = "anna") -> ZooKeeperLeadership:
        made = self.candidate(who)
        seconds_until(made.acquire, 30)
        return made

    def standby(self, who: str = "bert") -> ZooKeeperLeadership:
        made = self.candidate(who)
        made.acquire()
        seconds_until(lambda: made.standing().leader, 30)
        return made

    def lasting(self) -> World:
        """The same candidates with sessions so long that a leader stays leader."""
        return World(replace(self.settings, session_timeout_s=LONG), self._stack)

    def client(self) -> KazooClient:
        made = KazooClient(self.settings.hosts, timeout=T)
        made.start(30)
        self._stack.callback(made.close)
        self._stack.callback(made.stop)
        return made


def port_of(leadership: ZooKeeperLeadership) -> int:
    """The port of the member that the candidate is connected to."""
    link = leadership._strategy._link
    assert link is not None
    return int(link.server.rpartition(":")[2])


def node_of(leadership: ZooKeeperLeadership) -> str:
    return leadership._strategy._node

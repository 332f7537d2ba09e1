"""A candidate that loses its lease during a take-over writes nothing more. A superseded leader gives no more orders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.core.model.facts import IntentKind
from ledger.core.model.registers import parse_claim
from ledger.ports import Event
from ledger.roles.projector.projector import Projector
from tests.support.roles.cluster import VERBS, Cluster
from tests.support.roles.world import EVENTS, RECOVERY, PlainRejects

ROLES = ("projector", "reconciler")
TOPIC = {"projector": RECOVERY, "reconciler": EVENTS}


class Watched:
    """The log for one instance. After each call to a reader or writer, `then` is called with the name of the call."""

    def __init__(self, log: Any, then: Callable[[str], None]) -> None:
        self._log, self._then = log, then

    def reader(self, *given: Any) -> Any:
        return _Told(self._log.reader(*given), self._then)

    def writer(self, *given: Any) -> Any:
        return _Told(self._log.writer(*given), self._then)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _Told:
    def __init__(self, of: Any, then: Callable[[str], None]) -> None:
        self._of, self._then = of, then

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            answer = getattr(self._of, name)(*given)
            self._then(name)
            return answer

        return call


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    cluster.go(4)
    return cluster


def candidate(cluster: Cluster, role: str, then: Callable[[str], None]) -> Any:
    """A candidate that takes over in its next step. then: is called with the name of each call to the log, from `init`
    on."""
    heard: list[str] = []

    def told(name: str) -> None:
        heard.append(name)
        if "init" in heard:
            then(name)

    if role == "reconciler":
        return cluster.new_reconciler(wrap=lambda log: Watched(log, told))
    cluster.elections[role].holder = None
    parts = cluster.parts(role, "p2", wrap=lambda log: Watched(log, told))
    return Projector(parts, PlainRejects(), cluster.settings)


def ends(cluster: Cluster) -> Any:
    return cluster.log.reader([EVENTS, RECOVERY]).high_watermarks()


def claims(cluster: Cluster, role: str) -> set[int]:
    keys = [parse_claim(key) for key in cluster.values(TOPIC[role])]
    return {claim[1] for claim in keys if claim is not None and claim[0] == role}


@pytest.mark.parametrize("role", ROLES)
def test_who_loses_the_lease_while_it_fences_its_predecessor_writes_nothing(cluster: Cluster, role: str) -> None:
    def then(name: str) -> None:
        if name == "init":
            cluster.elections[role].holder = object()

    before = ends(cluster)
    one = candidate(cluster, role, then)
    one.step()
    assert one.epoch == 0 and ends(cluster) == before


@pytest.mark.parametrize("role", ROLES)
def test_who_loses_the_lease_while_the_log_does_not_come_to_its_end_gives_up(cluster: Cluster, role: str) -> None:
    """A foreign transaction stays open. A candidate that did not check its lease would keep reading for as long."""
    transaction = cluster.log.begin("foreign", cluster.log.init("foreign"), 1e9)
    cluster.log.produce(transaction, Event(EVENTS, 0, b"x", b"x"))
    polls = []

    def then(name: str) -> None:
        if name == "poll":
            cluster.elections[role].holder = object()
            polls.append(name)
            assert len(polls) < 20, "the candidate keeps reading"

    one = candidate(cluster, role, then)
    one.step()
    assert one.epoch == 0 and claims(cluster, role) == {1}


@pytest.mark.parametrize("role", ROLES)
def test_who_loses_the_lease_when_all_is_read_claims_nothing(cluster: Cluster, role: str) -> None:
    def then(name: str) -> None:
        if name == "poll":
            cluster.elections[role].holder = object()

    one = candidate(cluster, role, then)
    one.step()
    assert one.epoch == 0 and claims(cluster, role) == {1}


@pytest.mark.parametrize("role", ROLES)
def test_who_keeps_the_lease_all_the_way_leads(cluster: Cluster, role: str) -> None:
    one = candidate(cluster, role, lambda name: None)
    one.step()
    assert one.epoch == 2 and claims(cluster, role) == {1, 2}


def test_a_reconciler_that_was_replaced_orders_nothing_though_its_lease_lies(cluster: Cluster) -> None:
    """An order to a runner needs no write to the log, so no fence can prevent it."""
    cluster.job("job")
    cluster.go()
    old = cluster.r
    old._parts.leadership.force = True
    cluster.r = cluster.new_reconciler()
    cluster.step("reconciler")
    assert (old.epoch, cluster.r.epoch) == (1, 2)
    cluster.intend("job", IntentKind.SUSPEND)
    cluster.step("projector", 3)
    cluster.hold(*VERBS)
    old.step()
    assert old.epoch == 0 and cluster.waiting() == []

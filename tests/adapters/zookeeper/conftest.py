"""Three ensemble members for the tests of this folder, and candidates that are closed at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from tests.adapters.zookeeper.world import T, World
from tests.support.servers import READY_S
from tests.support.waiting import seconds_until
from tests.support.zookeepers import Zookeepers

SERVING = ["follower", "follower", "leader"]


@pytest.fixture(scope="session")
def zookeepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeepers]:
    with Zookeepers.open(tmp_path_factory.mktemp("zookeepers")) as running:
        yield running


@pytest.fixture
def settings(zookeepers: Zookeepers) -> ZooKeeperSettings:
    zookeepers.start()
    # A member that the previous test stopped still reports its old mode for a moment.
    seconds_until(lambda: sorted(m.mode() or "" for m in zookeepers.members.values()) == SERVING, READY_S)
    return ZooKeeperSettings(hosts=zookeepers.hosts, chroot=f"/t{uuid.uuid4().hex[:8]}/x", session_timeout_s=T)


@pytest.fixture
def world(settings: ZooKeeperSettings) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(settings, stack)


@pytest.fixture
def lasting(world: World) -> World:
    return world.lasting()

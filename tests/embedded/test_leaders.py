"""When a role counts as led by an instance of this host. `up` then reports that it is ready."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.clock import SystemClock
from ledger.adapters.local.leadership import FileLockLeadership, holder
from ledger.config.config import load_config
from ledger.config.settings import TopicsSection
from ledger.embedded.leaders import Leaders, leader_on_host
from ledger.reader.presence import Presence
from ledger.reader.reading import Source
from ledger.util.identity import instance
from tests.support.roles.world import World

TOPICS = TopicsSection()


class Host:
    """A ledger whose projector is this process, elected by a file lock."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.source = Source(self.world.log, TOPICS, avro, cloudevents, self.world.clock)
        self.folder = folder

    def lock(self, role: str) -> Path:
        return self.folder / f"leader-{role}.lock"

    def leaders(self, fresh: Callable[[int], bool] = lambda pid: False) -> Leaders:
        return Leaders(self.source, self.leader, fresh)

    def leader(self, role: str) -> int | None:
        held = holder(self.lock(role))
        return None if held is None else held.pid

    def claim(self, name: str = "") -> None:
        """Writes a projector's claim of the next epoch, without regard to the lock."""
        projector = self.world.projector(name or instance("projector"))
        self.world.elections["projector"].holder = None
        while not projector.epoch:
            projector.step()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_lock_without_an_epoch_is_no_leader(host: Host) -> None:
    leaders = host.leaders()
    assert not leaders.led("projector")
    lock = FileLockLeadership(host.lock("projector"))
    lock.acquire()
    assert not leaders.led("projector")
    host.claim()
    assert leaders.led("projector")
    assert not leaders.led("reconciler")
    lock.release()
    assert not leaders.led("projector")
    leaders.close()


def test_the_claim_of_another_is_not_that_of_who_holds_the_lock(host: Host) -> None:
    leaders = host.leaders()
    FileLockLeadership(host.lock("projector")).acquire()
    host.claim(instance("projector", pid=1))
    assert not leaders.led("projector")
    host.claim()
    assert leaders.led("projector")
    host.claim(instance("projector", pid=1))
    assert not leaders.led("projector")


def test_a_leader_that_was_adopted_counts_and_one_whose_pid_was_used_before_does_not(host: Host) -> None:
    """In containers the same program gets the same pid at every start."""
    FileLockLeadership(host.lock("projector")).acquire()
    host.claim()
    assert host.leaders().led("projector")
    leaders = host.leaders(fresh=lambda pid: pid == os.getpid())
    assert not leaders.led("projector")
    host.claim()
    assert leaders.led("projector")


@pytest.mark.parametrize("adapter", ["file", "kafka", "zookeeper"])
def test_the_leader_on_this_host_is_known_whoever_elects(adapter: str, tmp_path: Path) -> None:
    """An instance that holds the lock and has claimed its epoch leads only after its take-over is done. A reconciler on
    Spark may need half a minute more for that."""
    config = load_config(tmp_path, leadership={"adapter": adapter})
    lock = FileLockLeadership(config.leader_lock("projector"))
    assert lock.acquire()
    said = {"role": "projector", "who": "p", "leads": False}
    presence = Presence(config.candidates_folder / "projector-p.json", lambda: dict(said), SystemClock())
    for leads in (False, True, False):
        said["leads"] = leads
        presence.step()
        assert leader_on_host(config, "projector") == (os.getpid() if leads else None)
        assert leader_on_host(config, "reconciler") is None


def test_where_a_lock_elects_its_holder_leads_and_nobody_else(tmp_path: Path) -> None:
    config = load_config(tmp_path)
    said = {"role": "projector", "who": "p", "leads": True}
    Presence(config.candidates_folder / "projector-p.json", lambda: said, SystemClock()).step()
    assert leader_on_host(config, "projector") is None

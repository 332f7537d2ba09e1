"""Leaders that lose ZooKeeper, Kafka or their session, or are paused, on real servers. By a full copy of the topics, each
epoch has one effective writer, and the projection is exact.

For comparison: Flink 2.3 (ZooKeeper HA) gives up the lead at each lost connection and restarts every job. Its stored
references carry no epoch, so only version checks in ZooKeeper protect against the writes of a stale leader.

Each ledger here has its own topics and elections on the same servers. The same functions must detect removed guards
(`tests.support.mutants`). Here these are: the lease that counts from the suspension, the late init that is not re-checked,
and the read-committed end. `test_written_over.py` covers the filters of readers, the claim keys and missing
re-publication. The simulation (`tests/simulation/test_caught.py`) covers the producer that is kept after an indefinite
error.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.cluster import Cluster, Node
from tests.cluster.network import KAFKA, ZK
from tests.cluster.node import state
from tests.scenarios.stage import Ledger, expire, ledger, written_since
from tests.simulation.copies import Leased
from tests.support.load import Load
from tests.support.waiting import in_time

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.timeout(900)]

SESSION_S = 2.0
#: The maximum time between a check of the lease and the append time of a record that was sent after it.
UNDER_WAY_S = 2.0
#: On an idle machine it takes two seconds.
LEADER_AGAIN_S = 10.0


def two_projectors(it: Ledger, mutant: str = "") -> tuple[Node, Node]:
    """(the leading projector, a standby)."""
    it.projector(mutant=mutant)
    it.projector(mutant=mutant)
    leader = it.leading()
    it.until(lambda: len(it.line()) == 2, "both are candidates")
    return leader, next(node for node in it.nodes.values() if node is not leader)


def go_on(it: Ledger, load: Load) -> None:
    before = len(load.told)
    it.until(lambda: len(load.told) > before + 20, "events go on")


# -- after each kind of trouble ----------------------------------------------------------------------------------------


def cut_from_kafka(it: Ledger, leader: Node) -> None:
    """The leader can neither read nor write, but holds a valid lease. It must step down by itself."""
    epoch = it.epoch()
    leader.cut(KAFKA)
    it.leading(after=epoch, timeout_s=120)
    leader.heal(KAFKA)


def cut_from_both(it: Ledger, leader: Node) -> None:
    epoch = it.epoch()
    leader.cut()
    it.leading(after=epoch)
    leader.heal()


def stopped(it: Ledger, leader: Node) -> None:
    """The leader is paused for three session timeouts, as on a paused machine, and continues in the middle of its work."""
    epoch, began = it.epoch(), time.monotonic()
    leader.stop()
    it.leading(after=epoch)
    time.sleep(max(0.0, began + 3 * SESSION_S - time.monotonic()))
    leader.cont()


def session_expired(it: Ledger, leader: Node) -> None:
    epoch = it.epoch()
    expire(it)
    it.leading(after=epoch)


def zookeeper_wiped(it: Ledger, leader: Node) -> None:
    """All ZooKeeper members lose their data. Only the log knows the epochs."""
    epoch = it.epoch()
    it.cluster.zookeeper.wipe()
    it.leading(after=epoch)


TROUBLES: tuple[Callable[[Ledger, Node], None], ...] = (
    cut_from_kafka, cut_from_both, stopped, session_expired, zookeeper_wiped
)  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_each_epoch_has_one_writer_and_the_projection_is_exact(
    servers: Cluster, trouble: Callable[[Ledger, Node], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with ledger(servers, trouble.__name__.replace("_", "-"), SESSION_S) as it:
        two_projectors(it)
        with it.mirror() as mirror, Load(it.config) as load:
            go_on(it, load)
            leader = it.leading()
            began = time.time()
            trouble(it, leader)
            go_on(it, load)
            it.until(lambda: len(it.line()) == 2, "both are candidates again")
            load.stop()
            wrong = it.judge(mirror, load.told)
        assert not wrong, "\n".join(wrong[:20])
        assert all(node.alive() for node in it.nodes.values())
        claim = next(claim for claim in reversed(it.claims()) if claim.since > began)
    with capsys.disabled():
        print(f"\n{trouble.__name__}: epoch {claim.epoch} after {claim.since - began:.1f} s")


# -- the lease ends before another can lead ----------------------------------------------------------------------------


def cut_from_zookeeper(servers: Cluster, name: str, mutant: str = "") -> list[str]:
    """The violations by a leader that loses only ZooKeeper and could keep writing to Kafka for ever."""
    session_s = 10.0
    with ledger(servers, name, session_s) as it:
        leader = it.projector(mutant=mutant)
        it.leading()
        it.projector()
        it.until(lambda: len(it.line()) == 2, "a standby is ready")
        with it.mirror() as mirror, Load(it.config) as load:
            go_on(it, load)
            epoch = it.epoch()
            leader.cut(ZK)
            moment = time.time()
            it.leading(after=epoch)
            go_on(it, load)
            healed = time.time()
            leader.heal(ZK)
            it.until(lambda: len(it.line()) == 2, "both are candidates again")
            load.stop()
            until = moment + session_s * 2 / 3 + UNDER_WAY_S
            wrong = it.judge(mirror, load.told, [Leased("projector", f"root@{leader.name}", 0.0, until)])
            records = mirror.raw(it.config.topics.recovery)
            return wrong + written_since([one for one in records if one.time_s < healed], leader, until)


def test_a_leader_that_loses_zookeeper_alone_stops_before_another_can_lead(servers: Cluster) -> None:
    wrong = cut_from_zookeeper(servers, "cut-from-zookeeper")
    assert not wrong, "\n".join(wrong[:20])


def test_a_lease_that_counts_from_the_suspension_is_seen(servers: Cluster) -> None:
    assert cut_from_zookeeper(servers, "suspended", "lease-from-suspension")


# -- no quorum ---------------------------------------------------------------------------------------------------------


def test_nothing_is_written_without_a_lease_and_the_first_member_that_serves_again_is_enough(
    servers: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper has no quorum for ten session timeouts. Producers go on, but nobody may publish: the previous leader can't
    know whether another one leads. Flink suspends and restarts every job here; kazoo's lock keeps its lost lock."""
    with ledger(servers, "no-quorum", SESSION_S) as it:
        two_projectors(it)
        members = servers.zookeeper
        with it.mirror() as mirror, Load(it.config, pause_s=0.2) as load:
            go_on(it, load)
            epoch, led = it.epoch(), members.leader()
            killed = [led, next(name for name in members.nodes if name != led)]
            for name in killed:
                members.nodes[name].kill()
            lost = time.time()
            time.sleep(10 * SESSION_S)
            assert len(load.told) > 30, "producers don't need the election"
            back = time.time()
            for name in killed:
                members.nodes[name].start()
            it.until(lambda: any(members.mode(name) for name in members.nodes), "a member serves again")
            serves = time.time()
            it.leading(after=epoch)
            claim = next(claim for claim in it.claims() if claim.epoch == epoch + 1)
            go_on(it, load)
            load.stop()
            members.wait()
            wrong = it.judge(mirror, load.told)
            written = mirror.raw(it.config.topics.recovery)
        lease_over = lost + SESSION_S * 2 / 3
        late = [one for one in written if lease_over + UNDER_WAY_S < one.time_s < back]
        assert not late, f"{len(late)} records after the lease was over: {late[:3]}"
        assert not wrong, "\n".join(wrong[:20])
        after_s = claim.since - serves
        in_time(after_s < LEADER_AGAIN_S, f"not within {LEADER_AGAIN_S:g} s: a leader, but in {after_s:.1f} s")
    last = max(one.time_s for one in written if one.time_s < back)
    with capsys.disabled():
        print(f"\nno quorum for {back - lost:.0f} s: the last record {last - lost:.1f} s after its loss (the lease lasts "
              f"{SESSION_S * 2 / 3:.1f} s), a leader {after_s:.2f} s after the first member served")  # fmt: skip


# -- a candidate that continues late -----------------------------------------------------------------------------------


def woken_late(servers: Cluster, name: str, mutant: str = "", pause_s: float = 1.5) -> list[str]:
    """The violations after a candidate was paused between its election and its init, for longer than its lease. It
    continues while the true leader is paused, so only its own guard keeps it from leading. pause_s: the maximum pause of
    the true leader."""
    with ledger(servers, name, 5.0) as it:
        late = it.projector(failpoint="term.elected:stop@1", mutant=mutant)
        it.until(lambda: state(late.pid) == "T", "the first candidate is elected, and paused")
        stopped_at = time.time()
        true = it.projector()
        it.leading()
        with it.mirror() as mirror, Load(it.config) as load:
            go_on(it, load)
            epoch = it.epoch()
            true.stop()
            # A separate timer, because reading the epoch may take longer than the true leader's session timeout.
            pause = threading.Timer(pause_s, true.cont)
            pause.start()
            os.kill(late.pid, signal.SIGCONT)
            while pause.is_alive() and it.epoch() == epoch:
                time.sleep(0.1)
            pause.cancel()
            pause.join()
            true.cont()
            # The candidate's init fences the true leader, which takes a new epoch at once. Nothing worse may happen.
            it.until(lambda: it.epoch() > epoch, "the true leader was fenced, and leads again")
            go_on(it, load)
            it.until(lambda: len(it.line()) == 2, "the late candidate is an ordinary candidate again")
            go_on(it, load)
            load.stop()
            wrong = it.judge(mirror, load.told, [Leased("projector", f"root@{late.name}", 0.0, stopped_at)])
            epochs = it.epoch() - epoch
            wrong += [f"the true leader was disturbed {epochs} times"] * (epochs > 1)
            return wrong + written_since(mirror.raw(it.config.topics.recovery), late, stopped_at)


def test_a_late_init_disturbs_once_and_writes_nothing(servers: Cluster) -> None:
    wrong = woken_late(servers, "woken-late")
    assert not wrong, "\n".join(wrong[:20])


def test_a_late_init_that_is_not_rechecked_is_seen(servers: Cluster) -> None:
    assert woken_late(servers, "unchecked", "late-init-not-rechecked", pause_s=60.0)


# -- an open transaction while a new leader reads ----------------------------------------------------------------------


def led_in_spite_of_an_open_transaction(servers: Cluster, name: str, mutant: str = "", wait_s: float = 3.0) -> bool:
    """Whether a new leader claims although acknowledged events are above the last stable offset, where it can't read yet.
    The recovery set that it publishes would then lack acknowledged jobs."""
    with ledger(servers, name, SESSION_S) as it:
        leader, other = two_projectors(it, mutant)
        client = {**it.config.client(), "transactional.id": f"{it.name}-another", "transaction.timeout.ms": 600_000}
        writer = Producer(client)
        writer.init_transactions(30)
        writer.begin_transaction()
        for partition in range(1, 4):  # partition 0 stays readable for the claims
            writer.produce(it.config.topics.events, None, b"~noop", partition)
        assert writer.flush(30) == 0
        with Load(it.config) as load:
            go_on(it, load)
        epoch = it.epoch()
        leader.kill()
        it.until(lambda: it.holder() is other, "the standby holds the lock")
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and it.epoch() == epoch:
            time.sleep(0.2)
        led = it.epoch() > epoch
        writer.abort_transaction(30)
        it.leading(after=epoch)
        return led


def test_a_new_leader_waits_until_it_has_read_all_that_was_acknowledged(servers: Cluster) -> None:
    assert not led_in_spite_of_an_open_transaction(servers, "open-transaction")


def test_a_leader_that_takes_the_stable_end_for_the_end_is_seen(servers: Cluster) -> None:
    assert led_in_spite_of_an_open_transaction(servers, "stable-end", "read-committed-end", wait_s=60.0)

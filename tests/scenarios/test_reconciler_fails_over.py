"""The leading reconciler is killed, paused, cut off or resumed late, with both elections, while jobs start and end.

Each time, no attempt starts twice, no finished job comes back, and every acknowledged job ends. An epoch has one writer,
and no record of an older epoch follows a newer claim. Flink's own test of this kills one JobManager, once.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.cluster import Cluster, Node
from tests.cluster.network import KAFKA, ZK
from tests.cluster.node import state
from tests.scenarios.failover import ROLE, FailingOver, Jobs, failing_over
from tests.scenarios.stage import expire, written_since
from tests.simulation.copies import Leased
from tests.support import repetitions

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.timeout(300)]

SESSION_S = 2.0
QUICK_S = 1.0  # for tests that do not depend on the duration of a lease
LATE_S = 3.0  # for tests where a leader pauses for a second and must keep leading
ELECTIONS = ("zookeeper", "kafka")
#: The failpoints that a reconciler reaches by itself while jobs are submitted and end.
POINTS = (
    "term.elected", "term.initialised", "start.recorded", "start.answered", "clean.unasked", "clean.answered",
    "retire.unwritten", "retire.written",
)  # fmt: skip


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three ZooKeeper members and one broker. Each test leaves them serving."""
    with Cluster.open(tmp_path_factory.mktemp("failover")) as cluster:
        short = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
        cluster.kafka.settings = {**cluster.kafka.settings, **short}
        yield cluster.start(brokers=1, topics=False)


def said(wrong: list[str]) -> str:
    return "\n".join(wrong[:20])


# -- at each failpoint -------------------------------------------------------------------------------------------------


def actions(election: str, what: str) -> dict[str, str]:
    """Failpoint -> kill or stop. what: "either" = kill and stop in turn, swapped for the other election."""
    if what != "either":
        return dict.fromkeys(POINTS, what)
    first = ELECTIONS.index(election)
    return {point: ("kill", "stop")[(number + first) % 2] for number, point in enumerate(POINTS)}


def one_after_another(it: FailingOver, actions: dict[str, str]) -> dict[str, list[Node]]:
    """Starts a reconciler for each failpoint. The leader reaches its own failpoint, and then another one leads. Returns
    action -> nodes."""
    nodes: dict[str, list[Node]] = {"kill": [], "stop": []}
    for point, action in actions.items():
        nodes[action].append(it.reconciler(failpoint=f"{point}:{action}@1"))

    def gone() -> int:
        stopped = sum(state(node.pid) == "T" for node in nodes["stop"])
        return stopped + sum(not node.alive() for node in nodes["kill"])

    for count in range(1, len(actions) + 1):
        it.until(lambda count=count: gone() >= count, f"{count} of {len(actions)} have reached their failpoints")
    return nodes


@pytest.mark.parametrize("what", ["kill", "stop"] if repetitions.DEEP else ["either"])
@pytest.mark.parametrize("election", ELECTIONS)
def test_killed_or_stopped_at_each_failpoint(servers: Cluster, election: str, what: str) -> None:
    """The paused reconcilers continue after another one has led. They are in the middle of a job's start or end, which the
    other one has completed meanwhile (Flink lost and duplicated jobs in this way in 2015)."""
    with failing_over(servers, f"{what}-{election}", QUICK_S, election) as it:
        with Jobs(it):
            nodes = one_after_another(it, actions(election, what))
            last = it.reconciler()
            it.leading(ROLE)
            it.go_on()
            for node in nodes["stop"]:
                os.kill(node.pid, signal.SIGCONT)
            it.until(lambda: it.standing_by(last, *nodes["stop"]), "all live reconcilers are candidates")
            it.go_on()
        wrong = it.wrong()
        assert all(node.process and node.process.returncode == -signal.SIGKILL for node in nodes["kill"])
        assert all(node.alive() for node in nodes["stop"])
    assert not wrong, said(wrong)


# -- after each kind of trouble ----------------------------------------------------------------------------------------

Trouble = Callable[[FailingOver, Node, str], None]


def another_leads(it: FailingOver, role: str, epoch: int) -> None:
    it.leading(role, after=epoch, timeout_s=120)


def killed(it: FailingOver, leader: Node, role: str) -> None:
    epoch = it.epoch(role)
    leader.kill()
    another_leads(it, role, epoch)
    leader.start()


def stopped(it: FailingOver, leader: Node, role: str) -> None:
    """The leader is paused for three session timeouts and continues in the middle of its work."""
    epoch, began = it.epoch(role), time.monotonic()
    leader.stop()
    another_leads(it, role, epoch)
    time.sleep(max(0.0, began + 3 * SESSION_S - time.monotonic()))
    leader.cont()


def cut_from(*networks: str) -> Trouble:
    def cut(it: FailingOver, leader: Node, role: str) -> None:
        epoch = it.epoch(role)
        leader.cut(*networks)
        another_leads(it, role, epoch)
        leader.heal(*networks)

    cut.__name__ = f"cut_from_{'_and_'.join(networks)}"
    return cut


def session_expired(it: FailingOver, leader: Node, role: str) -> None:
    epoch = it.epoch(role)
    expire(it, role)
    another_leads(it, role, epoch)


def election_wiped(it: FailingOver, leader: Node, role: str) -> None:
    """All ZooKeeper members lose their data, so only the log knows the epochs. The other role's election is lost too."""
    epoch = it.epoch(role)
    it.cluster.zookeeper.wipe()
    another_leads(it, role, epoch)


#: The troubles of a quick run. Killed and paused reconcilers are covered by the tests above. A leader that loses Kafka but
#: not its election takes half a minute to step down.
QUICK: dict[str, tuple[Trouble, ...]] = {
    "zookeeper": (cut_from(ZK), session_expired, election_wiped), "kafka": (cut_from(KAFKA),),
}  # fmt: skip
TROUBLES: dict[str, tuple[Trouble, ...]] = {
    "zookeeper": (*QUICK["zookeeper"], killed, stopped, cut_from(KAFKA), cut_from(ZK, KAFKA)),
    "kafka": (*QUICK["kafka"], killed, stopped),
}


def goes_through(it: FailingOver, troubles: Sequence[tuple[Trouble, str]]) -> list[str]:
    """The violations after these troubles of these roles, one after the other. Each trouble is healed before the next."""
    roles = dict.fromkeys(role for _, role in troubles)
    of_role = {role: [it.reconciler() if role == ROLE else it.projector() for _ in range(2)] for role in roles}
    if ROLE not in of_role:
        it.reconciler()
    with Jobs(it):
        it.go_on()
        for trouble, role in troubles:
            nodes = of_role[role]
            it.until(lambda: it.standing_by(*nodes, role=role), f"both are candidates before {trouble.__name__}")  # noqa: B023
            trouble(it, it.leading(role), role)
            it.go_on()
        for role, nodes in of_role.items():
            it.until(lambda: it.standing_by(*nodes, role=role), "both are candidates again")  # noqa: B023
    assert all(node.alive() for node in it.nodes.values())
    return it.wrong()


@pytest.mark.parametrize("election", ELECTIONS)
def test_after_each_trouble_another_goes_on(servers: Cluster, election: str) -> None:
    troubles = [(trouble, ROLE) for trouble in (TROUBLES if repetitions.DEEP else QUICK)[election]]
    if repetitions.DEEP:  # the case that no candidate of the election can notice
        troubles += [(cut_from(KAFKA), "projector")]
    with failing_over(servers, f"troubles-{election}", SESSION_S, election, projector=not repetitions.DEEP) as it:
        wrong = goes_through(it, troubles)
    assert not wrong, said(wrong)


@pytest.mark.skipif(not repetitions.DEEP, reason="make acceptance: other tests meet each trouble once")
@pytest.mark.parametrize("election", ELECTIONS)
def test_three_troubles_of_any_role_in_any_order(
    servers: Cluster, election: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random.Random(f"{repetitions.FIRST}/{request.node.name}")
    troubles = [(drawn.choice(TROUBLES[election]), drawn.choice(["projector", ROLE])) for _ in range(3)]
    with capsys.disabled():
        print(f"\n{election}: {', '.join(f'{trouble.__name__} of the {role}' for trouble, role in troubles)}")
    with failing_over(servers, f"any-{election}", SESSION_S, election, projector=False) as it:
        if all(role == ROLE for _, role in troubles):
            it.projector()
        wrong = goes_through(it, troubles)
    assert not wrong, said(wrong)


# -- a candidate that continues late -----------------------------------------------------------------------------------


def woken_late(servers: Cluster, name: str, election: str, mutant: str = "", pause_s: float = 1.0) -> list[str]:
    """The violations after a candidate was paused between its election and its init, for longer than its lease. It
    continues while the true leader is paused, so only its own guard keeps it from leading. pause_s: the maximum pause of
    the true leader."""
    with failing_over(servers, name, LATE_S, election) as it:
        late = it.reconciler(failpoint="term.elected:stop@1", mutant=mutant)
        it.until(lambda: state(late.pid) == "T", "the first candidate is elected, and paused")
        stopped_at = time.time()
        true = it.reconciler()
        it.leading(ROLE)
        with Jobs(it):
            it.go_on()
            epoch = it.epoch(ROLE)
            true.stop()
            # A separate timer, because reading the epoch may take longer than the true leader's session timeout.
            pause = threading.Timer(pause_s, true.cont)
            pause.start()
            os.kill(late.pid, signal.SIGCONT)
            while pause.is_alive() and it.epoch(ROLE) == epoch:
                time.sleep(0.1)
            pause.cancel()
            pause.join()
            true.cont()
            # The candidate's init fences the true leader, which takes a new epoch at once. Nothing worse may happen.
            it.until(lambda: it.epoch(ROLE) > epoch, "the true leader was fenced, and leads again")
            it.go_on()
            it.until(lambda: it.standing_by(late, true), "the late candidate is an ordinary candidate again")
        wrong = it.wrong([Leased(ROLE, f"root@{late.name}", 0.0, stopped_at)])
        wrong += [f"the true leader was disturbed {it.epoch(ROLE) - epoch} times"] * (it.epoch(ROLE) > epoch + 1)
        return wrong + written_since(it.events(), late, stopped_at)


@pytest.mark.parametrize("election", ELECTIONS if repetitions.DEEP else ELECTIONS[:1])
def test_a_late_init_disturbs_once_and_writes_nothing(servers: Cluster, election: str) -> None:
    wrong = woken_late(servers, f"late-{election}", election)
    assert not wrong, said(wrong)


def test_a_late_init_that_is_not_rechecked_is_seen(servers: Cluster) -> None:
    wrong = woken_late(servers, "unchecked", "zookeeper", "late-init-not-rechecked", pause_s=60.0)
    assert any("without a lease" in one for one in wrong), said(wrong)
    assert any("too late" in one for one in wrong), said(wrong)

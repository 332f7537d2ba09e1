"""The thread of a ZooKeeper candidate, step by step, on an in-memory ensemble: answers get lost, sessions end."""

from __future__ import annotations

import os

import pytest

from ledger.adapters.candidate_thread import CandidateThread
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
from ledger.adapters.zookeeper.node_strategy import NodeStrategy
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from tests.support.fake_link import PATH, FakeLink, Servers, T
from tests.support.waiting import until


class One:
    """A candidate whose thread is played by the test."""

    def __init__(self, servers: Servers, owner: str) -> None:
        self.servers = servers
        self.links: list[FakeLink] = []
        self.faults: dict[str, str] = {}
        self.takes_s: dict[str, float] = {}
        self.strategy = NodeStrategy(self._open, PATH, owner, 1, owner * 32, servers.clock)  # type: ignore[arg-type]
        self.candidate = CandidateThread(self.strategy, owner, owner, servers.clock)
        self.candidate._started = True  # no thread
        self.candidate.acquire()

    def _open(self, known: object) -> FakeLink:
        self.links.append(FakeLink(self.servers, fail=self.faults, takes_s=self.takes_s))
        return self.links[-1]

    @property
    def link(self) -> FakeLink:
        return self.links[-1]

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.candidate.step()

    @property
    def leads(self) -> bool:
        return self.candidate.valid()

    def release(self) -> None:
        self.candidate.release()

    def acquire(self) -> None:
        self.candidate.acquire()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


@pytest.fixture
def servers(clock: ManualClock) -> Servers:
    return Servers(clock)


@pytest.fixture
def anna(servers: Servers) -> One:
    return One(servers, "a")


@pytest.fixture
def bert(servers: Servers) -> One:
    return One(servers, "b")


def test_the_first_leads_the_next_when_it_is_gone(anna: One, bert: One, servers: Servers) -> None:
    anna.step()
    bert.step()
    assert (anna.leads, bert.leads) == (True, False)
    assert "candidate a (pid 1), which leads since 20" in bert.strategy.notes.waits_for
    anna.release()
    assert not anna.leads
    bert.step()
    assert not bert.leads
    anna.step()
    bert.step()
    assert (anna.leads, bert.leads) == (False, True)
    assert bert.strategy.notes.because.startswith("gone: candidate a (pid 1)")
    assert servers.line == ["b"]


def test_the_lease_counts_from_the_sending_and_ends_at_two_thirds(anna: One, clock: ManualClock) -> None:
    anna.step()
    sent = clock.monotonic()
    clock.advance(T * 2 / 3 - 0.001)
    assert anna.leads
    clock.advance(0.001)
    assert not anna.leads
    assert anna.strategy.lease is not None
    assert anna.strategy.lease.until == pytest.approx(sent + T * 2 / 3)


def test_an_answer_that_takes_long_leaves_less_of_the_lease(anna: One, clock: ManualClock) -> None:
    """The servers measure the session from the arrival of the request, which may be right after it was sent."""
    anna.takes_s["write"] = T / 5
    for _ in range(3):  # the first write, and renewals
        anna.step()
        sent = clock.monotonic() - T / 5
        assert anna.strategy.lease is not None
        assert anna.strategy.lease.until == pytest.approx(sent + T * 2 / 3)
        clock.advance(T / 10)


def test_only_a_write_that_was_answered_renews(anna: One, servers: Servers, clock: ManualClock) -> None:
    anna.step()
    until = anna.strategy.lease.until  # type: ignore[union-attr]
    clock.advance(1)
    anna.link.fail["write"] = "after"  # carried out, but the answer is lost
    anna.step()
    assert anna.strategy.lease.until == until  # type: ignore[union-attr]
    anna.link.connect()
    anna.link.asked.clear()
    anna.step()
    assert anna.link.asked[0] == "write"
    assert anna.strategy.lease.until == pytest.approx(until + 1)  # type: ignore[union-attr]


def test_a_lost_connection_ends_nothing_while_the_lease_lasts(anna: One, servers: Servers, clock: ManualClock) -> None:
    anna.step()
    node = set(servers.nodes)
    servers.up = anna.link.is_connected = False
    for _ in range(6):
        clock.advance(1)
        anna.step()
        assert anna.leads
    servers.up = True
    anna.link.connect()
    anna.step()
    assert anna.leads
    assert set(servers.nodes) == node
    assert len(anna.links) == 1


def test_a_lease_that_ended_comes_back_with_the_same_session(anna: One, servers: Servers, clock: ManualClock) -> None:
    anna.step()
    servers.up = anna.link.is_connected = False
    clock.advance(8)
    anna.step()
    assert not anna.leads
    assert "its lease ended" in anna.strategy.notes.because
    assert anna.strategy.silent_since is not None
    servers.up = True
    anna.link.connect()
    anna.step()
    assert anna.leads
    assert anna.strategy.notes.because == "its session outlived its lease"
    assert len(servers.nodes) == 1


def test_after_a_session_of_silence_a_new_one_is_begun_which_clears_away_the_old(
    anna: One, servers: Servers, clock: ManualClock
) -> None:
    anna.step()
    servers.up = anna.link.is_connected = False
    clock.advance(T + 0.1)
    anna.step()
    assert len(anna.links) == 2
    assert not anna.leads
    assert servers.line == ["a"]  # the servers have not ended the session: their clock stood still
    servers.up = True
    anna.link.connect()
    anna.step()
    assert anna.leads
    assert servers.line == ["a"]
    assert {session for _, session in servers.nodes.values()} == {anna.link.session_id}


def test_an_ended_session_ends_the_lead_at_once(anna: One, bert: One, servers: Servers, clock: ManualClock) -> None:
    anna.step()
    bert.step()
    servers.end_session(1)
    anna.link.over, anna.link.is_connected = "its session expired", False
    clock.advance(0.1)
    anna.step()
    assert not anna.leads
    bert.step()
    assert bert.leads
    assert anna.strategy.notes.because == "it lost the lead: its session expired"
    clock.advance(1)
    anna.step()
    assert servers.line == ["b", "a"]


def test_tries_to_have_a_session_are_a_second_apart(anna: One, clock: ManualClock) -> None:
    anna.step()
    for _ in range(30):
        anna.link.over, anna.link.is_connected = "its session expired", False
        clock.advance(0.1)
        anna.step()
    assert 3 <= len(anna.links) <= 5


@pytest.mark.parametrize("deleted", ["before the renewal", "before the list"])
def test_whose_node_was_deleted_leads_no_more_and_queues_again(
    anna: One, bert: One, servers: Servers, deleted: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna.step()
    bert.step()
    if deleted == "before the renewal":
        del servers.nodes[next(iter(servers.nodes))]
    else:
        write = anna.link.write

        def then_delete(path: str, data: bytes) -> None:
            write(path, data)
            servers.nodes.pop(path.rpartition("/")[2], None)
            monkeypatch.undo()

        monkeypatch.setattr(anna.link, "write", then_delete)
    anna.step()
    assert not anna.leads
    bert.step()
    assert bert.leads
    anna.step()
    assert servers.line == ["b", "a"]
    assert "its node was deleted" in anna.strategy.notes.because


# -- creates whose answer was lost -------------------------------------------------------------------------------------


def test_a_create_that_was_carried_out_without_an_answer_is_adopted(anna: One, servers: Servers) -> None:
    anna.faults = {"create": "after"}
    anna.step()
    assert servers.line == ["a"]
    anna.link.connect()
    anna.step()
    assert anna.leads
    assert anna.link.asked.count("create") == 1


def test_a_create_that_is_carried_out_late_is_deleted(anna: One, bert: One, servers: Servers) -> None:
    """The late node would be ahead of others and lead, and no candidate would know that it owns it."""
    anna.faults = {"create": "late"}
    anna.step()
    anna.link.connect()
    anna.step()
    assert anna.leads
    servers.late.pop()()
    assert servers.line == ["a", "a"]
    anna.step()
    assert servers.line == ["a"]
    assert anna.leads


def test_a_create_that_is_carried_out_after_the_release_is_deleted_too(anna: One, bert: One, servers: Servers) -> None:
    anna.faults = {"create": "late"}
    anna.step()
    anna.release()
    anna.link.connect()
    anna.step(2)
    servers.late.pop()()
    bert.step()
    assert not bert.leads
    anna.step()
    bert.step()
    assert bert.leads
    assert servers.line == ["b"]


def test_a_create_of_an_earlier_term_is_not_adopted(anna: One, bert: One, servers: Servers) -> None:
    anna.faults = {"create": "after"}
    anna.step()
    bert.step()
    anna.release()
    anna.acquire()
    anna.link.connect()
    anna.step()
    bert.step()
    assert (anna.leads, bert.leads) == (False, True)
    assert servers.line == ["b", "a"]


def test_a_node_of_an_earlier_term_does_not_lead(anna: One, bert: One, servers: Servers) -> None:
    """A candidate that releases the lead and wants it again, before its thread ran, goes behind the others."""
    anna.step()
    bert.step()
    anna.release()
    anna.acquire()
    assert not anna.leads
    anna.step()
    assert not anna.leads
    assert servers.line == ["b", "a"]


def test_a_release_while_nobody_answers_is_made_good_later(anna: One, servers: Servers, clock: ManualClock) -> None:
    anna.step()
    servers.up = anna.link.is_connected = False
    anna.release()
    anna.step()
    assert not anna.leads
    servers.up = True
    anna.link.connect()
    anna.step()
    assert servers.nodes == {}


@pytest.mark.parametrize("what", ["create", "children", "write"])
def test_who_is_refused_leaves_the_place_to_others_and_says_why(anna: One, bert: One, servers: Servers, what: str) -> None:
    anna.step()
    anna.link.refuse = what
    if what == "create":
        servers.nodes.clear()
    anna.step()
    assert not anna.leads
    assert "NoAuthError" in anna.strategy.notes.waits_for
    until(lambda: not servers.line, "its session, which is ended on a thread of its own, has ended", every_s=0.001)
    bert.step()
    assert bert.leads


def test_others_nodes_are_left_alone(anna: One, servers: Servers) -> None:
    servers.nodes = {"lock-0000000000": (b"", 9), f"{'c' * 32}-1-0000000000": (b"?", 9)}
    anna.step(3)
    assert {"lock-0000000000", f"{'c' * 32}-1-0000000000"} < set(servers.nodes)
    assert anna.strategy.notes.waits_for.startswith("candidate another process, which is a candidate since")


def test_whose_node_comes_to_stand_behind_anothers_leads_no_more(anna: One, servers: Servers, clock: ManualClock) -> None:
    """Servers may be reset to an earlier state, or nodes made by hand: the owner of the first node leads."""
    anna.step()
    assert anna.leads
    servers.nodes[f"{'b' * 32}-1-0000000000"] = (b"", 7)
    clock.advance(T / 10)
    anna.step()
    assert not anna.leads
    assert "another candidate's node is before its own" in anna.strategy.notes.because
    del servers.nodes[f"{'b' * 32}-1-0000000000"]
    anna.step()
    assert anna.leads


# -- the role's side; the test steps instead of a thread ----------------------------------------------------------------


@pytest.fixture
def role(servers: Servers, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> ZooKeeperLeadership:
    made = ZooKeeperLeadership(ZooKeeperSettings(hosts="zk1:2181"), PATH, who="a", clock=clock, owner="a" * 32)
    monkeypatch.setattr(made, "_started", True)
    monkeypatch.setattr(made._strategy, "_open_link", lambda known: FakeLink(servers))
    assert not made.acquire()
    made.step()
    assert made.valid()
    return made


def test_what_is_released_and_wanted_again_at_once_takes_a_new_place(
    role: ZooKeeperLeadership, bert: One, servers: Servers
) -> None:
    """No step runs between release and acquire: the node of the released candidacy must not lead."""
    bert.step()
    role.release()
    assert not role.acquire()
    role.step()
    bert.step()
    assert (role.valid(), bert.leads) == (False, True)
    assert servers.line == ["b", "a"]


def test_a_process_that_is_not_the_one_that_became_a_candidate_leads_nothing(
    role: ZooKeeperLeadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child does not have the candidate's thread."""
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: role._pid + 1)
        assert not role.valid() and not role.acquire()
        assert not role.standing().leads
    assert role.valid() and role.standing().leads

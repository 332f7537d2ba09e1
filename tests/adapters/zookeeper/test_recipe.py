"""The decisions in an election by ZooKeeper: by tables and histories, without a server."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.adapters.zookeeper import recipe
from ledger.adapters.zookeeper.names import ResolvedNames
from ledger.adapters.zookeeper.recipe import CandidateRecord
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from tests.support.waiting import in_time

ANNA, BERT = "a" * 32, "b" * 32


def name(owner: str, attempt: int, sequence: int) -> str:
    return f"{recipe.prefix(owner, attempt)}{sequence:010}"


# -- the first node ----------------------------------------------------------------------------------------------------


def test_who_came_first_leads_whatever_his_name_is() -> None:
    line = recipe.in_line([name(ANNA, 7, 12), name(BERT, 1, 11), name(ANNA, 8, 13)])
    assert [(node.owner, node.sequence) for node in line] == [(BERT, 11), (ANNA, 12), (ANNA, 13)]
    assert recipe.position(line, name(BERT, 1, 11)) == 0
    assert recipe.position(line, name(ANNA, 7, 12)) == 1
    assert recipe.position(line, name(ANNA, 9, 14)) is None


def test_order_is_by_number_not_by_text() -> None:
    """Beyond ten digits the servers' numbers have no leading zeros, and one day they turn negative."""
    children = [name(ANNA, 1, 9_999_999_999), name(ANNA, 2, 10_000_000_000), f"{ANNA}-3--2147483648"]
    assert [node.attempt for node in recipe.in_line(children)] == [3, 1, 2]


@pytest.mark.parametrize(
    "child", ["", "lock-0000000001", f"{ANNA}-1", f"{ANNA}-1-", f"{ANNA}-x-0000000001", "ANNA-1-0000000001", "a-1-123"]
)
def test_what_is_no_candidate_stands_in_no_line(child: str) -> None:
    assert recipe.in_line([child]) == []


NODES = st.tuples(st.sampled_from([ANNA, BERT]), st.integers(1, 5), st.integers(0, 2**31 - 1))


@given(st.lists(NODES, unique_by=lambda node: node[2]))
def test_exactly_one_is_first(nodes: list[tuple[str, int, int]]) -> None:
    line = recipe.in_line([name(*node) for node in nodes])
    assert len(line) == len(nodes)
    first = [node for node in line if recipe.position(line, node.name) == 0]
    assert len(first) == min(1, len(nodes))
    assert all(first[0].sequence <= node.sequence for node in line)


def test_a_node_whose_create_was_not_answered_is_found_by_its_try() -> None:
    line = recipe.in_line([name(ANNA, 1, 3), name(BERT, 2, 4), name(ANNA, 2, 5)])
    assert recipe.created(line, ANNA, 2) == line[2]
    assert recipe.created(line, ANNA, 3) is None


def test_orphans_are_our_own_nodes_but_the_one_that_counts_and_nobody_elses() -> None:
    line = recipe.in_line([name(ANNA, 1, 3), name(BERT, 2, 4), name(ANNA, 2, 5)])
    assert recipe.orphans(line, ANNA, line[2].name) == [line[0]]
    assert recipe.orphans(line, ANNA, None) == [line[0], line[2]]
    assert recipe.orphans(line, "c" * 32, None) == []


# -- the lease ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("session_s", "tick_s"), [(10, 2), (5, 0.5), (4, 0.5), (30, 3), (60, 2)])
def test_the_lease_ends_before_the_servers_can_end_the_session(session_s: float, tick_s: float) -> None:
    """The servers may have heard from the client last a whole interval and half a tick before the write that starts the
    lease."""
    servers_end = session_s - recipe.renew_every_s(session_s) - tick_s / 2
    assert recipe.lease_s(session_s) < servers_end


@pytest.mark.parametrize("session_s", [2, 4, 10, 60])
@pytest.mark.parametrize("members", [1, 3, 5, 9])
def test_a_silent_member_is_replaced_within_the_lease(session_s: float, members: int) -> None:
    """The renewal after the last successful one fails; then all other members are dialled, and only the last one
    answers."""
    noticed = recipe.renew_every_s(session_s) + recipe.silence_s(session_s)
    retry = 0.14
    # each member accepts the connection, then is silent
    dialled = 2 * (members - 1) * recipe.dial_timeout_s(session_s, members)
    if members == 1:
        return
    assert noticed + retry + dialled / 2 < recipe.lease_s(session_s)


def test_patience_with_slow_members_grows_but_never_beyond_a_quarter_of_the_session() -> None:
    waits = [recipe.dial_timeout_s(10, 5, fruitless) for fruitless in range(6)]
    assert waits == [0.5, 0.5, 1.0, 2.0, 2.5, 2.5]
    assert recipe.dial_timeout_s(10, 1, 50) == 2.5
    assert recipe.dial_timeout_s(10, 0) == 2.5


def test_the_old_session_is_asked_for_as_long_as_it_may_live() -> None:
    assert recipe.session_may_live(10, last_answer=100, now=110)
    assert not recipe.session_may_live(10, last_answer=100, now=110.1)


# -- candidates as people see them -------------------------------------------------------------------------------------


def test_what_is_written_is_read_again() -> None:
    for told in (
        CandidateRecord("anna@host", 12, 1.5, 2.5, "", 3.5, 6.0),
        CandidateRecord("ü", 1, 2.0, None, "candidate x", 3.0, 6.0),
    ):
        assert recipe.decode(recipe.encode(told)) == told


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b"\xff", b'{"who": 1, "pid": "x"}', b"null", b"[" * 100_000])
def test_a_node_that_cannot_be_read_has_a_candidate_all_the_same(data: bytes) -> None:
    told = recipe.decode(data)
    assert told.pid == 0
    assert recipe.candidate(told, first=True, now=0.0).who == "another process"
    assert recipe.behind(told, "noon") == "candidate another process, which is a candidate since noon"


def test_candidates_as_people_see_them() -> None:
    leader = CandidateRecord("anna@host", 12, since=1.0, led_since=2.0, renewed=100.0, lease_s=6.0)
    assert recipe.candidate(leader, first=True, now=102.0) == ("anna@host", 12, 1.0, True, "", 4.0)
    assert recipe.candidate(leader, first=True, now=200.0).lease_left_s == 0.0
    assert recipe.candidate(leader, first=True, now=0.0).lease_left_s == 6.0  # the clocks disagree
    assert not recipe.candidate(leader, first=False, now=102.0).leads
    assert recipe.candidate(CandidateRecord("b", 1, 1.0, waits_for="anna"), first=False, now=1.0) == (
        "b",
        1,
        1.0,
        False,
        "anna",
        None,
    )
    assert recipe.behind(leader, "noon") == "candidate anna@host (pid 12), which leads since noon"


# -- the members -------------------------------------------------------------------------------------------------------


def test_members_are_read_from_what_the_ensemble_says_of_itself() -> None:
    config = (
        b"server.1=zk1:2888:3888:participant;0.0.0.0:2181\n"
        b"server.2=zk2:2888:3888:participant;2182\n"
        b"server.3=zk3:2888:3888:observer;zk3.outside:2183\n"
        b"server.4=zk4a:2888:3888|zk4b:2888:3888:participant;[::]:2184\n"
        b"server.5=[fd00::5]:2888:3888:participant;[fd00::6]:2185\n"
        b"server.6=[fd00::5]:2888:3888:participant;0.0.0.0:2186\n"
        b"server.7=old:2888:3888:participant\n"
        b"version=100000003"
    )
    assert recipe.members(config) == [
        ("zk1", 2181), ("zk2", 2182), ("zk3.outside", 2183), ("zk4a", 2184), ("fd00::6", 2185), ("fd00::5", 2186),
    ]  # fmt: skip


@pytest.mark.parametrize("config", [b"", b"version=0", b"\xff\xfe", b"server.1=;", b"server.x=a:1;3", b"server.1=a:1;x"])
def test_a_list_that_names_nobody_is_empty(config: bytes) -> None:
    assert recipe.members(config) == []


def test_hosts_as_the_settings_have_them() -> None:
    assert recipe.hosts("zk1:2182, zk2,[::1]:2183,10.0.0.1") == [
        ("zk1", 2182), ("zk2", 2181), ("::1", 2183), ("10.0.0.1", 2181),
    ]  # fmt: skip
    assert recipe.host_list(recipe.hosts("zk1:2182,[::1]:2183,zk1:2182")) == "zk1:2182,[::1]:2183"


@pytest.mark.parametrize("text", ["", ",", "zk1:x", "zk1:0", "zk1:70000", "zk1:2181/chroot", "::1", "a b"])
def test_hosts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        recipe.hosts(text)


@pytest.mark.parametrize(
    ("chroot", "prefix", "path"),
    [("", "", "/leaders/projector"), ("/a/b", "x.", "/a/b/x.leaders/projector"), ("/a/", "", "/a/leaders/projector")],
)
def test_where_candidates_stand(chroot: str, prefix: str, path: str) -> None:
    assert ZooKeeperSettings(hosts="h", chroot=chroot).candidates(prefix, "projector") == path


def test_secrets_do_not_show() -> None:
    assert "geheim" not in repr(ZooKeeperSettings(hosts="h", password="geheim", tls_key_password="geheim"))


# -- names to addresses ------------------------------------------------------------------------------------------------


def test_names_are_resolved_anew_each_time_and_addresses_not_at_all() -> None:
    book = {"zk1": ["10.0.0.1"]}
    names = ResolvedNames(lambda host: book[host])
    members = [("zk1", 1), ("10.0.0.9", 2), ("zk1", 1)]
    assert names.addresses(members, 60) == [("zk1", "10.0.0.1", 1), ("10.0.0.9", "10.0.0.9", 2)]
    book["zk1"] = ["10.0.0.2", "10.0.0.3"]
    assert names.addresses([("zk1", 1)], 60) == [("zk1", "10.0.0.2", 1), ("zk1", "10.0.0.3", 1)]


def test_while_the_name_service_fails_or_is_slow_the_last_known_address_counts() -> None:
    answer = threading.Event()
    failing = False

    def resolve(host: str) -> list[str]:
        if failing and host == "zk1":
            raise OSError("nobody to ask")
        if failing:
            answer.wait(30)
        return [f"10.0.0.{host[-1]}"]

    names = ResolvedNames(resolve)
    members = [("zk1", 1), ("zk2", 1)]
    known = names.addresses(members, 60)
    failing = True
    began = time.monotonic()
    assert names.addresses([*members, ("zk3", 1)], 0.05) == known
    in_time(time.monotonic() - began < 5, "not within 5 s")
    answer.set()

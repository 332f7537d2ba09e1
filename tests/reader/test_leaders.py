"""The current leader, derived from the log, the election and the instances' own reports."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.ports import Candidate
from ledger.reader.claims import Claim
from ledger.reader.leaders import Led, led, timeline

HOST, NOW = "host-a", 1_000.0
CLAIM = Claim("projector", 7, "projector-host-a-12", 900.0, "the session of ann@host-b ended")
HOLDER = Candidate("projector-host-a-12", 12, 850.0, leads=True, lease_left_s=5.5)
WAITING = Candidate("projector-host-b-12", 12, 860.0, leads=False, waits_for="projector-host-a-12, who leads")


def said(pid: int = 12, **fields: Any) -> dict[str, Any]:
    own = {"role": "projector", "who": f"projector-host-a-{pid}", "pid": pid, "leads": True, "epoch": 7, "since": 900.0,
           "lease_left_s": None, "waits_for": "", "at": NOW}  # fmt: skip
    return own | fields


def projector(claims: list[Claim], elected: list[Candidate] | str, *own: dict[str, Any]) -> Led:
    return led("projector", claims, elected, own, HOST, NOW)


def test_who_holds_the_lock_and_has_claimed_leads() -> None:
    found = projector([CLAIM], [HOLDER, WAITING], said())
    assert found.led is True and found.why_not == "" and found.not_asked == ""
    assert (found.epoch, found.writer, found.since, found.led_s) == (7, "projector-host-a-12", 900.0, 100.0)
    assert (found.lock, found.pid, found.lease_left_s) == ("projector-host-a-12", 12, 5.5)
    first, second = found.candidates
    assert (first.holds, first.epoch, first.waits_for) == (True, 7, "")
    assert (second.holds, second.epoch, second.waits_for) == (False, None, "projector-host-a-12, who leads")


def test_a_process_of_another_host_with_the_same_pid_is_another() -> None:
    found = projector([CLAIM], [WAITING], said())
    assert [(one.who, one.epoch) for one in found.candidates] == [("projector-host-b-12", None), ("projector-host-a-12", 7)]


@pytest.mark.parametrize(
    ("claims", "elected", "why"),
    [
        ([], [], "there is no candidate"),
        ([CLAIM], [], "there is no candidate"),
        ([CLAIM], [WAITING], "projector-host-b-12 waits for projector-host-a-12, who leads"),
        ([], [HOLDER], "projector-host-a-12 holds the lock and takes over"),
        ([CLAIM._replace(writer="projector-host-b-12")], [HOLDER], "projector-host-a-12 holds the lock and takes over"),
        ([CLAIM._replace(writer="projector-host-a-1")], [HOLDER], "projector-host-a-12 holds the lock and takes over"),
    ],
)
def test_nobody_leads_and_why_is_told(claims: list[Claim], elected: list[Candidate], why: str) -> None:
    found = projector(claims, elected)
    assert found.led is False and found.why_not == why


def test_a_holder_that_takes_over_says_what_it_waits_for() -> None:
    waits_for = "ledger.events[2], which stands at 3 of 4 for 20 s"
    found = projector([], [HOLDER], said(leads=False, epoch=None, waits_for=waits_for))
    assert found.led is False
    assert found.why_not == f"projector-host-a-12 holds the lock and takes over, which waits for {waits_for}"


def test_an_election_that_did_not_answer_leaves_it_open_who_leads() -> None:
    found = projector([CLAIM], "no answer from zk1:2181 within 10 s", said(13, leads=False, epoch=None, waits_for="zk1"))
    assert found.led is None and found.why_not == ""
    assert found.not_asked == "no answer from zk1:2181 within 10 s"
    assert found.epoch == 7
    assert [(one.who, one.holds, one.waits_for) for one in found.candidates] == [("projector-host-a-13", False, "zk1")]


def test_a_file_lock_tells_of_its_holder_and_the_others_of_themselves() -> None:
    standby = said(13, leads=False, epoch=None, waits_for="the lock, held by projector-host-a-12")
    found = projector([CLAIM], [HOLDER._replace(lease_left_s=None)], said(), standby)
    assert found.led is True
    assert [(one.pid, one.holds, one.epoch) for one in found.candidates] == [(12, True, 7), (13, False, None)]
    alone = projector([CLAIM], [], standby)
    assert alone.why_not == "projector-host-a-13 waits for the lock, held by projector-host-a-12"


def test_a_lease_goes_on_running_after_it_was_told() -> None:
    found = projector([CLAIM], [HOLDER._replace(lease_left_s=None)], said(lease_left_s=5.0, at=NOW - 2.0))
    assert found.lease_left_s == 3.0
    found = projector([CLAIM], [HOLDER._replace(lease_left_s=None)], said(lease_left_s=5.0, at=NOW - 20.0))
    assert found.lease_left_s == 0.0


def test_a_lock_of_somebody_who_cannot_be_named_counts() -> None:
    found = projector([CLAIM], [Candidate("another process", 0, 0.0, leads=True)])
    assert found.led is True and found.pid is None
    assert projector([CLAIM], [Candidate("", 12, 0.0, leads=True)]).led is True
    assert projector([CLAIM], [Candidate("", 2, 0.0, leads=True)]).led is False


def test_a_candidate_of_an_older_version_signs_as_user_at_host() -> None:
    found = projector([CLAIM], [Candidate("ann@host-a", 12, 850.0, leads=True)])
    assert (found.led, found.lock) == (True, "projector-host-a-12")


def test_containers_that_share_a_folder_are_told_apart_although_their_process_numbers_are_the_same() -> None:
    elected = [Candidate("projector-1-7", 7, 0.0, leads=True), Candidate("projector-2-7", 7, 0.0, leads=False)]
    own = [said(7, who="projector-1-7", epoch=8), said(7, who="projector-2-7", epoch=None, leads=False)]
    found = led("projector", [CLAIM._replace(writer="projector-1-7")], elected, own, "agent-1", NOW)
    assert found.led is True
    assert [(one.who, one.epoch) for one in found.candidates] == [("projector-1-7", 8), ("projector-2-7", None)]


def test_a_lock_that_an_outsider_holds_is_nobodys_lead() -> None:
    why = "the lock on L, held by a process that is no role of this ledger"
    found = projector([CLAIM], [Candidate("", 0, 0.0, leads=False, waits_for=why)])
    assert (found.led, found.why_not) == (False, f"everybody waits for {why}")


def test_each_claim_stands_until_the_next() -> None:
    older = Claim("projector", 6, "w", 400.0, "elected")
    assert timeline([CLAIM, older], NOW) == [(CLAIM, 100.0), (older, 500.0)]
    assert timeline([], NOW) == []


def test_a_leader_that_reaches_another_agent_than_its_predecessor_is_told_apart() -> None:
    one, other = {"subprocess": "agent-1", "flink": "agent-9"}, {"subprocess": "agent-2"}
    before = CLAIM._replace(epoch=6, reaches=one)
    found = projector([CLAIM._replace(reaches=other), before], [])
    assert (found.reaches, found.others) == (other, {"subprocess": "agent-1"})
    assert projector([CLAIM._replace(reaches=one), before], []).others == {}
    assert projector([CLAIM, before], []).others == {}, "a leader whose agent was silent is not compared"
    assert projector([CLAIM._replace(reaches=other)], []).others == {}

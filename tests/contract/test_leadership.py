"""The contract of `ports.Leadership`: in memory, with a file lock, ZooKeeper and Kafka."""

from __future__ import annotations

import signal
import time
from math import isnan

import pytest

from ledger.adapters.forced_leadership import ForcedLeadership
from tests.support.candidates import WOKE_S, Election, Process, leading, overlaps
from tests.support.waiting import in_time, seconds_until, until

pytestmark = pytest.mark.timeout(300)

AT_ONCE_S = 0.25  # for calls that must not wait: far below every time limit, and enough for a busy machine
SOON_S = 4.0  # for calls that may be made only once: below the time that a connection waits for an answer
NOT_SOON = f"not within {SOON_S:g} s"


def took_s(call) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def quickest_s(call) -> float:
    """The shortest of three calls: a call that blocks does so each time, while a delay by the machine is unlikely to
    repeat."""
    return min(took_s(call) for _ in range(3))


# -- one leader --------------------------------------------------------------------------------------------------------


def test_nobody_leads_unasked(election: Election) -> None:
    one = election.candidate()
    assert not one.valid()
    assert not one.standing().leads


def test_one_leads_the_others_do_not(election: Election) -> None:
    one, two, three = election.leader(), election.candidate("two"), election.candidate("three")
    assert one.acquire()  # it still leads
    deadline = time.monotonic() + 1.5 * election.session_s
    while True:
        assert not two.acquire()
        assert not three.acquire()
        assert one.valid()
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)


def test_who_releases_makes_room(election: Election) -> None:
    one, two = election.leader("one"), election.candidate("two")
    two.acquire()
    one.release()
    one.release()
    assert not one.valid()
    seconds_until(two.acquire, election.moment_s, "the next one leading")
    assert not one.acquire()
    assert two.valid()


def test_who_released_may_lead_again(election: Election) -> None:
    one = election.leader("one")
    one.release()
    assert not one.valid()
    seconds_until(one.acquire, 2 * election.moment_s, "leading again")
    two = election.candidate("two")
    assert not two.acquire()


def test_releasing_what_one_does_not_hold_changes_nothing(election: Election) -> None:
    one, two, three = election.leader(), election.candidate("two"), election.candidate("three")
    two.acquire()
    two.release()
    three.release()
    assert one.valid()
    assert not two.acquire()
    assert one.valid()


def test_close_makes_room_and_may_be_called_twice(election: Election) -> None:
    one, two, never = election.leader(), election.candidate("two"), election.candidate("never")
    two.acquire()
    one.close()
    one.close()
    never.close()
    assert not one.valid()
    seconds_until(two.acquire, election.moment_s, "the next one leading")


def test_who_comes_and_goes_changes_nothing(election: Election) -> None:
    leader = election.leader("leader")
    for number in range(3):
        other, another = election.candidate(f"other{number}"), election.candidate(f"another{number}")
        for _ in range(20):
            assert not other.acquire()
            assert not another.acquire()
            assert leader.valid()
            time.sleep(0.02 if election.session_s else 0.0)
        other.release()
        another.close()
        other.close()
    leader_kept(leader, election.session_s)


# -- standings ---------------------------------------------------------------------------------------------------------


def test_a_leader_says_so(election: Election) -> None:
    one = election.leader("anna@host")
    standing = one.standing()
    assert (standing.leads, standing.leader, standing.waits_for) == (True, "anna@host", "")
    if election.session_s:
        assert standing.lease_left_s is not None
        assert 0 < standing.lease_left_s <= election.lease_s
        assert standing.because != ""
    else:
        assert standing.lease_left_s is None
    one.release()
    assert not one.standing().leads


def test_a_candidate_says_who_leads_and_what_it_waits_for(election: Election) -> None:
    election.leader("anna@host")
    two = election.candidate("bert@host")
    assert not two.acquire()
    standing = until(lambda: (seen := two.standing()).leader == "anna@host" and seen, "the leader is shown", 20)
    assert not standing.leads
    assert standing.lease_left_s is None
    assert "anna@host" in standing.waits_for


# -- forced leadership -------------------------------------------------------------------------------------------------


def test_a_forced_lead_stands_beside_the_true_one_for_one_term(election: Election) -> None:
    one = election.leader("one")
    forced = ForcedLeadership(election.candidate("forced"), who="forced")
    assert forced.acquire()
    assert forced.valid()
    assert forced.standing().leads
    assert one.valid()
    forced.release()
    assert not forced.valid()
    assert not forced.acquire()
    assert one.valid()
    one.release()
    seconds_until(forced.acquire, 2 * election.moment_s, "leading as any other")
    forced.close()
    assert not forced.valid()


# -- the server is silent ----------------------------------------------------------------------------------------------


def test_nothing_waits_for_a_server_that_is_silent(lasting: Election) -> None:
    one, two = lasting.leader("one"), lasting.candidate("two")
    two.acquire()
    with lasting.stopped():
        for call in (one.valid, one.standing, two.acquire):
            assert quickest_s(call) < AT_ONCE_S
        assert one.valid()  # silence alone ends no lease
        seconds_until(lambda: not one.valid(), lasting.session_s, "the end of the lease")
        assert "no answer" in one.standing().waits_for or "renewal" in one.standing().waits_for
        seconds_until(lambda: "no answer" in two.standing().waits_for, lasting.session_s, "saying that nothing answers")
        assert two.standing().leader == ""
        for candidate in (one, two):
            assert quickest_s(candidate.acquire) < AT_ONCE_S
            in_time(took_s(candidate.release) < SOON_S, NOT_SOON)
        in_time(took_s(one.close) < SOON_S, NOT_SOON)
    seconds_until(two.acquire, lasting.after_death_s, "a leader once the server answers")


def test_who_releases_while_the_server_is_silent_leads_no_more(leased: Election) -> None:
    one = leased.leader("one")
    with leased.stopped():
        in_time(took_s(one.release) < SOON_S, NOT_SOON)
        assert not one.valid()
    two = leased.candidate("two")
    seconds_until(two.acquire, leased.after_death_s, "the next one leading")
    assert not one.valid()


def test_a_lease_that_ended_in_silence_comes_back_to_one(leased: Election) -> None:
    """The server decides which candidate leads; never two."""
    candidates = [leased.leader("one"), leased.candidate("two"), leased.candidate("three")]
    for candidate in candidates[1:]:
        candidate.acquire()
    with leased.stopped():
        seconds_until(lambda: not candidates[0].valid(), leased.session_s, "the end of the lease")

    def led() -> bool:
        for candidate in candidates:
            candidate.acquire()
        leads = leading(candidates)
        assert leads < 2
        return leads == 1

    seconds_until(led, leased.after_death_s, "a leader once the server answers")
    deadline = time.monotonic() + leased.session_s
    while time.monotonic() < deadline:
        led()
        time.sleep(0.005)


# -- between processes -------------------------------------------------------------------------------------------------


def test_kill_9_of_the_leader_makes_room(shared: Election) -> None:
    mine = shared.candidate("mine")
    with shared.process("other") as other:
        seconds_until(lambda: other.leads, 30, "the other process leading")
        assert not mine.acquire()
        seconds_until(lambda: mine.standing().leader == "other", 10, "the leader is shown")
        other.kill()
        seconds_until(mine.acquire, shared.after_death_s, "following who was killed")


def test_a_process_that_ends_in_order_makes_room_at_once(shared: Election) -> None:
    mine = shared.candidate("mine")
    with shared.process("other") as other:
        seconds_until(lambda: other.leads, 30, "the other process leading")
        mine.acquire()
        other.signal(signal.SIGTERM)
        seconds_until(mine.acquire, shared.moment_s, "following who left")


def test_who_was_stopped_beyond_its_lease_knows_that_it_leads_no_more(lasting: Election) -> None:
    """A file lock is different: a stopped process keeps the lock, and no other process can take it."""
    mine = lasting.candidate("mine")
    with lasting.process("other") as other:
        seconds_until(lambda: other.leads, 30, "the other process leading")
        other.signal(signal.SIGSTOP)
        seconds_until(mine.acquire, lasting.after_death_s, "following who was stopped")
        assert woken(other) == {"woke stands"}
        deadline = time.monotonic() + lasting.session_s
        while time.monotonic() < deadline:
            assert mine.acquire()
            time.sleep(0.02)
        assert not other.leads


def woken(process: Process) -> set[str]:
    """Continues the process; the `woke …` words that it then prints. There are several lines if the machine also delayed
    it before the stop."""
    said = len(process.said)
    process.signal(signal.SIGCONT)
    return until(
        lambda: {word for _, word in process.said[said:] if word.startswith("woke")}, "the stopped process goes on"
    )


@pytest.mark.slow
def test_a_standby_that_is_killed_and_replaced_at_once_changes_nothing(shared: Election) -> None:
    leader = shared.leader("leader")
    with shared.process("standby") as standby, shared.process("another") as another:
        seconds_until(lambda: standby.has_said("ready") and another.has_said("ready"), 30, "the standbys being there")
        leader_kept(leader, 2.0)
        standby.kill()
        with shared.process("replacement") as replacement:
            another.signal(signal.SIGSTOP)
            seconds_until(lambda: replacement.has_said("ready"), 30, "the replacement being there")
            leader_kept(leader, 1.5 * shared.session_s)
            another.signal(signal.SIGCONT)


def leader_kept(leader, for_s: float) -> None:
    deadline = time.monotonic() + for_s
    while True:
        assert leader.valid()
        if time.monotonic() >= deadline:
            break
        time.sleep(0.005)


def test_two_processes_never_lead_at_the_same_time(leased: Election) -> None:
    """Each leader is stopped and continued, and the last one is killed. All record by one clock when they led."""
    with leased.process("one") as one, leased.process("two") as two, leased.process("three") as three:
        everyone = [one, two, three]
        leader = the_leader(everyone, 30)
        for _ in range(2):
            leader.signal(signal.SIGSTOP)
            time.sleep(1.5 * WOKE_S)  # so long that it reports the wake-up, even if it was not the leader any more
            others = [process for process in everyone if process is not leader]
            following = the_leader(others, leased.after_death_s)
            assert woken(leader) == {"woke stands"}
            leader = following
        leader.kill()
        the_leader([process for process in everyone if process is not leader], leased.after_death_s)
        spans = [span for process in everyone for span in led(process)]
    assert len(spans) >= 3
    assert overlaps(spans) == []


def the_leader(processes: list[Process], within_s: float) -> Process:
    return until(lambda: next((process for process in processes if process.leads), None), "a leader", within_s)


def led(process: Process) -> list[tuple[float, float]]:
    """The times in which a process saw that it led, by the machine's monotonic clock. The last one may still go on.

    A process that was stopped between its check and its report may report a begin after the end. Such a span is
    dropped.
    """
    spans, since = [], None
    for at, word in [*process.said, (float("nan"), "stands")]:
        if word == "leads":
            since = at
        elif since is not None:
            spans.append((since, since if isnan(at) else at))
            since = None
    return [(begin, end) for begin, end in spans if begin <= end]

"""When a leader that steps down keeps the lead, and when it lets another one try; the alarm for a missing leader."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.adapters import avro
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.leadership import MemoryElection, MemoryLeadership
from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import claim_key, parse_claim
from ledger.errors import Fenced, LedgerError, TemporaryError, Unreachable
from ledger.ports import Event, Standing
from ledger.roles.common.candidacy import AWAY_S, FENCED_MAX, HEALTHY_S, Candidacy
from ledger.roles.common.catching_up import CatchUp
from ledger.roles.common.leaderless import AGAIN_S, LeaderlessAlarm
from ledger.roles.common.role_parts import ProjectorSettings
from ledger.roles.projector.projector import Projector
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import EVENTS, RECOVERY, PlainRejects, World, run

AFTER_S = 15.0


class Candidate:
    """A Candidacy in memory, and its alarm."""

    def __init__(self, election: MemoryElection, clock: ManualClock, who: str = "p1", forced: bool = False) -> None:
        self.clock = clock
        self.leadership = MemoryLeadership(election, who=who)
        self.candidacy = Candidacy(self.leadership, clock, forced=forced)
        self.alarm = LeaderlessAlarm("projector", who, self.candidacy, self.leadership, clock, AFTER_S)

    def lead(self, epoch: int = 1) -> None:
        assert self.candidacy.may_lead()
        self.candidacy.became_leader(epoch)

    def told(self, seconds: float, looking: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        """The logs of the alarm within this many seconds."""
        with capture_logs() as logs:
            for _ in range(round(seconds)):
                self.clock.advance(1.0)
                looking()
                self.alarm.look()
        return logs


@pytest.fixture
def election() -> MemoryElection:
    return MemoryElection()


@pytest.fixture
def one(election: MemoryElection) -> Candidate:
    return Candidate(election, ManualClock())


# -- keeping and releasing the lead ------------------------------------------------------------------------------------


def test_who_holds_the_lease_leads_again_at_once_after_a_fence(one: Candidate) -> None:
    one.lead()
    one.clock.advance(HEALTHY_S)
    one.candidacy.step_down(Fenced("epoch 1 was replaced by 2"))
    assert one.leadership.valid() and one.candidacy.epoch == 0
    assert one.candidacy.may_lead()
    assert one.candidacy.reason() == "the same leader after: epoch 1 was replaced by 2"
    one.candidacy.became_leader(3)
    assert (one.candidacy.epoch, one.candidacy.terms, one.candidacy.waits_for) == (3, 2, "")


@pytest.mark.parametrize("error", [Unreachable("no answer"), TemporaryError("the stream broke"), Fenced("unknown")])
def test_a_term_ends_by_any_error_and_the_lead_is_kept(one: Candidate, error: LedgerError) -> None:
    """The next take-over finds out whether Kafka is reachable."""
    one.lead()
    one.clock.advance(HEALTHY_S)
    one.candidacy.step_down(error)
    assert one.leadership.valid() and one.candidacy.may_lead()


@pytest.mark.parametrize("error", [Unreachable("no answer from Kafka"), TemporaryError("aborted")])
def test_who_cannot_take_over_lets_another(one: Candidate, election: MemoryElection, error: LedgerError) -> None:
    two = Candidate(election, one.clock, "p2")
    assert one.candidacy.may_lead()
    one.candidacy.step_down(error)
    assert election.holder is None
    assert not one.candidacy.may_lead(), "otherwise the candidate that released the lead would win it first"
    assert str(error) in one.candidacy.waits_for
    assert two.candidacy.may_lead()
    one.clock.advance(AWAY_S)
    assert not one.candidacy.may_lead()
    two.candidacy.ends()
    assert one.candidacy.may_lead()


def test_an_ended_lease_is_nothing_to_keep(one: Candidate, election: MemoryElection) -> None:
    one.lead()
    election.end_lease()
    one.candidacy.step_down(Fenced("the lease ended while leading"))
    assert one.candidacy.may_lead()
    assert one.candidacy.reason() == "elected", "the leader was elected again"


def test_a_lease_that_ends_after_a_fence_leads_to_an_election(one: Candidate, election: MemoryElection) -> None:
    one.lead()
    one.candidacy.step_down(Fenced("replaced"))
    election.end_lease()
    assert one.candidacy.may_lead()
    assert one.candidacy.reason() == "elected"


def test_fences_in_a_row_are_no_busy_loop_and_end_with_another_leader(one: Candidate, election: MemoryElection) -> None:
    """Two leaders may fence each other in turn, or the commits of one leader may never get an answer."""
    began, tries, at = one.clock.monotonic(), 0, []
    while election.holder is one.leadership or not tries:
        if one.candidacy.may_lead():
            tries += 1
            at.append(one.clock.monotonic() - began)
            one.candidacy.step_down(Fenced("no answer in time"))
        one.clock.advance(0.05)
        assert tries < 20
    assert tries == FENCED_MAX + 1
    assert [round(b - a, 1) for a, b in pairwise(at)] == [0.1, 0.5, 1.0]
    assert not one.candidacy.may_lead()


def test_short_terms_count_as_fences_and_a_long_one_forgets_them(one: Candidate, election: MemoryElection) -> None:
    for _ in range(3 * FENCED_MAX):
        while not one.candidacy.may_lead():
            one.clock.advance(0.1)
        one.candidacy.became_leader(1)
        one.clock.advance(HEALTHY_S)
        one.candidacy.step_down(Fenced("now and then"))
        assert election.holder is one.leadership
    for _ in range(FENCED_MAX):
        one.clock.advance(2.0)
        assert one.candidacy.may_lead()
        one.candidacy.became_leader(1)
        one.candidacy.step_down(Fenced("again and again"))
    assert election.holder is None


def test_forced_leadership_lasts_one_term(election: MemoryElection) -> None:
    forced = Candidate(election, ManualClock(), forced=True)
    forced.lead()
    forced.clock.advance(HEALTHY_S)
    forced.candidacy.step_down(Fenced("replaced"))
    assert election.holder is None
    forced.lead(3)
    forced.clock.advance(HEALTHY_S)
    forced.candidacy.step_down(Fenced("replaced"))
    assert election.holder is forced.leadership, "the forced projector is now an ordinary candidate"


def test_a_standby_that_cannot_read_changes_nothing(one: Candidate, election: MemoryElection) -> None:
    two = Candidate(election, one.clock, "p2")
    two.lead()
    one.candidacy.step_down(Unreachable("no answer"))
    assert election.holder is two.leadership and one.candidacy.waits_for == ""
    two.candidacy.ends()
    assert one.candidacy.may_lead()


def test_who_kept_the_lead_and_then_cannot_even_read_gives_it_away(one: Candidate, election: MemoryElection) -> None:
    """A leader is cut off from Kafka: a commit without an answer ends its term, and the next take-over can't read."""
    one.lead()
    one.clock.advance(HEALTHY_S)
    one.candidacy.step_down(Fenced("commit: no answer in time"))
    assert election.holder is one.leadership
    one.candidacy.step_down(Unreachable("no answer"))
    assert election.holder is None and not one.candidacy.may_lead()


def test_the_election_says_why_leadership_came(one: Candidate) -> None:
    one.leadership.standing = lambda: Standing(True, because="the session of p2@b ended")  # type: ignore[method-assign]
    assert one.candidacy.may_lead()
    assert one.candidacy.reason() == "the session of p2@b ended"


# -- candidacy in the roles --------------------------------------------------------------------------------------------


def reasons(world: World, role: str, topic: str) -> list[str]:
    found = []
    for record in world.log.records(topic, 0):
        claim = parse_claim(record.key())
        if claim is not None and claim[0] == role:
            found.append(avro.decode(LeaderClaimed, record.value() or b"").reason)
    return found


def test_a_fenced_projector_keeps_the_lock_and_claims_with_the_reason() -> None:
    """A late candidate initialises the transactional id once. Epoch 1 ends, and the same instance leads again."""
    world = World()
    first, second = world.projector("p1"), world.projector("p2")
    world.submit("job-1")
    run(first, second)
    world.log.writer(f"{RECOVERY}-projector").init()
    world.submit("job-2")
    run(first, second)
    assert (first.epoch, second.epoch) == (2, 0)
    assert world.elections["projector"].holder is first._parts.leadership
    told = reasons(world, "projector", RECOVERY)
    assert told[0] == "elected"
    assert told[1].startswith("the same leader after: ") and "projector" in told[1]
    assert world.entry("job-2") is not None


def test_a_projector_that_was_forced_is_a_candidate_like_any_other_after_its_first_term() -> None:
    """Two forced projectors that both returned at once would fence each other for ever."""
    world = World()
    first, forced = world.projector("p1"), world.projector("p2", force=True)
    run(first)
    run(forced)
    assert forced.epoch == 2
    run(first, forced, steps=40)
    world.clock.advance(60)
    run(first, forced, steps=40)
    assert (first.epoch, forced.epoch) == (3, 0)


class CutOff:
    """A log as seen by a leader that is cut off from Kafka. While `cut`, transactions fail and the ends of the partitions
    are unknown."""

    def __init__(self, log: Any) -> None:
        self._log, self.cut = log, False

    def reader(self, *arguments: Any) -> Any:
        reader = self._log.reader(*arguments)
        marks = reader.high_watermarks

        def high_watermarks() -> Any:
            if self.cut:
                raise Unreachable("no answer from Kafka")
            return marks()

        reader.high_watermarks = high_watermarks
        return reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def writer(self, transactional_id: str) -> Any:
        writer = self._log.writer(transactional_id)
        init, commit = writer.init, writer.commit

        def told_apart(function: Callable[..., Any], error: LedgerError) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                if self.cut:
                    raise error
                return function(*arguments)

            return call

        writer.init = told_apart(init, Unreachable("no answer from Kafka"))
        writer.commit = told_apart(commit, Fenced("commit: no answer in time"))
        return writer


def test_a_projector_cut_off_from_kafka_alone_lets_another_lead() -> None:
    world = World()
    logs: list[CutOff] = []

    def wrap(log: Any) -> Any:
        logs.append(CutOff(log))
        return logs[-1]

    first = Projector(world.parts("projector", "p1", wrap=wrap), PlainRejects(), world.settings)
    second = world.projector("p2")
    run(first, second)
    assert (first.epoch, second.epoch) == (1, 0)
    logs[0].cut = True
    world.submit("job-1")
    run(first, second)
    assert (first.epoch, second.epoch) == (0, 2)
    assert world.entry("job-1") is not None


def test_a_reconciler_keeps_the_lock_after_a_fence_and_claims_in_its_own_name(tmp_path: Any) -> None:
    cluster = Cluster(tmp_path)
    cluster.go(6)
    holder = cluster.elections["reconciler"].holder
    cluster.log.writer(f"{EVENTS}-reconciler").init()
    cluster.job("job")
    cluster.go(12)
    assert cluster.r.epoch == 2 and cluster.elections["reconciler"].holder is holder
    assert cluster.state("job") == "RUNNING"
    told = reasons(cluster, "reconciler", EVENTS)
    assert told[0] == "elected" and told[1].startswith("the same leader after: ")
    claim = next(r for r in cluster.log.records(EVENTS, 0) if r.key() == claim_key("reconciler", 2).encode())
    assert avro.decode(LeaderClaimed, claim.value() or b"").writer == "r1"


def test_a_stream_that_does_not_close_does_not_keep_a_reconciler_from_leading_again(tmp_path: Any) -> None:
    cluster = Cluster(tmp_path)
    cluster.go(6)

    def close() -> None:
        raise TemporaryError("it did not stop")

    cluster.r._stream.close = close
    cluster.r.step_down(Fenced("test"))
    cluster.job("job")
    cluster.go(12)
    assert cluster.r.epoch == 2 and cluster.state("job") == "RUNNING"


def test_what_a_take_over_waits_for_is_told() -> None:
    """A foreign transaction is open below the high watermark until it times out."""
    world = World(ProjectorSettings(commit_interval_s=0.5))
    projector = world.projector()
    world.log.produce(world.log.begin("somebody", world.log.init("somebody"), 10.0), Event(EVENTS, 1, b"x", b"x"))
    waits, poll = list[str](), projector._reader.poll
    projector._reader.poll = lambda *given: (waits.append(projector.candidacy.waits_for), poll(*given))[1]  # type: ignore
    projector.step()
    assert projector.epoch == 1 and projector.candidacy.waits_for == ""
    assert waits[0] == "", "a standby waits for nothing"
    assert waits[1] == f"reading {EVENTS}[0], at 0 of 2", (
        "the two records are its own no-op and the end of that transaction"
    )
    assert any(f"{EVENTS}[1], which stands at 0 of 3 for 9 s: an open transaction" in told for told in waits)


def test_what_stands_still_is_told_with_its_place_and_since_when() -> None:
    clock = ManualClock()
    catch_up = CatchUp({("t", 0): 5, ("t", 1): 9}, clock)
    assert [str(b) for b in catch_up.behind({})] == ["reading t[0], at 0 of 5", "reading t[1], at 0 of 9"]
    clock.advance(3)
    assert [b.partition for b in catch_up.behind({("t", 0): 4})] == [1, 0], "the partition without progress comes first"
    clock.advance(9)
    (still,) = catch_up.behind({("t", 0): 5, ("t", 1): 0})
    assert str(still) == "t[1], which stands at 0 of 9 for 12 s: an open transaction, or a broker is away"
    assert catch_up.behind({("t", 0): 5, ("t", 1): 9}) == []


# -- the alarm ---------------------------------------------------------------------------------------------------------


def test_nobody_leads_is_an_alarm_after_the_limit_and_again_and_it_is_told_when_it_is_over(
    one: Candidate, election: MemoryElection
) -> None:
    one.lead()
    assert one.told(60) == []
    election.end_lease()
    one.candidacy.step_down(Fenced("the lease ended"))
    logs = one.told(1 + AFTER_S + AGAIN_S)
    assert [(log["event"], log["log_level"], log["seconds"]) for log in logs] == [
        ("leaderless", "error", AFTER_S), ("leaderless", "error", AFTER_S + AGAIN_S),
    ]  # fmt: skip
    assert "the lock" in logs[0]["waits_for"]
    one.lead(2)
    (log,) = one.told(100)
    assert (log["event"], log["leader"], log["leaderless_s"]) == ("led_again", "p1", AFTER_S + AGAIN_S + 1)


def test_a_short_while_without_a_leader_is_no_alarm(one: Candidate, election: MemoryElection) -> None:
    assert one.told(AFTER_S) == []
    one.lead()
    assert one.told(5) == []


def test_another_who_holds_the_lock_counts_as_leader(one: Candidate, election: MemoryElection) -> None:
    two = Candidate(election, one.clock, "p2")
    two.lead()
    assert one.told(100) == []
    two.candidacy.ends()
    assert [log["event"] for log in one.told(20)] == ["leaderless"]
    two.lead()
    assert [(log["event"], log["leader"]) for log in one.told(2)] == [("led_again", "p2")]


def test_holding_the_lock_without_coming_to_lead_is_an_alarm_that_says_what_is_waited_for(one: Candidate) -> None:
    assert one.candidacy.may_lead()
    one.candidacy.waits_for = "ledger.events[2], which stands at 3 of 4"
    (log,) = one.told(AFTER_S + 1)
    assert (log["event"], log["waits_for"]) == ("leaderless", "ledger.events[2], which stands at 3 of 4")


def test_a_lease_that_ended_unnoticed_is_no_leadership(one: Candidate, election: MemoryElection) -> None:
    """The role's thread hangs in a call, so the role has not stepped down yet."""
    one.lead()
    election.end_lease()
    assert [log["event"] for log in one.told(AFTER_S + 1)] == ["leaderless"]


def test_two_that_take_turns_in_failing_do_not_lead(one: Candidate, election: MemoryElection) -> None:
    """Each candidate holds the lock for a moment and then lets the other one try. To each, the other holds it half the
    time."""
    two = Candidate(election, one.clock, "p2")

    def fail() -> None:
        for candidate in (one, two):
            if candidate.candidacy.may_lead():
                one.alarm.look()
                candidate.candidacy.step_down(Unreachable("no answer from Kafka"))
                break

    logs = one.told(2 * AFTER_S, fail)
    assert [log["event"] for log in logs] == ["leaderless"]
    assert "no answer from Kafka" in logs[0]["waits_for"]
    one.clock.advance(AWAY_S)
    two.lead()
    assert [log["event"] for log in one.told(AFTER_S - 2)] == []
    assert one.told(4)[-1]["event"] == "led_again"


def test_what_is_told_of_an_instance(one: Candidate, election: MemoryElection) -> None:
    one.lead(4)
    assert one.alarm.look() == {
        "role": "projector", "who": "p1", "leads": True, "epoch": 4, "since": one.clock.time(), "terms": 1,
        "lease_left_s": None, "leader": "p1", "waits_for": "", "because": "", "leaderless_s": 0.0,
    }  # fmt: skip
    election.end_lease()
    one.candidacy.step_down(Fenced("the lease ended"))
    one.clock.advance(3)
    one.alarm.look()
    one.clock.advance(2)
    seen = one.alarm.look()
    assert (seen["leads"], seen["epoch"], seen["leader"], seen["leaderless_s"]) == (False, None, "", 2.0)

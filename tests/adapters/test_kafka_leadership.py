"""Leadership by Kafka, without Kafka: what group membership and a leader's heartbeats prove, and what they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ledger.adapters import candidate_thread
from ledger.adapters.kafka import heartbeats, membership
from ledger.adapters.kafka.heartbeats import Heartbeat, HeartbeatWatch, decoded
from ledger.adapters.kafka.leadership import ElectionNames, KafkaLeadership, candidates
from ledger.adapters.memory.clock import ManualClock
from ledger.errors import Unreachable
from ledger.ports import Candidate

T = 9.0
LEASE = 6.0
CLIENT = {"bootstrap.servers": "broker:9092"}


class FakeGroup:
    """A fake group coordinator. It answers only when the test orders it."""

    def __init__(self) -> None:
        self.stored: tuple[int, str] = (-1001, "")
        self.unreachable = False
        self.consumers: list[FakeConsumer] = []

    @property
    def member(self) -> FakeConsumer:
        """The consumer that joined last."""
        return [consumer for consumer in self.consumers if consumer.callbacks][-1]

    def make(self, settings: dict[str, Any], logger: object = None) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self, settings))
        return self.consumers[-1]


class FakeConsumer:
    def __init__(self, group: FakeGroup, settings: dict[str, Any]) -> None:
        self.group, self.settings = group, settings
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.sent: list[TopicPartition] = []
        self.news: list[Callable[[], None]] = []
        self.name = f"member-{len(group.consumers)}"
        self.left = False

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        self.sent += offsets

    def committed(self, places: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        if self.group.unreachable:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        offset, metadata = self.group.stored
        return [TopicPartition(places[0].topic, 0, offset, metadata)]

    def poll(self, timeout_s: float) -> None:
        news, self.news = self.news, []
        for each in news:
            each()

    def memberid(self) -> str | None:
        return None if self.left or not self.callbacks else self.name

    def unsubscribe(self) -> None:
        self.left = True

    def incremental_assign(self, places: list[TopicPartition]) -> None: ...
    def pause(self, places: list[TopicPartition]) -> None: ...
    def close(self) -> None: ...

    # -- events that the test causes -----------------------------------------------------------------------------------

    def assign(self) -> None:
        self.news.append(lambda: self.callbacks["on_assign"](self, [TopicPartition("t", 0)]))

    def tell(self, callback: str) -> None:
        self.news.append(lambda: self.callbacks[callback](self, [TopicPartition("t", 0)]))

    def answer(self, code: int | None = None) -> None:
        """Answers the oldest commit."""
        place = self.sent.pop(0)
        if code is None:
            self.group.stored = (place.offset, place.metadata)
        self.news.append(lambda: self.settings["on_commit"](KafkaError(code) if code is not None else None, [place]))


class Steps:
    """A candidate whose thread is played by the test: each `step` takes one tick."""

    def __init__(self, group: FakeGroup) -> None:
        self.group, self.clock = group, ManualClock()
        names = ElectionNames.of("", "projector")
        self.leadership = KafkaLeadership(CLIENT, names, who="me", session_timeout_s=T, clock=self.clock)
        self.leadership._started = True  # no thread
        self.strategy = self.leadership._strategy

    def step(self, times: int = 1, each_s: float = 0.05) -> None:
        for _ in range(times):
            self.clock.advance(each_s)
            self.strategy.step(self.leadership._request)

    def lead(self) -> None:
        """Joins the group, gets the partition, and receives the answer to its first renewal at once."""
        self.leadership.acquire()
        self.step(3)
        self.group.member.assign()
        self.step(2)
        self.group.member.answer()
        self.step()
        assert self.leadership.valid()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> FakeGroup:
    made = FakeGroup()
    for module in (membership, heartbeats):
        monkeypatch.setattr(module, "Consumer", made.make)
    return made


@pytest.fixture
def me(group: FakeGroup) -> Steps:
    return Steps(group)


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_to_be_assigned_the_partition_is_not_to_lead(me: Steps, group: FakeGroup) -> None:
    me.leadership.acquire()
    me.step(3)
    group.member.assign()
    me.step(5)
    assert len(group.member.sent) == 1
    assert not me.leadership.valid()
    assert "renewals" in me.leadership.standing().waits_for
    group.member.answer()
    me.step()
    assert me.leadership.valid()


def test_the_lease_counts_from_the_sending_of_what_was_answered(me: Steps, group: FakeGroup) -> None:
    me.lead()
    me.step(each_s=T / 10)
    sent_at = me.clock.monotonic()
    assert len(group.member.sent) == 1
    me.step(4, each_s=1.0)
    group.member.answer()
    me.step(each_s=0.0)
    assert me.leadership.standing().lease_left_s == pytest.approx(sent_at + LEASE - me.clock.monotonic())
    me.clock.advance(sent_at + LEASE - me.clock.monotonic() - 0.001)
    assert me.leadership.valid()
    me.clock.advance(0.001)
    assert not me.leadership.valid()


def test_an_answer_that_comes_after_the_lease_it_would_give_gives_none(me: Steps, group: FakeGroup) -> None:
    me.lead()
    me.step(each_s=T / 10)
    me.clock.advance(LEASE)  # as if the process was stopped and continued
    group.member.answer()
    me.step()
    assert not me.leadership.valid()
    me.step()
    group.member.answer()
    me.step()
    assert me.leadership.valid()
    assert "again" in me.leadership.standing().because


def test_one_renewal_is_under_way_at_a_time(me: Steps, group: FakeGroup) -> None:
    me.lead()
    me.step(100)
    assert len(group.member.sent) == 1
    group.member.answer()
    me.step(2)
    assert len(group.member.sent) == 1


@pytest.mark.parametrize(
    "code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD]
)
def test_a_renewal_that_says_nothing_ends_nothing_and_gives_nothing(me: Steps, group: FakeGroup, code: int) -> None:
    me.lead()
    until = me.strategy.lease.until
    me.step(each_s=T / 10)
    group.member.answer(code)
    me.step()
    assert me.leadership.valid()
    assert me.strategy.lease.until == until


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID])
def test_who_is_no_member_any_more_leads_no_more(me: Steps, group: FakeGroup, code: int) -> None:
    me.lead()
    me.step(each_s=T / 10)
    group.member.answer(code)
    me.step()
    assert not me.leadership.valid()
    assert "no longer knows" in me.leadership.standing().because


@pytest.mark.parametrize("news", ["on_revoke", "on_lost"])
def test_who_loses_the_partition_leads_no_more_and_leaves(me: Steps, group: FakeGroup, news: str) -> None:
    me.lead()
    before = group.member
    before.tell(news)
    me.step()
    assert not me.leadership.valid()
    me.step(3)
    assert before.left
    assert me.strategy._membership is None or group.member is not before


def test_an_answer_after_the_partition_is_lost_gives_no_lease(me: Steps, group: FakeGroup) -> None:
    """An empty group accepts a commit without generation. librdkafka reports the loss before that answer."""
    me.lead()
    me.step(each_s=T / 10)
    member = group.member
    member.tell("on_lost")
    member.answer()
    assert me.strategy._membership is not None
    me.strategy._membership.serve(0.0, me.clock.monotonic)
    assert not me.leadership.valid()


def test_an_answer_after_the_release_gives_no_lease(me: Steps, group: FakeGroup) -> None:
    me.lead()
    me.step(each_s=T / 10)
    group.member.answer()
    me.leadership.release()
    assert not me.leadership.valid()
    me.leadership.acquire()  # acquired again at once: it has to join anew
    me.step()
    assert not me.leadership.valid()


def test_who_releases_says_so_and_leaves(me: Steps, group: FakeGroup) -> None:
    me.lead()
    member = group.member
    me.leadership.release()
    me.step()
    sign = decoded(member.sent[-1].metadata)
    assert sign is not None
    assert sign.left
    assert member.left


# -- joining the group -------------------------------------------------------------------------------------------------


def other(at: float = 1_750_000_000.0, left: bool = False) -> str:
    return Heartbeat("member-x", "anna@host", 7, 1_749_999_000.0, at, left).encoded()


def entered(group: FakeGroup) -> bool:
    return any(consumer.callbacks for consumer in group.consumers)


def test_nobody_enters_while_another_gives_signs(me: Steps, group: FakeGroup) -> None:
    me.leadership.acquire()
    for number in range(60):
        group.stored = (number, other(me.clock.time()))
        me.step(10, each_s=0.05)
    assert not entered(group)
    standing = me.leadership.standing()
    assert standing.leader == "anna@host"
    assert "anna@host (pid 7)" in standing.waits_for


def test_who_is_silent_for_nearly_a_session_is_followed(me: Steps, group: FakeGroup) -> None:
    group.stored = (5, other(me.clock.time() + T))
    me.leadership.acquire()
    me.step(1)
    while not entered(group):
        me.step()
    assert me.clock.monotonic() == pytest.approx(0.9 * T, abs=T / 10 + 0.2)


def test_time_without_answers_is_not_the_leaders_silence(me: Steps, group: FakeGroup) -> None:
    group.stored = (5, other(me.clock.time() + T))
    me.leadership.acquire()
    me.step(3)
    group.unreachable = True
    me.step(50, each_s=1.0)
    assert "no answer" in me.leadership.standing().waits_for
    assert me.leadership.standing().leader == ""
    group.unreachable = False
    me.step(20)
    assert not entered(group)


def test_who_left_is_followed_at_once_and_so_is_a_sign_of_long_ago(me: Steps, group: FakeGroup) -> None:
    group.stored = (5, other(me.clock.time(), left=True))
    me.leadership.acquire()
    me.step(3)
    assert entered(group)
    again = FakeGroup()
    again.stored = (5, other(me.clock.time() - 4 * T))
    group.consumers, group.stored = again.consumers, again.stored
    later = Steps(group)
    later.leadership.acquire()
    later.step(4, each_s=T / 10)
    assert entered(group)


def test_what_was_seen_before_it_wanted_to_lead_is_too_old_to_enter_by(me: Steps, group: FakeGroup) -> None:
    group.stored = (5, other(left=True))
    me.step(3)
    group.stored = (6, other(me.clock.time()))
    me.leadership.acquire()
    me.step(10)
    assert not entered(group)


def test_an_empty_answer_after_signs_is_no_sign_that_nobody_leads(me: Steps, group: FakeGroup) -> None:
    group.stored = (5, other(me.clock.time()))
    me.leadership.acquire()
    me.step(3)
    group.stored = (-1001, "")
    me.step(20)
    assert not entered(group)


def test_who_lost_the_race_leaves(me: Steps, group: FakeGroup) -> None:
    me.leadership.acquire()
    me.step(3)
    assert entered(group)
    group.stored = (1, other(me.clock.time()))
    me.step(3, each_s=T / 10)
    assert group.member.left


# -- output for people, and settings -----------------------------------------------------------------------------------


def test_signs_are_read_back_and_anything_else_is_none() -> None:
    sign = Heartbeat("m", "anna@host", 7, 1.5, 2.5)
    assert decoded(sign.encoded()) == sign
    assert len(sign._replace(who="x" * 9999).encoded()) < 1000
    for scribble in (None, "", "x", "[]", "{}", "1", '{"member": 1}'):
        assert decoded(scribble) is None


def test_who_leads_is_listed_as_long_as_it_gives_signs(group: FakeGroup) -> None:
    clock, names = ManualClock(), ElectionNames.of("a.", "reconciler")
    assert names == ("a.ledger.leaders", "a.ledger.leader-reconciler")
    assert candidates(CLIENT, names, clock=clock) == []
    group.stored = (5, other(clock.time()))
    [leader] = candidates(CLIENT, names, session_timeout_s=T, clock=clock)
    assert leader == Candidate("anna@host", 7, 1_749_999_000.0, True, "", LEASE)
    clock.advance(LEASE + 1)
    [silent] = candidates(CLIENT, names, session_timeout_s=T, clock=clock)
    assert not silent.leads
    assert "1 s ago" in silent.waits_for
    group.stored = (6, other(clock.time(), left=True))
    assert candidates(CLIENT, names, clock=clock) == []
    group.unreachable = True
    with pytest.raises(Unreachable, match="leader-reconciler"):
        candidates(CLIENT, names, clock=clock)


def test_the_settings_fit_the_lease() -> None:
    made = membership.settings(10.0)
    assert (made["session.timeout.ms"], made["heartbeat.interval.ms"]) == (10_000, 1_000)
    assert int(made["max.poll.interval.ms"]) >= int(made["session.timeout.ms"])
    assert made["partition.assignment.strategy"] == "cooperative-sticky"


def test_what_goes_wrong_ends_a_stay_and_not_the_thread(
    me: Steps, group: FakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: HeartbeatWatch, now: float, at_once: bool = False) -> None:
        me.leadership._closing = True
        raise RuntimeError("no memory")

    me.lead()
    me.leadership.release()
    me.step(3)
    monkeypatch.setattr(HeartbeatWatch, "look", broken)
    monkeypatch.setattr(candidate_thread, "RETRY_S", 0.0)
    me.leadership.run()
    assert "no memory" in me.strategy.notes.waits_for
    assert not me.leadership.valid()

"""Anchors in their topic: which heads are anchored, which anchors may be replaced, and which heads are never
anchored."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog

from ledger.adapters import cloudevents
from ledger.adapters.clock import SystemClock
from ledger.adapters.ed25519 import PrivateKey, PublicKeys, make
from ledger.adapters.kafka.log import KafkaLog
from ledger.adapters.kafka.sender import KafkaSender
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.memory.sender import MemorySender
from ledger.archive.anchors.anchor_topic import AnchorTopic, standing
from ledger.archive.anchors.anchoring import LISTED_EVERY, Anchoring, NotAnchored
from ledger.archive.anchors.anchors import made
from ledger.archive.format import anchor as anchors
from ledger.archive.format.anchor import Anchor, judge
from ledger.archive.format.chain import Head, head_of
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.errors import ConfigError, OutcomeUnknown, Unreachable, UsageError
from ledger.ports import Event
from tests.support.archives.given import TOPIC, an_archive, records, sealed
from tests.support.servers import create_topic

ANCHORS = "ledger.anchors"
HEAD = Head(TOPIC, 1, 7, "ab" * 32, 4711, "id é")
ids = count()


class World:
    """A topic of anchors, in memory or on a real broker. opened(): one more reader and writer of it."""

    def __init__(self, log: Any, sender: Callable[[], Any], clock: Any, topic: str) -> None:
        self.log, self.sender, self.clock, self.topic = log, sender, clock, topic
        self._opened: list[AnchorTopic] = []

    def opened(self) -> AnchorTopic:
        made = AnchorTopic(
            self.topic, self.log, self.sender, cloudevents, self.clock, actor="alice@host", writer="test",
            new_id=lambda: f"id-{next(ids)}",
        )  # fmt: skip
        self._opened.append(made)
        return made

    def append(self, key: bytes, value: bytes | None) -> None:
        """Writes a record as anybody with access could."""
        sender = self.sender()
        sender.send(Event(self.topic, 0, key, value))
        sender.close()

    def close(self) -> None:
        for one in self._opened:
            one.close()


def in_memory() -> World:
    clock = ManualClock()
    log = MemoryLog({ANCHORS: 1}, clock)
    return World(log, lambda: MemorySender(log), clock, ANCHORS)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest, prefix: str) -> Iterator[World]:
    made = in_memory() if request.param == "memory" else on_kafka(request.getfixturevalue("bootstrap"), prefix + ANCHORS)
    yield made
    made.close()


def on_kafka(bootstrap: str, topic: str) -> World:
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
    client, clock = {"bootstrap.servers": bootstrap}, SystemClock()
    return World(KafkaLog(client, clock), lambda: KafkaSender(client, clock, timeout_s=30), clock, topic)


@pytest.fixture(autouse=True)
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


# -- the topic: one suite in memory and on Kafka -----------------------------------------------------------------------


def test_what_is_written_is_read_by_others_once_with_its_headers(world: World) -> None:
    one, other = world.opened(), world.opened()
    assert other.read() == []
    signed = Anchor(HEAD._replace(partition=2), "0a" * 32, "ff" * 64)
    one.write(Anchor(HEAD))
    one.write(signed)
    first, second = other.read()
    assert (first.anchor, second.anchor) == (Anchor(HEAD), signed)
    assert (first.key, first.chain, first.where) == (b"ledger.events[1]", "ledger.events[1]", f"{world.topic}[0]@0")
    assert abs(first.time_s - world.clock.time()) < 600
    assert other.read() == []
    one.write(Anchor(HEAD))
    assert [posted.where for posted in other.read()] == [f"{world.topic}[0]@2"]
    reader = world.log.reader([world.topic])
    found: list[Any] = []
    while len(found) < 3:
        found += reader.poll(10, 0.2)
    said = dict(found[1].headers())
    assert said["ce_type"] == b"io.jobledger.ChainAnchored.v1" and said["content-type"] == b"application/json"
    assert said["ce_sequence"] == b"2" and said["ledger_actor"] == b"alice@host"
    reader.close()


def test_what_is_no_anchor_is_told_and_a_tombstone_says_who_and_why(world: World) -> None:
    one = world.opened()
    one.write(Anchor(HEAD))
    world.append(b"ledger.events[1]", b"{}")
    world.append(b"\xff", b"garbage")
    world.append(b"ledger.events[2]", anchors.encode(Anchor(HEAD)))
    found = standing(one.read())
    assert [kept.anchor.head for kept in found.kept] == [HEAD]
    assert len(found.unreadable) == 3 and "it names ledger.events[1]" in found.unreadable[2]
    for key in (b"ledger.events[1]", b"\xff"):
        one.give_up(key, "it was a drill")
    one.write(Anchor(HEAD._replace(sequence=0)))
    found = standing(world.opened().read())
    assert [kept.anchor.head.sequence for kept in found.kept] == [0]
    assert len(found.unreadable) == 1
    assert "alice@host gave up the anchors of ledger.events[1]: it was a drill" in found.given_up[0]


def test_after_no_answer_it_is_read_anew() -> None:
    world = in_memory()
    one = world.opened()
    one.write(Anchor(HEAD))
    assert len(one.read()) == 1
    world.log.up = False
    with pytest.raises(Unreachable):
        one.read()
    world.log.up = True
    assert [posted.anchor for posted in one.read()] == [Anchor(HEAD)]


def test_a_topic_that_is_not_there_is_told(world: World) -> None:
    topic = world.opened()
    topic.topic = "nowhere"
    with pytest.raises(ConfigError, match="nowhere"):
        topic.read()


# -- anchors of the archiver -------------------------------------------------------------------------------------------


class Anchored:
    def __init__(self) -> None:
        self.archive, self.store, self.heads = an_archive()
        self.world = in_memory()

    def anchoring(self, archive: Archive | None = None, signer: PrivateKey | None = None) -> Anchoring:
        archive = archive or self.archive
        return Anchoring(archive, self.world.opened(), archive.partitions, signer)

    def grow(self, partition: int = 0) -> Head:
        begin = self.archive.head(TOPIC, partition).next
        return sealed(self.archive, records(30, 9, partition, begin), each=10)[-1]

    def topic(self) -> list[Head]:
        return [kept.anchor.head for kept in standing(self.world.opened().read()).kept]


@pytest.fixture
def anchored() -> Anchored:
    return Anchored()


def test_what_has_grown_is_anchored_and_nothing_twice(anchored: Anchored) -> None:
    anchoring = anchored.anchoring()
    assert [one.head for one in anchoring.step()] == anchored.heads
    assert anchoring.step() == []
    assert anchored.anchoring().step() == []  # nor by a new instance
    grown = anchored.grow()
    assert [one.head for one in anchoring.step()] == [grown]
    assert anchored.topic() == [anchored.heads[0], grown, anchored.heads[1]]
    assert anchoring.anchored()[TOPIC, 0] == (grown.sequence, anchored.world.clock.time())


def test_an_older_anchor_written_over_a_newer_one_is_written_over_again(anchored: Anchored) -> None:
    slow, quick = anchored.anchoring(), anchored.anchoring()
    slow.step()
    grown = anchored.grow()
    quick.step()
    anchored.world.opened().write(Anchor(anchored.heads[0]))
    assert anchored.anchoring().anchored() == {}
    assert [one.head for one in quick.step()] == [grown]
    assert slow.step() == []


def test_an_archive_that_was_cut_off_at_an_older_anchor_is_found_out_though_that_was_written_last(
    anchored: Anchored,
) -> None:
    older = head_of(next(m for m in anchored.archive.manifests(TOPIC, 0) if m.sequence == 5))
    anchored.anchoring().step()
    anchored.world.opened().write(Anchor(older))
    for number in range(6, 10):
        anchored.store.delete(f"manifests/{TOPIC}/0/{number:012}.json")
    with pytest.raises(NotAnchored, match="manifest 9 was anchored, but the chain ends below it"):
        anchored.anchoring().step()


def test_a_topic_that_was_lost_and_made_anew_gets_its_anchors_again(anchored: Anchored) -> None:
    anchoring, log = anchored.anchoring(), anchored.world.log
    anchoring.step()
    log.up = False
    with pytest.raises(Unreachable):
        anchoring.step()
    del log._topics[ANCHORS]
    log.create(ANCHORS, 1)
    log.up = True
    assert [one.head for one in anchoring.step()] == anchored.heads


def test_garbage_over_an_anchor_is_told_and_written_over(anchored: Anchored, told: list[Any]) -> None:
    anchoring = anchored.anchoring()
    anchoring.step()
    anchored.world.append(b"ledger.events[0]", b"garbage")
    assert [one.head for one in anchoring.step()] == [anchored.heads[0]]
    assert [line["event"] for line in told].count("no_anchor") == 1


def forged(number: int, seed: int = 5) -> Archive:
    """Another history of the same partitions, longer or shorter."""
    archive = Archive(MemoryObjects(), "test", lambda: "2026-01-01T00:00:00Z")
    for partition in (0, 1):
        sealed(archive, records(number, seed, partition))
    return archive


@pytest.mark.parametrize(("change", "says"), [
    (lambda store: store.delete(f"manifests/{TOPIC}/0/{9:012}.json"), "cut off"),
    (lambda store: store.stored.update({f"manifests/{TOPIC}/0/{9:012}.json": b"{}"}), "can't be read"),
    (lambda store: [store.delete(name) for name in list(store.stored) if f"/{TOPIC}/0/" in name], "cut off"),
    (lambda store: store.stored.update(forged(100).store.stored), "not the one that was anchored"),
    (lambda store: store.stored.update(forged(300).store.stored), "not the one that was anchored"),
])  # fmt: skip
def test_what_did_not_grow_out_of_the_last_anchor_is_not_anchored(
    anchored: Anchored, change: Callable[[MemoryObjects], Any], says: str
) -> None:
    anchoring = anchored.anchoring()
    anchoring.step()
    anchored.grow(1)
    before = {head for head in anchored.topic() if head.partition == 0}
    change(anchored.store)
    for one in (anchoring, anchored.anchoring()):
        with pytest.raises(NotAnchored, match=says):
            one.step()
    assert {head for head in anchored.topic() if head.partition == 0} == before


def test_a_chain_that_was_made_anew_above_the_anchor_is_not_anchored(anchored: Anchored) -> None:
    """Records that were changed after the last anchor must not be anchored across the broken link."""
    anchoring = anchored.anchoring()
    anchoring.step()
    anchored.grow()
    other = Anchored()
    begin = other.archive.head(TOPIC, 0).next
    sealed(other.archive, records(30, 77, 0, begin), each=10)
    name = f"manifests/{TOPIC}/0/{11:012}.json"
    anchored.store.stored[name] = other.store.stored[name]
    with pytest.raises(NotAnchored, match="manifest 11 does not continue manifest 10"):
        anchoring.step()


def test_others_are_anchored_all_the_same(anchored: Anchored) -> None:
    anchoring = anchored.anchoring()
    anchoring.step()
    grown = anchored.grow(1)
    anchored.store.delete(f"manifests/{TOPIC}/0/{9:012}.json")
    with pytest.raises(NotAnchored, match=r"ledger.events\[0\]") as raised:
        anchoring.step()
    assert "ledger.events[1]" not in str(raised.value)
    assert grown in anchored.topic()


def test_a_fork_is_told_and_nothing_more_is_anchored_of_that_chain(anchored: Anchored) -> None:
    anchoring = anchored.anchoring()
    anchoring.step()
    anchored.world.opened().write(Anchor(anchored.heads[0]._replace(sha256="0" * 64)))
    anchored.grow()
    with pytest.raises(NotAnchored, match="two anchors of manifest 9"):
        anchoring.step()


def test_begun_anew_on_purpose(anchored: Anchored) -> None:
    anchored.anchoring().step()
    anchored.world.append(b"garbage", b"garbage")
    other = forged(60)
    with pytest.raises(NotAnchored):
        anchored.anchoring(other).step()
    assert len(anchored.anchoring(other).begin_anew("another number of partitions")) == 2
    assert anchored.anchoring(other).step() == []
    found = standing(anchored.world.opened().read())
    assert {kept.anchor.head for kept in found.kept} == {other.head(TOPIC, p) for p in (0, 1)}
    assert found.unreadable == () and len(found.given_up) == 3


def test_what_was_joined_since_is_followed(anchored: Anchored) -> None:
    """Joined manifests are followed even if the anchored one still exists as a single object, and those after it do
    not."""
    anchored.anchoring().step()
    anchored.grow()
    compact(anchored.archive, 4e9)
    head = anchored.archive.head(TOPIC, 0)
    kept = next(m for m in anchored.archive.manifests(TOPIC, 0) if m.sequence == anchored.heads[0].sequence)
    assert [one.head for one in anchored.anchoring().step() if one.head.partition == 0] == [head]
    again = Anchored()
    again.archive, again.store = anchored.archive, anchored.store
    again.world.opened().write(Anchor(anchored.heads[0]))
    again.store.create(f"manifests/{TOPIC}/0/{kept.sequence:012}.json", kept.encode())
    assert [one.head for one in again.anchoring().step() if one.head.partition == 0] == [head]


def test_what_was_joined_beyond_the_anchored_one_in_a_pause_is_followed_in_time(anchored: Anchored) -> None:
    """The anchored manifest is alone on its day, so it is not joined. The manifests after it are."""

    def grow(number: int, later_days: int) -> None:
        begin, later_ms = anchored.archive.head(TOPIC, 0).next, (50 + later_days) * 86_400_000
        own = records(number, 9, 0, begin)
        sealed(anchored.archive, [replace(one, _timestamp_ms=one.timestamp()[1] + later_ms) for one in own])

    grow(3, 0)
    by = anchored.anchoring()
    for _ in range(3):
        by.step()
    grow(30, 1)
    grow(30, 2)
    compact(anchored.archive, 4e9)
    found = [one.head for _ in range(LISTED_EVERY) for one in by.step() if one.head.partition == 0]
    assert found == [anchored.archive.head(TOPIC, 0)]


def test_an_answer_that_is_lost_is_made_good_by_the_next_time(anchored: Anchored) -> None:
    log = anchored.world.log
    sender = MemorySender(log)
    sender.lost_events = 1
    anchored.world.sender = lambda: sender
    anchoring = anchored.anchoring()
    with pytest.raises(OutcomeUnknown):
        anchoring.step()
    log.up = False
    with pytest.raises(Unreachable):
        anchoring.step()
    log.up = True
    assert [one.head for one in anchoring.step()] == anchored.heads


# -- signed anchors ----------------------------------------------------------------------------------------------------


def test_signed_anchors_hold_by_their_key_alone(anchored: Anchored, tmp_path: Path) -> None:
    make(tmp_path / "one")
    make(tmp_path / "two")
    anchored.anchoring().step()
    one = PrivateKey(tmp_path / "one")
    assert len(anchored.anchoring(signer=one).step()) == 2  # anchors that are not signed yet
    assert anchored.anchoring(signer=one).step() == []
    grown = anchored.grow()
    anchored.anchoring(signer=PrivateKey(tmp_path / "two")).step()
    kept = standing(anchored.world.opened().read()).kept
    found = judge(kept, PublicKeys(tmp_path / "one.pub").why_not)
    assert set(found.heads) == set(anchored.heads) and len(found.refused) == 4
    assert sorted(reason.rpartition(": ")[2][:12] for reason in found.refused) == [
        "it is not si", "it is not si", "it is signed", "it is signed",
    ]  # fmt: skip
    both = tmp_path / "both"
    both.write_bytes((tmp_path / "one.pub").read_bytes() + (tmp_path / "two.pub").read_bytes())
    assert set(judge(kept, PublicKeys(both).why_not).heads) == {*anchored.heads, grown}


def test_an_archiver_that_signs_leaves_no_unsigned_one_as_the_last(anchored: Anchored, tmp_path: Path) -> None:
    make(tmp_path / "key")
    anchoring = anchored.anchoring(signer=PrivateKey(tmp_path / "key"))
    anchoring.step()
    anchored.world.opened().write(Anchor(anchored.heads[0]))
    assert [one.head for one in anchoring.step()] == [anchored.heads[0]]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_keys_that_openssl_makes_serve_as_well(tmp_path: Path) -> None:
    private, public = tmp_path / "key", tmp_path / "key.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, timeout=60)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, timeout=60)
    anchor = made(HEAD, PrivateKey(private))
    assert PublicKeys(public).why_not(anchor) == ""
    assert PublicKeys(public).why_not(anchor._replace(head=HEAD._replace(next=1))) == "its signature is invalid"


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    private = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    (tmp_path / "key").write_bytes(private)
    public = key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    with pytest.raises(ConfigError, match="Ed25519"):
        PrivateKey(tmp_path / "key")
    with pytest.raises(ConfigError, match="Ed25519"):
        PublicKeys(tmp_path / "key.pub")


def test_a_key_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("there already")
    with pytest.raises(UsageError):
        make(tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == ["key.pub"]
    assert (tmp_path / "key.pub").read_text() == "there already"

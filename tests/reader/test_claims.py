"""The list of leaders, read from the claims in the log."""

from __future__ import annotations

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.config.settings import TopicsSection
from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.registers import claim_key
from ledger.ports import Event
from ledger.reader.claims import Claim, ClaimFollower, read_claims
from ledger.reader.reading import Source

TOPICS = TopicsSection()


@pytest.fixture
def source() -> Source:
    clock = ManualClock(1000.0)
    log = MemoryLog({TOPICS.events: 3, TOPICS.recovery: 3}, clock)
    return Source(log, TOPICS, avro, cloudevents, clock)


def claim(source: Source, role: str, epoch: int, value: bytes | None = None) -> None:
    """Writes a claim partition by partition, with some time between them."""
    topic = TOPICS.recovery if role == "projector" else TOPICS.events
    value = value or avro.encode(LeaderClaimed(role, epoch, f"{role}-{epoch}", "elected"))
    writer = source.log.writer(role)
    writer.init()
    for partition in range(3):
        writer.commit([Event(topic, partition, claim_key(role, epoch).encode(), value)])
        source.clock.sleep(1.0)


def test_nobody_has_led(source: Source) -> None:
    assert read_claims(source) == []


def test_each_claim_is_told_once_with_its_first_moment_the_newest_first(source: Source) -> None:
    claim(source, "projector", 9)
    claim(source, "reconciler", 1)
    claim(source, "projector", 10)
    assert read_claims(source) == [
        Claim("projector", 10, "projector-10", 1006.0, "elected"),
        Claim("projector", 9, "projector-9", 1000.0, "elected"),
        Claim("reconciler", 1, "reconciler-1", 1003.0, "elected"),
    ]


def test_a_claim_that_cannot_be_read_still_counts(source: Source) -> None:
    claim(source, "projector", 3, b"what is this")
    (told,) = read_claims(source)
    assert (told.epoch, told.writer) == (3, "")
    assert "can't be read" in told.reason


def test_other_records_are_no_claims(source: Source) -> None:
    writer = source.log.writer("w")
    writer.init()
    keys = [b"job/admitted", b"~progress", b"~claim/projector/x", b"~claim/projector/01", b"\xff"]
    writer.commit([Event(TOPICS.recovery, 0, key, b"x") for key in keys])
    writer.commit([Event(TOPICS.recovery, 0, claim_key("projector", 4).encode(), None)])
    assert read_claims(source) == []


def test_a_follower_reads_once_and_tells_the_old_from_the_new(source: Source) -> None:
    claim(source, "projector", 9)
    follower = ClaimFollower(source)
    assert follower.newest("projector") == (Claim("projector", 9, "projector-9", 1000.0, "elected"), False)
    assert follower.newest("reconciler") is None
    claim(source, "projector", 10)
    claim(source, "reconciler", 1)
    assert follower.newest("projector") == (Claim("projector", 10, "projector-10", 1003.0, "elected"), True)
    claim(source, "projector", 2)  # a stale claim that comes late
    assert follower.newest("projector") == (Claim("projector", 10, "projector-10", 1003.0, "elected"), True)
    assert follower.newest("reconciler") == (Claim("reconciler", 1, "reconciler-1", 1006.0, "elected"), True)
    read = [len(follower._tail.more(0)) for _ in range(2)]
    assert read == [0, 0]
    follower.close()

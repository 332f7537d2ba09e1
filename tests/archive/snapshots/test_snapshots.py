"""A snapshot of ledger.recovery keeps every record that a reader's answer depends on, whatever a stale leader wrote."""

from __future__ import annotations

import random

import pytest

from ledger.archive.snapshots.snapshots import same_entries, same_registers, thin_events, thin_recovery
from ledger.core.model.facts import Progress
from ledger.ports import MemoryRecord
from tests.support.registers import Topic


@pytest.fixture
def topic() -> Topic:
    return Topic()


def test_a_stale_leader_s_record_does_not_take_the_place_of_what_counts(topic: Topic) -> None:
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.claim(2)
    counts = topic.entry("a", 2, attempt=2)
    stale = topic.entry("a", 1, attempt=9)
    kept = thin_recovery(topic.records, topic.decode)
    assert [record.offset() for record in kept] == [0, 2, counts, stale]
    assert same_entries(kept, topic.records, topic.decode)
    # The stale record counts too: it hides the good one, so a leader has to write that again.
    for one in (counts, stale):
        assert not same_entries([record for record in kept if record.offset() != one], topic.records, topic.decode)


def test_of_a_job_that_is_retired_nothing_is_kept(topic: Topic) -> None:
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.append("a", None, 1)
    assert [record.offset() for record in thin_recovery(topic.records, topic.decode)] == [0]


def test_a_stale_tombstone_takes_nothing_away(topic: Topic) -> None:
    topic.claim(2)
    counts = topic.entry("a", 2, attempt=2)
    topic.append("a", None, 1)
    kept = thin_recovery(topic.records, topic.decode)
    assert counts in [record.offset() for record in kept] and same_entries(kept, topic.records, topic.decode)


def test_what_cannot_be_read_hides_the_entry_before_it_whatever_a_stale_leader_writes_then(topic: Topic) -> None:
    topic.claim(2)
    topic.entry("a", 2, attempt=1)
    unread = topic.append("a", "no entry", 2)
    stale = topic.entry("a", 1, attempt=9)
    kept = thin_recovery(topic.records, topic.decode)
    assert [record.offset() for record in kept] == [0, unread, stale]
    assert same_entries(kept, topic.records, topic.decode)


@pytest.mark.parametrize("again", [1, 2])
@pytest.mark.parametrize("removed", [False, True])
def test_a_claim_that_was_written_twice_or_tombstoned_stands_where_it_stood_first(
    topic: Topic, again: int, removed: bool
) -> None:
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.claim(2)
    topic.entry("b", 2, attempt=1)
    topic.append("c", None, 2)
    topic.append(f"~claim/projector/{again}", None, None) if removed else topic.claim(again)
    topic.entry("c", 2, attempt=1)
    kept = thin_recovery(topic.records, topic.decode)
    assert same_entries(kept, topic.records, topic.decode)
    assert same_entries(thin_recovery(kept, topic.decode), topic.records, topic.decode)


@pytest.mark.parametrize("seed", range(20))
def test_whoever_writes_what_when_it_is_the_same_and_so_is_what_follows(topic: Topic, seed: int) -> None:
    """A snapshot is a starting point: the entries also agree after more records are applied to it."""
    drawn, claimed = random.Random(seed), 0
    for _ in range(120):
        if drawn.random() < 0.1:
            claimed += 1
            topic.claim(claimed)
            continue
        if claimed and drawn.random() < 0.05:
            topic.claim(drawn.randint(1, claimed))  # the same claim again
            continue
        job, epoch = f"job-{drawn.randrange(4)}", max(0, claimed - drawn.choice([0, 0, 0, 1, 2]))
        if drawn.random() < 0.2:
            topic.append(job, drawn.choice([None, None, "no entry"]), epoch or None)
        elif drawn.random() < 0.1:
            said = drawn.choice([None, "no progress", Progress(0, drawn.randrange(9), 1)])
            topic.append("~progress", said, epoch or None)
        else:
            topic.entry(job, epoch or None, attempt=drawn.randrange(9))
    cut = drawn.randrange(120)
    kept = thin_recovery(topic.records[:cut], topic.decode)
    assert same_entries(kept, topic.records[:cut], topic.decode), f"seed {seed}"
    assert same_entries([*kept, *topic.records[cut:]], topic.records, topic.decode), f"seed {seed}"


def test_of_a_job_that_is_known_the_last_record_is_kept_even_if_it_is_a_tombstone() -> None:
    """The projector counts as caught up only once its entries cover this record."""
    keys = [
        (b"a/running/1", b"1"), (b"a/running/2", b"2"), (b"a/running/1", None),
        (b"b/running/1", b"1"), (b"b/running/1", None),
    ]  # fmt: skip
    whole = [MemoryRecord("t", 0, offset, key, value) for offset, (key, value) in enumerate(keys)]
    kept = thin_events(whole)
    assert [record.offset() for record in kept] == [1, 2]
    assert same_registers(kept, whole)
    more = MemoryRecord("t", 0, 5, b"a/running/2", None)
    assert thin_events([*kept, more]) == thin_events([*whole, more]) == []

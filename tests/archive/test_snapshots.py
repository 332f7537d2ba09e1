"""What a snapshot keeps of ledger.recovery: everything that a reader's answer rests on, whatever a stale leader wrote."""

from __future__ import annotations

import random

import pytest

from ledger.archive.snapshots import same_entries, thin_recovery
from tests.core.test_published import Topic


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
    assert not same_entries([record for record in kept if record.offset() != counts], topic.records, topic.decode)


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


@pytest.mark.parametrize("seed", range(20))
def test_whoever_writes_what_when_it_is_the_same_and_so_is_what_follows(topic: Topic, seed: int) -> None:
    """Also after more records: a snapshot is a beginning."""
    drawn, claimed = random.Random(seed), 0
    for _ in range(120):
        if drawn.random() < 0.1:
            claimed += 1
            topic.claim(claimed)
            continue
        job, epoch = f"job-{drawn.randrange(4)}", max(0, claimed - drawn.choice([0, 0, 0, 1, 2]))
        if drawn.random() < 0.2:
            topic.append(job, None, epoch or None)
        else:
            topic.entry(job, epoch or None, attempt=drawn.randrange(9))
    cut = drawn.randrange(120)
    kept = thin_recovery(topic.records[:cut], topic.decode)
    assert same_entries(kept, topic.records[:cut], topic.decode), f"seed {seed}"
    assert same_entries([*kept, *topic.records[cut:]], topic.records, topic.decode), f"seed {seed}"

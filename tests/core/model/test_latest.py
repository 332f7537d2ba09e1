"""Spark tasks leave out records that no reader needs. The reader computes the same entries, however the history is
split."""

from __future__ import annotations

from random import Random

import pytest

from ledger.core.model.facts import Progress
from ledger.core.model.latest import highest_claimed, latest_effective
from ledger.core.model.published import Published
from ledger.ports import MemoryRecord
from tests.support.registers import Topic

SEEN = ("entries", "unreadable", "claimed", "progress")


def view(records: list[MemoryRecord], topic: Topic) -> dict[str, object]:
    published = Published(topic.decode)
    for record in records:
        published.apply(record)
    return {name: getattr(published, name) for name in SEEN}


def reduced(records: list[MemoryRecord], cuts: list[int]) -> list[MemoryRecord]:
    """The records that remain of all pieces of a history. Each piece is reduced with the epochs claimed before it."""
    claimed: dict[int, int] = {}
    left = []
    for begin, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        piece = latest_effective(records[begin:end], claimed)
        claimed = highest_claimed(piece, claimed)
        left += piece
    return left


def history(rng: Random) -> Topic:
    """A history with successive leaders, records of stale leaders and of unclaimed epochs, repeated claims and
    tombstones of claims, unreadable values, progress and no-ops."""
    topic, epoch = Topic(), 0
    for step in range(rng.randrange(5, 60)):
        job = rng.choice("abc")
        at = rng.choice([epoch, epoch, epoch, max(0, epoch - 1), epoch + 1])
        match rng.randrange(12):
            case 0 | 1:
                epoch += 1
                topic.claim(epoch)
            case 2 if epoch:
                topic.claim(rng.randint(1, epoch))
            case 3 if epoch:
                topic.append(f"~claim/projector/{rng.randint(1, epoch)}", None, epoch)
            case 4:
                topic.append(job, None, at)
            case 5:
                topic.append(job, "no entry", at)
            case 6:
                topic.append("~progress", Progress(0, step, at), at)
            case 7:
                topic.append(rng.choice(["~noop", "not/a job", "~claim/reconciler/7"]), rng.choice([None, "x"]), at)
            case _:
                topic.entry(job, at, attempt=step)
    return topic


@pytest.mark.parametrize("seed", range(300))
def test_a_reader_of_what_is_left_sees_what_a_reader_of_all_sees(seed: int) -> None:
    rng = Random(seed)
    topic = history(rng)
    records = topic.records
    cuts = sorted(rng.randrange(len(records) + 1) for _ in range(rng.randrange(4)))
    left = reduced(records, cuts)
    assert view(left, topic) == view(records, topic)
    assert [record.offset() for record in left] == sorted(record.offset() for record in left)


def test_of_a_long_history_claims_and_one_record_of_each_key_are_left() -> None:
    topic = Topic()
    topic.claim(1)
    for attempt in range(1000):
        topic.entry("ab"[attempt % 2], 1, attempt=attempt)
    assert [record.offset() for record in latest_effective(topic.records, {})] == [0, 999, 1000]


def test_the_epoch_of_an_earlier_piece_counts() -> None:
    topic = Topic()
    topic.claim(2)
    topic.entry("a", 2, attempt=2)
    topic.entry("a", 1, attempt=9)
    assert latest_effective(topic.records[2:], {0: 2}) == []
    assert latest_effective(topic.records[1:2], {0: 2}) == topic.records[1:2]

"""The epoch filter of `ledger.recovery`: records of a zombie leader have no effect, whatever compaction then removes.

The records here are made by hand with a codec of plain objects: the bytes are an index into a table.
"""

from __future__ import annotations

import pytest

from ledger.core.model.facts import Progress
from ledger.core.model.published import Published, Raw, epoch_of
from ledger.ports import MemoryRecord
from tests.support.registers import TOPIC, Topic


@pytest.fixture
def topic() -> Topic:
    return Topic()


def attempt_of(published: Published, job_id: str) -> int | None:
    entry = published.entries.get(job_id)
    return entry.attempt if entry else None


def test_the_last_entry_of_the_claimed_epoch_counts(topic):
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.entry("a", 1, attempt=2)
    assert attempt_of(topic.published(), "a") == 2


def test_an_entry_of_a_zombie_has_no_effect(topic):
    topic.claim(1)
    topic.claim(2)
    topic.entry("a", 2, attempt=2)
    topic.entry("a", 1, attempt=1)
    published = topic.published()
    assert attempt_of(published, "a") == 2
    assert published.dropped == {"stale": 1}


def test_a_tombstone_of_a_zombie_removes_nothing(topic):
    topic.claim(1)
    topic.claim(2)
    topic.entry("a", 2)
    zombie = topic.append("a", None, 1)
    published = topic.published()
    assert "a" in published.entries
    assert published.raw[0][b"a"] == Raw(zombie, 1, None)


def test_a_tombstone_of_the_leader_removes_the_entry(topic):
    topic.claim(1)
    topic.entry("a", 1)
    topic.append("a", None, 1)
    assert not topic.published().entries


def test_nothing_is_kept_of_what_the_leader_has_removed(topic):
    """Jobs come and go without end. The memory of a reader depends only on the jobs that exist now."""
    topic.claim(1)
    kept = len(topic.published().raw[0])
    for n in range(5):
        topic.entry(f"job-{n}", 1)
        topic.append(f"job-{n}", None, 1)
    topic.entry("last", 1)
    published = topic.published()
    assert len(published.raw[0]) == kept + 1
    assert b"last" in published.raw[0]


def test_entries_from_before_a_claim_stay(topic):
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.claim(2)
    assert attempt_of(topic.published(), "a") == 1


def test_a_claim_in_the_middle_divides_what_its_predecessor_wrote(topic):
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.entry("b", 1, attempt=1)
    topic.claim(2)
    topic.entry("a", 1, attempt=7)
    topic.entry("b", 2, attempt=3)
    published = topic.published()
    assert (attempt_of(published, "a"), attempt_of(published, "b")) == (1, 3)


def test_a_stale_claim_does_not_bring_its_epoch_back(topic):
    topic.claim(2)
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.entry("b", 2, attempt=2)
    published = topic.published()
    assert set(published.entries) == {"b"}
    assert published.claimed == {0: 2}
    assert published.dropped == {"stale": 2}


def test_an_epoch_that_nobody_has_claimed_is_dropped_even_if_it_is_claimed_later(topic):
    topic.claim(1)
    topic.entry("a", 3, attempt=3)
    topic.claim(3)
    published = topic.published()
    assert not published.entries
    assert published.dropped == {"unclaimed": 1}


def test_a_claim_counts_in_its_own_partition_only(topic):
    topic.claim(1, partition=0)
    topic.claim(1, partition=1)
    topic.claim(2, partition=0)
    topic.entry("a", 1, partition=0)
    topic.entry("b", 1, partition=1)
    assert set(topic.published().entries) == {"b"}


def test_when_the_cleaner_left_only_the_zombies_record_there_is_no_entry_but_its_raw_record_shows(topic):
    topic.claim(1)
    topic.claim(2)
    good = topic.entry("a", 2, attempt=2)
    zombie = topic.entry("a", 1, attempt=1)
    published = topic.published(without={good})
    assert "a" not in published.entries
    assert (published.raw[0][b"a"].offset, published.raw[0][b"a"].epoch) == (zombie, 1)
    assert published.dropped == {"stale": 1}


def test_a_record_without_epoch_is_dropped(topic):
    topic.claim(1)
    topic.entry("a", None)
    published = topic.published()
    assert not published.entries
    assert published.dropped == {"no-epoch": 1}


def test_a_claim_of_another_role_claims_nothing_here(topic):
    topic.claim(1)
    topic.claim(9, role="reconciler")
    topic.entry("a", 1)
    assert "a" in topic.published().entries


def test_a_value_that_cannot_be_read_makes_the_job_unreadable_and_not_unknown(topic):
    topic.claim(1)
    first = topic.entry("a", 1)
    topic.append("a", "no entry at all", 1)
    for published in (topic.published(), topic.published(without={first})):
        assert "a" not in published.entries
        assert published.unreadable == {"a"}
    topic.entry("a", 1)
    assert topic.published().unreadable == set()


def test_an_entry_under_another_jobs_key_is_not_taken_for_it(topic):
    topic.claim(1)
    topic.entry("a", 1)
    topic.records[-1] = MemoryRecord(TOPIC, 0, 1, b"b", topic.records[-1].value(), (("ledger_epoch", b"1"),))
    published = topic.published()
    assert not published.entries
    assert published.unreadable == {"b"}


def test_progress_counts_for_entries_before_it_and_for_jobs_without_one(topic):
    topic.claim(1)
    topic.entry("a", 1, as_of=5)
    topic.append("~progress", Progress(0, 90, 1), 1)
    topic.entry("b", 1, as_of=50)
    published = topic.published()
    assert published.progress == {0: 90}
    assert published.as_of("a", 0) == 90
    assert published.as_of("b", 0) == 50  # read after the progress record: the as_of of a later record may be lower
    assert published.as_of("nobody", 0) == 90
    assert published.as_of("nobody", 1) == 0


def test_progress_of_a_zombie_is_dropped(topic):
    topic.claim(1)
    topic.append("~progress", Progress(0, 10, 1), 1)
    topic.claim(2)
    topic.append("~progress", Progress(0, 99, 1), 1)
    assert topic.published().progress == {0: 10}


def test_a_change_tells_what_was_before_and_after(topic):
    topic.claim(1)
    topic.entry("a", 1, attempt=1)
    topic.entry("a", 1, attempt=2)
    topic.append("a", None, 1)
    topic.append("a", None, 1)
    published = Published(topic.decode)
    changes = [published.apply(record) for record in topic.records]
    assert changes[0] is None and changes[4] is None
    told = [(c.before and c.before.attempt, c.after and c.after.attempt) for c in changes[1:4]]
    assert told == [(None, 1), (1, 2), (2, None)]


@pytest.mark.parametrize(
    "value, epoch", [(b"7", 7), (b"", 0), (b"07", 0), (b"-1", 0), (b"1e3", 0), ("7", 0), (None, 0), (b"9" * 17, 0)]
)
def test_the_epoch_header_is_a_decimal_number(value, epoch):
    assert epoch_of([("ce_id", b"x"), ("ledger_epoch", value)]) == epoch
    assert epoch_of(None) == 0


def test_a_key_whose_last_record_was_dropped_or_unreadable_asks_to_be_written_again(topic):
    topic.claim(1)
    topic.entry("good", 1)
    topic.claim(2)
    topic.entry("hidden", 2)
    topic.entry("hidden", 1)
    topic.entry("healed", 1)
    topic.entry("healed", 2)
    topic.append("torn", "no entry at all", 2)
    topic.append("~progress", Progress(0, 9, 1), 1)
    published = topic.published()
    keys = [b"good", b"hidden", b"healed", b"torn", b"~progress"]
    assert [k for k in keys if not published.last_is_effective(0, k)] == [b"hidden", b"torn", b"~progress"]

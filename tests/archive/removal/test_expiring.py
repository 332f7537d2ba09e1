"""Retention: records that were superseded long enough ago expire. No fold of the present or of a moment since then
changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from ledger.adapters import avro
from ledger.archive.removal.expiring import expire, plan
from ledger.archive.snapshots import snapshots
from ledger.archive.store.archive import Archive
from ledger.archive.store.compaction import compact
from ledger.archive.store.verifying import verify
from ledger.core.model.redaction import stand_in
from ledger.core.model.registers import Running, Spec, key_of
from ledger.ports import MemoryRecord
from tests.support.archives.given import SPEC
from tests.support.archives.lives import (
    AT,
    BEGIN_S,
    BY,
    DAY_S,
    EVENTS,
    KEY,
    NOW_S,
    RECOVERY,
    RESULT,
    RETENTION,
    RUNNING,
    SEEDS,
    TOPICS,
    VALUE,
    Life,
    jobs_archive,
    left,
    namespace_of,
    run,
)
from tests.support.repetitions import one_fast

pytestmark = pytest.mark.usefixtures("quiet")


same_entries = partial(snapshots.same_entries, decode=avro.decode)


def must_fold_the_same(archive: Archive, life: Life, until_s: float = 0.0) -> None:
    """Checks the folds of the whole log, and of every beginning of it from the latest cutoff on."""
    events, recovery = (list(archive.records(topic, 0)) for topic in (EVENTS, RECOVERY))
    for cut_ms in [life.at_ms + 1, *range(int(until_s * 1000), life.at_ms, DAY_S * 1000)]:

        def before(records: list[MemoryRecord], whole: list[MemoryRecord], cut_ms: int = cut_ms) -> list[MemoryRecord]:
            end = next((one.offset() for one in whole if one.timestamp()[1] > cut_ms), 10**9)
            return [one for one in records if one.offset() < end]

        assert snapshots.same_registers(before(events, life.events), before(life.events, life.events))
        assert same_entries(before(recovery, life.recovery), before(life.recovery, life.recovery))


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_no_fold_of_the_present_nor_of_a_moment_since_can_tell(seed: int) -> None:
    life = Life(seed)
    archive = life.archive()
    for joined in (False, True):
        if joined:
            compact(archive, NOW_S + DAY_S)
        went = run(archive, NOW_S - 2 * DAY_S * (not joined))
        assert went > 10
        must_fold_the_same(archive, life, NOW_S - 2 * DAY_S)
        heads = [archive.head(*place) for place in archive.partitions()]
        assert [one.broken for one in verify(Archive(archive.store), heads)] == [(), ()]
    assert run(archive) == 0


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_what_goes_is_superseded_old_and_of_its_namespace(seed: int) -> None:
    life = Life(seed)
    archive = life.archive()
    due = plan(archive, TOPICS, RETENTION, NOW_S, avro)
    assert {one.namespace for one in due} == {"prod", "test"}
    by_offset = {(one.topic(), one.offset()): one for one in [*life.events, *life.recovery]}
    for one in due:
        assert one.records == len(one.offsets) and one.bytes > 0
        assert one.until_ms == int((NOW_S - (RETENTION[one.namespace] or 0)) * 1000)
        for offset in one.offsets:
            record = by_offset[one.topic, offset]
            job = (record.key() or b"").partition(b"/")[0].decode()
            assert namespace_of(job) == one.namespace
            assert record.timestamp()[1] < one.until_ms and offset < one.below
            later = [r for (topic, o), r in by_offset.items()
                     if topic == one.topic and o > offset and r.key() == record.key() and o < one.below]  # fmt: skip
            assert later or record.value() is None
    before = {topic: list(archive.records(topic, 0)) for topic in (EVENTS, RECOVERY)}
    expire(archive, due, BY, AT)
    gone = {(one.topic, offset) for one in due for offset in one.offsets}
    for topic, records in before.items():
        assert list(archive.records(topic, 0)) == [one for one in records if (topic, one.offset()) not in gone]


def test_a_key_whose_last_is_an_old_tombstone_goes_whole_and_a_younger_one_stays() -> None:
    other = key_of("job-0", Running(2))
    facts = [(KEY, VALUE, 0.0), (*RUNNING, 1.0), (RUNNING[0], None, 2.0), (other, RUNNING[1], 3.0), (other, None, 6.0)]
    assert left(jobs_archive(*facts)) == [0, 3, 4]


def test_what_the_last_one_says_never_goes_however_old() -> None:
    assert left(jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 0.1)), now_s=NOW_S + 1000 * DAY_S) == [0, 1]


def test_of_a_job_whose_spec_nobody_can_read_nothing_goes() -> None:
    for value in (b"\xc3\x01 of a schema to come", stand_in(b"x" * 32)):
        facts = [(KEY, value, 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 0.2)]
        assert left(jobs_archive(*facts)) == [0, 1, 2]
    facts = [(KEY, b"\xc3\x01 of a schema to come", 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 0.2), (*RESULT, 0.3)]
    assert left(jobs_archive(*facts)) == [0, 1, 2, 3]
    facts = [(KEY, stand_in(b"x" * 32), 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 0.2), (*RESULT, 0.3)]
    assert left(jobs_archive(*facts)) == [0, 3]  # redacted, but the result names the namespace


def test_of_two_namespaces_the_longer_one_counts() -> None:
    other = replace(SPEC, namespace="test", name="job-0")
    facts = [(KEY, VALUE, 0.0), (key_of("job-0", Spec(avro.spec_digest(other))), avro.encode(other), 0.0),
             (*RUNNING, 6.0), (RUNNING[0], None, 6.5)]  # fmt: skip
    # four days ago: namespace test keeps records for two days, prod for five
    assert left(jobs_archive(*facts)) == [0, 1, 2, 3]


def test_of_two_namespaces_one_that_keeps_for_ever_counts() -> None:
    other = replace(SPEC, namespace="audited", name="job-0")
    facts = [(KEY, VALUE, 0.0), (key_of("job-0", Spec(avro.spec_digest(other))), avro.encode(other), 0.0),
             (*RUNNING, 0.1), (RUNNING[0], None, 0.2)]  # fmt: skip
    archive = jobs_archive(*facts)
    assert plan(archive, TOPICS, {"prod": DAY_S, "audited": None}, NOW_S, avro) == []
    assert plan(archive, TOPICS, {"prod": DAY_S, "audited": DAY_S}, NOW_S, avro) != []


def test_what_tells_whose_a_job_is_goes_last() -> None:
    over = [(KEY, VALUE, 0.0), (*RUNNING, 0.1), (KEY, None, 1.0), (RUNNING[0], None, 4.9)]
    archive = jobs_archive(*over)
    # the other tombstone is younger: without the spec, it would never expire
    assert left(archive, now_s=BEGIN_S + 9 * DAY_S) == [0, 1, 2, 3]
    assert left(archive, now_s=BEGIN_S + 10 * DAY_S) == []
    assert left(jobs_archive(*over[:3], (*RESULT, 1.1)), now_s=BEGIN_S + 9 * DAY_S) == [1, 3]


def test_a_job_that_is_held_is_left_alone() -> None:
    facts = [(KEY, VALUE, 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 2.0)]
    until_ms = (BEGIN_S + DAY_S) * 1000
    archive = jobs_archive(*facts)
    held = left(archive, held=lambda job, at_ms: job == "job-0" and at_ms <= until_ms)
    # the tombstone stays too, though it is younger: otherwise the fact would take effect again
    assert held == [0, 1, 2]
    # the last record of a job stays as long as the job has a register
    assert left(archive, held=lambda job, _: job == "another") == [0, 2]


def test_a_job_is_held_by_one_of_its_records_that_would_go() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 0.1), (*RUNNING, 2.0), (RUNNING[0], None, 2.5))
    until_ms = (BEGIN_S + DAY_S) * 1000
    assert left(archive, held=lambda _, at_ms: at_ms <= until_ms) == [0, 1, 2, 3]
    assert left(archive) == [0, 3]


def test_nothing_is_set_and_nothing_goes() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 0.2))
    assert plan(archive, TOPICS, {}, NOW_S, avro) == plan(archive, TOPICS, {"*": None}, NOW_S, avro) == []
    assert plan(archive, TOPICS, {"test": 1.0}, NOW_S, avro) == []
    assert [one.records for one in plan(archive, TOPICS, {"*": 1.0}, NOW_S, avro)] == [1]

"""Retention: what is superseded for long enough goes, and no fold of the present, nor of a moment since, can tell."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection, Container, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest
import structlog

from ledger import bundling, past
from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive import snapshots
from ledger.archive.archive import Archive
from ledger.archive.expiring import expire, plan
from ledger.archive.gone import Gone, expired_of
from ledger.archive.joining import compact
from ledger.archive.querying import opened
from ledger.archive.segments import store_segment
from ledger.archive.verifying import verify
from ledger.core.facts import AttemptEnded, JobResult
from ledger.core.moment import Places, parse, vector
from ledger.core.recovery import JobState, RecoveryEntry
from ledger.core.redaction import stand_in
from ledger.core.registers import Ended, Result, Running, Spec, key_of
from ledger.errors import LedgerError, NotFound, UsageError
from ledger.finding import resolve
from ledger.left_out import LeftOut
from ledger.moments import as_of
from ledger.ports import Event, EventLog, MemoryRecord, TopicPartition
from ledger.reading import Source, all_registers, recovery_set
from ledger.recorded import ThenClock
from ledger.settings import Topics
from tests.archive.given import SPEC, TOPIC_ID, read_out

TOPICS = Topics()
EVENTS, RECOVERY = TOPICS.events, TOPICS.recovery
BEGIN_S = 1_700_000_000
DAY_S = 86_400
BY, AT = "tester@host", "2026-02-01T00:00:00Z"
NAMESPACES = ["prod", "test", "kept"]
RETENTION = {"prod": 5.0 * DAY_S, "test": 2.0 * DAY_S, "*": None}
SEEDS = int(os.environ.get("REPETITIONS", "6"))
NOW_S = BEGIN_S + 10 * DAY_S


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def namespace_of(job: str) -> str:
    return NAMESPACES[int(job.partition("-")[2]) % 3]


def spec_of(job: str) -> tuple[str, bytes]:
    spec = replace(SPEC, namespace=namespace_of(job), name=job)
    return key_of(job, Spec(avro.spec_digest(spec))), avro.encode(spec)


class Life:
    """Ten days of two topics of one partition: what jobs, leaders, zombies and vandals write."""

    def __init__(self, seed: int, number: int = 400) -> None:
        drawn = random.Random(seed)
        self.events: list[MemoryRecord] = []
        self.recovery: list[MemoryRecord] = []
        self.epoch, self.at_ms = 1, BEGIN_S * 1000
        self._append(self.recovery, b"~claim/projector/1", b"x")
        for _ in range(number):
            self.at_ms += 10 * DAY_S * 1000 // number + drawn.choice([0, 0, 5, -5])
            job = f"job-{drawn.randrange(12)}"
            n = drawn.randrange(1, 4)
            spec_key, spec = spec_of(job)
            match drawn.randrange(12):
                case 0 | 1:
                    self._append(self.events, spec_key.encode(), spec)
                case 2 | 3 | 4:
                    self._append(self.events, key_of(job, Running(n)).encode(), avro.encode(AttemptEnded()))
                case 5 | 6:
                    key = drawn.choice([key_of(job, Running(n)), key_of(job, Ended(n, "failed", "w")), spec_key])
                    self._append(self.events, key.encode(), None)
                case 7:
                    self._append(self.events, *drawn.choice([(b"garbage", b"x"), (b"~noop", None), (None, b"y")]))
                case 8:
                    self.epoch += drawn.randrange(2)
                    self._append(self.recovery, f"~claim/projector/{self.epoch}".encode(), b"x")
                case 9:
                    self._append(self.recovery, job.encode(), None, self._drawn_epoch(drawn))
                case _:
                    epoch = self._drawn_epoch(drawn)
                    entry = RecoveryEntry(job, job, namespace_of(job), "memory", JobState.RUNNING, "0" * 64, n, epoch=epoch)
                    value = drawn.choice([avro.encode(entry)] * 8 + [b"garbage"])
                    self._append(self.recovery, job.encode(), value, epoch)

    def _drawn_epoch(self, drawn: random.Random) -> int:
        return max(1, self.epoch + drawn.choice([0, 0, 0, 0, -1]))

    def _append(self, to: list[MemoryRecord], key: bytes | None, value: bytes | None, epoch: int = 0) -> None:
        topic = EVENTS if to is self.events else RECOVERY
        headers = (("ledger_epoch", str(epoch).encode()),) if epoch else ()
        to.append(MemoryRecord(topic, 0, len(to) * 2, key, value, headers, self.at_ms))

    def archive(self) -> Archive:
        archive = Archive(MemoryObjects(), "test", lambda: "2023-11-15T00:00:00Z")
        for records in (self.events, self.recovery):
            head = archive.head(records[0].topic(), 0)
            for i in range(0, len(records), 40):
                head = archive.seal(head, TOPIC_ID, store_segment(archive.store, head.next, records[i : i + 40], read_out))
        return archive


def run(archive: Archive, now_s: float = NOW_S, **given) -> int:
    return expire(archive, plan(archive, TOPICS, RETENTION, now_s, avro, **given), BY, AT)


same_entries = partial(snapshots.same_entries, decode=avro.decode)


def must_fold_the_same(archive: Archive, life: Life, until_s: float = 0.0) -> None:
    """Of the whole, and of every beginning of it from the latest cutoff on."""
    events, recovery = (list(archive.records(topic, 0)) for topic in (EVENTS, RECOVERY))
    for cut_ms in [life.at_ms + 1, *range(int(until_s * 1000), life.at_ms, DAY_S * 1000)]:
        def before(records: list[MemoryRecord], whole: list[MemoryRecord], cut_ms: int = cut_ms) -> list[MemoryRecord]:
            end = next((one.offset() for one in whole if one.timestamp()[1] > cut_ms), 10**9)
            return [one for one in records if one.offset() < end]

        assert snapshots.same_registers(before(events, life.events), before(life.events, life.events))
        assert same_entries(before(recovery, life.recovery), before(life.recovery, life.recovery))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_fold_of_the_present_nor_of_a_moment_since_can_tell(seed: int) -> None:
    life = Life(seed)
    archive = life.archive()
    for joined in (False, True):
        if joined:
            compact(archive, NOW_S + DAY_S)
        went = run(archive, NOW_S - 2 * DAY_S * (not joined))
        assert went > 10
        must_fold_the_same(archive, life, NOW_S - 2 * DAY_S)
        heads = [archive.head(*place) for place in archive.places()]
        assert [one.broken for one in verify(Archive(archive.store), heads)] == [(), ()]
    assert run(archive) == 0


@pytest.mark.parametrize("seed", range(SEEDS))
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


def jobs_archive(*facts: tuple[str, bytes | None, float]) -> Archive:
    """key, value, days since the beginning: of ledger.events, in order."""
    archive = Archive(MemoryObjects(), "test", lambda: AT)
    records = [
        MemoryRecord(EVENTS, 0, offset, key.encode(), value, (), int((BEGIN_S + days * DAY_S) * 1000))
        for offset, (key, value, days) in enumerate(facts)
    ]
    archive.seal(archive.head(EVENTS, 0), TOPIC_ID, store_segment(archive.store, 0, records, read_out))
    return archive


def left(archive: Archive, **given) -> list[int]:
    run(archive, **given)
    return [record.offset() for record in archive.records(EVENTS, 0)]


KEY, VALUE = spec_of("job-0")
RUNNING = key_of("job-0", Running(1)), avro.encode(AttemptEnded())
RESULT = key_of("job-0", Result("FINISHED")), avro.encode(JobResult("job-0", "prod", "memory", "0" * 64, "", 1.0, 1))


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
    assert left(jobs_archive(*facts)) == [0, 3]  # redacted, but the result tells whose it is


def test_of_two_namespaces_the_longer_one_counts() -> None:
    other = replace(SPEC, namespace="test", name="job-0")
    facts = [(KEY, VALUE, 0.0), (key_of("job-0", Spec(avro.spec_digest(other))), avro.encode(other), 0.0),
             (*RUNNING, 6.0), (RUNNING[0], None, 6.5)]  # fmt: skip
    assert left(jobs_archive(*facts)) == [0, 1, 2, 3]  # four days ago: test keeps two, prod five


def test_what_tells_whose_a_job_is_goes_last() -> None:
    over = [(KEY, VALUE, 0.0), (*RUNNING, 0.1), (KEY, None, 1.0), (RUNNING[0], None, 4.9)]
    archive = jobs_archive(*over)
    assert left(archive, now_s=BEGIN_S + 9 * DAY_S) == [0, 1, 2, 3]  # the other tombstone is younger: it would never go
    assert left(archive, now_s=BEGIN_S + 10 * DAY_S) == []
    assert left(jobs_archive(*over[:3], (*RESULT, 1.1)), now_s=BEGIN_S + 9 * DAY_S) == [1, 3]


def test_a_job_that_is_held_is_left_alone() -> None:
    facts = [(KEY, VALUE, 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 2.0)]
    until_ms = (BEGIN_S + DAY_S) * 1000
    archive = jobs_archive(*facts)
    held = left(archive, held=lambda job, at_ms: job == "job-0" and at_ms <= until_ms)
    assert held == [0, 1, 2]  # the tombstone too, though it is younger: or the fact would come back
    assert left(archive, held=lambda job, _: job == "another") == [0, 2]  # the last of a job stays as long as it has any


def test_nothing_is_set_and_nothing_goes() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 0.1), (RUNNING[0], None, 0.2))
    assert plan(archive, TOPICS, {}, NOW_S, avro) == plan(archive, TOPICS, {"*": None}, NOW_S, avro) == []
    assert plan(archive, TOPICS, {"test": 1.0}, NOW_S, avro) == []
    assert [one.records for one in plan(archive, TOPICS, {"*": 1.0}, NOW_S, avro)] == [1]


# -- the past ----------------------------------------------------------------------------------------------------------


def archived_of(archive: Archive) -> dict[TopicPartition, past.Sealed]:
    return {
        place: past.Sealed(
            archive.head(*place).next, 0.0, partial(archive.records, *place), expired=expired_of(archive.expired(*place))
        )
        for place in archive.places()
    }  # fmt: skip


def asked(archive: Archive, text: str) -> tuple[Source, Places]:
    archived = archived_of(archive)
    log = bundling.Ended({place: one.next for place, one in archived.items()}, {EVENTS: 1, RECOVERY: 1})
    clock = ManualClock()
    source = Source(past.PastLog(log, {}, archived), TOPICS, avro, cloudevents, ThenClock(clock, NOW_S))
    return as_of(source, parse(text, NOW_S), archived, {EVENTS: 0.0, RECOVERY: 0.0})


def then(archive: Archive, text: str) -> Source:
    return asked(archive, text)[0]


def moment(days: float) -> str:
    return datetime.fromtimestamp(BEGIN_S + days * DAY_S, UTC).isoformat()


def left_out_of(found: Source) -> LeftOut:
    assert isinstance(found.log, past.PastLog)
    return found.log.left_out


def noted_without_jobs(archive: Archive) -> Archive:
    """The same, by notes from before they named jobs."""
    found = archive.expired

    def without(topic: str, partition: int) -> list[Gone]:
        return [replace(one, jobs=None) for one in found(topic, partition)]

    archive.expired = without  # type: ignore[method-assign]
    return archive


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_moment_before_leaves_out_the_jobs_of_that_namespace_and_tells_all_others_as_ever(seed: int) -> None:
    """Where nobody noted which jobs they were."""
    life = Life(seed)
    whole, archive = life.archive(), life.archive()
    run(archive)
    noted_without_jobs(archive)
    for days, hidden in ((2.0, {"prod", "test"}), (6.0, {"test"}), (9.0, set())):
        before, after = then(whole, moment(days)), then(archive, moment(days))
        assert set(left_out_of(after).namespaces) == hidden
        wanted = {job: entry for job, entry in recovery_set(before).items() if entry.namespace not in hidden}
        assert dict(recovery_set(after)) == wanted
        for job, entry in recovery_set(before).items():
            if entry.namespace in hidden and job in left_out_of(after).jobs:
                with pytest.raises(LedgerError, match="nobody can tell any more"):
                    resolve(after, job)
    assert left_out_of(then(whole, moment(2.0))) == LeftOut()
    with pytest.raises(NotFound):
        resolve(then(archive, moment(2.0)), "nobody")


def taken_of(archive: Archive) -> set[str]:
    return {job.job_id for place in archive.places() for gone in archive.expired(*place) for job in gone.jobs or ()}


def facts_of(source: Source, hidden: Container[str] = ()) -> tuple[object, object]:
    """What was published, and the registers, of all jobs but these."""
    entries = {job: entry for job, entry in recovery_set(source).items() if job not in hidden}
    jobs = all_registers(source).jobs[0].items()
    return entries, {job: dict(held) for job, held in jobs if job.decode() not in hidden}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_left_out_are_the_jobs_of_which_something_went_that_counted_then_and_nobody_else(seed: int) -> None:
    """At every moment, by time and by offsets, after several runs."""
    life = Life(seed)
    whole, archive = life.archive(), life.archive()
    for days in (7.0, 8.5, 10.0):
        run(archive, BEGIN_S + days * DAY_S)
    taken = taken_of(archive)
    spared = some = 0
    for number in range(20):
        before, after = then(whole, moment(number / 2)), then(archive, moment(number / 2))
        hidden = left_out_of(after).jobs
        assert hidden.keys() <= taken and {namespace for namespace, _ in hidden.values()} <= {"prod", "test"}
        assert facts_of(after) == facts_of(before, hidden)
        assert isinstance(after.log, past.PastLog)
        cut = {(topic.removeprefix("ledger."), p): end for (topic, p), end in after.log.cut.items()}
        again = then(archive, vector(cut))
        assert (left_out_of(again), facts_of(again)) == (left_out_of(after), facts_of(after))
        spared += sum(entry.namespace != "kept" and job not in hidden for job, entry in recovery_set(before).items())
        some += len(hidden)
    assert spared > 0 < some
    with pytest.raises(NotFound):
        resolve(then(archive, moment(2.0)), "nobody")


def test_a_job_that_is_held_is_not_left_out_and_one_that_went_whole_is_as_long_as_it_counted() -> None:
    other = [(key.replace("job-0", "job-3"), value) for key, value in [(KEY, spec_of("job-3")[1]), RUNNING]]
    facts = [(KEY, VALUE, 0.0), (*other[0], 0.0), (*RUNNING, 0.1), (*other[1], 0.1), (KEY, None, 1.0),
             (RUNNING[0], None, 1.0), (other[1][0], None, 1.0), (other[0][0], None, 1.0)]  # fmt: skip
    archive = jobs_archive(*facts)
    assert left(archive, held=lambda job, _: job == "job-3") == [1, 3, 6, 7]
    source = then(archive, "events[0]@2")
    assert left_out_of(source).jobs == {"job-0": ("prod", "")}  # nobody knows its name any more
    (told,) = left_out_of(source).told()
    assert told.startswith("1 job of prod is left out (job-0): what it held before 2023-")
    assert all_registers(source).jobs[0].keys() == {b"job-3"}
    with pytest.raises(LedgerError, match="how job-0 stood"):
        resolve(source, "job-0")
    assert left_out_of(then(archive, "events[0]@6")) == LeftOut()  # it was over by then


def test_that_something_went_is_known_of_a_moment_whose_own_records_went() -> None:
    """No record is left that tells how far the partition went then."""
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (*RUNNING, 2.0), (RUNNING[0], None, 2.5), (*RUNNING, 3.0))
    assert left(archive) == [0, 4]
    assert left_out_of(then(archive, moment(0.5))) == LeftOut()
    for days in (1.0, 1.5, 2.0, 2.9):
        assert left_out_of(then(archive, moment(days))).jobs == {"job-0": ("prod", "job-0")}
    assert left_out_of(then(archive, moment(3.0))) == LeftOut()


def test_who_is_left_out_is_told_by_number_and_by_name_if_they_are_few() -> None:
    few = {"a": ("prod", "other"), "b": ("prod", "third"), "c": ("test", "mine")}
    found = LeftOut({"prod": 86_400.0, "test": 0.0, "dev": 0.0}, few)
    assert list(found.told()) == [
        "2 jobs of prod are left out (other, third): what they held before 1970-01-02T00:00:00Z has expired",
        "1 job of test is left out (mine): what it held before 1970-01-01T00:00:00Z has expired",
    ]
    many = LeftOut({"prod": 0.0}, {str(n): ("prod", str(n)) for n in range(6)}) | LeftOut({"prod": 60.0})
    assert list(many.told()) == ["6 jobs of prod are left out: what they held before 1970-01-01T00:01:00Z has expired"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("noted", [True, False])
def test_queries_leave_them_out_of_what_was_published_then(seed: int, noted: bool) -> None:
    archive = Life(seed).archive()
    run(archive)
    if not noted:
        noted_without_jobs(archive)
    with opened(archive, TOPICS, lambda _: 0.0) as queries:
        for days in (2.0, 6.0, 9.0):
            rows = queries.ask(f"SELECT job_id FROM entries_at('{moment(days)}') WHERE NOT unreadable").rows
            source = then(archive, moment(days))
            assert {row["job_id"] for row in rows} == set(recovery_set(source))
            left = list(queries.ask(f"FROM left_out_at('{moment(days)}')").rows)
            if noted:
                named = {row["job_id"]: (row["namespace"], row["name"] or row["job_id"]) for row in left}
                known = {job: (namespace, name or job) for job, (namespace, name) in left_out_of(source).jobs.items()}
                assert named == known
        found = list(queries.ask("SELECT DISTINCT namespace FROM expired ORDER BY 1").rows)
        sure_from = {row["sure_from"] for row in queries.ask("SELECT sure_from FROM sealed").rows}
    assert [row["namespace"] for row in found] == ["prod", "test"]
    assert sure_from == {moment(8.0).replace("+00:00", ".000000Z")}  # of all jobs


def test_whom_a_query_leaves_out_is_told() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (RUNNING[0], None, 2.0), (KEY, VALUE, 3.0))
    run(archive)
    with opened(archive, TOPICS, lambda _: 0.0) as queries:
        for call in ("entries_at({})", "RECOVERY_SET_AT ( {} )"):
            for then_, days in ((f"'{moment(1.5)}'", 1.5), (f"(TIMESTAMPTZ '{moment(0.5)}' + INTERVAL 1 DAY)", 1.5)):
                (told,) = queries.left_out(f"SELECT ')', * FROM {call.format(then_)}")
                assert told.startswith(f"at {then_}: 1 job of prod is left out (job-0)"), days
        assert queries.left_out(f"FROM entries_at('{moment(4.0)}')") == []
        assert queries.left_out(f"SELECT '{moment(1.5)}' FROM events") == []
        assert queries.left_out("FROM (SELECT min(timestamp) AS t FROM events) s, entries_at(s.t)") == [
            "jobs of which something has expired are left out: left_out_at(T) tells which"]  # fmt: skip
    with opened(jobs_archive((KEY, VALUE, 0.0)), TOPICS, lambda _: 0.0) as queries:
        assert queries.left_out(f"FROM entries_at('{moment(0.0)}')") == []


def bundle_of(archive: Archive, text: str, jobs: Collection[str] = ()) -> bundling.Bundle:
    source, cut = asked(archive, text)
    why = bundling.Why(moment(10.0), BY, "test")
    store, lag_s = MemoryObjects(), {EVENTS: 0.0, RECOVERY: 0.0}
    bundling.write(store, source, cut, jobs, why, read_out, archived_of(archive), lag_s, float(NOW_S))

    def made(log: EventLog, about: bundling.About) -> Source:
        return Source(log, about, avro, cloudevents, ThenClock(ManualClock(), about.made_at_s))

    return bundling.read(store, made)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("noted", [True, False])
def test_a_bundle_answers_as_the_ledger_would_have(seed: int, noted: bool) -> None:
    archive = Life(seed).archive()
    run(archive)
    if not noted:
        noted_without_jobs(archive)
    of_all, of_some = bundle_of(archive, "0s"), bundle_of(archive, "0s", ["job-0", "job-1", "job-2"])
    assert set(of_all.about.sure_from_s.values()) == {0.0}
    others = {f"job-{n}" for n in range(3, 12)}
    for days in (1.0, 2.0, 4.9, 6.0, 7.9, 9.0):
        wanted = then(archive, moment(days))
        found, _ = of_all.as_of(parse(moment(days), NOW_S))
        assert (left_out_of(found), facts_of(found)) == (left_out_of(wanted), facts_of(wanted))
        found, _ = of_some.as_of(parse(moment(days), NOW_S))
        assert left_out_of(found).jobs == {j: told for j, told in left_out_of(wanted).jobs.items() if j not in others}
        assert facts_of(found) == facts_of(wanted, others)
    bundle = bundle_of(archive, "0s")
    queried = opened(bundle.archive, TOPICS, lambda _: 0.0, lambda topic, p: bundle.archived[topic, p].expired)
    with queried as queries:
        rows = queries.ask(f"SELECT job_id FROM entries_at('{moment(2.0)}') WHERE NOT unreadable").rows
        assert {row["job_id"] for row in rows} == set(recovery_set(then(archive, moment(2.0))))


def test_of_whom_a_bundle_of_the_past_holds_nothing_it_says_so_at_every_moment() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (RUNNING[0], None, 2.0))
    run(archive)
    bundle = bundle_of(archive, moment(1.5))
    assert left_out_of(then(archive, moment(0.5))) == LeftOut()
    early, _ = bundle.as_of(parse(moment(0.5), NOW_S))
    for source in (bundle.source, early):
        assert left_out_of(source).jobs.keys() == {"job-0"}
        with pytest.raises(LedgerError, match="nobody can tell any more"):
            resolve(source, "job-0")


def test_where_nothing_expired_a_bundle_is_what_older_programs_read() -> None:
    about = bundle_of(jobs_archive((KEY, VALUE, 0.0)), "0s").about
    assert "expired" not in json.loads(about.encode()) and about == bundling.decode(about.encode())


@pytest.mark.parametrize("wrong", [{"x": [{}]}, {"x": [3]}, {"x": 3}, [], {"x": [
    {"namespace": "prod", "until_s": 1.0, "below": 1, "records": 1, "jobs": {"job-0": [1, 2, "3"]}}]}])  # fmt: skip
def test_a_bundle_whose_word_on_that_can_t_be_read_is_refused(wrong: object) -> None:
    about = json.loads(bundle_of(jobs_archive((KEY, VALUE, 0.0)), "0s").about.encode())
    with pytest.raises(UsageError, match=r"bundle\.json"):
        bundling.decode(json.dumps({**about, "expired": wrong}).encode())


def test_between_two_moments_who_is_left_out_of_either_is_left_out_of_both() -> None:
    archive = Life(1).archive()
    run(archive)
    one, other = then(archive, moment(3.0)), then(archive, moment(9.0))
    assert left_out_of(one).jobs and not left_out_of(other).jobs
    for before, after in (past.together(one, other), past.together(other, one)):
        assert left_out_of(before) == left_out_of(after) == left_out_of(one)
        hidden = left_out_of(one).jobs
        assert facts_of(before if before.clock is one.clock else after) == facts_of(one)
        assert facts_of(after if before.clock is one.clock else before) == facts_of(other, hidden)
    early = then(archive, moment(0.0))
    assert not left_out_of(early).jobs
    _, whole = past.together(early, other, between=True)
    assert left_out_of(whole).jobs.keys() >= {
        job for days in range(9) for job in left_out_of(then(archive, moment(days))).jobs
    }  # fmt: skip


def test_of_the_topic_too_nothing_is_told_of_who_is_left_out() -> None:
    """What the archive has not yet, or of a topic that it has not."""
    log = MemoryLog({EVENTS: 1}, ManualClock())
    log.append([Event(EVENTS, 0, f"job-{n % 2}/admitted".encode(), b"x") for n in range(6)])
    hidden = LeftOut({"prod": 1.0}, {"job-0": ("prod", "job-0")})
    reader = past.PastLog(log, {(EVENTS, 0): 4}, {}, left_out=hidden).reader([EVENTS])
    assert [record.offset() for record in reader.poll(100, 0.0)] == [1, 3]
    assert reader.position() == {(EVENTS, 0): 4}

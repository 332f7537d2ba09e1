"""Jobs with expired records are left out at the moments for which those records counted, and the answers say so."""

from __future__ import annotations

import json
from collections.abc import Collection, Container
from dataclasses import replace

import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.removals import Gone
from ledger.archive.format.segments import store_segment
from ledger.archive.query.querying import opened
from ledger.archive.store.archive import Archive
from ledger.core.model.registers import Running, key_of
from ledger.errors import LedgerError, NotFound, UsageError
from ledger.history import bundling, historical_log
from ledger.history.bundle_about import About, decode
from ledger.history.historical_runner import ThenClock
from ledger.history.moment import parse, vector
from ledger.ports import Event, EventLog, MemoryRecord
from ledger.reader.expiry_gaps import ExpiryGaps
from ledger.reader.job_lookup import resolve
from ledger.reader.reading import Source, all_registers, entries_of
from tests.support.archives.given import TOPIC_ID, read_out
from tests.support.archives.lives import (
    BEGIN_S,
    BY,
    DAY_S,
    EVENTS,
    KEY,
    NOW_S,
    RECOVERY,
    RUNNING,
    SEEDS,
    TOPICS,
    VALUE,
    Life,
    archived_of,
    asked,
    jobs_archive,
    left,
    moment,
    run,
    spec_of,
    then,
)
from tests.support.repetitions import one_fast

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.slow]


def left_out_of(found: Source) -> ExpiryGaps:
    assert isinstance(found, historical_log.HistoricalSource)
    return found.log.left_out


def noted_without_jobs(archive: Archive) -> Archive:
    """The archive, as with older notes that do not name the jobs."""
    found = archive.expired

    def without(topic: str, partition: int) -> list[Gone]:
        return [replace(one, jobs=None) for one in found(topic, partition)]

    archive.expired = without  # type: ignore[method-assign]
    return archive


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_a_moment_before_leaves_out_the_jobs_of_that_namespace_and_tells_all_others_as_ever(seed: int) -> None:
    """The case of notes that do not name the jobs whose records expired."""
    life = Life(seed)
    whole, archive = life.archive(), life.archive()
    run(archive)
    noted_without_jobs(archive)
    for days, hidden in ((2.0, {"prod", "test"}), (6.0, {"test"}), (9.0, set())):
        before, after = then(whole, moment(days)), then(archive, moment(days))
        assert set(left_out_of(after).namespaces) == hidden
        wanted = {job: entry for job, entry in entries_of(before).items() if entry.namespace not in hidden}
        assert dict(entries_of(after)) == wanted
        for job, entry in entries_of(before).items():
            if entry.namespace in hidden and job in left_out_of(after).jobs:
                with pytest.raises(LedgerError, match="at that moment is unknown"):
                    resolve(after, job)
    assert left_out_of(then(whole, moment(2.0))) == ExpiryGaps()
    with pytest.raises(NotFound):
        resolve(then(archive, moment(2.0)), "nobody")


def taken_of(archive: Archive) -> set[str]:
    return {job.job_id for place in archive.partitions() for gone in archive.expired(*place) for job in gone.jobs or ()}


def facts_of(source: Source, hidden: Container[str] = ()) -> tuple[object, object]:
    """The published entries and the registers of all jobs except the hidden ones."""
    entries = {job: entry for job, entry in entries_of(source).items() if job not in hidden}
    jobs = all_registers(source).jobs[0].items()
    return entries, {job: dict(held) for job, held in jobs if job.decode() not in hidden}


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_left_out_are_the_jobs_of_which_something_went_that_counted_then_and_nobody_else(seed: int) -> None:
    """Checks many moments, given by time and by offsets, after several runs of `expire`."""
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
        assert isinstance(after, historical_log.HistoricalSource)
        cut = {(topic.removeprefix("ledger."), p): end for (topic, p), end in after.log.cut.items()}
        again = then(archive, vector(cut))
        assert (left_out_of(again), facts_of(again)) == (left_out_of(after), facts_of(after))
        spared += sum(entry.namespace != "kept" and job not in hidden for job, entry in entries_of(before).items())
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
    assert left_out_of(source).jobs == {"job-0": ("prod", "")}  # its name is not known any more
    (told,) = left_out_of(source).descriptions()
    assert told.startswith("1 job of prod is left out (job-0): the records that it superseded before 2023-")
    assert all_registers(source).jobs[0].keys() == {b"job-3"}
    with pytest.raises(LedgerError, match="the state of job-0 at that moment is unknown"):
        resolve(source, "job-0")
    assert left_out_of(then(archive, "events[0]@6")) == ExpiryGaps()  # the job was over by then


def test_that_something_went_is_known_of_a_moment_whose_own_records_went() -> None:
    """No record is left that shows how far the partition reached then."""
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (*RUNNING, 2.0), (RUNNING[0], None, 2.5), (*RUNNING, 3.0))
    assert left(archive) == [0, 4]
    assert left_out_of(then(archive, moment(0.5))) == ExpiryGaps()
    for days in (1.0, 1.5, 2.0, 2.9):
        assert left_out_of(then(archive, moment(days))).jobs == {"job-0": ("prod", "job-0")}
    assert left_out_of(then(archive, moment(3.0))) == ExpiryGaps()


@pytest.mark.parametrize("noted", [True, False])
def test_where_what_lay_there_last_expired_the_other_partitions_have_to_be_named(noted: bool) -> None:
    """The append time of that offset is not known any more, so the other partitions can't be cut by it."""
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (*RUNNING, 3.0), (*RUNNING, 9.0))
    kept = [(*spec_of("job-2"), 0.5), (key_of("job-2", Running(1)), RUNNING[1], 2.0)]
    records = [
        MemoryRecord(EVENTS, 1, offset, key.encode(), value, (), int((BEGIN_S + days * DAY_S) * 1000))
        for offset, (key, value, days) in enumerate(kept)
    ]
    archive.seal(archive.head(EVENTS, 1), TOPIC_ID, store_segment(archive.store, 0, records, read_out))
    before = {text: asked(archive, text)[1] for text in ("events[0]@0", "events[0]@1", "events[0]@2", "events[1]@0")}
    assert before["events[0]@1"] == {("events", 0): 2, ("events", 1): 1}
    assert left(archive) == [0, 2, 3]
    if not noted:
        noted_without_jobs(archive)
    with pytest.raises(LedgerError, match=r"events\[0\]@1 have expired") as refused:
        asked(archive, "events[0]@1")
    assert "every partition" in refused.value.hint
    for text, cut in before.items():
        assert asked(archive, vector(cut))[1] == cut
        if text != "events[0]@1":
            assert asked(archive, text)[1] == cut


def test_who_is_left_out_is_told_by_number_and_by_name_if_they_are_few() -> None:
    few = {"a": ("prod", "other"), "b": ("prod", "third"), "c": ("test", "mine")}
    found = ExpiryGaps({"prod": 86_400.0, "test": 0.0, "dev": 0.0}, few)
    assert list(found.descriptions()) == [
        (
            "2 jobs of prod are left out (other, third): "
            "the records that they superseded before 1970-01-02T00:00:00Z have expired"
        ),
        "1 job of test is left out (mine): the records that it superseded before 1970-01-01T00:00:00Z have expired",
    ]
    many = ExpiryGaps({"prod": 0.0}, {str(n): ("prod", str(n)) for n in range(6)}) | ExpiryGaps({"prod": 60.0})
    assert list(many.descriptions()) == [
        "6 jobs of prod are left out: the records that they superseded before 1970-01-01T00:01:00Z have expired"
    ]


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
            assert {row["job_id"] for row in rows} == set(entries_of(source))
            left = list(queries.ask(f"FROM left_out_at('{moment(days)}')").rows)
            if noted:
                named = {row["job_id"]: (row["namespace"], row["name"] or row["job_id"]) for row in left}
                known = {job: (namespace, name or job) for job, (namespace, name) in left_out_of(source).jobs.items()}
                assert named == known
        found = list(queries.ask("SELECT DISTINCT namespace FROM expired ORDER BY 1").rows)
        sure_from = {row["sure_from"] for row in queries.ask("SELECT sure_from FROM sealed").rows}
    assert [row["namespace"] for row in found] == ["prod", "test"]
    assert sure_from == {moment(8.0).replace("+00:00", ".000000Z")}  # for all jobs


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
            "jobs with expired records are left out; left_out_at(T) lists them"]  # fmt: skip
    with opened(jobs_archive((KEY, VALUE, 0.0)), TOPICS, lambda _: 0.0) as queries:
        assert queries.left_out(f"FROM entries_at('{moment(0.0)}')") == []


def bundle_of(archive: Archive, text: str, jobs: Collection[str] = ()) -> bundling.Bundle:
    source, cut = asked(archive, text)
    why = bundling.Why(moment(10.0), BY, "test")
    store, lag_s = MemoryObjects(), {EVENTS: 0.0, RECOVERY: 0.0}
    bundling.write(store, source, cut, jobs, why, read_out, archived_of(archive), lag_s, float(NOW_S))

    def made(log: EventLog, about: About) -> Source:
        return Source(log, about, avro, cloudevents, ThenClock(ManualClock(), about.made_at_s))

    return bundling.read(store, made)


def others_of(source: Source, others: Container[str]) -> set[tuple[str, tuple[str, str]]]:
    return {(job, told) for job, told in left_out_of(source).jobs.items() if job in others}


@pytest.mark.parametrize("seed", one_fast(SEEDS))
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
        hidden = left_out_of(found).jobs
        # Between its records a bundle can't tell how far a partition reached, so it may leave out a job unnecessarily.
        assert left_out_of(wanted).jobs.items() - others_of(wanted, others) <= hidden.items()
        assert not others & hidden.keys() and {namespace for namespace, _ in hidden.values()} <= {"prod", "test"}
        assert facts_of(found) == facts_of(wanted, others | hidden.keys())
    bundle = bundle_of(archive, "0s")
    queried = opened(bundle.archive, TOPICS, lambda _: 0.0, lambda topic, p: bundle.archived[topic, p].expired)
    with queried as queries:
        rows = queries.ask(f"SELECT job_id FROM entries_at('{moment(2.0)}') WHERE NOT unreadable").rows
        assert {row["job_id"] for row in rows} == set(entries_of(then(archive, moment(2.0))))


def test_of_whom_a_bundle_of_the_past_holds_nothing_it_says_so_at_every_moment() -> None:
    archive = jobs_archive((KEY, VALUE, 0.0), (*RUNNING, 1.0), (RUNNING[0], None, 2.0))
    run(archive)
    bundle = bundle_of(archive, moment(1.5))
    assert left_out_of(then(archive, moment(0.5))) == ExpiryGaps()
    early, _ = bundle.as_of(parse(moment(0.5), NOW_S))
    for source in (bundle.source, early):
        assert left_out_of(source).jobs.keys() == {"job-0"}
        with pytest.raises(LedgerError, match="at that moment is unknown"):
            resolve(source, "job-0")


def test_where_nothing_expired_a_bundle_is_what_older_programs_read() -> None:
    about = bundle_of(jobs_archive((KEY, VALUE, 0.0)), "0s").about
    assert "expired" not in json.loads(about.encode()) and about == decode(about.encode())


@pytest.mark.parametrize("wrong", [{"x": [{}]}, {"x": [3]}, {"x": 3}, [], {"x": [
    {"namespace": "prod", "until_s": 1.0, "below": 1, "records": 1, "jobs": {"job-0": [1, 2, "3"]}}]}, {"x": [
    {"namespace": "prod", "until_s": 1e300, "below": 1, "records": 1, "jobs": None}]}])  # fmt: skip
def test_a_bundle_whose_word_on_that_can_t_be_read_is_refused(wrong: object) -> None:
    about = json.loads(bundle_of(jobs_archive((KEY, VALUE, 0.0)), "0s").about.encode())
    with pytest.raises(UsageError, match=r"bundle\.json"):
        decode(json.dumps({**about, "expired": wrong}).encode())


def test_between_two_moments_who_is_left_out_of_either_is_left_out_of_both() -> None:
    archive = Life(1).archive()
    run(archive)
    one, other = then(archive, moment(3.0)), then(archive, moment(9.0))
    assert left_out_of(one).jobs and not left_out_of(other).jobs
    for before, after in (historical_log.together(one, other), historical_log.together(other, one)):
        assert left_out_of(before) == left_out_of(after) == left_out_of(one)
        hidden = left_out_of(one).jobs
        assert facts_of(before if before.clock is one.clock else after) == facts_of(one)
        assert facts_of(after if before.clock is one.clock else before) == facts_of(other, hidden)
    early = then(archive, moment(0.0))
    assert not left_out_of(early).jobs
    _, whole = historical_log.together(early, other, between=True)
    assert left_out_of(whole).jobs.keys() >= {
        job for days in range(9) for job in left_out_of(then(archive, moment(days))).jobs
    }  # fmt: skip


def test_of_the_topic_too_nothing_is_told_of_who_is_left_out() -> None:
    """Records that the archive does not have yet, and topics that are not archived."""
    log = MemoryLog({EVENTS: 1}, ManualClock())
    log.append([Event(EVENTS, 0, f"job-{n % 2}/admitted".encode(), b"x") for n in range(6)])
    hidden = ExpiryGaps({"prod": 1.0}, {"job-0": ("prod", "job-0")})
    reader = historical_log.HistoricalLog(log, {(EVENTS, 0): 4}, {}, left_out=hidden).reader([EVENTS])
    assert [record.offset() for record in reader.poll(100, 0.0)] == [1, 3]
    assert reader.position() == {(EVENTS, 0): 4}

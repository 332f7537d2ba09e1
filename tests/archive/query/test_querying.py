"""SQL queries: the views agree with a reader of the topics, and a query can read nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ledger.adapters import avro, cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.log import MemoryLog
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.format.lateness import sure_from_s
from ledger.archive.query.querying import Queries, opened
from ledger.archive.store.archive import Archive
from ledger.core.fold.job import Job
from ledger.core.model.recovery import RecoveryEntry
from ledger.errors import LedgerError, UsageError
from ledger.history import historical_log
from ledger.history.moment import Moment
from ledger.history.resolve_moment import as_of
from ledger.ports import NOWHERE, MemoryRecord
from ledger.reader.reading import entries_of
from ledger.util.plain import to_plain
from ledger.util.times import rfc3339
from tests.support.archives.queried import (
    BEGIN_MS,
    PARTITIONS,
    TOPICS,
    an_archive,
    asked,
    event_records,
    recovery_records,
)
from tests.support.repetitions import one_fast, seeds

SEEDS = seeds(4)


def published_then(archive: Archive, time_s: float) -> dict[str, RecoveryEntry]:
    """The entries at a moment as the `past` module computes them, from the same archive and an empty topic with the
    same ends."""
    topics = {TOPICS.events: PARTITIONS, TOPICS.recovery: PARTITIONS}
    log = MemoryLog(topics, ManualClock())
    ends = {place: archive.head(*place).next for place in archive.partitions()}
    sealed = {
        place: historical_log.SealedRecords(end, 0.0, partial(archive.records, *place)) for place, end in ends.items()
    }
    source = historical_log.HistoricalSource(
        historical_log.HistoricalLog(Ending(log, ends), {}, sealed), TOPICS, avro, cloudevents, ManualClock()
    )
    then, _ = as_of(source, Moment(time_s=time_s), sealed, dict.fromkeys(topics, 1e12))
    return entries_of(then)


class Ending:
    """A log whose partitions end where the archive ends, and whose records compaction has all removed."""

    def __init__(self, log: MemoryLog, ends: dict[tuple[str, int], int]) -> None:
        self._log, self._ends = log, ends

    def reader(self, topics: Any, partition: int | None = None, begin: Any = NOWHERE) -> Any:
        live = self._log.reader(topics, partition, begin)
        ends = {place: self._ends.get(place, 0) for place in live.high_watermarks()}
        live.high_watermarks = live.position = lambda: ends
        return live

    def partitions(self, topic: str) -> int:
        return self._log.partitions(topic)


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_at_any_moment_the_recovery_set_is_what_the_past_says(seed: int) -> None:
    drawn = random.Random(seed)
    archive = an_archive(*(recovery_records(p, drawn) for p in range(PARTITIONS)))
    times = sorted({r.timestamp()[1] for p in range(PARTITIONS) for r in archive.records(TOPICS.recovery, p)})
    live = 0
    with asked(archive) as ask:
        for at_ms in [*drawn.sample(times, 12), times[0] - 1, times[-1] + 1]:
            wanted, moment = published_then(archive, at_ms / 1000), rfc3339(at_ms / 1000)
            rows = ask(f"FROM entries_at('{moment}')")
            found = {row["job_id"]: row["entry"] for row in rows if not row["unreadable"]}
            assert found == {job: json.loads(json.dumps(to_plain(entry))) for job, entry in wanted.items()}, moment
            in_set = ask(f"FROM recovery_set_at('{moment}') ORDER BY job_id")
            assert [row["job_id"] for row in in_set] == sorted(wanted.recovery_set()), moment
            assert all(row["state"] == wanted[row["job_id"]].state for row in in_set)
            live += len(in_set)
    assert live > 0


@pytest.mark.parametrize("seed", one_fast(SEEDS))
def test_attempts_and_checkpoints_are_those_of_the_job(seed: int) -> None:
    """The core agrees, over all records that ever were in the topic: a tombstone removes nothing from an archive."""
    records = event_records(random.Random(seed))
    with asked(an_archive(records)) as ask:
        attempts, checkpoints = ask("FROM attempts"), ask("FROM checkpoints")
        pruned = ask("SELECT job_id, n, id FROM checkpoints WHERE pruned_at IS NOT NULL")
    values = {r.key(): (r.value(), 0) for r in records if r.value() is not None}
    for job_id in {row["job_id"] for row in attempts}:
        prefix = f"{job_id}/".encode()
        own = {key[len(prefix) :]: held for key, held in values.items() if key.startswith(prefix)}
        job = Job(job_id, own, lambda register, held: avro.read(register, held[0]))
        found = {row["n"]: row for row in attempts if row["job_id"] == job_id}
        assert sorted(found) == sorted({*job.attempts, *job.runnings, *job.ends})
        for n, row in found.items():
            end, record, running = job.end(n), job.attempt(n), job.running(n)
            assert (row["outcome"], row["ended_by"]) == ((end[0].outcome, end[0].writer) if end else (None, None))
            assert row["cause"] == (end[1].cause if end else None)
            assert row["base"] == (json.loads(json.dumps(to_plain(record.base))) if record else None)
            assert row["failures"] == (record.failures if record else None)
            assert row["engine_id"] == (running.engine_id if running else None)
        kept = {(c.n, c.id): job.checkpoint(c.n, c.id) for each in job.checkpoints.values() for c in each}
        told = {(row["n"], row["id"]): row for row in checkpoints if row["job_id"] == job_id and row["completed_at"]}
        assert {key: (row["kind"], row["size"]) for key, row in told.items()} == {
            key: (fact.kind, fact.size) for key, fact in kept.items()
        }
    gone = {r.key() for r in records if r.value() is None and b"/checkpoint/" in (r.key() or b"")}
    assert {f"{row['job_id']}/checkpoint/{row['n']}/{row['id']}".encode() for row in pruned} == gone


def test_what_lies_in_another_partition_changes_nothing_of_a_job() -> None:
    """Readers ignore records in the wrong partition. The archive itself does not show which partition is right."""
    records = [event_records(random.Random(seed)) for seed in (1, 2)]
    astray = [replace(record, _partition=1) for record in records[1]]
    with asked(an_archive(records[0])) as ask:
        alone = {name: ask(f"FROM {name} ORDER BY ALL") for name in ("attempts", "checkpoints")}
    with asked(an_archive(records[0], astray)) as ask:
        for name, rows in alone.items():
            assert rows and ask(f"FROM {name} WHERE partition = 0 ORDER BY ALL") == rows
            assert ask(f"FROM {name} WHERE partition = 1")


def test_the_events_are_there_as_they_were_sealed_and_nothing_that_lies_beside_them() -> None:
    records = event_records(random.Random(1))
    archive = an_archive(records)
    name = next(archive.manifests(TOPICS.events, 0)).records
    archive.store.create(name.replace("/0/", "/1/"), archive.store.read(name))
    archive.store.create(f"{name.removesuffix('.parquet')}-stray.parquet", archive.store.read(name))
    with asked(archive) as ask:
        rows = ask('SELECT partition, "offset", key FROM events ORDER BY "offset"')
        assert [(row["partition"], row["offset"], row["key"]) for row in rows] == [
            (0, record.offset(), (record.key() or b"").hex()) for record in records
        ]
        (sealed,) = ask("FROM sealed")
        assert (sealed["topic"], sealed["records"], sealed["next"]) == (TOPICS.events, 200, records[-1].offset() + 1)


def test_a_folder_that_holds_the_chain_of_another_partition_does_not_count_and_is_told() -> None:
    archive = an_archive(event_records(random.Random(1)))
    copied = f"manifests/{TOPICS.events}/0/"
    for name in archive.store.names(copied):
        archive.store.create(name.replace(copied, f"manifests/{TOPICS.events}/9/"), archive.store.read(name) or b"")
    with opened(archive, TOPICS, lambda found: sure_from_s(found, 3600.0, archive.leaves)) as queries:
        assert list(queries.ask("SELECT count(*) AS n FROM events").rows) == [{"n": 200}]
        assert list(queries.ask("SELECT count(*) AS n FROM sealed").rows) == [{"n": 1}]
        (told,) = queries.mixed_folders
    assert "ledger.events/9 holds the chain of ledger.events[0]" in told


def test_a_folder_that_holds_manifests_of_several_partitions_is_refused() -> None:
    archive = an_archive(event_records(random.Random(1)))
    other = replace(next(archive.manifests(TOPICS.events, 0)), partition=7, sequence=99)
    name = archive.store.names(f"manifests/{TOPICS.events}/0/")[-1]
    archive.store.stored[name] = other.encode()  # type: ignore[attr-defined]
    with pytest.raises(LedgerError, match="holds manifests of"), asked(archive):
        pass


def test_a_new_column_is_null_where_a_file_is_older_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from ledger.archive.format import parquet

    archive = an_archive(event_records(random.Random(1)))
    monkeypatch.setattr("ledger.archive.query.querying.SCHEMA", parquet.SCHEMA.append(parquet.pa.field("new", "int64")))
    with asked(archive) as ask:
        assert ask("SELECT count(*) AS n, count(new) AS filled FROM events") == [{"n": 200, "filled": 0}]


def test_an_empty_archive_answers_with_nothing() -> None:
    with asked(Archive(MemoryObjects())) as ask:
        for view in ("events", "recovery", "attempts", "checkpoints", "sealed", "recovery_set_at(now())"):
            assert ask(f"FROM {view}") == []


def test_an_object_that_is_not_as_it_was_sealed_is_not_asked() -> None:
    archive = an_archive(event_records(random.Random(1)))
    store = archive.store
    assert isinstance(store, MemoryObjects)
    store.stored[next(archive.manifests(TOPICS.events, 0)).records] += b"x"
    with pytest.raises(LedgerError, match="is not what was sealed"), asked(archive):
        pass


def test_a_temporary_folder_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "it's é \""
    odd.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    with asked(an_archive(event_records(random.Random(1)))) as ask:
        assert ask("SELECT count(*) AS n FROM events") == [{"n": 200}]
    assert list(odd.iterdir()) == []


def test_a_disk_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    archive = an_archive(event_records(random.Random(1)))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LedgerError, match="No space left") as raised, asked(archive):
        pass
    assert "TMPDIR" in raised.value.hint


def test_what_the_archive_is_not_sure_of_is_refused() -> None:
    records = [MemoryRecord(TOPICS.recovery, 0, 0, b"~noop", None, (), BEGIN_MS - 10_000_000)]
    archive = an_archive(records)  # sealed hours after it was written
    with asked(archive) as ask:
        with pytest.raises(UsageError, match="only from 2023-11-14T21:14:20"):
            ask("FROM recovery_set_at('2023-11-14T21:00:00Z')")
        with pytest.raises(UsageError, match="in the future"):
            ask("FROM entries_at('2100-01-01')")
        assert ask("FROM recovery_set_at('2023-11-14T22:00:00Z')") == []


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queries]:
    with opened(an_archive(event_records(random.Random(1))), TOPICS, lambda _: 0.0) as made:
        yield made


def test_an_answer_may_be_left_half_read(queries: Queries) -> None:
    first = queries.ask("FROM range(100000)")
    assert next(first.rows) == {"range": 0}
    assert list(queries.ask("SELECT TIMESTAMPTZ '2026-01-01' AS t").rows) == [{"t": "2026-01-01T00:00:00.000000Z"}]
    assert next(first.rows) == {"range": 1}


@pytest.mark.parametrize("sql", [
    "FROM read_text('{secret}')", "FROM read_csv('{secret}')", "FROM '{secret}'", "FROM glob('/*')",
    "COPY (SELECT 1) TO '{secret}.csv'", "ATTACH '{secret}.db'", "EXPORT DATABASE '{secret}.d'", "LOAD httpfs",
    "INSTALL httpfs", "SET enable_external_access = true", "SET allowed_directories = ['/']", "RESET lock_configuration",
    "SET threads = 2",
    "FROM read_parquet('https://localhost:1/x.parquet')", "FROM secret", "SELECT getenv('HOME')",
])  # fmt: skip
def test_a_query_reads_and_writes_nothing_else(queries: Queries, tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    with pytest.raises(UsageError):
        list(queries.ask(sql.format(secret=secret)).rows)
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_name_that_is_no_table_is_no_variable_of_the_program(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.archive.query.querying.variable", pa.table({"a": [1]}), raising=False)
    with pytest.raises(UsageError):
        queries.ask("FROM variable")


@pytest.mark.parametrize("sql", ["", "-- nothing", "SELEC 1", "FROM nowhere", "SELECT 1/'x'", "SELECT error('no')"])
def test_bad_sql_is_wrong_usage_and_says_what_there_is(queries: Queries, sql: str) -> None:
    with pytest.raises(UsageError) as raised:
        list(queries.ask(sql).rows)
    assert "recovery_set_at(T)" in raised.value.hint


def test_every_kind_of_value_has_a_plain_one(queries: Queries) -> None:
    answer = queries.ask("""
        SELECT 1 AS a, 2 AS a, 0::HUGEINT AS zero, 1.50::DECIMAL(9, 2) AS d, 'nan'::DOUBLE AS nan, '\\xFF'::BLOB AS b,
            TIMESTAMPTZ '2026-01-01 00:00:00+01' AS t, DATE '2026-01-01' AS day, TIME '10:00:00' AS clock,
            [1, NULL] AS l, {'x': {'y': 1.0}} AS s, MAP {'k': 1} AS m, '{"j": [1]}'::JSON AS j, NULL AS n, true AS yes,
            '{"j": 1}' AS text, INTERVAL 1 DAY AS i""")
    (row,) = answer.rows
    assert list(row) == list(answer.columns)
    assert json.loads(json.dumps(row)) == row | {"m": [["k", 1]]}
    assert {name: value for name, value in row.items() if name != "i"} == {
        "a": 1, "a_2": 2, "zero": 0, "d": 1.5, "nan": "nan", "b": "ff", "t": "2025-12-31T23:00:00.000000Z",
        "day": "2026-01-01", "clock": "10:00:00", "l": [1, None], "s": {"x": {"y": 1.0}}, "m": [["k", 1]],
        "j": {"j": [1]}, "n": None, "yes": True, "text": '{"j": 1}',
    }  # fmt: skip

"""SQL queries of an archive, with DuckDB: no JVM, no network, and no access to files other than the archive's.

The objects that manifests name are fetched from the archive's store into a temporary folder, and each is checked against
its manifest. Objects that no manifest names are ignored. The in-memory database is then locked: it can't read or write
other files or load extensions, and a query can't unlock it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ledger.archive.format.chain import Manifest
from ledger.archive.format.parquet import SCHEMA
from ledger.archive.format.removals import expired_of
from ledger.archive.query import views
from ledger.archive.store import chains
from ledger.archive.store.archive import Archive, RecordFile
from ledger.errors import LedgerError, UsageError
from ledger.reader.expiry_gaps import Expired, ExpiryGaps
from ledger.reader.reading import TopicNames
from ledger.util.times import rfc3339

VIEWS = (
    "events, recovery, attempts, checkpoints, recovery_records, sealed, expired, expired_jobs, recovery_set_at(T), "
    "entries_at(T), left_out_at(T)"
)
#: The manifests of a partition -> the oldest moment (seconds since the epoch) for which the archive is surely complete.
Sure = Callable[[Sequence[Manifest]], float]
#: Topic, partition -> the records that retention removed from it.
Gone = Callable[[str, int], Sequence[Expired]]
_ROOM = "Set TMPDIR to a disk with more room."
_FETCHERS = 8
_BATCH_ROWS = 1000
_TIME_MAX_S = 9e9  # the year 2255


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """The archived part of a partition. next: the first offset that is not archived. until_s: the latest archived
    append time. sure_from_s: the oldest moment for which the archive is surely complete. Before that moment, records
    are missing that have expired, and perhaps some that log compaction removed before they were archived. Both times
    are in seconds since the epoch."""

    topic: str
    partition: int
    records: int
    next: int
    until_s: float
    sure_from_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query. columns: unique names. rows: column name -> plain value for JSON; read lazily."""

    columns: Sequence[str]
    rows: Iterator[dict[str, Any]]


class Queries:
    """Queries of an archive as it was when it was opened. sealed: the archived partitions. expired: whether any record has
    expired. foreign: folders that hold the chain of another partition, as messages for people; a query does not see the
    records of these folders."""

    def __init__(
        self, database: duckdb.DuckDBPyConnection, sealed: Sequence[SealedPartition], expired: bool = False,
        mixed_folders: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._database, self.sealed, self._expired, self.mixed_folders = database, sealed, expired, mixed_folders

    def ask(self, sql: str) -> Answer:
        """The rows of the last statement. Raises, also while rows are read: UsageError if DuckDB rejects the query or the
        query fails; LedgerError if memory or disk space runs out."""
        with _translate_errors():
            relation = self._database.cursor().sql(sql)  # a new cursor: several answers may be read at the same time
            if relation is None:
                raise UsageError("The statement is not a query.", hint=f"A query can read {VIEWS}.")
            names, kinds = _once(relation.columns), [str(kind) for kind in relation.types]
            batches = relation.to_arrow_reader(_BATCH_ROWS)
        return Answer(names, _rows(batches, names, kinds))

    def left_out(self, sql: str) -> list[str]:
        """Messages about jobs that `entries_at(T)` or `recovery_set_at(T)` leaves out of a query's result: one line for
        each namespace and T. If T can't be evaluated outside the query, the line names the view that lists these
        jobs."""
        lines: dict[str, None] = {}
        for moment in views.moments_in(sql) if self._expired else ():
            try:
                rows = self._database.cursor().sql(f"FROM left_out_at({moment})").fetchall()
            except duckdb.Error:
                lines["jobs with expired records are left out; left_out_at(T) lists them"] = None
                continue
            names = {job_id: (namespace, name or "") for job_id, namespace, name, _ in rows}
            until = dict(sorted((namespace, time.timestamp()) for _, namespace, _, time in rows))
            lines |= {f"at {moment.strip()}: {line}": None for line in ExpiryGaps(until, names).descriptions()}
        return list(lines)


@contextmanager
def opened(archive: Archive, topics: TopicNames, sure_from_s: Sure, expired: Gone | None = None) -> Iterator[Queries]:
    """Opens an archive for queries. topics: the topics to query, as far as they are archived. expired: returns the records
    that retention removed from a partition; None = by the archive's own notes.

    Raises: LedgerError if an object does not match its manifest. As the store."""
    gone: Gone = expired or (lambda topic, partition: expired_of(archive.expired(topic, partition)))
    with TemporaryDirectory(prefix="jobledger-query-") as temporary:
        folder, sealed, sure_s, mixed_folders = Path(temporary), list[SealedPartition](), 0.0, list[str]()
        taken: list[tuple[str, int, Expired]] = []
        for name, topic in (("events", topics.events), ("recovery", topics.recovery)):
            _empty(folder / name / "partition=0")
            for tp, partition in archive.partitions():
                if tp == topic:
                    manifests = list(archive.manifests(topic, partition))
                    if others := _others(manifests, topic, partition):
                        mixed_folders.append(f"manifests/{topic}/{partition} holds the chain of {others} and is ignored")
                        continue
                    _fetch(archive, archive.files(topic, partition), folder / name / f"partition={partition}")
                    sure, went = sure_from_s(manifests), gone(topic, partition)
                    sealed.append(_sealed(manifests, max([sure, *(one.until_s for one in went)])))
                    taken += [(topic, partition, one) for one in went]
                    sure_s = max(sure_s, sure) if topic == topics.recovery else sure_s
        with duckdb.connect(":memory:", config=_CLOSED) as database:
            names = (topics.events, topics.recovery)
            made = views.all_of(str(folder / "events"), str(folder / "recovery"), _utc(sure_s), names)
            try:
                for statement in (*_begun(folder), _SEALED, _EXPIRED, _EXPIRED_JOBS, *made):
                    database.execute(statement)
            except duckdb.Error as error:
                raise LedgerError(f"DuckDB can't read the archived records: {error}", hint=chains.VERIFY) from error
            for one in sealed:
                lines = [one.topic, one.partition, one.records, one.next, _utc(one.until_s), _utc(one.sure_from_s)]
                database.execute("INSERT INTO sealed VALUES (?, ?, ?, ?, ?, ?)", lines)
            for each in taken:
                _insert_expired(database, *each)
            for statement in _SHUT:
                database.execute(statement)
            yield Queries(database, sealed, bool(taken), mixed_folders)


def _others(manifests: Sequence[Manifest], topic: str, partition: int) -> str:
    """The partition that a folder's chain belongs to, if it is not the partition of the folder; "" = it is.

    Raises: LedgerError if the folder holds manifests of several partitions."""
    found = {f"{one.topic}[{one.partition}]" for one in manifests}
    own = f"{topic}[{partition}]"
    if len(found) > 1:
        mixed = f"manifests/{topic}/{partition} holds manifests of {', '.join(sorted(found))}."
        raise LedgerError(mixed, hint=chains.VERIFY)
    return "" if found <= {own} else found.pop()


def _insert_expired(database: duckdb.DuckDBPyConnection, topic: str, partition: int, one: Expired) -> None:
    until = _utc(one.until_s)
    database.execute("INSERT INTO expired VALUES (?, ?, ?, ?, ?)", [topic, partition, one.namespace, one.records, until])
    rows = (
        [[topic, partition, one.namespace, None, 0, None, one.below, until]] if one.jobs is None
        else [[topic, partition, one.namespace, job.job_id, job.first, _utc(job.since_ms / 1000), job.below, until]
              for job in one.jobs]
    )  # fmt: skip
    if rows:
        database.executemany("INSERT INTO expired_jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _sealed(manifests: Sequence[Manifest], sure_from_s: float) -> SealedPartition:
    last = manifests[-1]
    until_s = max(one.greatest_timestamp_ms for one in manifests) / 1000
    count = sum(one.count for one in manifests)
    return SealedPartition(last.topic, last.partition, count, last.next, until_s, sure_from_s)


# -- the files ---------------------------------------------------------------------------------------------------------


def _empty(folder: Path) -> None:
    """Writes a file without rows, so that a topic without records has its columns."""
    folder.mkdir(parents=True)
    pq.write_table(SCHEMA.empty_table(), folder / "none.parquet")


def _fetch(archive: Archive, files: Sequence[RecordFile], folder: Path) -> None:
    folder.mkdir(exist_ok=True)

    def fetch(number: int, file: RecordFile) -> None:
        data = archive.file(file)
        try:
            (folder / f"{number}.parquet").write_bytes(data)
        except OSError as error:
            raise LedgerError(f"Can't write {file.name} to {folder}: {error}", hint=_ROOM) from error

    with ThreadPoolExecutor(_FETCHERS) as pool:
        for _ in pool.map(fetch, range(len(files)), files):
            pass


# -- the database ------------------------------------------------------------------------------------------------------

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # else an unknown table name could resolve to a variable of this program
}


_SEALED = """
CREATE TABLE sealed (
    topic VARCHAR, partition INTEGER, records BIGINT, next BIGINT, until TIMESTAMPTZ, sure_from TIMESTAMPTZ)"""
#: Records that retention removed: those superseded before `until`.
_EXPIRED = """
CREATE TABLE expired (
    topic VARCHAR, partition INTEGER, namespace VARCHAR, records BIGINT, until TIMESTAMPTZ)"""
#: The jobs of these records. job_id null: the note does not name the jobs, so it may be any job of that namespace in that
#: partition. "first": the offset of the first removed record; since: the latest append time up to it. below: a reader that
#: has read up to this offset misses nothing.
_EXPIRED_JOBS = """
CREATE TABLE expired_jobs (
    topic VARCHAR, partition INTEGER, namespace VARCHAR, job_id VARCHAR, "first" BIGINT, since TIMESTAMPTZ, below BIGINT,
    until TIMESTAMPTZ)"""
#: Locks the database, once all its tables are loaded.
_SHUT = ("SET enable_external_access = false", "SET lock_configuration = true")


def _begun(folder: Path) -> tuple[str, ...]:
    """The first settings: times are in UTC, and the locked database may read these two folders only."""
    return (
        "SET GLOBAL TimeZone = 'UTC'",
        f"SET temp_directory = {views.text(str(folder / 'spilled'))}",
        f"SET allowed_directories = [{', '.join(views.text(str(folder / name)) for name in ('events', 'recovery'))}]",
    )


def _utc(time_s: float) -> str:
    """The time as RFC 3339. A time after the year 2255 becomes that year."""
    return rfc3339(min(time_s, _TIME_MAX_S))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raises LedgerError or UsageError in place of DuckDB's errors."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise LedgerError(f"DuckDB ran out of space for this query: {error}", hint=_ROOM) from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise UsageError(f"DuckDB rejected the query: {error}", hint=f"A query can read {VIEWS}.") from error


# -- the answer --------------------------------------------------------------------------------------------------------


def _once(names: Sequence[str]) -> list[str]:
    """Unique column names: the second column called `name` becomes `name_2`, since rows are keyed by name."""
    found: list[str] = []
    for name in names:
        number = 1
        while (lines := name if number == 1 else f"{name}_{number}") in found:
            number += 1
        found.append(lines)
    return found


def _rows(batches: pa.RecordBatchReader, names: Sequence[str], kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    plain = [_from_json if kind == "JSON" else _plain for kind in kinds]
    with _translate_errors():
        for batch in batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield {name: of(value) for name, of, value in zip(names, plain, row, strict=True)}


def _from_json(value: str | None) -> Any:
    return None if value is None else json.loads(value)


_CONVERSIONS: Sequence[tuple[type | tuple[type, ...], Callable[[Any], Any]]] = (
    (datetime, lambda t: t.isoformat(timespec="microseconds").replace("+00:00", "Z")),
    ((date, time), lambda t: t.isoformat()),
    (Decimal, lambda d: int(d) if d == d.to_integral_value() else float(d)),
    (float, lambda f: f if math.isfinite(f) else str(f)),
    (bytes, lambda b: b.hex()),
    (dict, lambda d: {str(key): _plain(inner) for key, inner in d.items()}),
    ((list, tuple), lambda found: [_plain(inner) for inner in found]),
)


def _plain(value: Any) -> Any:
    """A value for JSON: times as RFC 3339, bytes as hex, other types that JSON lacks as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    of = next((of for kind, of in _CONVERSIONS if isinstance(value, kind)), str)
    return of(value)

"""Collects garbage: lists the objects of blob store and runners, reads the log, deletes objects without a reference.

The listing comes first, then the log is read to its high watermark, so that no listed object is newer than the log. Before
a deletion, the log is read a second time and each object is judged again. A blob is deleted only if nobody has put it
since the listing. `core.garbage` decides what is garbage; decision 19 explains why no object that a job needs can go:
docs/decisions/0019-garbage-is-what-no-fold-refers-to.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ledger.core import garbage
from ledger.core.fold.job import Job
from ledger.core.garbage import GRACE_MIN_S, Claims, Kind, Orphan, Retained, StoredItem
from ledger.core.model.published import Published
from ledger.core.model.registers import NUMBER_MAX, parse_claim, partition_of
from ledger.core.model.table import RegisterTable
from ledger.errors import LedgerError, PermanentError, TemporaryError, Unreachable, UsageError
from ledger.ports import BlobStore, Runner, RunnerStorage, StoredBlob
from ledger.reader.reading import Source, Tail, jobs_in
from ledger.util.files import sync_folder
from ledger.util.plain import to_plain

#: Returns job id -> the pin that holds the job. Raises: LedgerError if that is unknown.
HeldJobs = Callable[[], Mapping[str, str]]
BLOBS = "blobs"
GRACE_S = 86_400.0


class NotDeleted(NamedTuple):
    """Garbage that could not be deleted."""

    orphan: Orphan
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The garbage that was found. orphans: by job. spared: objects that cannot be judged, or are pinned. young: the
    number of objects that are too young. silent: runner -> why it did not list its files. as_of: topic -> partition ->
    offset; all records below this offset were read. deleted, left: the orphans that were deleted, and those that could not
    be; both are empty if only `look` was called."""

    orphans: tuple[Orphan, ...]
    spared: tuple[Retained, ...]
    young: int
    silent: Mapping[str, str]
    as_of: Mapping[str, Mapping[int, int]]
    deleted: tuple[Orphan, ...] = ()
    left: tuple[NotDeleted, ...] = ()


class DeletionLog:
    """An append-only file with one line of JSON for each object to be deleted, written durably before the deletion, and
    another line if the deletion failed. The ledger never reads it."""

    def __init__(self, path: Path, actor: str, time: Callable[[], float]) -> None:
        self._path, self._actor, self._time = path, actor, time

    def tell(self, does: str, orphan: Orphan, as_of: Mapping[str, Mapping[int, int]], why: str = "") -> None:
        """Writes a line about one object. does: delete, or left (the deletion failed; why: the reason). Raises:
        Unreachable if the line can't be written; then nothing may be deleted."""
        row = {"at": self._time(), "actor": self._actor, "does": does, **row_of(orphan), "as_of": as_of, "why": why}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = not self._path.exists()
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, json.dumps(row).encode() + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
            if new:
                sync_folder(self._path.parent)
        except OSError as error:
            raise Unreachable(f"The deletion can't be recorded, so the object is not deleted: {error}") from error


def look(
    source: Source, runners: Mapping[str, Runner], blobs: BlobStore, grace_s: float = GRACE_S, held: HeldJobs = dict
) -> Found:
    """The present garbage. Changes nothing. held: returns the jobs that pins hold.

    Raises: UsageError if grace_s is too short; Unreachable if Kafka or the blob store does not answer; as `held`. A
    runner that does not answer is listed in the result.
    """
    return _look(source, runners, blobs, grace_s, held)[0]


def collect(
    source: Source, runners: Mapping[str, Runner], blobs: BlobStore, evidence: DeletionLog, grace_s: float = GRACE_S,
    held: HeldJobs = dict,
) -> Found:  # fmt: skip
    """Deletes garbage and returns what it found and deleted. Each object is recorded before. May be repeated, and
    several processes may run it at once.

    Raises: as `look`; Unreachable also if a runner does not answer, and then nothing is deleted. After a failure in the
    middle, the evidence holds all deletions so far.
    """
    found, things = _look(source, runners, blobs, grace_s, held)
    if found.silent:
        runner, why = next(iter(found.silent.items()))
        raise Unreachable(f"The {runner} runner does not answer, so nothing was deleted: {why}")
    if not found.orphans:
        return found
    read = _Read(source)
    again = garbage.judge(things, read.claims, read.read_to, grace_s, read.log_age_s, held())
    still = {orphan.item: orphan for orphan in again.orphans}
    spared = {one.item: one.why for one in again.spared}
    deleted: list[Orphan] = []
    left: list[NotDeleted] = []
    for one in found.orphans:
        orphan = still.get(one.item)
        if orphan is None:
            left.append(NotDeleted(one, spared.get(one.item, "a job refers to it now")))
            continue
        evidence.tell("delete", orphan, read.as_of)
        if why := _delete(things[orphan.item], orphan, runners, blobs):
            left.append(NotDeleted(orphan, why))
            evidence.tell("left", orphan, read.as_of, why)
        else:
            deleted.append(orphan)
    return Found(found.orphans, again.spared, again.young, {}, read.as_of, tuple(deleted), tuple(left))


def row_of(orphan: Orphan) -> dict[str, Any]:
    """One orphan as plain values, for JSON and tables."""
    item = orphan.item
    return {
        "kind": item.kind.value, "job_id": item.job_id, "name": orphan.name, "namespace": orphan.namespace,
        "holder": item.holder, "where": item.where, "size": item.size, "age_s": round(item.age_s, 1),
        "evidence": orphan.evidence,
    }  # fmt: skip


def to_row(found: Found) -> dict[str, Any]:
    """The found garbage as plain values."""
    return {
        "orphans": [row_of(orphan) for orphan in found.orphans],
        "spared": [{**row_of(Orphan(one.item, "")), "evidence": one.why} for one in found.spared],
        "young": found.young,
        "deleted": [row_of(orphan) for orphan in found.deleted],
        "left": [{**row_of(one.orphan), "why": one.why} for one in found.left],
        "silent": to_plain(found.silent),
        "as_of": to_plain(found.as_of),
    }


# -- parts -------------------------------------------------------------------------------------------------------------

Things = dict[StoredItem, StoredBlob | RunnerStorage]


def _look(
    source: Source, runners: Mapping[str, Runner], blobs: BlobStore, grace_s: float, held: HeldJobs
) -> tuple[Found, Things]:
    if grace_s < GRACE_MIN_S:
        raise UsageError(
            f"A grace of {grace_s:g} s is too short.",
            hint=f"Use {GRACE_MIN_S:g} s or more: the graph of a job that is being submitted is not in the log yet.",
        )
    things, silent = _listed(runners, blobs)
    read = _Read(source)
    judged = garbage.judge(things, read.claims, read.read_to, grace_s, read.log_age_s, held())
    return Found(judged.orphans, judged.spared, judged.young, silent, read.as_of), things


def _listed(runners: Mapping[str, Runner], blobs: BlobStore) -> tuple[Things, dict[str, str]]:
    things: Things = {}
    silent: dict[str, str] = {}
    for blob in blobs.listing():
        kind = Kind.UNFINISHED if blob.unfinished else Kind.BLOB
        things[StoredItem(kind, BLOBS, blob.job_id, blob.uri, blob.size, blob.age_s)] = blob
    for name, runner in runners.items():
        try:
            # A plug-in older than this method is taken to hold nothing.
            listed = runner.kept() if hasattr(runner, "kept") else []
        except LedgerError as error:  # also from an agent of an older version without this call
            silent[name] = str(error)
            continue
        for kept in listed:
            if kept.rest:
                item = StoredItem(Kind.RUN_FOLDER, name, kept.job_id, kept.where, kept.rest_size, kept.age_s, kept.alive)
                things[item] = kept
            if kept.checkpoints:
                locations = tuple(point.location for point in kept.checkpoints)
                size = kept.checkpoint_size
                item = StoredItem(Kind.CHECKPOINTS, name, kept.job_id, kept.where, size, kept.age_s, kept.alive, locations)
                things[item] = kept
            for point in kept.savepoints:
                at = (point.location,)
                item = StoredItem(
                    Kind.SAVEPOINT, name, kept.job_id, point.location, point.size, kept.age_s, kept.alive, at
                )  # fmt: skip
                things[item] = kept
    return things, silent


class _Read:
    """The log, read to the high watermarks. claims: by job. log_age_s: seconds since the first claim of any leader, 0 =
    none; an older object may belong to an earlier log."""

    def __init__(self, source: Source) -> None:
        topics, self._partitions = source.topics, source.log.partitions(source.topics.events)
        self._topic = topics.events
        published, table = Published(source.codec.decode), RegisterTable(self._partitions)
        first_claim: float | None = None
        self.as_of: dict[str, dict[int, int]] = {}
        with Tail(source, [topics.recovery]) as recovery, Tail(source, [topics.events]) as events:
            for tail in (recovery, events):
                for (topic, partition), end in sorted(tail.high_watermarks().items()):
                    self.as_of.setdefault(topic, {})[partition] = end
            for records in recovery.to_end():
                for record in records:
                    published.apply(record)
                    if parse_claim(record.key()) is not None:
                        at = record.timestamp()[1] / 1000
                        first_claim = at if first_claim is None else min(first_claim, at)
            for records in events.to_end():
                table.apply(records, tell_touched=False)
        self.log_age_s = 0.0 if first_claim is None else max(0.0, source.clock.time() - first_claim)
        self.claims: dict[str, Claims] = {}
        for job, _ in jobs_in(source, table):
            self.claims[job.job_id] = garbage.claims_of(job, published.entries.get(job.job_id), source.keep)
        for job_id, entry in published.entries.items():
            if job_id not in self.claims:
                self.claims[job_id] = garbage.claims_of(Job(job_id, {}, lambda *_: None), entry, source.keep)
        self.claims.update(dict.fromkeys(published.unreadable, garbage.ENTRY_UNREAD))

    def read_to(self, job_id: str) -> str:
        partition = partition_of(job_id, self._partitions)
        return f"{self._topic}[{partition}]@{self.as_of[self._topic][partition]}"


def _delete(thing: StoredBlob | RunnerStorage, orphan: Orphan, runners: Mapping[str, Runner], blobs: BlobStore) -> str:
    """Why an object was not deleted; "" = it was. Raises: LedgerError if the store or runner does not answer."""
    if isinstance(thing, StoredBlob):
        return "" if blobs.delete(thing) else "it was put again meanwhile"
    runner, item = runners[orphan.item.holder], orphan.item
    with suppress(TemporaryError, PermanentError):
        whole = item.kind is Kind.CHECKPOINTS
        saved = [point for point in thing.savepoints if item.kind is Kind.SAVEPOINT and point.location == item.where]
        if runner.fence(item.job_id, NUMBER_MAX if whole else 0):
            return "its runner has facts of the job that are not in the log yet"
        if whole:
            runner.dispose(item.job_id, thing.checkpoints)
        if saved:
            runner.dispose(item.job_id, saved)
        runner.forget(item.job_id)
        return ""
    return "its runner could not delete it now"

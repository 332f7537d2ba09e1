"""The reader of `ledger.recovery`: first the epoch filter, then the last record of each key.

The lock is advice, the epoch is law. In offset order within a partition, a record or tombstone is dropped if its epoch is
below the highest one claimed before it (a stale leader wrote it), or if its epoch is not claimed yet. Log compaction keeps
a dropped record and removes the good one before it. Therefore the last *raw* record of each key is kept too, and the leader
compares against that. Projector, reconciler and all readers use this. Source: docs/PROTOCOL.md, section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, TypeVar

from ledger.core.model.facts import Progress
from ledger.core.model.recovery import Entries, RecoveryEntry
from ledger.core.model.registers import NOOP_KEY, NUMBER_MAX, PROGRESS_KEY, is_job_id, parse_claim

EPOCH_HEADER = "ledger_epoch"
ROLE = "projector"
_headers = methodcaller("headers")
_PROGRESS, _NOOP = PROGRESS_KEY.encode(), NOOP_KEY.encode()
T = TypeVar("T")


class Decode(Protocol):
    """A function that decodes bytes to a value of `kind`. Raises: ValueError if the bytes are not a value of that
    kind."""

    def __call__(self, kind: type[T], value: bytes) -> T: ...


class RecordView(Protocol):
    """The methods of `ports.Record` that `Published` uses."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[tuple[str, Any]] | None: ...


class Raw(NamedTuple):
    """The last record of a key in the log, whether readers drop the record or not. epoch: 0 = the record has none.
    value: None = a tombstone."""

    offset: int
    epoch: int
    value: bytes | None


class Change(NamedTuple):
    """The effect of a record on the entry of a job. before, after: the entry, None = the job has none."""

    job_id: str
    before: RecoveryEntry | None
    after: RecoveryEntry | None


class Published:
    """The published entries. Apply every record of `ledger.recovery` from offset 0, each partition in offset order.

    entries: job id -> entry of every job that is not retired.
    unreadable: jobs whose last effective record cannot be decoded. They exist in an unknown state, so nobody may act on
    them or stop them; they have no entry.
    raw: partition -> key -> last raw record, without keys whose tombstone took effect. claimed: partition -> highest epoch
    claimed. progress: partition -> as_of.
    dropped: the number of records without effect by reason: stale, unclaimed, no-epoch, foreign, undecodable.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._entry_offset: dict[str, int] = {}
        self._progress_offset: dict[int, int] = {}
        self._without_effect: set[tuple[int, bytes]] = set()
        self.entries = Entries()
        self.unreadable: set[str] = set()
        self.raw: dict[int, dict[bytes, Raw]] = {}
        self.claimed: dict[int, int] = {}
        self.progress: dict[int, int] = {}
        self.dropped: Counter[str] = Counter()

    def apply(self, record: RecordView) -> Change | None:
        """Applies one record; returns a Change if it wrote or removed the entry of a job. Never raises on bad input."""
        key, partition = record.key(), record.partition()
        if key is None:
            self.dropped["foreign"] += 1
            return None
        if key == _NOOP:
            return None
        epoch, value = epoch_of(headers_of(record)), record.value()
        self.raw.setdefault(partition, {})[key] = Raw(record.offset(), epoch, value)
        claim = parse_claim(key)
        if claim is not None:
            self._claim(partition, *claim, value)
            return None
        if reason := self._why_dropped(partition, epoch):
            self.dropped[reason] += 1
            self._without_effect.add((partition, key))
            return None
        self._without_effect.discard((partition, key))
        if key == _PROGRESS:
            self._progressed(partition, record.offset(), value)
            return None
        if value is None:  # the job is retired: nothing is left to compare with, and such keys only become more
            del self.raw[partition][key]
        return self._entry(key, partition, record.offset(), value)

    def last_is_effective(self, partition: int, key: bytes) -> bool:
        """Whether readers use the last raw record of an entry or progress key. If not, log compaction would keep that
        record and remove the record that they use, so the leader must write the key again."""
        return (partition, key) not in self._without_effect

    def not_lasting(self, partition: int) -> list[bytes]:
        """Keys of a partition whose last raw record might not reach every reader after log compaction. The leader must
        write them again.

        There are two causes. Either `last_is_effective` is false, or the claim of the record's epoch was written again
        behind the record, or tombstoned. Compaction keeps only the last copy of a claim, so readers would meet the
        record before its epoch is claimed, and drop it.
        """
        raw = self.raw.get(partition, {})
        claimed_at: dict[int, int] = {}
        for key, last in raw.items():
            claim = parse_claim(key)
            if claim is not None and claim[0] == ROLE and last.value is not None:
                claimed_at[claim[1]] = last.offset
        return [
            key for key, last in raw.items()
            if parse_claim(key) is None
            and (claimed_at.get(last.epoch, inf) > last.offset or not self.last_is_effective(partition, key))
        ]  # fmt: skip

    def as_of(self, job_id: str, partition: int) -> int:
        """The offset of ledger.events below which the published state of a job reflects every record of its partition.
        It is the larger of the entry's as_of and that of a later `~progress`; without an entry, the as_of of
        `~progress`."""
        progress = self.progress.get(partition, 0)
        entry = self.entries.get(job_id)
        if entry is None:
            return progress
        after = self._progress_offset.get(partition, -1) > self._entry_offset[job_id]
        return max(entry.as_of, progress) if after else entry.as_of

    def _why_dropped(self, partition: int, epoch: int) -> str:
        claimed = self.claimed.get(partition, 0)
        if epoch == 0:
            return "no-epoch"
        if epoch > claimed:
            return "unclaimed"
        return "stale" if epoch < claimed else ""

    def _claim(self, partition: int, role: str, epoch: int, value: bytes | None) -> None:
        """Notes a claim. The key holds role and epoch; a late claim has no effect, since the highest epoch counts."""
        claimed = self.claimed.get(partition, 0)
        if role != ROLE or value is None:
            self.dropped["foreign"] += 1
        elif epoch < claimed:
            self.dropped["stale"] += 1
        else:
            self.claimed[partition] = epoch

    def _progressed(self, partition: int, offset: int, value: bytes | None) -> None:
        progress = self._read(Progress, value)
        if progress is None or progress.partition != partition:
            self.dropped["undecodable"] += 1
            self._without_effect.add((partition, _PROGRESS))
            return
        self.progress[partition] = progress.as_of
        self._progress_offset[partition] = offset

    def _entry(self, key: bytes, partition: int, offset: int, value: bytes | None) -> Change | None:
        job_id = key.decode("ascii", "replace")
        if not is_job_id(job_id):
            self.dropped["foreign"] += 1
            return None
        before = self.entries.pop(job_id, None)
        self.unreadable.discard(job_id)
        self._entry_offset.pop(job_id, None)
        after = self._read(RecoveryEntry, value)
        if after is not None and after.job_id == job_id:
            self.entries[job_id] = after
            self._entry_offset[job_id] = offset
            return Change(job_id, before, after)
        if value is not None:
            # Compaction may or may not have removed the entry before it, so that one does not count either.
            self.unreadable.add(job_id)
            self._without_effect.add((partition, key))
            self.dropped["undecodable"] += 1
        return Change(job_id, before, None) if before is not None else None

    def _read(self, kind: type[T], value: bytes | None) -> T | None:
        if value is None:
            return None
        try:
            return self._decode(kind, value)
        except ValueError:
            return None


def headers_of(record: RecordView) -> Sequence[tuple[str, Any]]:
    """The headers of a record; () if the client cannot decode them, since one such record must not stop every reader. Read
    headers only through this function.

    If the name of a header is not UTF-8, confluent-kafka 2.16 returns a list with a NULL entry and sets an error. A call
    from C checks the error and raises SystemError. A method call from hot Python code does not check it, and reading the
    NULL entry crashes the process. A second call returns the same list, so the list is replaced."""
    try:
        return _headers(record) or ()
    except (SystemError, UnicodeError):
        put_away = getattr(record, "set_headers", None)
        if put_away is not None:
            put_away([])
        return ()


def epoch_of(headers: Sequence[tuple[str, Any]] | None) -> int:
    """The epoch in the header `ledger_epoch`; 0 if there is none, or if it is not a number of the key grammar."""
    for name, value in headers or ():
        if name == EPOCH_HEADER:  # the first of that name counts, whatever it says
            sound = isinstance(value, bytes) and value.isdigit() and len(value) <= 16 and not value.startswith(b"0")
            epoch = int(value) if sound else 0
            return epoch if epoch <= NUMBER_MAX else 0
    return 0

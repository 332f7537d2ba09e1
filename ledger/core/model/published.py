"""What `ledger.recovery` says: the epoch filter first, only then the last record per key.

The lock is advice, the epoch is law. In offset order within a partition a record or tombstone is dropped if its epoch is
below the highest one claimed before it there (a zombie's), or if nobody has claimed its epoch yet. A dropped record still
supersedes the good one under it when the cleaner comes by, so the last *raw* record per key is kept beside: the leader
compares against that. Used by the projector, the reconciler and every reader. Source: docs/PROTOCOL.md, section 9.
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
    """`decode(kind, value) -> kind`; raises ValueError if the bytes can't be read as one."""

    def __call__(self, kind: type[T], value: bytes) -> T: ...


class RecordView(Protocol):
    """The part of a record that is judged here (that of ports.Record)."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[tuple[str, Any]] | None: ...


class Raw(NamedTuple):
    """The last record of a key as it lies in the log, dropped or not. epoch 0 = it carries none. value None = tombstone."""

    offset: int
    epoch: int
    value: bytes | None


class Change(NamedTuple):
    """A record that took effect. before, after: the job's entry, None = it has none."""

    job_id: str
    before: RecoveryEntry | None
    after: RecoveryEntry | None


class Published:
    """Feed it every record of `ledger.recovery` from offset 0, each partition in offset order.

    entries: job id -> entry, of every job that is not retired.
    unreadable: jobs whose last effective record can't be read: known to exist, unknown in what state. Nobody may act on
    them, least of all stop them; they have no entry.
    raw: partition -> key -> last raw record; without the keys whose tombstone took effect. claimed: partition -> highest
    epoch claimed. progress: partition -> as_of.
    dropped: records without effect, counted by reason: stale, unclaimed, no-epoch, foreign, undecodable.
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
        """Takes one record; a Change if it wrote, or removed, the entry of a job. Never raises on what arrives."""
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
        if value is None:  # retired for good: nothing is left to compare with, and there is no end of such keys
            del self.raw[partition][key]
        return self._entry(key, partition, record.offset(), value)

    def last_is_effective(self, partition: int, key: bytes) -> bool:
        """Whether the last raw record of an entry or progress key is one that readers took. Where it is not, it hides
        from the cleaner what they took (or could not be read): the leader must write the key again."""
        return (partition, key) not in self._without_effect

    def not_lasting(self, partition: int) -> list[bytes]:
        """Keys of a partition whose last raw record is not what every reader holds, whatever the cleaner removes. The
        leader must write them again.

        `last_is_effective` is false for it. Or the claim of its epoch lies in the log once more, behind it, or is
        tombstoned: the cleaner keeps the last copy alone, and then readers meet the record before its epoch is claimed, and
        drop it.
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
        """Everything below this offset of the job's partition of ledger.events is reflected in what is published of the
        job: max(its entry's own, that of the last `~progress` read after it); without an entry the latter alone."""
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
        """A claim's key says it all: one that is late changes nothing, for the highest counts."""
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
            # The one before it would come back or not as the cleaner pleases: so it counts no more either.
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
    """The headers of a record; none where the client can't hand them out, for one such record must not stop every reader
    that there is. Ask for headers by this alone.

    confluent-kafka (2.16) answers with a hole in the list if a header's name is no UTF-8, and an error set beside it. Asked
    from C, Python looks for that error and raises SystemError; called as a method in code that has become hot it does not,
    and to look at the hole brings the process down. The next question would get the same list, so it is put away."""
    try:
        return _headers(record) or ()
    except (SystemError, UnicodeError):
        put_away = getattr(record, "set_headers", None)
        if put_away is not None:
            put_away([])
        return ()


def epoch_of(headers: Sequence[tuple[str, Any]] | None) -> int:
    """The epoch in the header `ledger_epoch`; 0 if there is none, or it is no number of the key grammar."""
    for name, value in headers or ():
        if name == EPOCH_HEADER:  # the first of that name counts, whatever it says
            sound = isinstance(value, bytes) and value.isdigit() and len(value) <= 16 and not value.startswith(b"0")
            epoch = int(value) if sound else 0
            return epoch if epoch <= NUMBER_MAX else 0
    return 0

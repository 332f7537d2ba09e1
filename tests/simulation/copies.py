"""Evidence as plain values: records, answers to senders, attempts, leases and readers' entries; and readers of copies.

The key grammar, the fold and the codec are the ledger's own. The epoch filter and "last value per key" are written anew
here, so that broken ones in the ledger's readers are detected. Copies are complete (made before compaction), hold only
committed records, and are in offset order per partition. Times are seconds since the Unix epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ledger.adapters import cloudevents
from ledger.core.fold.fold import fold
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import parse_key
from tests.simulation import codec

MAGIC = b"\xc3\x01"


class Copied(NamedTuple):
    """One committed record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, Any], ...] = ()
    time_s: float = 0.0

    @classmethod
    def of(cls, record: Any) -> Copied:
        """record: a ports.Record (so also a confluent_kafka.Message)."""
        return cls(
            record.topic(), record.partition(), record.offset(), record.key(), record.value(),
            tuple(record.headers() or ()), record.timestamp()[1] / 1000,
        )  # fmt: skip


class Delivery(NamedTuple):
    """The answer of the log to the sender of one event. info: the outcome is unknown. offset: None if the log returned
    none."""

    kind: Literal["ok", "fail", "info"]
    who: str
    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, Any], ...] = ()
    offset: int | None = None


class Ran(NamedTuple):
    """One event at a runner. place: the (attempt, id) of the restore point of a start, of the completed checkpoint, or of
    the damaged checkpoint. owner: for a start, the job that owns the restore point."""

    kind: Literal["start", "checkpoint", "end", "damage"]
    job_id: str
    n: int
    at: float
    place: tuple[int, int] | None = None
    owner: str = ""


class Leased(NamedTuple):
    """The period in which an instance believed that it held the lease of a role."""

    role: str
    who: str
    since: float
    until: float


class Taken(NamedTuple):
    """An entry of a job that a reader accepted; a list of them is in that order. entry: None = the entry was removed."""

    job_id: str
    partition: int
    offset: int
    epoch: int
    entry: RecoveryEntry | None


# -- reading copies ----------------------------------------------------------------------------------------------------


def by_partition(records: Iterable[Copied]) -> dict[int, list[Copied]]:
    found: dict[int, list[Copied]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found


def header(record: Copied | Delivery, name: str) -> str:
    value = next((value for key, value in record.headers if key == name), b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def epoch_of(record: Copied) -> int:
    text = header(record, cloudevents.EPOCH)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def claim_of(record: Copied) -> tuple[str, int] | None:
    """(role, epoch) of a claim, from its key or, where all claims share a key, from its header. None: no claim."""
    if record.key is None or record.value is None or not record.key.startswith(b"~claim/"):
        return None
    _, role, *rest = record.key.decode().split("/")
    return role, int(rest[0]) if rest and rest[0].isdigit() else epoch_of(record)


def effective(records: Iterable[Copied]) -> Iterator[Copied]:
    """The effective records of `ledger.recovery`: their epoch is claimed, and not below the highest claim before them."""
    for partition in by_partition(records).values():
        claimed = 0
        for record in partition:
            if (claim := claim_of(record)) is not None:
                claimed = max(claimed, claim[1] if claim[0] == "projector" else 0)
            elif epoch_of(record) == claimed != 0:
                yield record


def registers_of(records: Iterable[Copied]) -> dict[str, dict[bytes, bytes]]:
    """Job -> register name -> last value."""
    jobs: dict[str, dict[bytes, bytes]] = defaultdict(dict)
    for record in records:
        if (parsed := parse_key(record.key)) is None:
            continue
        name = (record.key or b"").partition(b"/")[2]
        if record.value is not None and record.value.startswith(MAGIC):
            jobs[parsed[0]][name] = record.value
        else:
            jobs[parsed[0]].pop(name, None)
    return jobs


def folded(records: Iterable[Copied]) -> dict[str, RecoveryEntry]:
    """The projection of `ledger.events`, without the fields that a leader stamps."""
    entries = {job_id: fold(job_id, registers, codec.read) for job_id, registers in registers_of(records).items()}
    return {job_id: entry for job_id, entry in entries.items() if entry is not None}


def bare(entry: RecoveryEntry | None) -> RecoveryEntry | None:
    bare = {
        "due_at": None, "due": False, "stalls_at": None, "stalled": False, "savepoint_at": None, "savepoint_due": False,
        "as_of": 0, "epoch": 0, "partition": 0,
    }  # fmt: skip
    return entry and replace(entry, **bare)


def alike(a: RecoveryEntry | None, b: RecoveryEntry | None) -> bool:
    """Whether two entries are equal, apart from the fields that a leader stamps."""
    return a == b or bare(a) == bare(b)


def says(found: Sequence[str], what: str) -> bool:
    """Whether there are findings, and all of them begin with `what`."""
    return bool(found) and all(finding.startswith(what) for finding in found)

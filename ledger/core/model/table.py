"""The register table: the last value of every register of every job, which the projector keeps of `ledger.events`.

A cold start spends its time here, so the loop does little: it splits the key and puts the raw value into the job's dict.
Grammar and partition are checked when a job or register name is new; the fold decodes values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from ledger.core.model.registers import NOOP_KEY, is_job_id, parse_claim, parse_register, partition_of

MAGIC = b"\xc3\x01"  # Avro single-object encoding
_BEYOND_MAGIC = b"\xc3\x02"  # two comparisons are cheaper than cutting out a prefix
KNOWN_MAX = 1 << 18
_CONFLUENT = b"\x00"
_NOOP = NOOP_KEY.encode()
ELSEWHERE = "registers of this job belong in partition"  # begins the reason for a record in a wrong partition


#: A register's raw value and its offset. A plain tuple: names would cost a tenth of the reading time.
RawValue = tuple[bytes, int]


class MalformedRecord(NamedTuple):
    """A record that is not a register of any job, and why."""

    record: Any
    reason: str


class RegisterTable:
    """The last value of every register. Apply every record of `ledger.events` from offset 0, each partition in offset
    order.

    jobs: partition -> job id (bytes) -> register name (bytes) -> Held. A job disappears with its last register. claims:
    role -> highest epoch claimed in any partition.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.jobs: list[dict[bytes, dict[bytes, RawValue]]] = [{} for _ in range(partitions)]
        self.claims: dict[str, int] = {}
        self._known: dict[bytes, bytes] = {}  # valid register names; all jobs share one object for each

    def apply(self, records: Sequence[Any], tell_touched: bool = True) -> tuple[dict[bytes, int], list[MalformedRecord]]:
        """Applies a batch. Returns the touched jobs with their partition, and the malformed records.

        tell_touched: False saves time and returns no touched jobs. A value without Avro framing counts as absent, as if it
        alone had survived log compaction.
        """
        try:
            return self._apply(records, tell_touched)
        except TypeError:  # a record without a key; applying those before it a second time changes nothing
            malformed = [
                MalformedRecord(r, "a record needs a key: <job_id>/<register>") for r in records if r.key() is None
            ]
            touched, others = self._apply([r for r in records if r.key() is not None], tell_touched)
            return touched, malformed + others

    def _apply(self, records: Sequence[Any], tell_touched: bool) -> tuple[dict[bytes, int], list[MalformedRecord]]:
        touched: dict[bytes, int] = {}
        malformed: list[MalformedRecord] = []
        if not records:
            return touched, malformed
        by_partition, known = self.jobs, self._known
        kind = type(records[0])  # mapping its methods over the batch costs a third of calling them one by one
        keys = map(bytes.partition, map(kind.key, records), repeat(b"/"))
        parts = zip(keys, map(kind.partition, records), map(kind.value, records), records, strict=True)
        for (job_id, _, name), partition, value, record in parts:
            try:
                registers, name = by_partition[partition][job_id], known[name]
            except KeyError:
                if reason := self._why_malformed(record.key(), job_id, name, partition):
                    malformed.append(MalformedRecord(record, reason))
                    continue
                if job_id.startswith(b"~"):
                    continue
                registers, name = by_partition[partition].setdefault(job_id, {}), known[name]
            if tell_touched:
                touched[job_id] = partition
            if value is not None:
                if MAGIC <= value < _BEYOND_MAGIC:
                    registers[name] = (value, record.offset())
                    continue
                malformed.append(MalformedRecord(record, _framing(value)))
            registers.pop(name, None)
            if not registers:
                del by_partition[partition][job_id]
        return touched, malformed

    def registers(self, job_id: bytes, partition: int) -> dict[bytes, RawValue]:
        return self.jobs[partition].get(job_id, {})

    def __len__(self) -> int:
        return sum(map(len, self.jobs))

    def _why_malformed(self, key: bytes, job_id: bytes, name: bytes, partition: int) -> str:
        """Why the first record of a job or register name is malformed; "" if it is valid, a no-op, or a claim (noted)."""
        if key.startswith(b"~"):
            if key == _NOOP:
                return ""
            claim = parse_claim(key)
            if claim is None:
                return "keys that begin with ~ are the ledger's own"
            role, epoch = claim
            self.claims[role] = max(epoch, self.claims.get(role, 0))
            return ""
        text = job_id.decode("ascii", "replace")
        if not is_job_id(text):
            return "the key does not begin with a job id"
        if parse_register(name) is None:
            return "the key names no register"
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        self._known[name] = name
        wanted = partition_of(text, self.partitions)
        return "" if wanted == partition else f"{ELSEWHERE} {wanted}"


def _framing(value: bytes) -> str:
    if value.startswith(_CONFLUENT):
        return "Confluent framing, but no registry is configured"
    return "the value is not in Avro single-object encoding"

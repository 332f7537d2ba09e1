"""The key grammar of the log.

A record's key names the fact it holds: ``<job_id>/<register>``. All registers of a job lie in the partition
`partition_of(job_id, n)`. Keys that begin with ``~`` are the ledger's own. Source: docs/PROTOCOL.md.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

NUMBER_MAX = 2**53  # attempts, epochs and revisions: exact in every language's double
CHECKPOINT_ID_MAX = 2**63 - 1
CLAIM_PREFIX = "~claim/"
PROGRESS_KEY = "~progress"
#: The key of a tombstone without meaning: its transaction ends one that the same writer had left open (decision 14).
NOOP_KEY = "~noop"


class Outcome(StrEnum):
    """How an attempt ended, from weakest to strongest. If an attempt has several ends, the strongest counts."""

    LOST = "lost"
    FAILED = "failed"
    FAILED_PERMANENT = "failed-permanent"
    STOPPED = "stopped"
    ABANDONED = "abandoned"
    CANCELED = "canceled"
    FINISHED = "finished"


OUTCOMES = tuple(Outcome)
#: The outcomes that end the job, whichever of its attempts has one.
TERMINAL_OUTCOMES = (Outcome.FINISHED, Outcome.CANCELED, Outcome.ABANDONED)
#: The outcomes that a stop order may give an attempt; failed: it made no progress.
STOP_OUTCOMES = (Outcome.STOPPED, Outcome.CANCELED, Outcome.FAILED)
#: The outcomes that the restart policy, or an operator, must answer.
FAILURES = (Outcome.FAILED, Outcome.LOST, Outcome.FAILED_PERMANENT)
RESULT_STATES = ("FAILED", "CANCELED", "FINISHED")

_JOB_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}\Z")  # not "." or "..": it names folders and blob prefixes
_WORD = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,18})\Z")
_OUTCOMES = {str(outcome): outcome for outcome in Outcome}  # a dict is faster than Outcome(…)
_NAME_CHARS_MAX = 128  # longer than any register's name

# `word` is the first part of a register's name; do not pass it. It is a field because named tuples compare as plain tuples:
# without it, Attempt(1, 1) and Checkpoint(1, 1) would be the same key of a dict.


class Spec(NamedTuple):
    """`spec/<digest>` holds JobSubmitted; digest = lower-case hex SHA-256 of the Avro body."""

    digest: str
    word: str = "spec"


class Admitted(NamedTuple):
    """`admitted` holds JobAdmitted: the decision which spec counts."""

    word: str = "admitted"


class Intent(NamedTuple):
    """`intent/<rev>/<uuid>` holds IntentDeclared: an operator's wish."""

    rev: int
    uuid: str
    word: str = "intent"


class Attempt(NamedTuple):
    """`attempt/<n>/<epoch>` holds AttemptStarted, written by the reconciler of that epoch."""

    n: int
    epoch: int
    word: str = "attempt"


class Running(NamedTuple):
    """`running/<n>` holds AttemptRunning."""

    n: int
    word: str = "running"


class Checkpoint(NamedTuple):
    """`checkpoint/<n>/<id>` holds CheckpointCompleted."""

    n: int
    id: int
    word: str = "checkpoint"


class Ended(NamedTuple):
    """`ended/<n>/<outcome>/<writer>` holds AttemptEnded."""

    n: int
    outcome: Outcome
    writer: str
    word: str = "ended"


class Ask(NamedTuple):
    """`ask/<uuid>` holds SavepointAsked."""

    uuid: str
    word: str = "ask"


class Disposed(NamedTuple):
    """`disposed/<n>/<id>/<uuid>` holds SavepointDisposed of savepoint n/id. uuid: a new one for each disposal."""

    n: int
    id: int
    uuid: str
    word: str = "disposed"


class Result(NamedTuple):
    """`result/<state>` holds JobResult."""

    state: str
    word: str = "result"


Register = Spec | Admitted | Intent | Attempt | Running | Checkpoint | Ended | Ask | Disposed | Result


def is_job_id(text: str) -> bool:
    return _JOB_ID.match(text) is not None


def is_writer(text: str) -> bool:
    return _WORD.match(text) is not None


def _number(text: str, low: int, high: int) -> int | None:
    if _NUMBER.match(text) is None:
        return None
    value = int(text)
    return value if low <= value <= high else None


def parse_register(name: str | bytes) -> Register | None:
    """The register of this name (the part of the key behind the job id); None if the grammar does not know it."""
    return _parse_register(name) if len(name) <= _NAME_CHARS_MAX else None  # so that the cache holds nothing huge


@lru_cache(maxsize=1 << 16)
def _parse_register(name: str | bytes) -> Register | None:
    if isinstance(name, bytes):
        try:
            name = name.decode("ascii")
        except UnicodeDecodeError:
            return None
    match name.split("/"):
        case ["spec", digest] if _DIGEST.match(digest):
            return Spec(digest)
        case ["admitted"]:
            return Admitted()
        case ["intent", rev, uuid] if (r := _number(rev, 1, NUMBER_MAX)) and _WORD.match(uuid):
            return Intent(r, uuid)
        case ["attempt", n, epoch] if (k := _number(n, 1, NUMBER_MAX)) and (e := _number(epoch, 1, NUMBER_MAX)):
            return Attempt(k, e)
        case ["running", n] if k := _number(n, 1, NUMBER_MAX):
            return Running(k)
        case ["checkpoint", n, id_] if k := _number(n, 1, NUMBER_MAX):
            i = _number(id_, 0, CHECKPOINT_ID_MAX)
            return None if i is None else Checkpoint(k, i)
        case ["ended", n, outcome, writer] if (
            (k := _number(n, 1, NUMBER_MAX)) and (o := _OUTCOMES.get(outcome)) and _WORD.match(writer)
        ):
            return Ended(k, o, writer)
        case ["ask", uuid] if _WORD.match(uuid):
            return Ask(uuid)
        case ["disposed", n, id_, uuid] if (k := _number(n, 1, NUMBER_MAX)) and _WORD.match(uuid):
            i = _number(id_, 0, CHECKPOINT_ID_MAX)
            return None if i is None else Disposed(k, i, uuid)
        case ["result", state] if state in RESULT_STATES:
            return Result(state)
        case _:
            return None


def register_name(register: Register) -> str:
    """The name of a register; the inverse of `parse_register`."""
    return "/".join([register.word, *map(str, register[:-1])])


def key_of(job_id: str, register: Register) -> str:
    return f"{job_id}/{register_name(register)}"


def parse_key(key: bytes | None) -> tuple[str, Register] | None:
    """The job id and register of a key of `ledger.events`; None if the key is malformed."""
    if key is None:
        return None
    head, _, name = key.partition(b"/")
    register = parse_register(name)
    try:
        job_id = head.decode("ascii")
    except UnicodeDecodeError:
        return None
    return (job_id, register) if register is not None and is_job_id(job_id) else None


def claim_key(role: str, epoch: int) -> str:
    """The key of a claim. Each epoch has a key of its own: with one key for all epochs, a late stale claim would
    replace the newer claim by log compaction."""
    return f"{CLAIM_PREFIX}{role}/{epoch}"


def parse_claim(key: bytes | None) -> tuple[str, int] | None:
    """The role and epoch of a claim's key; None if the key is not a claim's."""
    if key is None or not key.startswith(CLAIM_PREFIX.encode()):
        return None
    match key.decode("utf-8", "replace").split("/"):
        case [_, role, epoch] if (e := _number(epoch, 1, NUMBER_MAX)) and _WORD.match(role):
            return role, e
    return None


def partition_of(job_id: str, partitions: int) -> int:
    """The partition of a job's registers and entry: Kafka's default partition for the job id as key."""
    return (murmur2(job_id.encode()) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as an unsigned integer.
    Source: org.apache.kafka.common.utils.Utils.murmur2, checked in the tests against librdkafka's partitioner."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    if tail := data[whole:]:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)

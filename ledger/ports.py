"""The ports: what the roles need of the world, with the contract that every adapter passes (tests/contract).

Adapters: `adapters/memory` (tests, simulation), `adapters/kafka`, `adapters/local` (file lock, file blobs),
`adapters/runners/*`. Fakes are product: one suite runs on all adapters of a port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ledger.core.facts import Fact, FailureRule, GraphRef, RestorePoint
from ledger.core.registers import Register

Headers = tuple[tuple[str, bytes], ...]


# -- the log ---------------------------------------------------------------------------------------------------------


class Record(Protocol):
    """One record as read. The methods are those of confluent_kafka.Message, so that reading costs no copy.

    A tombstone has value() None. Never judge a record by its truth value: a Message without value is falsy.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Event:
    """A record to be written. value None = tombstone. Written again, it is byte for byte the same."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers = ()


TopicPartition = tuple[str, int]
#: (topic, partition) -> offset
Marks = Mapping[TopicPartition, int]


class Reader(Protocol):
    """Reads whole partitions from offset 0, in offset order within each, committed records only, for ever.

    Raises: Unreachable where a call needs an answer and there is none within its time limit (position unchanged).
    LedgerError, from then on at every call, if records that it has not read are gone, or the topic was made anew: what
    was read is worth nothing then.
    """

    def poll(self, records_max: int, timeout_s: float) -> Sequence[Record]:
        """What has come, [] if nothing did within timeout_s. Each record is returned once."""

    def position(self) -> Marks:
        """Per partition the offset below which everything has been returned by `poll`, control records counted."""

    def high_watermarks(self) -> Marks:
        """The true ends (read-uncommitted), asked of the broker now. Reading up to them means having seen every
        record acknowledged before the call; an open transaction below them makes `position` wait for it."""

    def close(self) -> None: ...


class Writer(Protocol):
    """A fenced transactional writer: of all writers of one transactional id only the last initialised can commit."""

    def init(self) -> None:
        """Fences the predecessors and aborts their open transaction. Call before every term of leadership.

        Raises: Unreachable."""

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        """Writes all events in one transaction and returns their offsets, in order. `offsets` are stored
        beside it for lag tools, nothing more.

        Raises: Fenced: superseded, timed out or any indefinite error. The outcome is then unknown, the writer is
        dead; the role must prove its leadership and call `init` on a new one. TemporaryError: the transaction was
        aborted, nothing of it will ever be read, and the same writer may try again. RecordTooLarge (it names the key),
        ConfigError (no such place): as that, but trying the same again is useless."""

    def close(self) -> None: ...


class EventLog(Protocol):
    """A world of topics: `Reader`s and `Writer`s of it."""

    def reader(self, topics: Sequence[str], partition: int | None = None) -> Reader:
        """partition: of topics that have several, only this one is read; None = all."""

    def writer(self, transactional_id: str) -> Writer: ...
    def partitions(self, topic: str) -> int:
        """Raises: ConfigError if there is no such topic."""


# -- leadership ------------------------------------------------------------------------------------------------------


class Standing(NamedTuple):
    """How a candidate stands, for people; nothing is decided by it.

    leads: it holds the lock now. lease_left_s: seconds until its lease ends unless renewed; None where the lease is the
    life of the process, or it does not lead. leader: who holds the lock as far as it knows, "" = nobody or unknown.
    waits_for: why it does not lead ("" if it leads), e.g. "zookeeper: no answer from zk1:2181, zk2:2181 for 12 s".
    because: why it came to lead, or lost the lead, last ("" = it never led), e.g. "the session of p1@host-a ended".
    """

    leads: bool = False
    lease_left_s: float | None = None
    leader: str = ""
    waits_for: str = ""
    because: str = ""


class Candidate(NamedTuple):
    """One who wants to lead a role, as others see it, for people.

    since: when it became a candidate, in seconds since the epoch; 0 = unknown. waits_for: as in `Standing`.
    lease_left_s: as it said last; None where the lease is the life of the process, or it does not lead, or is unknown.
    """

    who: str
    pid: int
    since: float
    leads: bool
    waits_for: str = ""
    lease_left_s: float | None = None


class Leadership(Protocol):
    """Who leads a role. The lock is advice, the epoch is law: the epoch comes from the log, not from here.

    No method blocks on a server that does not answer: what takes time happens on a thread of the adapter's own.
    """

    def acquire(self) -> bool:
        """Wants to lead from now on; True if this instance leads (or still does). Called again and again."""

    def valid(self) -> bool:
        """Whether the lease still holds at this moment, by the monotonic clock. Cheap: asked before every commit."""

    def release(self) -> None:
        """Steps down, and is no candidate until `acquire`. Idempotent; never blocks, never raises."""

    def standing(self) -> Standing:
        """Cheap, never raises."""

    def close(self) -> None:
        """Ends threads and connections, for good. Idempotent; waits a moment at most, never raises."""


class Clock(Protocol):
    def time(self) -> float:
        """Seconds since the epoch, for stamps that people read and for due_at."""

    def monotonic(self) -> float:
        """Seconds that never go back: for leases and deadlines."""

    def sleep(self, seconds: float) -> None: ...


# -- runners ---------------------------------------------------------------------------------------------------------


class StartAnswer(StrEnum):
    STARTED = "started"
    ALREADY = "already"  # this (job, n) was started before, whatever became of it
    FENCED = "fenced"  # never started, and never will be


class Verification(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # the store did not answer: wait


class ObservedAttempt(NamedTuple):
    """An attempt that the runner knows of. `alive`: some process of it still runs or may run."""

    job_id: str
    n: int
    alive: bool
    engine_id: str


class Kept(NamedTuple):
    """What a runner keeps of a job. age_s: since anything of it changed, by the runner's own clock. alive: attempts that
    run or may run. checkpoints: those that `forget` leaves unless they were disposed of; no savepoints. savepoints: those.
    rest: whether there is anything beside both. rest_size, checkpoint_size: in bytes."""

    job_id: str
    where: str
    age_s: float
    rest: bool
    rest_size: int = 0
    alive: tuple[int, ...] = ()
    checkpoints: tuple[RestorePoint, ...] = ()
    checkpoint_size: int = 0
    savepoints: tuple[RestorePoint, ...] = ()


class RunnerEvent(NamedTuple):
    """An event that the runner has persisted: `key`, `headers`, `value` as they stand, or will stand, in the log."""

    key: bytes
    headers: Headers
    value: bytes | None


class Runner(Protocol):
    """Starts and stops attempts of one engine. Every call names (job, attempt) and may be repeated without harm.

    Raises: Unreachable: no answer, hence nothing is known (never: the attempt is lost). PermanentError: this job can't
    be started by this runner, ever.
    """

    def start(
        self, job_id: str, n: int, graph: GraphRef, restore_point: RestorePoint | None, environment: Mapping[str, str],
        failure_rules: Sequence[FailureRule] = (),
    ) -> StartAnswer:
        """At most once per (job, n), durably: also after a crash of the runner between the call and the start.

        failure_rules: the first that fits a failure of the attempt stands with its label before the cause; if it is
        permanent the end is `failed-permanent`. What the runner did not see itself is judged by none."""

    def observe(self) -> list[ObservedAttempt]:
        """All attempts that the runner has not forgotten, in one call."""

    def stop(self, job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
        """Orders attempt n to stop. `outcome` (stopped, canceled, or failed for want of progress) is stored durably
        before anything is signalled: the first order's outcome is what its end will say, whatever the exit code. `reason`,
        if there is one, stands before the cause of that end."""

    def savepoint(self, job_id: str, n: int, ask: str) -> None:
        """Asks attempt n for a savepoint, once for each ask, however often it is called; the event of the savepoint will
        name the ask. Nothing comes of it if the attempt is over, or knows no savepoints."""

    def fence(self, job_id: str, n: int) -> list[RunnerEvent]:
        """Refuses any start <= n for ever (durable before the answer). Answers with all events of attempts of the job
        that nobody has acknowledged yet."""

    def acknowledge(self, job_id: str, keys: Sequence[bytes]) -> None:
        """These events stand in the log: the runner need not send them any more."""

    def verify(self, restore_point: RestorePoint) -> Verification: ...

    def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
        """Deletes restore points of the job; those that are gone already are no error. After a fence for good it also says
        that no other checkpoint of the job is kept, unless all of them are savepoints: those are disposed of one by one."""

    def forget(self, job_id: str) -> None:
        """Forgets the job, its fence included. Only after its `result` is committed."""

    def kept(self) -> list[Kept]:
        """All that lies with the runner on behalf of jobs, whether it remembers them or not. What it keeps elsewhere, or
        as long as it means to by itself, is not among it."""


# -- blobs -----------------------------------------------------------------------------------------------------------


class StoredBlob(NamedTuple):
    """What lies in a blob store. put_at: when it was put last, in seconds of the store's own clock: what tells one put from
    another. age_s: since then, by the same clock; it may be ten minutes too much, as a put of what is young need not count.
    unfinished: "" = a blob; else the store's name for what is left of a put that did not come to its end. size: in bytes,
    0 where the store does not tell."""

    job_id: str
    sha256: str
    size: int
    age_s: float
    put_at: float
    unfinished: str = ""

    @property
    def uri(self) -> str:
        return f"graphs/{self.job_id}/{self.unfinished or self.sha256}"


class BlobStore(Protocol):
    """Graphs under `graphs/<job_id>/<sha256>`. Put before the reference is written, checked at every read.

    Raises: Unreachable: the store did not answer. ConfigError: it does not let us, or is not what the settings say. Neither
    says anything about a graph.
    """

    def put(self, job_id: str, source: Path) -> GraphRef:
        """Stores the file once: a second put of the same bytes is no error and changes nothing but the age of the blob."""

    def fetch(self, ref: GraphRef, target: Path) -> None:
        """Raises: PermanentError if the blob is missing or its digest differs (target is then not there)."""

    def exists(self, ref: GraphRef) -> bool: ...

    def delete_all(self, job_id: str) -> int:
        """Deletes every blob under the job's prefix; the number deleted. Idempotent."""

    def listing(self) -> list[StoredBlob]:
        """All that lies in the store on behalf of jobs, what puts have left included. All or an exception."""

    def delete(self, blob: StoredBlob) -> bool:
        """Deletes this one, but only as it was listed: False if somebody has put it since. One that is gone already is
        deleted."""


# -- in memory and for reading ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A Record made of plain values."""

    _topic: str
    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _headers: Headers = ()
    _timestamp_ms: int = 0

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 2, self._timestamp_ms  # 2 = LogAppendTime


# -- the codec -------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class Codec(Protocol):
    """Facts to bytes and back (adapters/avro is one)."""

    def encode(self, fact: Any) -> bytes: ...
    def decode(self, kind: type[T], value: bytes) -> T:
        """Raises: ValueError if the bytes can't be read as one."""

    def read(self, register: Register, value: bytes) -> Fact | None: ...


class Envelope(Protocol):
    """Headers of an event (adapters/cloudevents is one)."""

    def headers(
        self, fact_name: str, *, event_id: str, source: str, subject: str, key: str, time_s: float, sequence: int,
        actor: str = "", epoch: int | None = None,
    ) -> Headers: ...  # fmt: skip

    def parse(self, headers: Sequence[tuple[str, Any]] | None) -> Any:
        """What headers say. Total. `.time_s`: when, in seconds since the epoch; None if they do not say."""


# -- what a reconciler needs beside ----------------------------------------------------------------------------------


class RecoveryStream(Protocol):
    """`ledger.recovery` as a stream that begins anew, at offset 0, with every epoch of the reconciler."""

    def open(self, epoch: int) -> None: ...

    def take(self, timeout_s: float) -> Sequence[Record]:
        """What has come since, each partition in offset order; waits up to timeout_s for something.

        Raises: TemporaryError: the stream broke; open it again under a new epoch."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Task:
    """One call to a runner or blob store on behalf of a job, to be performed out of the way of all others.

    verb: prepare, verify, start, fence, stop, savepoint, acknowledge, clean, dispose, forget (tasks.py says what each does
    and answers).
    """

    verb: str
    runner: str
    job_id: str
    n: int = 0
    graph: GraphRef | None = None
    restore_points: tuple[RestorePoint, ...] = ()
    restore_from_named: bool = False
    outcome: str = ""
    savepoint: bool = False
    reason: str = ""
    asks: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    dispose: bool = False
    forced: bool = False
    failure_rules: tuple[FailureRule, ...] = ()


class TaskStatus(StrEnum):
    DONE = "done"  # `answer` is the task's
    REFUSED = "refused"  # a PermanentError: this job can't, ever
    UNREACHABLE = "unreachable"  # no answer: nothing is known
    CRASHED = "crashed"  # it died, raised, or ran out of time: nothing is known


class TaskOutcome(NamedTuple):
    status: TaskStatus
    answer: Any = None
    reason: str = ""


class Executor(Protocol):
    """Performs tasks, each in a process of its own with a time limit, so that none can harm another or the role."""

    def submit(self, tasks: Sequence[Task]) -> None: ...

    def results(self) -> list[tuple[Task, TaskOutcome]]:
        """Outcomes that have come in since the last call; every task has one in the end. Does not block."""

    def close(self) -> None: ...

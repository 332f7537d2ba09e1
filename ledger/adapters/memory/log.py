"""The log in memory, with a broker's rules for offsets, transactions, fencing and log compaction.

Deterministic and single-threaded. The time is that of the `clock` given to the log. Between two calls nothing changes,
except that transactions time out when this clock is advanced. Every transaction leaves a control record in each
partition that it wrote to, so offsets have gaps, as on Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

from ledger.adapters.memory.partition import Partition, Transaction
from ledger.errors import ConfigError, Fenced, LedgerError, RecordTooLarge, Unreachable
from ledger.ports import NOWHERE, Clock, Event, Marks, MemoryRecord, TopicPartition

STAND_BACK = "This writer is unusable. Win the election again, then create a new writer. No job is affected."


class NoAnswer(Exception):
    """Raised by a failpoint so that a request gets no answer: its outcome is unknown, and the writer becomes unusable.

    arrives: when the end of a transaction reaches the broker: "never", "now", or "late", which means at `deliver`."""

    def __init__(self, arrives: Literal["never", "now", "late"] = "never") -> None:
        super().__init__(arrives)
        self.arrives = arrives


class EndOfTransaction(NamedTuple):
    """A request to end the transaction of this id and epoch that is open when the request arrives. The request names no
    transaction, so a late request ends the next transaction of the same producer. Source: KIP-890."""

    transactional_id: str
    epoch: int
    committed: bool


class MemoryLog:
    """Implements `ports.EventLog` in memory.

    topics: name -> number of partitions. transaction_timeout_s: a transaction that is open for longer is aborted, and
    its writer fenced. delete_retention_s: how long a tombstone outlives the first compaction that saw it. failpoint:
    called with the name of each step of a commit (begin, produce, offsets, end, ended). An error that the failpoint
    raises stops the writer at that step, as a crash would; NoAnswer stands for an unanswered request. up: if False, the
    log does not answer. under_way: ends of transactions that have not arrived yet."""

    def __init__(
        self, topics: Mapping[str, int], clock: Clock, *, transaction_timeout_s: float = 10.0,
        delete_retention_s: float = 7 * 86_400.0, max_message_bytes: int = 1_048_576,
        failpoint: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.clock, self.failpoint, self.up = clock, failpoint, True
        self.transaction_timeout_s, self.delete_retention_s = transaction_timeout_s, delete_retention_s
        self.max_message_bytes = max_message_bytes
        self._topics: dict[str, list[Partition]] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._left_open: dict[str, dict[Partition, Transaction]] = {}
        self.under_way: list[EndOfTransaction] = []
        self.committed_offsets: dict[str, dict[TopicPartition, int]] = {}
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def reader(self, topics: Sequence[str], partition: int | None = None, begin: Marks = NOWHERE) -> MemoryReader:
        wanted = []
        for there in map(self.partitions_of, topics):
            wanted += there if partition is None or len(there) == 1 else [there[partition]]
        return MemoryReader(self, wanted, begin)

    def writer(self, transactional_id: str) -> MemoryWriter:
        return MemoryWriter(self, transactional_id)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Topic -> "": the log in memory has no topic ids, since its topics can't be deleted."""
        return dict.fromkeys(topics, "")

    def partitions(self, topic: str) -> int:
        return len(self.partitions_of(topic))

    def create(self, topic: str, partitions: int) -> None:
        """Creates a topic. An existing topic does not change."""
        self._topics.setdefault(topic, [Partition(topic, p) for p in range(partitions)])

    # -- for writers without transactions, for tests, and the broker's own actions -------------------------------------

    def append(self, events: Sequence[Event]) -> list[int]:
        """Writes events without a transaction, as submitters and agents do, and returns their offsets."""
        self.expire_transactions()
        self._must_be_up()
        for event in events:
            self.check_size(event)
        return [self._partition(event).append(event, self.now_ms()) for event in events]

    def records(self, topic: str, partition: int) -> list[MemoryRecord]:
        """All committed records of a partition. Tests call this method instead of using a reader."""
        return self.partitions_of(topic)[partition].committed()

    def compact(self, topic: str, keep: Callable[[MemoryRecord], bool] | None = None, min_lag_s: float = 0.0) -> int:
        """Compacts all records older than min_lag_s once, and returns the number of records removed.

        Every removable record is removed unless `keep` returns True for it. So a test can produce any legal outcome,
        and without `keep` the worst one. A record is removable if a later committed record has the same key, and both
        are below the first open transaction. A tombstone is also removable if an earlier pass saw it at least
        delete_retention_s ago. Order and offsets do not change.
        """
        self.expire_transactions()
        horizon_s = self.clock.time() + self.delete_retention_s
        partitions = self.partitions_of(topic)
        return sum(p.compact(self.clock.time(), horizon_s, keep, min_lag_s) for p in partitions)

    def deliver(self, end: EndOfTransaction) -> None:
        """Lets a late end of a transaction arrive: it ends the producer's open transaction. If the producer is fenced,
        nothing happens."""
        if end in self.under_way:
            self.under_way.remove(end)
        self.expire_transactions()
        open_now = self._open.get(end.transactional_id)
        if open_now is not None and open_now.epoch == end.epoch == self._epochs.get(end.transactional_id):
            self._end(end.transactional_id, end.committed)

    def lose_markers(self, transactional_id: str) -> None:
        """Ends the open transaction of this id without its markers. For the coordinator the transaction is over, but in
        each partition it stays open for readers until the next transaction of the same id ends in that partition. A
        broker that is killed at the wrong moment does the same (decision 14)."""
        if (transaction := self._open.pop(transactional_id, None)) is not None:
            left = self._left_open.setdefault(transactional_id, {})
            left |= {p: p.set_apart(transaction) for p in transaction.touched if p not in left}

    # -- for readers and writers ---------------------------------------------------------------------------------------

    def partitions_of(self, topic: str) -> list[Partition]:
        """The partitions of a topic. Raises: ConfigError if the topic does not exist."""
        if topic not in self._topics:
            raise ConfigError(f"There is no topic {topic}.", hint="Run: jobledger topics create")
        return self._topics[topic]

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def init(self, transactional_id: str) -> int:
        """Fences all earlier writers of this id, aborts their open transaction, and returns the new epoch."""
        self._must_be_up()
        self._end(transactional_id, committed=False)
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def begin(self, transactional_id: str, epoch: int, timeout_s: float | None = None) -> Transaction:
        """The open transaction of this producer, or a new one."""
        if (still := self._open.get(transactional_id)) is not None and still.epoch == epoch:
            return still
        timeout_s = self.transaction_timeout_s if timeout_s is None else timeout_s
        self._open[transactional_id] = Transaction(epoch, self.clock.monotonic() + timeout_s)
        return self._open[transactional_id]

    def produce(self, transaction: Transaction, event: Event) -> int:
        return self._partition(event).append(event, self.now_ms(), transaction)

    def end(self, transactional_id: str, committed: bool) -> None:
        self._end(transactional_id, committed)

    def fenced(self, transactional_id: str, epoch: int) -> bool:
        self.expire_transactions()
        return self._epochs.get(transactional_id, 0) != epoch

    def check_size(self, event: Event) -> None:
        """Checks the size of an event. Raises: RecordTooLarge if the event is larger than max_message_bytes."""
        size_bytes = len(event.key or b"") + len(event.value or b"") + sum(len(n) + len(v) for n, v in event.headers)
        if size_bytes > self.max_message_bytes:
            raise RecordTooLarge(event.topic, event.partition, event.key, size_bytes)

    def check_partition(self, event: Event) -> None:
        """Checks that the event's topic and partition exist. Raises: ConfigError."""
        self._partition(event)

    def expire_transactions(self) -> None:
        """Aborts transactions that were open for too long and fences their writers, as the coordinator does."""
        for transactional_id, transaction in list(self._open.items()):
            if self.clock.monotonic() >= transaction.deadline:
                self._end(transactional_id, committed=False)
                self._epochs[transactional_id] += 1

    def _end(self, transactional_id: str, committed: bool) -> None:
        transaction = self._open.pop(transactional_id, None)
        if transaction is not None:
            for partition in transaction.end(committed):
                if (left := self._left_open.get(transactional_id, {}).pop(partition, None)) is not None:
                    left.end(committed)
                partition.append_control()

    def _must_be_up(self) -> None:
        if not self.up:
            raise Unreachable("The log in memory is down.")

    def _partition(self, event: Event) -> Partition:
        partitions = self.partitions_of(event.topic)
        if not 0 <= event.partition < len(partitions):
            raise ConfigError(f"Topic {event.topic} has no partition {event.partition}, only {len(partitions)}.")
        return partitions[event.partition]


class MemoryReader:
    """Implements `ports.Reader`. A poll that finds no record advances the clock by timeout_s."""

    def __init__(self, log: MemoryLog, partitions: Sequence[Partition], begin: Marks = NOWHERE) -> None:
        self._log, self._partitions = log, partitions
        self._position = {partition.tp: begin.get(partition.tp, 0) for partition in partitions}

    def poll(self, records_max: int, timeout_s: float) -> list[MemoryRecord]:
        found = self._take(records_max)
        if not found and timeout_s > 0:
            self._log.clock.sleep(timeout_s)
            found = self._take(records_max)
        return found

    def position(self) -> Marks:
        return dict(self._position)

    def high_watermarks(self) -> Marks:
        if not self._log.up:
            raise Unreachable("The log in memory is down.")
        self._log.expire_transactions()
        return {partition.tp: partition.end for partition in self._partitions}

    def close(self) -> None:
        self._partitions = []

    def _take(self, records_max: int) -> list[MemoryRecord]:
        self._log.expire_transactions()
        found: list[MemoryRecord] = []
        if self._log.up:
            for partition in self._partitions:
                tp = partition.tp
                records, self._position[tp] = partition.read(self._position[tp], records_max - len(found))
                found += records
        return found


class MemoryWriter:
    """Implements `ports.Writer`, with the same errors as the writer on Kafka."""

    def __init__(self, log: MemoryLog, transactional_id: str) -> None:
        self._log, self._id = log, transactional_id
        self._epoch = 0
        self._dead = ""

    def init(self) -> None:
        if self._dead:
            raise self._fenced()
        self._epoch = self._log.init(self._id)

    def commit(self, events: Sequence[Event], offsets: Marks | None = None) -> list[int]:
        if self._dead:
            raise self._fenced()
        if self._epoch == 0:
            raise LedgerError(f"{self._id} was not initialised: call init() before commit().")
        if not events and not offsets:
            return []
        for event in events:
            self._log.check_partition(event)
            self._log.check_size(event)
        self._step("begin")
        transaction = self._log.begin(self._id, self._epoch)
        written = []
        for event in events:
            self._step("produce")
            if transaction.committed is not None:  # a late EndTxn ended it: the broker begins another
                transaction = self._log.begin(self._id, self._epoch)
            written.append(self._log.produce(transaction, event))
        self._step("offsets")
        self._step("end")
        self._log.end(self._id, committed=True)
        if offsets:
            self._log.committed_offsets.setdefault(self._id, {}).update(offsets)
        self._ask("ended")
        return written

    def close(self) -> None:
        self._dead = self._dead or "it was closed"

    def _step(self, name: str) -> None:
        """Begins a step. Raises: Fenced if a later writer was initialised, the transaction timed out, or the log is
        down."""
        self._ask(name)
        if not self._log.up:
            self._dead = f"{name}: no answer in time, the outcome is unknown"
        elif self._log.fenced(self._id, self._epoch):
            self._dead = f"{name}: another writer of this id was initialised, or its transaction took too long"
        if self._dead:
            raise self._fenced()

    def _ask(self, name: str) -> None:
        try:
            self._log.failpoint(name)
        except NoAnswer as lost:
            self._unanswered(name, lost)

    def _unanswered(self, name: str, lost: NoAnswer) -> NoReturn:
        end = EndOfTransaction(self._id, self._epoch, committed=True)
        if name == "end" and lost.arrives == "now":
            self._log.deliver(end)
        elif name == "end" and lost.arrives == "late":
            self._log.under_way.append(end)
        self._dead = f"{name}: no answer in time, the outcome is unknown"
        raise self._fenced() from lost

    def _fenced(self) -> Fenced:
        return Fenced(f"{self._id} can't write any more: {self._dead}.", hint=STAND_BACK)

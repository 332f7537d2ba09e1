"""The log in memory: a broker's rules of offsets, transactions, fencing and compaction, without a broker.

Deterministic and single-threaded: time is the clock that is passed in, and nothing happens between two calls but what
its passing brings about (transactions that time out). Every transaction leaves a control record in each partition it
touched, so offsets have gaps, as on Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

from ledger.adapters.memory.partition import Partition, Transaction
from ledger.errors import ConfigError, Fenced, LedgerError, RecordTooLarge, Unreachable
from ledger.ports import NOWHERE, Clock, Event, Marks, MemoryRecord, TopicPartition

STAND_BACK = "This writer is dead. Prove leadership anew, then take a new one; no job is touched."


class NoAnswer(Exception):
    """What a failpoint raises to let a request go unanswered: an indefinite error, of which the writer dies.

    arrives: what becomes of an end of a transaction. "never", "now", or "late": then it is under way until `deliver`.
    """

    def __init__(self, arrives: Literal["never", "now", "late"] = "never") -> None:
        super().__init__(arrives)
        self.arrives = arrives


class EndOfTransaction(NamedTuple):
    """A request to end whatever transaction of this id and epoch is open when it arrives. It names no transaction:
    one that is late ends the next one of the same producer. Source: KIP-890."""

    transactional_id: str
    epoch: int
    committed: bool


class MemoryLog:
    """Implements `ports.EventLog`.

    topics: name -> number of partitions. transaction_timeout_s: transactions open for longer are aborted, and their
    writer is fenced. delete_retention_s: how long a tombstone outlives the first compaction that saw it.
    failpoint: called with the name of each step of a commit (begin, produce, offsets, end, ended); what it raises stops
    the writer right there, as a crash would; NoAnswer is what a network does.
    `up`: set it to False and nothing answers any more. under_way: ends of transactions that have not arrived yet.
    """

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
        """It knows none: topics in memory cannot be deleted."""
        return dict.fromkeys(topics, "")

    def partitions(self, topic: str) -> int:
        return len(self.partitions_of(topic))

    def create(self, topic: str, partitions: int) -> None:
        """Makes a topic; one that is there already stays as it is."""
        self._topics.setdefault(topic, [Partition(topic, p) for p in range(partitions)])

    # -- what writers without transactions, tests and the broker itself do ---------------------------------------------

    def append(self, events: Sequence[Event]) -> list[int]:
        """Writes without a transaction, as submitters and agents do; the offsets."""
        self.expire_transactions()
        self._must_be_up()
        for event in events:
            self.check_size(event)
        return [self._partition(event).append(event, self.now_ms()) for event in events]

    def records(self, topic: str, partition: int) -> list[MemoryRecord]:
        """All committed records that are there now: the evidence of a test, without a reader."""
        return self.partitions_of(topic)[partition].committed()

    def compact(self, topic: str, keep: Callable[[MemoryRecord], bool] | None = None, min_lag_s: float = 0.0) -> int:
        """One pass of the cleaner over all records older than min_lag_s; the number of records removed.

        Whatever may vanish by the rules does, except what `keep` is true for: so any legal outcome can be had, and
        without `keep` the least favourable one. What may vanish: a record that a later committed one of the same key
        supersedes, both below the first open transaction; a tombstone that an earlier pass saw at least delete_retention_s
        ago. Order and offsets stay.
        """
        self.expire_transactions()
        horizon_s = self.clock.time() + self.delete_retention_s
        partitions = self.partitions_of(topic)
        return sum(p.compact(self.clock.time(), horizon_s, keep, min_lag_s) for p in partitions)

    def deliver(self, end: EndOfTransaction) -> None:
        """An end of a transaction arrives, on whatever is open then; one of a fenced producer has no effect."""
        if end in self.under_way:
            self.under_way.remove(end)
        self.expire_transactions()
        open_now = self._open.get(end.transactional_id)
        if open_now is not None and open_now.epoch == end.epoch == self._epochs.get(end.transactional_id):
            self._end(end.transactional_id, end.committed)

    def lose_markers(self, transactional_id: str) -> None:
        """The open transaction of this id is over for everybody but the readers: in each partition it stays open until
        the next one of the same id has ended there. So does a broker that was killed at the wrong moment (decision 14)."""
        if (transaction := self._open.pop(transactional_id, None)) is not None:
            left = self._left_open.setdefault(transactional_id, {})
            left |= {p: p.set_apart(transaction) for p in transaction.touched if p not in left}

    # -- for readers and writers ---------------------------------------------------------------------------------------

    def partitions_of(self, topic: str) -> list[Partition]:
        """Raises: ConfigError if there is no such topic."""
        if topic not in self._topics:
            raise ConfigError(f"There is no topic {topic}.", hint="Run: jobledger topics create")
        return self._topics[topic]

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def init(self, transactional_id: str) -> int:
        """The last one to call this is the only one that can commit; the predecessor's open transaction is aborted."""
        self._must_be_up()
        self._end(transactional_id, committed=False)
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def begin(self, transactional_id: str, epoch: int, timeout_s: float | None = None) -> Transaction:
        """One of the same producer that is still open goes on."""
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
        """Raises: RecordTooLarge."""
        size_bytes = len(event.key or b"") + len(event.value or b"") + sum(len(n) + len(v) for n, v in event.headers)
        if size_bytes > self.max_message_bytes:
            raise RecordTooLarge(event.topic, event.partition, event.key, size_bytes)

    def check_place(self, event: Event) -> None:
        """Raises: ConfigError if there is no such topic or partition."""
        self._partition(event)

    def expire_transactions(self) -> None:
        """What the coordinator does: aborts what has been open for too long, and fences its writer."""
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
    """Implements `ports.Reader`. An empty poll lets the clock pass timeout_s."""

    def __init__(self, log: MemoryLog, partitions: Sequence[Partition], begin: Marks = NOWHERE) -> None:
        self._log, self._partitions = log, partitions
        self._position = {partition.place: begin.get(partition.place, 0) for partition in partitions}

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
        return {partition.place: partition.end for partition in self._partitions}

    def close(self) -> None:
        self._partitions = []

    def _take(self, records_max: int) -> list[MemoryRecord]:
        self._log.expire_transactions()
        found: list[MemoryRecord] = []
        if self._log.up:
            for partition in self._partitions:
                place = partition.place
                records, self._position[place] = partition.read(self._position[place], records_max - len(found))
                found += records
        return found


class MemoryWriter:
    """Implements `ports.Writer`, with the same errors as the one on Kafka."""

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
            self._log.check_place(event)
            self._log.check_size(event)
        self._step("begin")
        transaction = self._log.begin(self._id, self._epoch)
        written = []
        for event in events:
            self._step("produce")
            if transaction.committed is not None:  # a late end of an earlier one hit it: the broker begins another
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
        """Before each step: fenced by a later writer, by time, or by a log that is gone?"""
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

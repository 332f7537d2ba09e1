"""The projector: folds `ledger.events` into `ledger.recovery`, under one leader at a time.

Every instance is a hot standby. The lock is advice, the epoch is law: a leader claims a new epoch in the log before it
publishes, compares its entries with the records in the topic, and reads back what it has written (`term`). On any fence
or indefinite error it drops its writer and must take over again (`candidacy`); this affects no job. Source:
docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import structlog

from ledger.core.model.published import Published, headers_of
from ledger.core.model.registers import Spec, parse_claim, parse_key
from ledger.core.model.table import MalformedRecord, RegisterTable
from ledger.errors import Fenced, TemporaryError, Unreachable
from ledger.ports import Marks, Record
from ledger.roles.common.candidacy import Candidacy
from ledger.roles.common.catching_up import read_up_to
from ledger.roles.common.events import FORGED_EPOCH_MIN, epoch_after, noops
from ledger.roles.common.rejecting import RejectEvents
from ledger.roles.common.role_parts import EntryListener, Parts, ProjectorSettings, ignore_entry
from ledger.roles.common.standstill import Standstill
from ledger.roles.projector.cold_start import ColdStart, begun, from_the_log
from ledger.roles.projector.term import ProjectorTerm
from ledger.util import failpoints

ROLE = "projector"
MALFORMED_MAX = 100_000  # rejects that a standby remembers; the newest are kept
log = structlog.get_logger(ROLE)


class Projector:
    """One instance of the projector, leader or standby. Call `run`, or `step` again and again."""

    def __init__(
        self, parts: Parts, rejects: RejectEvents, settings: ProjectorSettings, on_entry: EntryListener = ignore_entry,
        cold_start: ColdStart = from_the_log,
    ) -> None:  # fmt: skip
        """on_entry: called with every published entry, and after a take-over with all entries; it must not block or raise.
        cold_start: called whenever reading begins anew."""
        self._parts, self._rejects, self._settings, self._on_entry = parts, rejects, settings, on_entry
        self._cold_start = cold_start
        self._topics, self._clock = parts.topics, parts.clock
        self._partitions = parts.log.partitions(parts.topics.events)
        self.candidacy = Candidacy(parts.leadership, parts.clock, forced=parts.forced)
        self._term: ProjectorTerm | None = None
        self.counters: Counter[str] = Counter()
        self._begin_reading()

    @property
    def epoch(self) -> int:
        """The epoch of the term; 0 = a standby."""
        return self._term.epoch if self._term else 0

    def run(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            self.step()
        self.candidacy.ends()
        self._drop_term("stopped")
        self._reader.close()

    def step(self) -> None:
        """Reads new records. Then a leader publishes the changed entries, and a standby tries to become the leader."""
        try:
            self._read()
            if self._term is not None:
                self.candidacy.require_lease("leading")
                self._at_end_at = self._standstill.check()
                with self._malformed_taken() as malformed:
                    self.counters["written"] += self._term.publish(self._taken_dirty(), malformed)
            elif self.candidacy.may_lead():
                self._take_over()
        except (Fenced, Unreachable, TemporaryError) as error:
            self.step_down(error)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _begin_reading(self) -> None:
        found = begun(self._cold_start, self._settings.forget_after_s, self._clock)
        self._reader = self._parts.log.reader([self._topics.events, self._topics.recovery], None, found.begin)
        self._table = RegisterTable(self._partitions)
        self.published = Published(self._parts.codec.decode)
        self._dirty: dict[str, int] = {}
        self._malformed: list[MalformedRecord] = []
        self._standstill = Standstill(self._reader, self._clock)
        self._next_end_check = self._clock.monotonic()
        self._at_end_at = self._next_end_check - found.age_s
        for records in found.records:
            self._take(records)

    def _read(self) -> None:
        now = self._clock.monotonic()
        if self._term is None and now - self._at_end_at > self._settings.forget_after_s:
            log.warning("forgets_everything", not_at_the_end_for_s=round(now - self._at_end_at))
            self._reader.close()
            self._begin_reading()
        self._poll()
        if self._term is None and now >= self._next_end_check:
            self._next_end_check = now + 5.0
            if self._reached(self._reader.high_watermarks()):
                self._at_end_at = now

    def _poll(self) -> None:
        self._take(self._reader.poll(self._settings.records_max, self._settings.commit_interval_s))

    def _take(self, records: Sequence[Record]) -> None:
        events = [record for record in records if record.topic() == self._topics.events]
        touched, malformed = self._table.apply(events, tell_touched=self._term is not None)
        self._malformed = (self._malformed + malformed)[-MALFORMED_MAX:]
        self.counters["foreign"] += len(malformed)
        if self._term is not None:
            self._dirty.update((job_id.decode(), partition) for job_id, partition in touched.items())
            if self._settings.result_retention_s is not None:
                self._note_submissions(self._term, events)
        if len(events) == len(records):
            return
        published = [record for record in records if record.topic() == self._topics.recovery]
        for record in published:
            self.published.apply(record)
        if self._term is not None:  # not before all are applied: it may raise, and what was polled does not come again
            self._dirty.update(found for record in published for found in self._term.tail(record))

    def _note_submissions(self, term: ProjectorTerm, events: Sequence[Record]) -> None:
        for record in events:
            match parse_key(record.key()):
                case (job_id, Spec(digest)):
                    time_s = self._parts.envelope.parse(headers_of(record)).time_s
                    if time_s is not None:
                        term.submitted_at(job_id, digest, time_s)

    def _taken_dirty(self) -> dict[str, int]:
        dirty, self._dirty = self._dirty, {}
        return dirty

    @contextmanager
    def _malformed_taken(self) -> Iterator[list[MalformedRecord]]:
        """The malformed records to reject; kept for the next try if this one fails."""
        malformed, self._malformed = self._malformed, []
        try:
            yield malformed
        except BaseException:
            self._malformed = (malformed + self._malformed)[-MALFORMED_MAX:]
            raise

    def _reached(self, marks: Marks) -> bool:
        position = self._reader.position()
        return all(position.get(tp, 0) >= mark for tp, mark in marks.items())

    def _read_up_to(self, marks: Marks) -> None:
        read_up_to(marks, self._reader, self._poll, self.candidacy, self._clock)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Fence the predecessor; *then* check the lease (a late-waking candidate stops here, having written nothing);
        read to the true end; claim and publish every difference; read up to the claim and publish what differs still."""
        writer = self._parts.log.writer(f"{self._topics.recovery}-{ROLE}")
        try:
            failpoints.hit("term.elected")
            writer.init()
            failpoints.hit("term.initialised")
            self.candidacy.require_lease("fencing its predecessor; nothing was written")
            topics = (self._topics.events, self._topics.recovery, self._topics.rejects)
            writer.commit(noops({topic: self._parts.log.partitions(topic) for topic in topics}))
            self._read_up_to(self._reader.high_watermarks())
            self._at_end_at = self._clock.monotonic()
        except BaseException:
            writer.close()
            raise
        epoch = epoch_after(self._highest_epoch(), self._topics.recovery)
        self._term = ProjectorTerm(
            self._parts, self._settings, self._rejects, writer, epoch, self._table, self.published, self._reader,
            self._on_entry,
        )  # fmt: skip
        with self._malformed_taken() as malformed:
            claimed = self._term.claim(malformed, self.candidacy.reason())
        self._read_up_to(claimed)
        with self._malformed_taken() as malformed:
            self._term.publish(self._taken_dirty(), malformed)
        self.candidacy.became_leader(epoch)
        self._standstill = Standstill(self._reader, self._clock)
        log.info("leads", epoch=epoch, jobs=len(self._table))

    def _highest_epoch(self) -> int:
        """In the log, also of records that readers drop, and of claims that somebody tombstoned: the log decides, not the
        election. But not one that nobody claimed and no leader can have come to: with a single stray header there would be
        no epoch left for anybody."""
        last = [(key, raw.epoch) for keys in self.published.raw.values() for key, raw in keys.items()]
        removed = (claim[1] for key, _ in last if (claim := parse_claim(key)) is not None and claim[0] == ROLE)
        in_records = (epoch for epoch in (*removed, *(epoch for _, epoch in last)) if epoch <= FORGED_EPOCH_MIN)
        return max([0, *self.published.claimed.values(), *in_records])

    def step_down(self, error: Exception) -> None:
        """Drops the writer and becomes a standby; the records that were read stay. A later `step` may take over
        again."""
        self.candidacy.step_down(error)
        self._drop_term(str(error))

    def _drop_term(self, reason: str) -> None:
        term, self._term = self._term, None
        self._dirty = {}
        if term is not None:
            log.warning("stands_back", epoch=term.epoch, reason=reason)
            term.close()

"""The reconciler: observes, decides, acts. It restarts jobs from their checkpoints and retires the finished ones.

Level-based: after each batch of the recovery stream, and at intervals, one pass goes over the whole set. Elected like the
projector, with epochs of its own in `ledger.events`; its claim there is a barrier, since it plans only from entries that
are at or past it. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from ledger import failpoints
from ledger.core import outside
from ledger.core.plan import Action, Confirm, Knowledge, Wait, admit, decide
from ledger.core.published import Published
from ledger.core.recovery import RecoveryEntry, same_meaning
from ledger.core.registers import parse_claim, partition_of
from ledger.errors import Fenced, LedgerError, TemporaryError, Unreachable
from ledger.ports import Event, Executor, Marks, ObservedAttempt, Reader, RecoveryStream, Runner, Task, TaskOutcome, Writer
from ledger.roles.candidacy import Candidacy
from ledger.roles.catching_up import read_up_to
from ledger.roles.events import EventFactory, noops
from ledger.roles.flows import Flow, Flows, Memory, Surroundings
from ledger.roles.parts import Parts
from ledger.roles.standstill import Standstill

ROLE = "reconciler"
log = structlog.get_logger(ROLE)


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """tick_s: how long one step waits for news. observe_interval_s: how long until the next pass without any.
    starts_max: new starts a pass. records_max: per poll."""

    tick_s: float = 0.1
    observe_interval_s: float = 1.0
    starts_max: int = 50
    records_max: int = 20_000


class Observed:
    """The answer of each runner that gave one. A failed answer is no answer: then nothing is known of its jobs."""

    def __init__(self, answers: Mapping[str, Sequence[ObservedAttempt] | None]) -> None:
        self._answers = answers
        self._alive: dict[tuple[str, str], set[int]] = {}
        self.listed: set[tuple[str, str]] = set()
        for runner, attempts in answers.items():
            for attempt in attempts or ():
                self.listed.add((runner, attempt.job_id))
                if attempt.alive:
                    self._alive.setdefault((runner, attempt.job_id), set()).add(attempt.n)

    def alive(self, runner: str, job_id: str) -> frozenset[int] | None:
        """The attempts of a job that run; None if the runner did not answer. A runner that nobody knows runs nothing."""
        if runner in self._answers and self._answers[runner] is None:
            return None
        return frozenset(self._alive.get((runner, job_id), ()))


@dataclass(slots=True)
class _Stray:
    """Something that a runner lists and the recovery set does not, and the end of the log when it was first seen."""

    end: int
    memory: Memory = field(default_factory=Memory)


class Reconciler:
    """One instance of the role. Call `step` for ever (or `run`)."""

    def __init__(
        self, parts: Parts, runners: Mapping[str, Runner], stream: RecoveryStream, executor: Executor,
        settings: ReconcilerSettings, tell: Callable[[dict[str, str]], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """tell: hears what each job waits for (job id -> reason), whenever that changes."""
        self._tell = tell
        self._parts, self._runners, self._stream, self._executor = parts, runners, stream, executor
        self._settings, self._clock, self._topic = settings, parts.clock, parts.topics.events
        self._partitions = parts.log.partitions(parts.topics.events)
        self.counters: Counter[str] = Counter()
        self.waits: dict[str, str] = {}
        self.candidacy = Candidacy(parts.leadership, parts.clock, forced=parts.forced)
        self.epoch = 0  # 0 while standing by
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    def run(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            self.step()
        self.candidacy.ends()
        self._drop_term("stopped")
        self._executor.close()

    def step(self) -> None:
        try:
            if self.epoch:
                self._lead()
            elif self.candidacy.may_lead():
                self._take_over()
            else:
                self._clock.sleep(self._settings.tick_s)
        except (Fenced, Unreachable, TemporaryError) as error:
            self._stand_back(error)

    # -- leadership ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Fence the predecessor, check the lease, read the log to its true end for the highest epoch, claim the next on
        every partition, and begin the recovery stream anew."""
        self._writer = self._parts.log.writer(f"{self._topic}-{ROLE}")
        failpoints.hit("term.elected")
        self._writer.init()
        failpoints.hit("term.initialised")
        self.candidacy.must_hold("fencing its predecessor; nothing was written")
        self._writer.commit(noops({self._topic: self._partitions}))
        reader = self._reader = self._parts.log.reader([self._topic])
        self._highest = 0
        read = partial(self._read_claims, self._settings.tick_s)
        read_up_to(reader.high_watermarks(), reader, read, self.candidacy, self._clock)
        epoch = self._highest + 1
        factory = EventFactory(
            role=ROLE, epoch=epoch, writer=f"{ROLE}-{epoch}", actor=self._parts.actor, partitions=self._partitions,
            clock=self._clock, new_id=self._parts.new_id, codec=self._parts.codec, envelope=self._parts.envelope,
        )  # fmt: skip
        self.epoch = epoch
        claims = factory.claims(self._topic, self._parts.writer_name, self.candidacy.reason())
        self._barrier = dict(enumerate(self._commit(claims)))
        self._flows_of = Flows(
            Surroundings(
                self._topic, self._partitions, factory, self._clock.time, self._end_of_log, self._acknowledge,
                self._still_planned,
            )
        )  # fmt: skip
        self.published = Published(self._parts.codec.decode)
        self._memory: dict[str, Memory] = {}
        self._strays: dict[tuple[str, str], _Stray] = {}
        self._flows: dict[str, Flow] = {}
        self._outbox: list[tuple[str, list[Event]]] = []
        self._tasks: list[Task] = []
        self._asked: dict[str, Task] = {}
        self._next_pass = self._clock.monotonic()
        self._stream.open(epoch)
        self.candidacy.leads(epoch)
        self._standstill = Standstill(reader, self._clock)
        log.info("leads", epoch=epoch)

    def _read_claims(self, timeout_s: float) -> None:
        assert self._reader is not None
        for record in self._reader.poll(self._settings.records_max, timeout_s):
            claim = parse_claim(record.key())
            if claim is not None and claim[0] == ROLE:
                self._highest = max(self._highest, claim[1])

    def _stand_back(self, error: Exception) -> None:
        """Leads no more. Flows are dropped where they are: whoever leads next judges anew from log and runners."""
        self.candidacy.stands_back(error)
        self._drop_term(str(error))

    def _drop_term(self, reason: str) -> None:
        epoch, self.epoch = self.epoch, 0
        writer, self._writer = self._writer, None
        reader, self._reader = self._reader, None
        if epoch:
            log.warning("stands_back", epoch=epoch, reason=reason)
            self._note({})
        if writer is not None:
            writer.close()
        if reader is not None:
            reader.close()
        if epoch:
            try:
                self._stream.close()
            except TemporaryError as error:  # its batches go nowhere; the next term begins a stream of its own
                log.warning("stream_left", epoch=epoch, reason=str(error))

    # -- leading -------------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        self.candidacy.must_hold("leading")
        records = self._stream.take(self._settings.tick_s)
        for record in records:
            self.published.apply(record)
        self._read_claims(0)
        self._standstill.check()
        if self._highest > self.epoch:
            raise Fenced(f"epoch {self.epoch} was replaced by {self._highest}")
        results = self._executor.results()
        for task, outcome in results:
            self._resume(task, outcome)
        self._flush()
        if records or results or self._clock.monotonic() >= self._next_pass:
            self._next_pass = self._clock.monotonic() + self._settings.observe_interval_s
            self._pass()

    def _pass(self) -> None:
        """Over the whole set, once. A job whose last action is still under way is left alone."""
        observed = self._observe()
        actions: list[Action] = []
        self._ends: Marks | None = None
        for job_id, entry in self.published.entries.items():
            if job_id not in self._flows:
                actions += self._decide(entry, observed)
        waits: dict[str, str] = {}
        for action in admit(actions, self.published.entries, self._settings.starts_max):
            if isinstance(action, Wait | Confirm):
                waits[action.job_id] = action.reason
                continue
            entry = self.published.entries[action.job_id]
            flow = self._flows_of.of(action, entry, self._memory[action.job_id])
            if flow is not None and action.job_id not in self._flows:
                self.counters[type(action).__name__.lower()] += 1
                self._begin(action.job_id, flow)
        self._after_strays(observed)
        self._note(waits)
        self._flush()
        if len(self._memory) > 2 * len(self.published.entries) + 1000:
            self._memory = {job_id: m for job_id, m in self._memory.items() if job_id in self.published.entries}

    def _observe(self) -> Observed:
        """Every runner lists all its attempts in one call."""
        answers: dict[str, Sequence[ObservedAttempt] | None] = {}
        for name, runner in self._runners.items():
            try:
                answers[name] = runner.observe()
            except LedgerError as error:
                answers[name] = None
                self.counters["unobserved"] += 1
                log.debug("no_answer", runner=name, reason=str(error))
        return Observed(answers)

    def _decide(self, entry: RecoveryEntry, observed: Observed) -> tuple[Action, ...]:
        memory = self._memory.setdefault(entry.job_id, Memory())
        as_of = self.published.as_of(entry.job_id, entry.partition)
        if as_of <= self._barrier.get(entry.partition, 0):
            return (Wait(entry.job_id, "the entry is older than this reconciler's claim"),)
        if as_of <= memory.last_fact:
            return ()
        known = Knowledge(
            settled=frozenset(n for n, end in memory.settled.items() if as_of >= end),
            confirmed=memory.confirm is not None and as_of >= memory.confirm,
            crashed=tuple(memory.crashed.items()), asked=frozenset(memory.asked),
        )
        if entry.runner == outside.OUTSIDE:
            return outside.decide(entry)
        actions = decide(entry, observed.alive(entry.runner, entry.job_id), known)
        if not any(isinstance(action, Confirm) for action in actions):
            if not known.confirmed or not actions:
                memory.confirm = None
        elif memory.confirm is None:
            memory.confirm = self._end(entry.partition)
        return actions

    def _after_strays(self, observed: Observed) -> None:
        """Attempts that a runner lists and that have no entry: stopped, then forgotten, but only after everything that
        was in the log when they were first seen has been read."""
        strays: dict[tuple[str, str], _Stray] = {}
        for runner, job_id in sorted(observed.listed):
            if job_id in self.published.entries or job_id in self.published.unreadable or job_id in self._flows:
                continue
            partition = partition_of(job_id, self._partitions)
            stray = self._strays.get((runner, job_id)) or _Stray(self._end(partition))
            strays[runner, job_id] = stray
            as_of = self.published.as_of(job_id, partition)
            if as_of < stray.end or as_of <= self._barrier.get(partition, 0):
                continue
            alive = observed.alive(runner, job_id) or frozenset()
            verb = "stop" if alive else "forget"
            log.warning("stray", job=job_id, runner=runner, alive=sorted(alive), action=verb)
            tasks = [Task("stop", runner, job_id, n, outcome="stopped") for n in sorted(alive)]
            self._begin(job_id, _each(tasks or [Task("forget", runner, job_id)]))
        self._strays = strays

    def _note(self, waits: dict[str, str]) -> None:
        """Tells what jobs wait for, where it has changed: a job that waits must do so visibly."""
        if waits != self.waits:
            self.waits = waits
            self._tell(waits)

    # -- flows ---------------------------------------------------------------------------------------------------------

    def _begin(self, job_id: str, flow: Flow) -> None:
        self._flows[job_id] = flow
        self._advance(job_id, None)

    def _resume(self, task: Task, outcome: TaskOutcome) -> None:
        if self._asked.get(task.job_id) is task:  # the very one: not what a flow of an earlier epoch asked for
            del self._asked[task.job_id]
            self._advance(task.job_id, outcome)

    def _advance(self, job_id: str, answer: Any) -> None:
        try:
            wanted = self._flows[job_id].send(answer)
        except StopIteration:
            del self._flows[job_id]
            return
        except Exception:  # one job's trouble is nobody else's (incident 003); the next pass judges it anew
            log.exception("flow_broke", job=job_id)
            self.counters["flows_broken"] += 1
            del self._flows[job_id]
            return
        if isinstance(wanted, Task):
            self._asked[job_id] = wanted
            self._tasks.append(wanted)
        else:
            self._outbox.append((job_id, wanted))

    def _flush(self) -> None:
        """Commits what flows want written, in one transaction, and lets them go on; then hands out what they want done."""
        while self._outbox:
            outbox, self._outbox = self._outbox, []
            offsets = iter(self._commit([event for _, events in outbox for event in events]))
            for job_id, events in outbox:
                self._advance(job_id, [next(offsets) for _ in events])
        tasks, self._tasks = self._tasks, []
        if tasks:
            self._executor.submit(tasks)

    def _commit(self, events: list[Event]) -> list[int]:
        self.candidacy.must_hold("leading")
        assert self._writer is not None
        return self._writer.commit(events)

    # -- what flows ask ------------------------------------------------------------------------------------------------

    def _end_of_log(self, partition: int) -> int:
        return self._high_watermarks()[self._topic, partition]

    def _high_watermarks(self) -> Marks:
        assert self._reader is not None
        return self._reader.high_watermarks()

    def _end(self, partition: int) -> int:
        """As `_end_of_log`, asked at most once a pass."""
        if self._ends is None:
            self._ends = self._high_watermarks()
        return self._ends[self._topic, partition]

    def _acknowledge(self, runner: str, job_id: str, keys: Sequence[bytes]) -> None:
        try:
            self._runners[runner].acknowledge(job_id, keys)
        except LedgerError as error:
            log.info("not_acknowledged", job=job_id, reason=str(error))

    def _still_planned(self, entry: RecoveryEntry) -> bool:
        return same_meaning(self.published.entries.get(entry.job_id), entry)


def _each(tasks: list[Task]) -> Flow:
    for task in tasks:  # noqa: UP028 - a list has no send, and outcomes are sent
        yield task

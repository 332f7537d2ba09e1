"""The reconciler: observes, decides, acts. It restarts jobs from their checkpoints and retires the finished ones.

Level-based: after each batch of the recovery stream, and at intervals, one pass goes over the whole set. Elected like the
projector, with epochs of its own in `ledger.events`; its claim there is a barrier, since it plans only from entries that
are at or past it. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from ledger.core.model.facts import LeaderClaimed
from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState, RecoveryEntry, same_meaning
from ledger.core.model.registers import parse_claim
from ledger.core.plan.heard import HELD
from ledger.core.plan.plan import Action, Confirm, Knowledge, Settle, Start, StartAgain, Wait
from ledger.core.plan.pools import NO_POOLS, Pools
from ledger.core.plan.reconcile import JobView, Observed, plan_actions
from ledger.errors import Fenced, LedgerError, TemporaryError, Unreachable
from ledger.ports import Event, Executor, Marks, Reader, RecoveryStream, Runner, Task, Writer
from ledger.roles.common.candidacy import Candidacy
from ledger.roles.common.catching_up import read_up_to
from ledger.roles.common.events import EventFactory, epoch_after, noops
from ledger.roles.common.own_claims import OwnClaims
from ledger.roles.common.parts import Parts
from ledger.roles.common.standstill import Standstill
from ledger.roles.reconciler.flow_runner import FlowRunner
from ledger.roles.reconciler.flow_steps import FlowContext, JobMemory
from ledger.roles.reconciler.flows import Flows
from ledger.roles.reconciler.instances import NO_CLAIM, Instances
from ledger.roles.reconciler.orphans import Orphans
from ledger.tasks import Ask, observe, observed_from
from ledger.util import failpoints

ROLE = "reconciler"
log = structlog.get_logger(ROLE)


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """tick_s: how long one step waits for news. observe_interval_s: how long until the next pass without any.
    starts_max: starts a pass. pools: what starts share. put_off_s: how long a job whose start could not be made lets the
    others of its pool go first. replaced_after_s: how long a job must have run before the one that it replaces is canceled,
    unless it makes a checkpoint. records_max: per poll."""

    tick_s: float = 0.1
    observe_interval_s: float = 1.0
    starts_max: int = 50
    pools: Pools = NO_POOLS
    put_off_s: float = 5.0
    replaced_after_s: float = 10.0
    records_max: int = 5_000


class Reconciler:
    """One instance of the role. Call `step` for ever (or `run`)."""

    def __init__(
        self, parts: Parts, runners: Mapping[str, Runner], stream: RecoveryStream, executor: Executor,
        settings: ReconcilerSettings, tell: Callable[[dict[str, str]], None] = lambda _: None, ask: Ask = observe,
    ) -> None:  # fmt: skip
        """tell: hears what each job waits for (job id -> reason), whenever that changes. ask: asks all runners."""
        self._tell, self._ask = tell, ask
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
        self.candidacy.require_lease("fencing its predecessor; nothing was written")
        self._writer.commit(noops({self._topic: self._partitions}))
        reader = self._reader = self._parts.log.reader([self._topic])
        self._highest, self._predecessor, self._own_claims = 0, NO_CLAIM, OwnClaims()
        read = partial(self._read_claims, self._settings.tick_s)
        read_up_to(reader.high_watermarks(), reader, read, self.candidacy, self._clock)
        epoch = epoch_after(self._highest, self._topic)
        factory = EventFactory(
            role=ROLE, epoch=epoch, writer=f"{ROLE}-{epoch}", actor=self._parts.actor, partitions=self._partitions,
            clock=self._clock, new_id=self._parts.new_id, codec=self._parts.codec, envelope=self._parts.envelope,
        )  # fmt: skip
        self.epoch = epoch
        self._instances = Instances(self._predecessor)
        answers = self._ask(self._runners, lambda *_: None)
        self._instances.see(observed_from(answers).instances)
        claims = factory.claims(self._topic, self._parts.writer_name, self.candidacy.reason(), self._instances.reached)
        self._barrier = dict(enumerate(self._commit(claims)))
        self._own_claims = OwnClaims(claims)
        self._flows_of = Flows(
            FlowContext(self._topic, self._partitions, factory, self._clock, self._end_of_log, self._still_planned)
        )
        self.published = Published(self._parts.codec.decode)
        self._memory: dict[str, JobMemory] = {}
        self._observed = Observed({})
        self._orphans = Orphans(
            self.published, factory, self._topic, self._partitions, self._end, self._past_claim, self.counters
        )
        self._under_way = FlowRunner(self._commit, self._submit, self.counters)
        self._next_pass = self._clock.monotonic()
        self._stream.open(epoch)
        self.candidacy.became_leader(epoch)
        self._standstill = Standstill(reader, self._clock)
        log.info("leads", epoch=epoch)

    def _read_claims(self, timeout_s: float) -> None:
        assert self._reader is not None
        for record in self._reader.poll(self._settings.records_max, timeout_s):
            claim = parse_claim(record.key())
            if claim is None or claim[0] != ROLE:
                continue
            self._own_claims.note(record)
            if claim[1] > self._highest:
                self._highest, self._predecessor = claim[1], self._claimed(record.value())

    def _claimed(self, value: bytes | None) -> LeaderClaimed:
        """What a claim says beside its epoch is for people: one that can't be read says nothing."""
        try:
            return self._parts.codec.decode(LeaderClaimed, value or b"")
        except ValueError:
            return NO_CLAIM

    def _stand_back(self, error: Exception) -> None:
        """Leads no more. Flows are dropped where they are: whoever leads next judges anew from log and runners."""
        self.candidacy.step_down(error)
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
        self.candidacy.require_lease("leading")
        records = self._stream.take(self._settings.tick_s)
        for record in records:
            self.published.apply(record)
        self._read_claims(0)
        self._standstill.check()
        if self._highest > self.epoch:
            raise Fenced(f"epoch {self.epoch} was replaced by {self._highest}")
        if again := self._own_claims.take():
            log.error("claim_removed", epoch=self.epoch, partitions=[claim.partition for claim in again])
            self._commit(again)
        results = self._executor.results()
        for task, outcome in results:
            self._under_way.resume(task, outcome)
        self._under_way.flush()
        if records or results or self._clock.monotonic() >= self._next_pass:
            self._next_pass = self._clock.monotonic() + self._settings.observe_interval_s
            self._pass()

    def _pass(self) -> None:
        """Over the whole set, once. A job whose last action is still under way is left alone."""
        self._ends: Marks | None = None
        silent: dict[str, str] = {}
        answers = self._ask(self._runners, partial(self._unheard, silent))
        self._observed = observed_from(answers, self._observed, silent)
        self._instances.see(self._observed.instances)
        views = {job_id: self._view(entry) for job_id, entry in self.published.entries.items()}
        actions = plan_actions(
            views, self._observed, self._settings.pools, self._settings.starts_max, self._unread(),
            self.published.unreadable,
        )  # fmt: skip
        self._confirm(views, actions)
        waits = {job_id: trouble for job_id in views if (trouble := self._memory[job_id].trouble)}
        waits |= {job_id: self._memory[job_id].put_off for job_id, view in views.items() if view.put_off}
        for action in actions:
            if isinstance(action, Wait | Confirm):
                waits[action.job_id] = action.reason
            elif action.job_id not in self._under_way:
                self._perform(action)
        for job_id, flow in self._orphans.flows(self._observed, self._under_way):
            self._under_way.begin(job_id, flow)
        waits |= {job_id: why for job_id in views if job_id in self._under_way and (why := self._memory[job_id].doing)}
        self._note(waits)
        self._under_way.flush()
        if len(self._memory) > 2 * len(self.published.entries) + 1000:
            self._memory = {job_id: m for job_id, m in self._memory.items() if job_id in self.published.entries}

    def _unheard(self, silent: dict[str, str], runner: str, error: LedgerError) -> None:
        silent[runner] = str(error)
        self.counters["unobserved"] += 1
        log.debug("no_answer", runner=runner, reason=str(error))

    def _perform(self, action: Action) -> None:
        entry, memory = self.published.entries[action.job_id], self._memory[action.job_id]
        memory.heard = self._observed.of(entry)
        memory.doing = _doing(action)
        flow = self._flows_of.of(action, entry, memory)
        if flow is not None:
            self.counters[type(action).__name__.lower()] += 1
            starting = action.n if isinstance(action, Start | StartAgain) else 0
            self._under_way.begin(action.job_id, flow, starting)

    def _view(self, entry: RecoveryEntry) -> JobView:
        """The job with all that is remembered of it."""
        job_id = entry.job_id
        memory = self._memory.setdefault(job_id, JobMemory())
        as_of = self.published.as_of(job_id, entry.partition)
        known = Knowledge(
            settled=frozenset(n for n, end in memory.settled.items() if as_of >= end),
            confirmed=memory.confirm is not None and as_of >= memory.confirm,
            crashed=tuple(memory.crashed.items()),
            asked=frozenset(memory.asked),
            verified=tuple(memory.verified.items()),
            fenced=frozenset(n for n, end in memory.settled.items() if as_of < end),
        )
        starting = self._under_way.starting.get(job_id, memory.recorded if memory.recorded > entry.attempt else 0)
        idle = job_id not in self._under_way and as_of > memory.last_fact
        old = "" if self._past_claim(entry.partition, as_of) else "the entry is older than this reconciler's claim"
        if entry.state not in (JobState.CREATED, JobState.RESTARTING):
            memory.put_off = ""
        lately = memory.put_off_at + self._settings.put_off_s > self._clock.monotonic()
        put_off = bool(memory.put_off) and lately
        return JobView(entry, known, idle, old if idle else "", starting, put_off, self._steady(entry, memory))

    def _steady(self, entry: RecoveryEntry, memory: JobMemory) -> bool:
        """Whether a job that replaces another has run for long enough, by what this reconciler has seen itself."""
        if entry.replaces is None or entry.state is not JobState.RUNNING or not entry.known:
            memory.runs_since = (0, 0.0)
            return False
        if memory.runs_since[0] != entry.attempt:
            memory.runs_since = (entry.attempt, self._clock.monotonic())
        return self._clock.monotonic() >= memory.runs_since[1] + self._settings.replaced_after_s

    def _past_claim(self, partition: int, as_of: int) -> bool:
        return as_of > self._barrier.get(partition, 0)

    def _unread(self) -> str:
        """Why it is not known yet what holds slots: jobs that a predecessor has recorded may not be seen yet."""
        if all(self._past_claim(partition, self.published.progress.get(partition, 0)) for partition in self._barrier):
            return ""
        return "the recovery set is not read up to this reconciler's claim"

    def _confirm(self, views: Mapping[str, JobView], actions: Iterable[Action]) -> None:
        """Where something looks wrong, notes the end of the log; where nothing does any more, forgets it."""
        acted = {action.job_id for action in actions}
        doubted = {action.job_id for action in actions if isinstance(action, Confirm)}
        for job_id in doubted:
            memory = self._memory[job_id]
            if memory.confirm is None:
                memory.confirm = self._end(views[job_id].entry.partition)
        for job_id, view in views.items():
            planned = view.idle and not view.waits_for and job_id not in doubted
            if planned and (not view.known.confirmed or job_id not in acted):
                self._memory[job_id].confirm = None

    def _note(self, waits: dict[str, str]) -> None:
        """Tells what jobs wait for, where it has changed: a job that waits must do so visibly."""
        if waits != self.waits:
            for job_id, reason in waits.items():
                if HELD in reason and self.waits.get(job_id) != reason:
                    log.warning("held_elsewhere", job=job_id, reason=reason)
            self.waits = waits
            self._tell(waits)

    def _commit(self, events: list[Event]) -> list[int]:
        self.candidacy.require_lease("leading")
        assert self._writer is not None
        return self._writer.commit(events)

    def _submit(self, tasks: Sequence[Task]) -> None:
        self._executor.submit(tasks)

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

    def _still_planned(self, entry: RecoveryEntry) -> bool:
        return same_meaning(self.published.entries.get(entry.job_id), entry)


def _doing(action: Action) -> str:
    """What people are told while an action that may have to be repeated is under way; "" = nothing."""
    match action:
        case Settle(_, n):
            return f"all that its runner knows of attempt {n} must be in the log first"
        case StartAgain(_, n):
            return f"attempt {n} is recorded, and its runner gave no sign of it: it is started again"
        case _:
            return ""

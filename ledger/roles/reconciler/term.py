"""One term of a leading reconciler, from its claim to a fence: it reads the recovery set, plans, and acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState, RecoveryEntry, same_meaning
from ledger.core.plan.plan import Action, Confirm, Knowledge, Settle, Start, StartAgain, Wait
from ledger.core.plan.pools import NO_POOLS, Pools
from ledger.core.plan.reconcile import JobView, Observed, plan_actions
from ledger.core.plan.runner_report import HELD
from ledger.errors import Fenced, LedgerError, TemporaryError
from ledger.ports import Event, Executor, Marks, Observation, RecoveryStream, Task, Writer
from ledger.roles.common.candidacy import Candidacy
from ledger.roles.common.events import EventFactory
from ledger.roles.common.own_claims import OwnClaims
from ledger.roles.common.role_parts import Parts
from ledger.roles.common.standstill import Standstill
from ledger.roles.reconciler.claims import ROLE, ClaimReader
from ledger.roles.reconciler.flow_runner import FlowRunner
from ledger.roles.reconciler.flow_steps import FlowContext, JobFlow, JobMemory
from ledger.roles.reconciler.flows import flow_of
from ledger.roles.reconciler.instances import Instances
from ledger.roles.reconciler.orphans import Orphans
from ledger.tasks import observed_from

log = structlog.get_logger(ROLE)

#: Asks all runners what they run. Takes what to call for a runner that does not answer.
Observe = Callable[[Callable[[str, LedgerError], None]], Mapping[str, Observation | None]]


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    """The settings of a reconciler. tick_s: how long one step waits for new records. observe_interval_s: from one pass
    to the next without new records. starts_max: starts in one pass. pools: slots that jobs share. put_off_s: how long a
    job whose start failed lets the other jobs of its pool start first. replaced_after_s: how long a job must run before
    the job that it replaces is canceled, unless it completes a checkpoint earlier. records_max: per poll."""

    tick_s: float = 0.1
    observe_interval_s: float = 1.0
    starts_max: int = 50
    pools: Pools = NO_POOLS
    backoff_s: float = 5.0
    replaced_after_s: float = 10.0
    records_max: int = 5_000


class ReconcilerTerm:
    """Acts as leader of one epoch. `claim` first, then `step` again and again; `close` in any case.

    All that a reconciler remembers ends with its term: the next leader judges anew from the log and the runners.
    waits: job id -> what it waits for, as last given to `tell`. barrier: partition -> offset of the claim.
    """

    def __init__(
        self, parts: Parts, settings: ReconcilerSettings, candidacy: Candidacy, epoch: int, writer: Writer,
        claims: ClaimReader, stream: RecoveryStream, executor: Executor, observe: Observe,
        tell: Callable[[dict[str, str]], None], counters: Counter[str],
    ) -> None:  # fmt: skip
        """writer: initialised, so that it has fenced the predecessor. claims: read to the end of the log."""
        self.epoch, self._settings, self._candidacy, self._clock = epoch, settings, candidacy, parts.clock
        self._topic, self._writer_name, self._claims, self._writer = parts.topics.events, parts.writer_name, claims, writer
        self._stream, self._executor, self._observe, self._tell, self._counters = stream, executor, observe, tell, counters
        partitions = parts.log.partitions(self._topic)
        self._factory = EventFactory(
            role=ROLE, epoch=epoch, writer=f"{ROLE}-{epoch}", actor=parts.actor, partitions=partitions,
            clock=self._clock, new_id=parts.new_id, codec=parts.codec, envelope=parts.envelope,
        )  # fmt: skip
        self._context = FlowContext(
            self._topic, partitions, self._factory, self._clock, self._end_of_log, self._still_planned
        )
        self._running = FlowRunner(self._commit, self._submit, counters)
        self.published = Published(parts.codec.decode)
        self._orphans = Orphans(
            self.published, self._factory, self._topic, partitions, self._end, self._past_claim, counters
        )
        self._instances = Instances(claims.predecessor)
        self._observed = Observed({})
        self._memory: dict[str, JobMemory] = {}
        self.barrier: dict[int, int] = {}
        self._ends: Marks | None = None
        self._next_pass = self._clock.monotonic()
        self._standstill = Standstill(claims.reader, self._clock)
        self.waits: dict[str, str] = {}

    def claim(self, reason: str) -> None:
        """Claims the epoch on every partition, as a barrier for planning, and begins the recovery stream anew. reason:
        why this instance leads. Raises: Fenced, Unreachable, TemporaryError."""
        self._instances.see(observed_from(self._observe(lambda *_: None)).instances)
        claims = self._factory.claims(self._topic, self._writer_name, reason, self._instances.reached)
        self.barrier = dict(enumerate(self._commit(claims)))
        self._claims.own = OwnClaims(claims)
        self._stream.open(self.epoch)
        self._standstill = Standstill(self._claims.reader, self._clock)

    def step(self) -> None:
        """Takes new records; makes a pass if there are any, or if it is time. Raises: Fenced, Unreachable,
        TemporaryError."""
        self._candidacy.require_lease("leading")
        records = self._stream.take(self._settings.tick_s)
        for record in records:
            self.published.apply(record)
        self._claims.read(0)
        self._standstill.check()
        if self._claims.highest > self.epoch:
            raise Fenced(f"epoch {self.epoch} was replaced by {self._claims.highest}")
        if again := self._claims.own.take():
            log.error("claim_removed", epoch=self.epoch, partitions=[claim.partition for claim in again])
            self._commit(again)
        results = self._executor.results()
        for task, outcome in results:
            self._running.resume(task, outcome)
        self._running.flush()
        if records or results or self._clock.monotonic() >= self._next_pass:
            self._next_pass = self._clock.monotonic() + self._settings.observe_interval_s
            self._pass()

    def close(self) -> None:
        """Ends all flows where they are. Raises nothing."""
        self._note({})
        self._writer.close()
        self._claims.reader.close()
        try:
            self._stream.close()
        except TemporaryError as error:  # its batches go nowhere; the next term begins a stream of its own
            log.warning("stream_left", epoch=self.epoch, reason=str(error))

    def _pass(self) -> None:
        """One pass over all jobs. A job whose last action still runs is left alone."""
        self._ends = None
        silent: dict[str, str] = {}
        answers = self._observe(partial(self._unheard, silent))
        self._observed = observed_from(answers, self._observed, silent)
        self._instances.see(self._observed.instances)
        views = {job_id: self._view(entry) for job_id, entry in self.published.entries.items()}
        actions = plan_actions(
            views, self._observed, self._settings.pools, self._settings.starts_max, self._unread(),
            self.published.unreadable,
        )  # fmt: skip
        self._confirm(views, actions)
        waits = {job_id: trouble for job_id in views if (trouble := self._memory[job_id].trouble)}
        waits |= {job_id: self._memory[job_id].backoff for job_id, view in views.items() if view.backoff}
        for action in actions:
            if isinstance(action, Wait | Confirm):
                waits[action.job_id] = action.reason
            elif action.job_id not in self._running:
                self._perform(action)
        for job_id, flow in self._orphans.flows(self._observed, self._running):
            self._running.begin(job_id, flow)
        waits |= {job_id: why for job_id in views if job_id in self._running and (why := self._memory[job_id].doing)}
        self._note(waits)
        self._running.flush()
        if len(self._memory) > 2 * len(self.published.entries) + 1000:
            self._memory = {job_id: m for job_id, m in self._memory.items() if job_id in self.published.entries}

    def _unheard(self, silent: dict[str, str], runner: str, error: LedgerError) -> None:
        silent[runner] = str(error)
        self._counters["unobserved"] += 1
        log.debug("no_answer", runner=runner, reason=str(error))

    def _perform(self, action: Action) -> None:
        entry, memory = self.published.entries[action.job_id], self._memory[action.job_id]
        memory.report = self._observed.of(entry)
        memory.doing = _doing(action)
        flow = flow_of(action, JobFlow(self._context, entry, memory))
        if flow is not None:
            self._counters[type(action).__name__.lower()] += 1
            starting = action.n if isinstance(action, Start | StartAgain) else 0
            self._running.begin(action.job_id, flow, starting)

    def _view(self, entry: RecoveryEntry) -> JobView:
        """The job as the planner sees it."""
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
        starting = self._running.starting.get(job_id, memory.recorded if memory.recorded > entry.attempt else 0)
        idle = job_id not in self._running and as_of > memory.last_fact
        old = "" if self._past_claim(entry.partition, as_of) else "the entry is older than this reconciler's claim"
        if entry.state not in (JobState.CREATED, JobState.RESTARTING):
            memory.backoff = ""
        lately = memory.backoff_at + self._settings.backoff_s > self._clock.monotonic()
        backoff = bool(memory.backoff) and lately
        return JobView(entry, known, idle, old if idle else "", starting, backoff, self._steady(entry, memory))

    def _steady(self, entry: RecoveryEntry, memory: JobMemory) -> bool:
        """Whether a job that replaces another has run for replaced_after_s, as this reconciler has seen itself."""
        if entry.replaces is None or entry.state is not JobState.RUNNING or not entry.known:
            memory.runs_since = (0, 0.0)
            return False
        if memory.runs_since[0] != entry.attempt:
            memory.runs_since = (entry.attempt, self._clock.monotonic())
        return self._clock.monotonic() >= memory.runs_since[1] + self._settings.replaced_after_s

    def _past_claim(self, partition: int, as_of: int) -> bool:
        return as_of > self.barrier.get(partition, 0)

    def _unread(self) -> str:
        """Why the held slots are not known yet, "" = they are: jobs that a predecessor recorded may not be read yet."""
        if all(self._past_claim(partition, self.published.progress.get(partition, 0)) for partition in self.barrier):
            return ""
        return "the recovery set is not read up to this reconciler's claim"

    def _confirm(self, views: Mapping[str, JobView], actions: Iterable[Action]) -> None:
        """Notes the end of the log for a job that looks wrong; forgets it once nothing looks wrong any more."""
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
        """Publishes what jobs wait for, if it has changed: a job that waits must do so visibly."""
        if waits != self.waits:
            for job_id, reason in waits.items():
                if HELD in reason and self.waits.get(job_id) != reason:
                    log.warning("held_elsewhere", job=job_id, reason=reason)
            self.waits = waits
            self._tell(waits)

    def _commit(self, events: list[Event]) -> list[int]:
        self._candidacy.require_lease("leading")
        return self._writer.commit(events)

    def _submit(self, tasks: Sequence[Task[Any]]) -> None:
        self._executor.submit(tasks)

    # -- what flows ask ------------------------------------------------------------------------------------------------

    def _end_of_log(self, partition: int) -> int:
        return self._claims.ends()[self._topic, partition]

    def _end(self, partition: int) -> int:
        """As `_end_of_log`, asked at most once a pass."""
        if self._ends is None:
            self._ends = self._claims.ends()
        return self._ends[self._topic, partition]

    def _still_planned(self, entry: RecoveryEntry) -> bool:
        return same_meaning(self.published.entries.get(entry.job_id), entry)


def _doing(action: Action) -> str:
    """The text that people read while an action runs that may have to be repeated; "" = none."""
    match action:
        case Settle(_, n):
            return f"all that its runner knows of attempt {n} must be in the log first"
        case StartAgain(_, n):
            return f"attempt {n} is recorded, and its runner gave no sign of it: it is started again"
        case _:
            return ""

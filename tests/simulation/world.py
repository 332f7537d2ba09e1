"""A whole ledger on memory adapters, run by a stage: instances of the roles, one or more agents, clients, evidence."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import structlog

from ledger.adapters import cloudevents
from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.memory.executor import QueuedExecutor
from ledger.adapters.memory.leadership import MemoryElection
from ledger.adapters.memory.log import MemoryLog
from ledger.core.model.facts import (
    CheckpointRetention,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobSubmitted,
    OnStall,
    Replacement,
    RestartKind,
    RestartPolicy,
    RestorePoint,
    SavepointDisposed,
    SavepointPolicy,
    StallPolicy,
)
from ledger.core.model.published import Published
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import Disposed, Intent, Register, Spec, key_of, partition_of
from ledger.core.plan.pools import Pool, Pools
from ledger.ports import Event, Task
from ledger.reader.rejects import RejectsTopic, list_rejects
from ledger.roles.common.role_parts import Parts, ProjectorSettings, RoleTopics
from ledger.roles.projector.projector import Projector
from ledger.roles.reconciler.reconciler import Reconciler
from ledger.roles.reconciler.term import ReconcilerSettings
from tests.simulation import badinput, checkers, codec, copies, replay, rules
from tests.simulation.baton import Actor, Stage, on_one_core
from tests.simulation.checkers import Findings
from tests.simulation.copies import Taken
from tests.simulation.evidence import Evidence, LoggedRunner
from tests.simulation.ports import Lease, SimLog, SimRunner, SimStream, WrongClock
from tests.simulation.sweeping import Hurried, PointedBlobs

EVENTS, RECOVERY, REJECTS = "ledger.events", "ledger.recovery", "ledger.rejects"
TOPICS = (EVENTS, RECOVERY, REJECTS)
PARTITIONS = 2
#: (interval, number to keep) of the periodic savepoints of a job, by the last digit of its id.
SAVES = ((0.0, 0), (1.0, 0), (2.0, 1), (1.5, 2))
DELETE, KEEP = CheckpointRetention.DELETE, CheckpointRetention.KEEP
SPACES = ("default", "apart")
KINDS = ("memory", "second")  # names of runners
ROLES = ("projector", "reconciler")
DELETE_RETENTION_S = 120.0
TRANSACTION_S = 12.0  # the longest time that a transaction stays open


@dataclass(eq=False)
class Instance:
    """One process of a role."""

    role: str
    who: str
    part: Any
    lease: Lease
    actor: Actor
    clock: WrongClock
    executor: QueuedExecutor | None = None
    stream: SimStream | None = None
    agent: int = 0  # the agent that a reconciler reaches


class World:
    """The ledger of one simulation.

    pauses: returns at every point whether the instance pauses there. slots: size of the pool of most jobs (the pool of
    the others has one slot); None: no pools. region: the region of some jobs; None: no regions. saving: some jobs want
    periodic savepoints. agents: number of agents; each reconciler reaches one of them, in turn. shared: agents can read
    each other's checkpoints. kinds: kinds of runners. With several kinds, each has one agent, which every reconciler
    reaches."""

    def __init__(
        self, pauses: Callable[[Actor, str], bool] = lambda *_: False, slots: int | None = None, region: str | None = None,
        saving: bool = False, agents: int = 1, shared: bool = False, kinds: int = 1,
    ) -> None:  # fmt: skip
        self.slots, self.region, self.saving = slots, region, saving
        self.late: set[tuple[str, int]] = set()  # attempts whose record was written after its writer was fenced
        self.clock = ManualClock()
        self.stage = Stage(pauses)
        self.log = MemoryLog(
            dict.fromkeys(TOPICS, PARTITIONS) | {REJECTS: 1}, self.clock, delete_retention_s=DELETE_RETENTION_S,
            failpoint=lambda name: self.at_commit(name),
        )  # fmt: skip
        self.evidence = Evidence(self.clock)
        self.bad_input = badinput.BadInput(random.Random("bad input"), PARTITIONS)
        self.hurried = Hurried(self.clock)
        self.blobs = PointedBlobs(self.stage, self.hurried.time)
        self.agents, self.kinds = agents, KINDS[:kinds]
        names = self.kinds if agents == 1 else [f"memory-{number}" for number in range(agents)]
        self.runners = [LoggedRunner(self.clock, PARTITIONS, self.blobs, self.evidence, f"agent-{name}") for name in names]
        self.runner = self.runners[0]
        if shared:
            for runner in self.runners:
                runner.stored = self.runner.stored
        self._hosts = itertools.cycle(range(agents))
        self.elections = {role: MemoryElection() for role in ROLES}
        self.instances: list[Instance] = []
        self.orphans: list[tuple[QueuedExecutor, Task]] = []
        self.clocks_set: list[float] | None = None  # when a clock was set, by the log's clock; None: all clocks are right
        self.off_s: Callable[[], float] = lambda: 0.0
        self.keeping = False  # whether some jobs keep their checkpoints after their end
        self.at_commit: Callable[[str], None] = lambda name: self.stage.point(f"commit {name}")
        self.observer = Published(codec.decode)
        self._observing = self.log.reader([RECOVERY])
        self._made, self._ids = itertools.count(1), itertools.count(1)

    # -- instances -----------------------------------------------------------------------------------------------------

    def start(self, role: str) -> Instance:
        who = f"{role}-{next(self._made)}"
        log, clock = SimLog(self.log, self.stage, self.evidence, who), WrongClock(self.clock, self.off_s())
        lease = Lease(self.elections[role], who, self.stage, self.evidence, role)
        ids = itertools.count(1)
        parts = Parts(
            log, lease, clock, codec, cloudevents, lambda: f"{who}-{next(ids)}", RoleTopics(*TOPICS), who, who,
        )  # fmt: skip
        if role == "projector":
            settings = ProjectorSettings(commit_interval_s=0.0, forget_after_s=DELETE_RETENTION_S / 2)
            projector = Projector(parts, RejectsTopic(REJECTS, EVENTS), settings)
            instance = Instance(role, who, projector, lease, Actor(who, projector.step), clock)
        else:
            agent = next(self._hosts)
            reached = self.reached(agent)
            executor = QueuedExecutor({**reached}, self.blobs)
            stream = SimStream(self.log, RECOVERY, self.stage)
            reconciler = Reconciler(
                parts, {kind: SimRunner(runner, self.stage) for kind, runner in reached.items()}, stream, executor,
                ReconcilerSettings(tick_s=0.0, observe_interval_s=0.2, pools=self.pools(), replaced_after_s=1.0),
            )  # fmt: skip
            actor = Actor(who, reconciler.step)
            instance = Instance(role, who, reconciler, lease, actor, clock, executor, stream, agent)
        self.instances.append(instance)
        return instance

    def reached(self, agent: int) -> dict[str, LoggedRunner]:
        """Kind of runner, as named by jobs -> the runner at this agent."""
        return {KINDS[0]: self.runners[agent]} if self.agents > 1 else dict(zip(self.kinds, self.runners, strict=True))

    def reach(self, instance: Instance, agent: int) -> None:
        """From now on this agent answers the reconciler."""
        assert instance.executor is not None
        instance.agent = agent
        instance.executor._runners = {**self.reached(agent)}
        instance.part._runners = {k: SimRunner(runner, self.stage) for k, runner in self.reached(agent).items()}

    def alive(self) -> list[tuple[str, int]]:
        """The (job, attempt) of all attempts that run on any agent."""
        return [one for runner in self.runners for one in runner.alive()]

    def pools(self) -> Pools:
        if self.slots is None:
            return Pools()
        return Pools([Pool("everything", self.slots), Pool("apart", 1, frozenset({"apart"}))])

    def namespace(self, job_id: str) -> str:
        """The namespace of a job. If there are pools, some jobs belong to the small pool's namespace."""
        return "apart" if self.slots is not None and job_id.endswith(("4", "7")) else "default"

    def takes(self, job_id: str) -> int:
        """The number of slots of a job."""
        return 2 if self.slots is not None and job_id.endswith("5") else 1

    def kind(self, job_id: str) -> str:
        """The kind of runner that a job asks for."""
        return self.kinds[int(job_id[-1]) % len(self.kinds)]

    def free(self, namespace: str) -> float:
        """The free slots of the pool of a namespace."""
        size = float("inf") if self.slots is None else 1 if namespace == "apart" else self.slots
        return size - sum(self.takes(job_id) for job_id, _ in self.alive() if self.namespace(job_id) == namespace)

    def step(self, instance: Instance) -> None:
        self.stage.run(instance.actor)

    def crash(self, instance: Instance) -> None:
        """Kills the instance at its current point, as kill -9 does. Its open transaction and its tasks go on without it."""
        self.stage.kill(instance.actor)
        self.instances.remove(instance)
        instance.lease.late = False
        self.evidence.lease(instance.role, instance.who, False)
        if instance.lease.election.holder is instance.lease:
            instance.lease.election.holder = None
        if instance.executor is not None:
            self.orphans += [(instance.executor, task) for task in instance.executor.waiting]

    def give_lease(self, role: str, to: Instance | None = None, late: bool = False) -> None:
        """Gives the lock to an instance, or to none. late: the previous holder does not learn of it yet (incident 001)."""
        election = self.elections[role]
        before, election.holder = election.holder, to and to.lease
        if isinstance(before, Lease) and before is not election.holder:
            before.late = late
            if not late:
                self.evidence.lease(role, before.who, False)
        if to is not None:
            self.evidence.lease(role, to.who, True)

    def force(self, instance: Instance) -> None:
        """Makes the instance believe that it holds the lease, regardless of the lock."""
        instance.lease.late = True
        self.evidence.lease(instance.role, instance.who, True)

    def word_arrives(self) -> None:
        """All instances whose lease has ended learn of it."""
        for instance in self.instances:
            if instance.lease.late:
                instance.lease.late = False
                if instance.lease.election.holder is not instance.lease:
                    self.evidence.lease(instance.role, instance.who, False)

    def of(self, role: str) -> list[Instance]:
        return [i for i in self.instances if i.role == role]

    def leaders(self, role: str) -> list[Instance]:
        return [i for i in self.of(role) if i.part.epoch]

    def tasks(self) -> list[tuple[QueuedExecutor, Task]]:
        own = [(i.executor, task) for i in self.instances if i.executor is not None for task in i.executor.waiting]
        return own + self.orphans

    def perform(self, executor: QueuedExecutor, task: Task, how: str = "") -> None:
        """Performs a task. how: "" reports the result; "silently" performs the task without a report; "never" does not
        perform it."""
        self.orphans = [(e, t) for e, t in self.orphans if t is not task]
        executor.lose(task) if how == "never" else executor.perform(task, silently=how == "silently")

    def close(self) -> None:
        for instance in [*self.instances]:
            self.stage.kill(instance.actor)
        self.instances = []

    # -- clients and agent ---------------------------------------------------------------------------------------------

    def put(self, job_id: str) -> GraphRef:
        data = f"graph of {job_id}".encode()
        digest = sha256(data).hexdigest()
        uri = f"graphs/{job_id}/{digest}"
        self.blobs.stored[uri], self.blobs.put_at[uri] = data, self.blobs.now()
        return GraphRef(uri, digest, len(data))

    def spec(self, job_id: str, graph: GraphRef, *given: Any, **more: Any) -> Event:
        """The event of a spec. Takes the arguments of `submitted`."""
        spec = self.submitted(job_id, graph, *given, **more)
        return self.event(job_id, Spec(codec.spec_digest(spec)), spec)

    def submitted(
        self, job_id: str, graph: GraphRef, attempts_max: int = 0, varied: bool = False, replaces: str | None = None,
        after_rev: int = 0,
    ) -> JobSubmitted:  # fmt: skip
        """A spec. varied: the last digit of the id decides on the job's options, such as a failure rate, a stall policy or
        periodic savepoints. A stall policy comes with a restart budget: after all faults have healed no attempt makes
        checkpoints, and the job must come to rest."""
        policy, stalls = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max, 1.0), StallPolicy()
        if varied and job_id.endswith(("3", "6", "9")):
            policy = replace(policy, kind=RestartKind.FAILURE_RATE, failures_per_interval=5, failure_rate_interval_s=20.0)
        elif varied and job_id.endswith(("2", "5", "8")):
            policy, stalls = replace(policy, attempts_max=attempts_max or 3), StallPolicy(1.0, 2, OnStall.RESTART)
        saves = SavepointPolicy(*SAVES[int(job_id[-1]) % len(SAVES)]) if varied and self.saving else SavepointPolicy()
        region = self.region if varied and job_id.endswith(("1", "2", "3", "4", "7")) else None
        namespace, kind = (self.namespace(job_id), self.kind(job_id)) if varied else (SPACES[0], KINDS[0])
        return JobSubmitted(
            job_id, namespace, kind, graph, policy,
            slots=self.takes(job_id) if varied else 1, priority=int(job_id[-1]) % 3 if varied else 0,
            region=region, stall_policy=stalls, replaces=replaces,
            replacement=Replacement(after_rev=after_rev), savepoint_policy=saves,
            checkpoint_retention=KEEP if varied and self.keeping and job_id.endswith(("1", "4", "6")) else DELETE,
        )  # fmt: skip

    def disposable(self) -> list[RestorePoint]:
        """The existing savepoints that are older than their job's newest checkpoint."""
        newest = {run.job_id: run.place for run in self.evidence.ran if run.kind == "checkpoint" and run.place is not None}
        kept = [one for runner in self.runners if runner.up for one in runner.kept()]
        return [point for one in kept for point in one.savepoints if point.order < newest[one.job_id]]

    def disposal(self, point: RestorePoint) -> Event:
        job_id = point.location.split("/")[2]
        of = next((runner for runner in self.runners if runner.knows(job_id, point.attempt)), None)
        base = of.attempt(job_id, point.attempt).base if of else None
        fact = SavepointDisposed(point.location, base)
        self.evidence.given_up.add(point.location)
        return self.event(job_id, Disposed(*point.order, f"u{next(self._ids)}"), fact)

    def intent(self, job_id: str, rev: int, kind: IntentKind, attempt: int = 0) -> Event:
        return self.event(job_id, Intent(rev, f"u{next(self._ids)}"), IntentDeclared(kind, attempt))

    def event(self, job_id: str, register: Register, fact: Any) -> Event:
        key, partition = key_of(job_id, register), partition_of(job_id, PARTITIONS)
        number = next(self._ids)
        headers = cloudevents.headers(
            type(fact).__name__, event_id=f"client-{number}", source="/client", subject=job_id, key=key,
            time_s=self.clock.time(), sequence=number,
        )  # fmt: skip
        return Event(EVENTS, partition, key.encode(), codec.encode(fact), headers)

    def send(self, event: Event, who: str = "client", kind: Any = "ok") -> None:
        """Sends an event. kind: the answer to the sender. "fail": the event is not written. "info": the outcome is unknown
        to the sender (here the event is written)."""
        offsets = [] if kind == "fail" else self.log.append([event])
        self.evidence.told(kind, who, [event], offsets if kind == "ok" else ())

    def agent_sends(self, most: int = 1_000, acknowledged: bool = True) -> list[Event]:
        """Sends the next facts of each agent and returns them; those of one job in order. acknowledged: otherwise the
        agent sends them again later."""
        sent = []
        for runner in self.runners:
            for fact in runner.pending()[:most] if runner.up else ():
                job_id = fact.key.partition(b"/")[0].decode()
                event = Event(EVENTS, partition_of(job_id, PARTITIONS), fact.key, fact.value, fact.headers)
                self.send(event, "agent", "ok" if acknowledged else "info")
                sent.append(event)
                if acknowledged:
                    runner.acknowledge(job_id, [fact.key])
        return sent

    # -- readers and checks --------------------------------------------------------------------------------------------

    def observe(self) -> None:
        """Lets the observer, an ordinary reader, read on."""
        for record in self._observing.poll(1_000_000, 0):
            if (change := self.observer.apply(record)) is not None:
                epoch = copies.epoch_of(copies.Copied.of(record))
                self.evidence.taken.append(Taken(change.job_id, record.partition(), record.offset(), epoch, change.after))

    def copy(self) -> None:
        self.observe()  # so that it has read exactly the copied records
        self.evidence.copy(self.log, TOPICS)

    def compact(self, topic: str, keep: Any = None, min_lag_s: float = 0.0) -> None:
        self.copy()
        self.log.compact(topic, keep, min_lag_s)

    def faithful(self) -> Findings:
        """Checks the entries of the observer now."""
        self.copy()
        return checkers.view_faithful(self.observer.entries, self.evidence.copies[RECOVERY])

    def fresh_view(self) -> Published:
        """The state of a new reader that reads `ledger.recovery` from offset 0."""
        view = Published(codec.decode)
        for record in self.log.reader([RECOVERY]).poll(1_000_000, 0):
            view.apply(record)
        return view

    def left(self, topic: str) -> list[copies.Copied]:
        return [copies.Copied.of(r) for p in range(self.log.partitions(topic)) for r in self.log.records(topic, p)]

    def judge(self, rng: Any) -> Findings:
        """Checks I1 to I8 on all evidence; possible at any time. The simulation can't continue afterwards, because open
        transactions have timed out."""
        self.let_transactions_end()
        self.copy()
        e = self.evidence
        events, recovery = badinput.at_home(e.copies[EVENTS], PARTITIONS), e.copies[RECOVERY]
        bad = self.bad_input
        everything = [record for topic in TOPICS for record in e.copies[topic]]
        return [
            *checkers.compaction_stable(events, badinput.at_home(self.left(EVENTS), PARTITIONS)),
            *checkers.idempotent(events, rng), *checkers.order_free(events, rng),
            *checkers.no_resurrection(events, recovery, e.taken, e.ran), *checkers.never_vanishes(events),
            *checkers.acked_is_durable(e.told_by, everything),
            *checkers.one_writer_per_epoch(everything, e.taken, e.all_leases()),
            *checkers.projection_exact(events, recovery),
            *rules.entries_as_the_rules_say(events, recovery),
            *rules.epochs_follow(recovery), *rules.epochs_follow(events),
            *rules.not_before_its_delay(events, self.unsure()),
            *checkers.view_faithful(self.observer.entries, recovery),
            *checkers.started_once(e.ran, events), *checkers.began_unverified(e.unverified),
            *badinput.rejects_true(e.copies[EVENTS], e.copies[REJECTS], bad.bad, bad.beside),
            *badinput.rejected_once(e.told_by),
        ]  # fmt: skip

    def unsure(self) -> list[float]:
        """The times from which on a delay may be measured by another clock than before."""
        if self.clocks_set is None:
            return []
        claims = (r.time_s for topic in (EVENTS, RECOVERY) for r in self.evidence.copies[topic] if copies.claim_of(r))
        return sorted([*self.clocks_set, *claims])

    def let_transactions_end(self) -> None:
        self.clock.advance(TRANSACTION_S)
        self.log.expire_transactions()

    def judge_quiet(self) -> Findings:
        """Checks a ledger at rest: the projection is exact for every reader, each role has one leader, the jobs that should
        run do, and nothing is left of jobs that are over."""
        self.copy()
        events = badinput.at_home(self.evidence.copies[EVENTS], PARTITIONS)
        found = checkers.view_exact(self.fresh_view().entries, events, "a new reader")
        found += checkers.view_exact(self.observer.entries, events, "a reader")
        for role in ROLES:
            leading = [i.who for i in self.leaders(role)]
            found += [] if len(leading) == 1 else [f"leaders of role {role}: {leading}"]
        alive = set(self.alive())
        jobs, e = copies.folded(events), self.evidence
        stored, excused = {one for runner in self.runners for one in runner.stored}, e.damaged | e.given_up
        found += rules.offered_is_there(jobs, stored, excused)
        found += rules.over_keeps_what_it_should(events, stored, excused, checkers.told_otherwise(events)[0])
        found += checkers.savepoints_as_wanted(events, jobs, e.saved, e.given_up, stored)
        waiting = [j for j, entry in jobs.items() if entry.state in (JobState.CREATED, JobState.RESTARTING)]
        most = {space: max((self.takes(j) for j in waiting if self.namespace(j) == space), default=1) for space in SPACES}
        full = {space for space in SPACES if self.free(space) < most[space]}  # a job that does not fit blocks the rest
        links = checkers.links(events, jobs)
        for job_id, entry in jobs.items():
            found += checkers.held_for_nothing(entry, jobs, bool(full))
            if entry.state is JobState.RUNNING:
                waits = job_id in links and not entry.known  # recorded, but another job of the replacement runs
                runs = waits or (job_id, entry.attempt) in alive
                found += [] if runs else [f"{job_id}/{entry.attempt} does not run"]
            elif self.agents > 1 and any(one.split("/")[2] == job_id for one in e.damaged):
                continue  # one agent has the first restore point, which is damaged, and another agent the next
            elif self.namespace(job_id) in full and entry.state in (JobState.CREATED, JobState.RESTARTING):
                continue
            elif job_id in links and entry.state not in (JobState.CANCELLING, JobState.FAILING):
                continue  # the jobs wait for each other because of intents, or for a terminal job to be retired
            elif entry.state not in (JobState.SUSPENDED, JobState.QUARANTINED):
                found.append(f"{job_id} is still {entry.state}")
        found += [f"{j}/{n} runs and should not" for j, n in sorted(alive) if (e := jobs.get(j)) is None or e.attempt != n]
        found += checkers.regions_went_back(events)
        topics = self.evidence.copies
        found += badinput.rejects_complete(topics[EVENTS], topics[REJECTS], self.bad_input.bad)
        found += self.rejects_are_listed()
        found += [
            f"{uri} of a retired job is left" for uri in self.blobs.stored if uri.split("/")[1] in self.retired() - {*jobs}
        ]
        return found

    def replay(self, rng: random.Random) -> Findings:
        events = badinput.at_home(self.evidence.copies[EVENTS], PARTITIONS)
        return replay.clock_free(events, RoleTopics(*TOPICS), PARTITIONS, rng)

    def rejects_are_listed(self) -> Findings:
        """I17: the list of rejects holds every reject on the topic, despite other records."""
        there = {
            r.key for r in self.left(REJECTS)
            if r.value is not None and r.key is not None and (r.key, r.value) not in self.bad_input.beside
        }  # fmt: skip
        listed = {reject.origin.encode() for reject in list_rejects(self.log.reader([REJECTS]))}
        return [f"I17 {key!r} is not listed" for key in sorted(there - listed)]

    def overfull(self) -> Findings:
        """The attempts that are alive never need more slots than there are. Attempts that a stale leader recorded after it
        was fenced are excepted: the new leader may have assigned their slots before their records appeared."""
        if self.slots is None or not all(runner.up for runner in self.runners):
            return []
        late = [job_id for job_id, n in self.alive() if (job_id, n) in self.late]
        return [
            f"pools: the pool of {space} is overfull: {sorted(self.alive())}"
            for space in SPACES
            if self.free(space) + sum(self.takes(job_id) for job_id in late if self.namespace(job_id) == space) < 0
        ]

    def retired(self) -> set[str]:
        keys = (r.key or b"" for r in self.evidence.copies[EVENTS])
        return {key.partition(b"/")[0].decode() for key in keys if b"/result/" in key}


#: Log events that must never appear: a role caught a bug and skipped one job.
BROKEN = ("flow_broke", "job_not_folded")


@contextlib.contextmanager
def quiet() -> Iterator[list[str]]:
    """Silences the roles' logs: a simulation has thousands of failovers. Yields the list of forbidden log messages."""
    said: list[str] = []

    def listen(_: Any, __: str, event: Any) -> Any:
        if event["event"] in BROKEN:
            said.append(f"{event['event']}: {event.get('job')}: {sys.exc_info()[1]!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    level = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=level, processors=[listen], cache_logger_on_first_use=False)
    try:
        with on_one_core():
            yield said
    finally:
        structlog.configure(**before)

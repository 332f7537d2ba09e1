"""A random walk by seed: at every step the scheduler runs an instance, or an event happens. In the end all faults heal.

The same seed gives the same walk on any machine: there is one random generator, time is virtual, and one thing happens at
a time. Each seed omits some kinds of faults, so that one fault does not always hide the effects of another.
"""

from __future__ import annotations

import random
import traceback
from dataclasses import dataclass, field
from typing import Any

from ledger.adapters.memory.log import NoAnswer
from ledger.core.model.facts import CheckpointKind, IntentKind
from ledger.core.model.registers import Attempt, parse_key
from ledger.ports import Event
from ledger.producer.outside import NO_GRAPH
from tests.simulation.baton import Actor
from tests.simulation.checkers import Findings
from tests.simulation.copies import claim_of, epoch_of
from tests.simulation.evidence import LoggedRunner
from tests.simulation.soon import Soon
from tests.simulation.sweeping import PAST_GRACE_S, Sweeping
from tests.simulation.trouble import Trouble
from tests.simulation.world import EVENTS, RECOVERY, ROLES, TOPICS, Instance, World

STEPS = 450
HEALED_ROUNDS_MAX = 400
STAYS_ROUNDS = 10
ROUNDS_A_LEADER = 60  # after healing, if there are several agents
JOBS_MAX = 8
OFF_S = (0.0, 0.5, -0.5, 3600.0, 3600.0, -3600.0, -3600.0)  # possible errors of a wall clock
AWAY_S = 4.0  # how long runner, blobs and storage stay unreachable


@dataclass
class Report:
    """The result of a walk. drawn: how often each kind of event happened."""

    seed: int
    findings: Findings
    happened: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    drawn: str = ""

    @property
    def line(self) -> str:
        return f"make simulate SEED={self.seed} N=1"


class Walk:
    """One random walk. said: forbidden log messages of roles (`world.quiet`)."""

    def __init__(self, seed: int, said: list[str]) -> None:
        self.seed, self.rng, self._said = seed, random.Random(seed), said
        said.clear()
        slots = random.Random(f"{seed} slots").choice([None, None, 2, 3])
        # A region that fits into no pool would wait for ever.
        region = random.Random(f"{seed} region").choice([None, "r", "r"]) if slots is None else None
        self.saving = random.Random(f"{seed} savepoints")
        saving = self.saving.random() < 0.5
        self.replacing = random.Random(f"{seed} replacing")
        self.replace_rate = self.replacing.choice([0.0, 0.5])
        self.hosts = random.Random(f"{seed} hosts")  # chooses the agent that an event affects
        agents = self.hosts.choice([1, 1, 2])
        if agents > 1:  # two jobs of a replacement might each need another leader, and wait for ever
            region, saving, self.replace_rate = None, False, 0.0
        # A runner can't read the checkpoints of another kind of runner, so no job replaces one of another kind.
        kinds = random.Random(f"{seed} kinds").choice([1, 2]) if agents == 1 and not self.replace_rate else 1
        self.world = World(self._pauses, slots, region, saving, agents, shared=self.hosts.random() < 0.5, kinds=kinds)
        self.happened: dict[str, int] = {}
        self.findings: Findings = []
        self.paused: dict[Actor, float] = {}  # actor -> end of its pause, by the clock
        self.healed = self.swept = False
        self.jobs: dict[str, int] = {}  # job -> highest revision of its intents
        self.sent: list[Event] = []
        self.back_at = float("inf")
        self.absent: list[tuple[float, str]] = []  # instances that come back: (time, role)
        self.weights = {name: self._weight() for name in FAULTS}
        self.fault_rate = self.rng.choice([0.01, 0.03, 0.08])
        self.pause_rate = self.rng.choice([0.0, 0.01, 0.02, 0.06])
        self.no_answer_rate = self.rng.choice([0.0, 0.01, 0.05])
        self.sweeping = Sweeping(self.world, self.sent.append)
        self.gc = random.Random(f"{seed} garbage")  # a separate generator, so that it does not change the rest of the walk
        self.sweeps = self.gc.random() < 0.5 and agents == 1
        self.claims = random.Random(f"{seed} claims")
        self.claim_rate = self.claims.choice([0.0, 0.0, 0.01])
        self.bad = self.world.bad_input.rng = random.Random(f"{seed} bad input")
        self.bad_rate = self.bad.choice([0.0, 0.0, 0.03])
        chance = random.Random(f"{seed} trouble")
        # There is no trouble where jobs wait for each other or for slots: one stuck job would block others for good.
        self.troubled = chance.random() < 0.8 and (slots, region, saving, self.replace_rate) == (None, None, False, 0.0)
        self.soon = Soon()
        self.trouble = Trouble(self.world, chance, self._sends, self.jobs, self._count)
        self.clocks = random.Random(f"{seed} clocks")
        self.wrong = self.clocks.random() < 0.5
        if self.wrong:
            self.world.clocks_set, self.world.off_s = [], lambda: self.clocks.choice(OFF_S)
        self.world.keeping = random.Random(f"{seed} keeping").random() < 0.5
        self.world.at_commit = self._at_commit
        obedient = self.rng.random() < 0.7
        for runner in self.world.runners:
            runner.obedient = obedient
        for role in ROLES:
            for _ in range(2):
                self.world.start(role)

    def _weight(self) -> float:
        return self.rng.choice([0.0, 0.0, 1.0, 1.0, 5.0])

    def run(self, steps: int = STEPS) -> Report:
        try:
            try:
                for _ in range(steps):
                    self._step()
                    self.findings += self.world.overfull()
                    if self.findings:
                        break
                else:
                    self._heal()
            except Exception as error:  # any error of a role that is no LedgerError
                self.findings.append("".join(traceback.format_exception(error)[-3:]))
            self.findings += [*self.world.judge(self.rng), *self.sweeping.judge(self.swept), *self._said]
        finally:
            self.sweeping.close()
            self.world.close()
        return Report(self.seed, self.findings, self.happened, steps, self._drawn())

    def _drawn(self) -> str:
        rates = {
            "faults": self.fault_rate, "pauses": self.pause_rate, "no answer": self.no_answer_rate,
            "replaces": self.replace_rate, "claims again": self.claim_rate, "bad input": self.bad_rate,
        }  # fmt: skip
        world = self.world
        yes = {
            "sweeps": self.sweeps, "savepoints": world.saving, "trouble": self.troubled, "region": world.region,
            "wrong clocks": self.wrong, "keeps checkpoints": world.keeping,
        }  # fmt: skip
        words = [f"{name} {rate:g}" for name, rate in rates.items() if rate]
        words += [name for name, drawn in yes.items() if drawn]
        words += [f"slots {world.slots}"] * (world.slots is not None)
        words += [f"agents {world.agents}", f"runners {len(world.kinds)}"]
        return ", ".join([*words, *(f"{name} x{weight:g}" for name, weight in self.weights.items() if weight)])

    # -- the events ----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        world, rng = self.world, self.rng
        world.clock.advance(rng.choice([0.001, 0.01, 0.05, 0.2]))
        self._return()
        if self.sweeps and self.gc.random() < 0.2:
            self._sweep()
        if self.claims.random() < self.claim_rate:
            self._claim_again()
        if self.bad.random() < self.bad_rate:
            self._send_bad_input()
        if self.wrong and self.clocks.random() < 0.05:
            self._set_a_clock()
        if self.troubled and self.trouble.rng.random() < 0.06:
            self.trouble.strike()
        if rng.random() < self.fault_rate and any(self.weights.values()):
            name = rng.choices([*FAULTS], [*self.weights.values()])[0]
            self._count(name)
            FAULTS[name](self)
            return
        what = rng.random()
        if what < 0.62:
            self._go_on()
        elif what < 0.75:
            self._task()
        elif what < 0.85:
            self._agent()
        elif what < 0.92:
            self._engine()
        elif what < 0.97:
            self._client()
        else:
            self.findings += world.faithful()

    def _claim_again(self) -> None:
        """Appends a copy of a claim of any term."""
        self.world.copy()
        copies = self.world.evidence.copies[self.claims.choice([RECOVERY, RECOVERY, EVENTS])]
        if claims := [record for record in copies if claim_of(record) is not None]:
            self._count("claim again")
            record = self.claims.choice(claims)
            self.world.log.append([Event(*record[:2], *record[3:6])])

    def _set_a_clock(self) -> None:
        """Sets the wall clock of one instance forwards or backwards."""
        if self.world.instances and self.world.clocks_set is not None:
            self._count("clock set")
            self.clocks.choice(self.world.instances).clock.off_s = self.clocks.choice(OFF_S)
            self.world.clocks_set.append(self.world.clock.time())

    def _send_bad_input(self) -> None:
        """Appends an unusable record to one of the ledger's topics."""
        log, bad = self.world.log, self.world.bad_input
        kind, event = bad.draw([*self.jobs], log.reader(TOPICS).high_watermarks(), self.sent)
        self._count(kind)
        bad.note(kind, event)
        log.append([event])

    def _count(self, name: str) -> None:
        self.happened[name] = self.happened.get(name, 0) + 1

    def _go_on(self) -> None:
        now = self.world.clock.monotonic()
        ready = [i for i in self.world.instances if self.paused.get(i.actor, 0.0) <= now]
        if ready:
            instance = self.rng.choice(ready)
            self.paused.pop(instance.actor, None)
            self.world.step(instance)
            self._look_how_soon(instance)

    def _look_how_soon(self, instance: Instance) -> None:
        world = self.world
        if instance.role != "projector" or instance.actor in self.paused:
            return
        if world.log.under_way or world.log._open or any(world.log._left_open.values()):  # readers see nothing after it
            self.soon.disturbed()
            return
        world.observe()
        now = world.clock.monotonic()
        self.findings += self.soon.stepped(instance, world.observer.progress, EVENTS, now)

    def _sweep(self) -> None:
        """Resumes a submitter or the collector, or kills it at its current point."""
        now, gc = self.world.clock.monotonic(), self.gc
        if not any(actor.name == "collector" for actor in self.sweeping.running):
            self.sweeping.collector()
        if ready := [actor for actor in self.sweeping.running if self.paused.get(actor, 0.0) <= now]:
            actor = gc.choice(ready)
            self.paused.pop(actor, None)
            if gc.random() < 0.02:
                self._count(f"kill of {actor.name.partition(' ')[0]}")
                self.sweeping.kill(actor)
            else:
                self.world.stage.run(actor)

    def _sweeper_pauses(self, at: str) -> bool:
        """Whether a submitter or collector pauses here, often for longer than the grace period."""
        if self.healed or self.gc.random() >= 0.3:
            return False
        self._count(f"pause at {at}")
        for_s = self.gc.choice([0.0, 0.5, 0.5 * PAST_GRACE_S, PAST_GRACE_S, 3.0 * PAST_GRACE_S])
        self.paused[self.world.stage.current] = self.world.clock.monotonic() + for_s  # type: ignore[index]
        return True

    def _pauses(self, actor: Actor, at: str) -> bool:
        """Whether an instance pauses here. Take-overs are the most sensitive part. Often the lease ends in the pause."""
        if actor in self.sweeping.running:
            return self._sweeper_pauses(at)
        instance = next(i for i in self.world.instances if i.actor is actor)
        takes_over = not instance.part.epoch and instance.lease.believes()
        if self.healed or self.rng.random() >= self.pause_rate * (3 if takes_over else 1):
            return False
        self._count(f"pause at {at}")
        for_s = self.rng.choice([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 3.0, 8.0, 20.0])
        self.paused[actor] = self.world.clock.monotonic() + for_s
        if instance.lease.election.holder is instance.lease and self.rng.random() < for_s / 5.0:
            self._count("lease ends in a pause")
            self.world.give_lease(instance.role)
        return True

    def _at_commit(self, name: str) -> None:
        self.world.stage.point(f"commit {name}")
        if not self.healed and self.rng.random() < self.no_answer_rate:
            self._count("no answer")
            raise NoAnswer(self.rng.choice(["never", "now", "late"]))

    def _task(self) -> None:
        if tasks := self.world.tasks():
            how = "" if self.healed else self.rng.choices(["", "silently", "never"], [20, 1, 1])[0]
            self.world.perform(*self.rng.choice(tasks), how)

    def _agent(self) -> None:
        if any(runner.up for runner in self.world.runners):
            self.sent += self.world.agent_sends(self.rng.randint(1, 3), self.rng.random() < 0.9)

    def _engine(self) -> None:
        runner, rng = self._host(), self.rng
        runner.up, up = True, runner.up
        if alive := runner.alive():
            job_id, n = rng.choice(alive)
            attempt = runner.attempt(job_id, n)
            what = rng.random()
            lives_on = self.world.saving and self.saving.random() < 0.8  # so more savepoints than a start may need
            if attempt.starting:
                runner.finish_starts()
            elif attempt.order or (what < 0.25 and not lives_on):
                runner.end(job_id, n, "finished")
            elif what < 0.7:
                id_ = (attempt.newest or 0) + 1
                if self.world.saving and self.saving.random() < (0.9 if attempt.asks else 0.4):
                    self._count("savepoint")
                    runner.checkpoint(job_id, n, id_, kind=CheckpointKind.SAVEPOINT)
                else:
                    runner.checkpoint(job_id, n, id_, consistency=f"{id_ // 2}" if id_ % 2 == 0 else "")
            else:
                runner.kill(job_id, n)
        runner.up = up

    def _host(self) -> LoggedRunner:
        return self.hosts.choice(self.world.runners)

    def _dispose(self) -> None:
        """Disposes of a savepoint that is not the newest restore point of its job."""
        if found := self.world.disposable():
            self._count("dispose")
            event = self.world.disposal(self.saving.choice(found))
            self.world.send(event)
            self.sent.append(event)

    def _client(self) -> None:
        world, rng = self.world, self.rng
        if world.saving and self.saving.random() < 0.3:
            self._dispose()
        if len(self.jobs) < JOBS_MAX and (not self.jobs or rng.random() < 0.5):
            job_id = f"job-{len(self.jobs) + 1}"
            self.jobs[job_id] = 0
            old, attempts_max = self._to_replace(job_id), rng.choice([0, 0, 0, 1])
            if self.sweeps:  # the submitter acts step by step; such jobs replace no others
                self.sweeping.submitter(job_id, world.submitted(job_id, NO_GRAPH, attempts_max, varied=True))
                return
            event = world.spec(
                job_id, world.put(job_id), attempts_max, varied=True, replaces=old, after_rev=self.jobs[old] if old else 0,
            )  # fmt: skip
        else:
            job_id = rng.choice([*self.jobs])
            self.jobs[job_id] += 1
            kinds = [IntentKind.CANCEL, IntentKind.SUSPEND, IntentKind.RUN, IntentKind.RETRY]
            kind = rng.choices(kinds, [1, 1, 5, 3])[0]
            entry = world.observer.entries.get(job_id)
            event = world.intent(job_id, self.jobs[job_id], kind, entry.attempt if entry else 0)
        kind: Any = rng.choices(["ok", "info", "fail"], [8, 1, 1])[0]
        world.send(event, kind=kind)
        if kind != "fail":
            self.sent.append(event)

    def _sends(self, event: Event) -> None:
        self.world.send(event)
        self.sent.append(event)

    def _to_replace(self, job_id: str) -> str | None:
        """The job that a new job replaces, or None. In half of the walks a new job may replace an earlier one, perhaps one
        that is over or is being replaced. A separate generator keeps the other walks unchanged."""
        others = sorted({*self.jobs} - {job_id})
        if not others or self.replacing.random() >= self.replace_rate:
            return None
        self._count("replace")
        return self.replacing.choice(others[-3:])

    def _return(self) -> None:
        due = [entry for entry in self.absent if entry[0] <= self.world.clock.monotonic()]
        for entry in due:
            self.absent.remove(entry)
            self.world.start(entry[1])
        if self.world.clock.monotonic() >= self.back_at:
            self._bring_back()

    def _bring_back(self) -> None:
        self.back_at = float("inf")
        self.world.blobs.up = True
        for runner in self.world.runners:
            runner.up, runner.unknown_storage = True, False
            if runner.slow_starts:
                runner.slow_starts = False
                runner.finish_starts()

    def _away(self) -> World:
        self.back_at = self.world.clock.monotonic() + AWAY_S
        return self.world

    # -- healing -------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Ends all faults. Within bounded time each role must have one leader, and all checks of a quiet ledger must
        pass."""
        world = self.world
        self.healed, self.paused = True, {}
        self.trouble.heal()
        self.absent = [(0.0, role) for _, role in self.absent]
        self._return()
        world.word_arrives()
        self._bring_back()
        for runner in world.runners:
            runner.obedient = True
            for job_id, n in runner.alive():
                if runner.attempt(job_id, n).order:
                    runner.end(job_id, n)
        world.let_transactions_end()
        while world.log.under_way:
            world.log.deliver(world.log.under_way[0])
        silent, ends, stayed = 0, None, False
        for number in range(HEALED_ROUNDS_MAX):
            if world.agents > 1 and number % ROUNDS_A_LEADER == 0:
                self._another_leads(number // ROUNDS_A_LEADER % world.agents)
            self._round()
            before, ends = ends, world.log.reader(TOPICS).high_watermarks()
            silent = silent + 1 if ends == before else 0
            self._all_go_on()
            if silent >= 12 and not self._left_undone():
                if stayed:
                    self.findings += world.replay(self.clocks)
                    self._sweep_all()
                    return
                stayed, silent = True, 6  # some more rounds: a periodic request may be under way
                self._stays()
        self.findings += [f"not within {HEALED_ROUNDS_MAX} rounds: {found}" for found in self._left_undone() or ["quiet"]]

    def _round(self) -> None:
        for instance in [*self.world.instances]:
            self.world.step(instance)
        for executor, task in self.world.tasks():
            self.world.perform(executor, task)
        self.sent += self.world.agent_sends()
        self.world.clock.advance(0.3)

    def _stays(self) -> None:
        """I14: while nothing happens, the leaders and the running attempts stay the same."""
        before = self._standing()
        for _ in range(STAYS_ROUNDS):
            self._round()
        if (after := self._standing()) != before:
            self.findings.append(f"I14 {before} changed to {after} without a fault")

    def _standing(self) -> tuple[list[tuple[str, str, int]], list[tuple[str, int]]]:
        leading = [(role, one.who, one.part.epoch) for role in ROLES for one in self.world.leaders(role)]
        return leading, sorted(self.world.alive())

    def _another_leads(self, agent: int) -> None:
        """Makes a reconciler lead that reaches this agent. Only then do the agent's attempts come to their end."""
        found = [one for one in self.world.of("reconciler") if one.agent == agent]
        while not found:
            found = [one for one in [self.world.start("reconciler")] if one.agent == agent]
        self.world.give_lease("reconciler", found[0])

    def _all_go_on(self) -> None:
        for actor in [*self.sweeping.running]:
            self.world.stage.run(actor)

    def _sweep_all(self) -> None:
        """Lets a collector run after the grace period. It must delete all garbage, and the checks must still pass."""
        self.world.clock.advance(PAST_GRACE_S)
        if self.sweeps:
            for actor in [*self.sweeping.running]:
                self.sweeping.kill(actor)
            self.sweeping.collector()
            done = self.sweeping.collections + 1
            for _ in range(HEALED_ROUNDS_MAX):
                self._all_go_on()
                if self.sweeping.collections >= done:
                    self.swept = True
                    self.findings += self.world.judge_quiet()
                    return
            self.findings.append("no collector finishes")

    def _left_undone(self) -> Findings:
        for topic in (EVENTS, RECOVERY):
            self.world.compact(topic)
        return self.world.judge_quiet()

    # -- faults --------------------------------------------------------------------------------------------------------

    def _instance(self) -> Instance | None:
        return self.rng.choice(self.world.instances) if self.world.instances else None

    def time_passes(self) -> None:
        self.world.clock.advance(self.rng.choice([1.0, 3.0, 12.0, 45.0]))

    def lease_ends(self) -> None:
        self.world.give_lease(self.rng.choice(ROLES), None, self.rng.random() < 0.3)

    def lease_is_granted_to_another(self) -> None:
        if (instance := self._instance()) is not None and instance.actor not in self.paused:
            self.world.give_lease(instance.role, instance, self.rng.random() < 0.5)

    def second_leader_is_forced(self) -> None:
        if (instance := self._instance()) is not None:
            self.world.force(instance)

    def word_arrives(self) -> None:
        self.world.word_arrives()

    def crash(self) -> None:
        if (instance := self._instance()) is not None:
            self.world.crash(instance)
            self.paused.pop(instance.actor, None)
            self.absent.append((self.world.clock.monotonic() + self.rng.choice([0.0, 1.0, 20.0]), instance.role))

    def stream_breaks(self) -> None:
        for instance in self.world.of("reconciler"):
            if instance.stream is not None:
                instance.stream.broken = True

    def end_of_transaction_arrives(self) -> None:
        if self.world.log.under_way:
            self.world.log.deliver(self.rng.choice(self.world.log.under_way))

    def stale_transaction_lands(self) -> None:
        """The transaction of a leader that was fenced is in the log after all, or a part of it. No broker should do that,
        but some did. Claims are excepted: otherwise two leaders would share an epoch, and nothing could prevent it."""
        stale = [batch for batch in self.world.evidence.stale if not any(e.key.startswith(b"~claim") for e in batch)]
        if stale:
            batch = self.rng.choice(stale)
            self.world.evidence.stale.remove(batch)
            landed = batch[: self.rng.randint(1, len(batch))]
            self.world.log.append(landed)
            parsed = [parse_key(event.key) for event in landed if event.topic == EVENTS]
            self.world.late |= {(one[0], one[1].n) for one in parsed if one is not None and isinstance(one[1], Attempt)}
            self.findings += self.world.faithful()

    def old_record_again(self) -> None:
        """Appends a copy of a record of a past epoch, possibly a claim."""
        copies = self.world.evidence.copies.get(self.rng.choice([RECOVERY, RECOVERY, EVENTS]), [])
        if copies:
            record = self.rng.choice(copies[-40:])
            if 0 < epoch_of(record) < max(map(epoch_of, copies)) or record.topic == EVENTS:
                self.world.log.append([Event(*record[:2], *record[3:6])])
                self.findings += self.world.faithful()

    def transaction_hangs(self) -> None:
        """A foreign transaction on the ledger's topics stays open for a while, so the last stable offset lags."""
        world, rng = self.world, self.rng
        id_ = f"foreign-{self.happened['transaction hangs']}"
        transaction = world.log.begin(id_, world.log.init(id_), rng.choice([1.0, 3.0, 12.0]))
        event = Event(rng.choice([EVENTS, RECOVERY]), rng.randrange(2), b"foreign", b"?", ())
        world.log.produce(transaction, event)

    def compaction(self) -> None:
        keep = self.rng.choice([None, None, lambda record: self.rng.random() < 0.5])
        self.world.compact(self.rng.choice(TOPICS), keep)

    def duplicate(self) -> None:
        """Appends copies of events that were sent before."""
        for event in self.rng.sample(self.sent, min(len(self.sent), self.rng.randint(1, 4))):
            self.world.log.append([event])

    def runner_away(self) -> None:
        self._away()
        self._host().up = False

    def blobs_away(self) -> None:
        self._away().blobs.up = False

    def slow_starts(self) -> None:
        self._away()
        self._host().slow_starts = True

    def storage_unknown(self) -> None:
        self._away()
        self._host().unknown_storage = True


FAULTS = {
    "time": Walk.time_passes, "lease ends": Walk.lease_ends, "granted to another": Walk.lease_is_granted_to_another,
    "second leader": Walk.second_leader_is_forced, "word arrives": Walk.word_arrives, "crash": Walk.crash,
    "stream breaks": Walk.stream_breaks, "end arrives": Walk.end_of_transaction_arrives,
    "stale transaction": Walk.stale_transaction_lands, "transaction hangs": Walk.transaction_hangs,
    "old record": Walk.old_record_again, "compaction": Walk.compaction, "duplicate": Walk.duplicate,
    "runner away": Walk.runner_away,
    "blobs away": Walk.blobs_away, "slow starts": Walk.slow_starts, "storage unknown": Walk.storage_unknown,
}  # fmt: skip

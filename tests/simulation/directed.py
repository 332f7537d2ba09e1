"""Schedules written by hand. Each brings the ledger into a situation where one guard is needed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from ledger.adapters.memory.log import NoAnswer
from ledger.core.model.facts import IntentKind
from ledger.core.model.registers import partition_of
from ledger.ports import Event
from ledger.producer.outside import NO_GRAPH
from tests.simulation.badinput import KEY, SPEC, rejects_complete
from tests.simulation.baton import Actor
from tests.simulation.checkers import Findings
from tests.simulation.copies import MAGIC, claim_of
from tests.simulation.sweeping import PAST_GRACE_S, Sweeping
from tests.simulation.world import DELETE_RETENTION_S, EVENTS, PARTITIONS, RECOVERY, REJECTS, Instance, World

Schedule = Callable[["Director"], None]
SCHEDULES: dict[str, Schedule] = {}
#: Schedules with more than one agent: name -> number of agents.
AGENTS = {"a_reconciler_leads_that_reaches_another_agent": 2, "an_agent_is_replaced_before_a_start_and_comes_back": 2}


def schedule(function: Schedule) -> Schedule:
    SCHEDULES[function.__name__] = function
    return function


class Director:
    """Runs one instance up to a point, or all instances until nothing is written any more."""

    def __init__(self, agents: int = 1) -> None:
        self.wanted: tuple[Actor, str] | None = None
        self.world = World(lambda actor, at: self.wanted == (actor, at), agents=agents)
        self.held: list[Instance] = []
        self.findings: Findings = []

    def lead(self, role: str) -> Instance:
        """Starts an instance and runs it until it leads."""
        instance = self.world.start(role)
        self.grant(instance)
        self.until(lambda: instance.part.epoch > 0, instance)
        return instance

    def grant(self, instance: Instance) -> None:
        """Gives the lock to the instance. The previous holder learns of it."""
        self.world.give_lease(instance.role, instance)

    def to(self, instance: Instance, at: str) -> None:
        """Runs one instance until it reaches a point, and holds it there."""
        self.wanted = (instance.actor, at)
        self.until(lambda: instance.actor.at == at, instance)
        self.wanted = None
        self.held.append(instance)

    def go(self, instance: Instance) -> None:
        """Lets a held instance finish its step."""
        self.held.remove(instance)
        self.world.step(instance)

    def until(self, done: Callable[[], bool], *instances: Instance, most: int = 200) -> None:
        for _ in range(most):
            for instance in instances or [i for i in self.world.instances if i not in self.held]:
                if done():
                    return
                self.world.step(instance)
            self.world.clock.advance(0.1)
        assert done(), f"the condition stays false: {[(i.who, i.actor.at, i.part.epoch) for i in self.world.instances]}"

    def settle(self, agent: bool = True) -> None:
        """Runs all instances that are not held until nothing is written for a while."""
        silent, ends = 0, None
        for _ in range(200):
            for instance in [i for i in self.world.instances if i not in self.held]:
                self.world.step(instance)
            for executor, task in self.world.tasks():
                self.world.perform(executor, task)
            if agent:
                self.world.agent_sends()
            self.world.clock.advance(0.2)
            before, ends = ends, self.world.log.reader([EVENTS, RECOVERY]).high_watermarks()
            silent = silent + 1 if ends == before else 0
            if silent > 10:
                return
        raise AssertionError("the ledger does not come to rest")

    def submit(self, job_id: str) -> None:
        self.world.send(self.world.spec(job_id, self.world.put(job_id)))

    def state(self, job_id: str) -> str:
        self.world.observe()
        entry = self.world.observer.entries.get(job_id)
        return str(entry.state) if entry else ""


def perform(name: str) -> Findings:
    """The findings of the checkers in a schedule."""
    director = Director(AGENTS.get(name, 1))
    try:
        SCHEDULES[name](director)
        director.findings += director.world.judge(random.Random(1))
        return director.findings
    finally:
        director.world.close()


# -- projectors --------------------------------------------------------------------------------------------------------


def _land_a_stale_entry(d: Director) -> None:
    """A leader is superseded while it writes an entry. The entry is committed all the same, after the new leader's."""
    first = d.lead("projector")
    d.submit("job")
    d.until(lambda: d.state("job") == "CREATED", first)
    d.world.send(d.world.intent("job", 1, IntentKind.SUSPEND))
    d.to(first, "commit")
    d.lead("projector")
    d.world.send(d.world.intent("job", 2, IntentKind.CANCEL))
    d.until(lambda: d.state("job") == "CANCELLING")
    d.go(first)
    d.world.log.append([e for e in d.world.evidence.stale.pop() if e.key == b"job"])


@schedule
def a_stale_entry_lands(d: Director) -> None:
    _land_a_stale_entry(d)
    d.findings += d.world.faithful()


@schedule
def a_stale_entry_lands_and_the_cleaner_comes_by(d: Director) -> None:
    _land_a_stale_entry(d)
    d.settle()
    d.world.compact(RECOVERY)
    d.findings += [f for f in d.world.judge_quiet() if "I7" in f]


@schedule
def a_candidate_sleeps_between_lock_and_init(d: Director) -> None:
    """F6: the candidate wins the lock and pauses, another one leads meanwhile, and the candidate continues."""
    first = d.lead("projector")
    late = d.world.start("projector")
    d.grant(late)
    d.to(late, "acquired")
    d.submit("job")
    d.until(lambda: not first.part.epoch, first)
    d.grant(first)
    d.until(lambda: first.part.epoch == 2, first)
    d.world.clock.advance(1.0)
    d.go(late)
    d.settle()


@schedule
def a_candidate_sleeps_before_its_claim(d: Director) -> None:
    first = d.world.start("projector")
    d.grant(first)
    d.to(first, "claim")
    d.lead("projector")
    d.go(first)
    d.settle()


@schedule
def an_end_of_a_transaction_comes_late(d: Director) -> None:
    """The leader gets no answer to a commit and leads again. Its earlier commit request arrives while it writes."""
    first = d.lead("projector")
    d.submit("job")
    plain = d.world.at_commit

    def lose(name: str) -> None:
        if name == "end":
            d.world.at_commit = plain
            raise NoAnswer("late")

    d.world.at_commit = lose
    d.until(lambda: d.world.at_commit is plain, first)
    d.to(first, "commit offsets")
    for end in [*d.world.log.under_way]:
        d.world.log.deliver(end)
    d.go(first)
    d.settle()
    d.findings += d.world.judge_quiet()[:3] if "leaders" not in str(d.world.judge_quiet()) else []


@schedule
def two_terms_pass_while_a_leader_sleeps(d: Director) -> None:
    """The leader then reads both claims in one poll, and leads again."""
    first = d.lead("projector")
    second = d.lead("projector")
    third = d.lead("projector")
    d.grant(first)
    d.until(lambda: first.part.epoch > 1, first)
    d.held += [second, third]
    d.settle()


def _claims_again(d: Director, tombstone: bool) -> None:
    """After two terms each projector's claim is repeated in the log, or tombstoned. Then log compaction runs."""
    first = d.lead("projector")
    d.submit("old")
    d.until(lambda: d.state("old") == "CREATED", first)
    d.world.crash(first)
    d.lead("projector")
    d.submit("new")
    d.until(lambda: d.state("new") == "CREATED")
    d.world.copy()
    for record in [r for r in d.world.evidence.copies[RECOVERY] if (claim_of(r) or ("", 0))[0] == "projector"]:
        event = Event(*record[:2], *record[3:6])
        d.world.log.append([replace(event, value=None, headers=()) if tombstone else event])
    d.settle()
    for _ in range(2):
        d.world.compact(RECOVERY)
        d.world.clock.advance(2 * DELETE_RETENTION_S)
    d.settle()
    d.findings += [f for f in d.world.judge_quiet() if "I7" in f]


@schedule
def claims_come_again_and_the_cleaner_comes_by(d: Director) -> None:
    _claims_again(d, tombstone=False)


@schedule
def claims_are_tombstoned_and_the_cleaner_comes_by(d: Director) -> None:
    _claims_again(d, tombstone=True)


def _unreadable_spec(d: Director) -> None:
    """Sends a spec that does not decode, for a job without another spec. The checkers expect its reject."""
    key, value = f"job/spec/{'0' * 64}".encode(), MAGIC + b"no spec"
    event = Event(EVENTS, partition_of("job", PARTITIONS), key, value)
    d.world.bad_input.bad[event.partition, key, value] = SPEC
    d.world.log.append([event])


def _judge_rejects(d: Director) -> None:
    d.world.copy()
    topics = d.world.evidence.copies
    d.findings += rejects_complete(topics[EVENTS], topics[REJECTS], d.world.bad_input.bad)


@schedule
def a_spec_that_was_refused_is_sent_again(d: Director) -> None:
    """The second sender of the spec waits for a reject of the second record."""
    d.lead("projector")
    for _ in range(2):
        _unreadable_spec(d)
        d.settle()
    _judge_rejects(d)


@schedule
def a_leader_hears_no_answer_to_its_rejects_and_leads_again(d: Director) -> None:
    """The transaction with the rejects is lost, and the leader does not read the rejected records a second time."""
    first = d.lead("projector")
    d.world.log.append([Event(EVENTS, 0, b"{}", b"?")])
    d.world.bad_input.bad[0, b"{}", b"?"] = (KEY,)
    plain = d.world.at_commit

    def lose(name: str) -> None:
        if name == "end":
            d.world.at_commit = plain
            raise NoAnswer("never")

    d.world.at_commit = lose
    d.until(lambda: d.world.at_commit is plain, first)
    d.settle()
    _judge_rejects(d)


@schedule
def something_lies_where_a_reject_will_lie(d: Director) -> None:
    """The list of rejects skips the foreign record, but not the later reject with the same key."""
    d.lead("projector")
    end = d.world.log.reader([EVENTS], 0).high_watermarks()[EVENTS, 0]
    place = f"{EVENTS}/0/{end}".encode()
    d.world.log.append([Event(REJECTS, 0, place, b"?"), Event(EVENTS, 0, b"{}", b"?")])
    d.world.bad_input.bad[0, b"{}", b"?"] = (KEY,)
    d.world.bad_input.beside.add((place, b"?"))
    d.settle()
    d.findings += d.world.rejects_are_listed()


# -- reconcilers -------------------------------------------------------------------------------------------------------


@schedule
def an_old_claim_comes_again_and_the_cleaner_comes_by(d: Director) -> None:
    d.world.crash(d.lead("reconciler"))
    d.world.crash(d.lead("reconciler"))
    d.world.copy()
    old = [r for r in d.world.evidence.copies[EVENTS] if claim_of(r) == ("reconciler", 1)]
    d.world.log.append([Event(*r[:2], *r[3:6]) for r in old])
    d.world.compact(EVENTS)
    d.lead("reconciler")


@schedule
def a_claim_lies_behind_an_open_transaction(d: Director) -> None:
    """A foreign transaction is open. The claim behind it is above the last stable offset, but it is in the log."""
    second = d.world.start("reconciler")
    d.grant(second)
    d.to(second, "claim")
    transaction = d.world.log.begin("foreign", d.world.log.init("foreign"), 5.0)
    for partition in range(PARTITIONS):
        d.world.log.produce(transaction, Event(EVENTS, partition, b"~foreign", b"?", ()))
    d.go(second)
    d.world.crash(second)
    d.lead("reconciler")


@schedule
def an_attempt_ends_and_its_agent_is_mute(d: Director) -> None:
    """When the reconciler misses the attempt, the log does not have the attempt's checkpoint yet."""
    d.lead("projector")
    d.lead("reconciler")
    d.submit("job")
    d.settle()
    assert d.state("job") == "RUNNING"
    d.world.runner.checkpoint("job", 1, 1)
    d.world.runner.kill("job", 1)
    d.settle(agent=False)
    d.settle()
    d.findings += d.world.judge_quiet()


@schedule
def a_reconciler_leads_that_reaches_another_agent(d: Director) -> None:
    """The reconciler gets no report of an attempt that runs on another agent. It must not record the attempt as lost."""
    d.lead("projector")
    d.lead("reconciler")
    d.submit("job")
    d.settle()
    d.lead("reconciler")
    d.settle()
    d.findings += d.world.judge_quiet()


@schedule
def an_agent_is_replaced_before_a_start_and_comes_back(d: Director) -> None:
    """An attempt is recorded for the first agent, its start reaches the second, and then the first agent answers again."""
    d.lead("projector")
    leader = d.lead("reconciler")
    d.submit("job")
    d.until(lambda: bool(leader.executor and leader.executor.waiting))
    while [task.verb for _, task in d.world.tasks()] != ["start"]:
        for executor, task in d.world.tasks():
            d.world.perform(executor, task)
        d.until(lambda: bool(leader.executor and leader.executor.waiting))
    executor, task = d.world.tasks()[0]
    d.world.reach(leader, 1)
    d.world.perform(executor, task)
    d.world.agent_sends()
    d.world.reach(leader, 0)
    d.settle()
    d.findings += d.world.judge_quiet()


@schedule
def a_reconciler_dies_after_the_first_transaction_about_a_job_that_is_over(d: Director) -> None:
    d.lead("projector")
    leader = d.lead("reconciler")
    d.submit("job")
    d.settle()
    d.world.runner.end("job", 1)
    d.world.agent_sends()
    d.until(lambda: bool(d.world.tasks()))
    ((executor, clean),) = d.world.tasks()
    assert clean.verb == "clean"
    d.world.perform(executor, clean)
    d.to(leader, "commit")
    d.held.remove(leader)
    d.to(leader, "commit ended")
    d.held.remove(leader)
    d.world.crash(leader)
    d.lead("reconciler")
    d.settle()
    d.findings += d.world.judge_quiet()


# -- garbage -----------------------------------------------------------------------------------------------------------


def _goes(d: Director, sweeping: Sweeping, actor: Actor, at: str = "") -> None:
    """Runs a submitter or collector until it reaches a point or its end."""
    d.wanted, collections = (actor, at), sweeping.collections
    for _ in range(200):
        d.world.stage.run(actor)
        if (at and actor.at == at) or actor not in sweeping.running or sweeping.collections > collections:
            break
        d.world.clock.advance(0.01)
    d.wanted = None


def _garbage(d: Director) -> Sweeping:
    d.lead("projector")
    d.lead("reconciler")
    d.world.clock.advance(10 * PAST_GRACE_S)  # the collector ignores data older than the log
    d.settle()
    return Sweeping(d.world)


def _submits(d: Director, sweeping: Sweeping, at: str = "") -> Actor:
    submitter = sweeping.submitter("job", d.world.submitted("job", NO_GRAPH))
    _goes(d, sweeping, submitter, at)
    return submitter


def _judged(d: Director, sweeping: Sweeping) -> None:
    d.settle()
    d.findings += [f for f in sweeping.judge(swept=True) if not f.startswith("G3")]
    sweeping.close()


@schedule
def a_collector_sleeps_before_it_lists(d: Director) -> None:
    """The collector pauses for longer than the grace period. Meanwhile a job is submitted."""
    sweeping = _garbage(d)
    collector = sweeping.collector()
    _goes(d, sweeping, collector, "list")
    _submits(d, sweeping)
    d.settle()
    d.world.clock.advance(PAST_GRACE_S)
    _goes(d, sweeping, collector)
    _judged(d, sweeping)


@schedule
def a_collector_meets_a_graph_before_its_spec(d: Director) -> None:
    """The graph was stored a moment ago. Just before its deletion, the submitter records the spec and checks the graph."""
    sweeping = _garbage(d)
    submitter = _submits(d, sweeping, "record")
    collector = sweeping.collector()
    _goes(d, sweeping, collector, "delete")
    _goes(d, sweeping, submitter)
    _goes(d, sweeping, collector)
    _judged(d, sweeping)


@schedule
def an_abandoned_graph_is_put_again_under_the_collectors_eyes(d: Director) -> None:
    sweeping = _garbage(d)
    sweeping.kill(_submits(d, sweeping, "record"))
    d.world.clock.advance(PAST_GRACE_S)
    collector = sweeping.collector()
    _goes(d, sweeping, collector, "delete")
    _submits(d, sweeping)
    _goes(d, sweeping, collector)
    _judged(d, sweeping)


@schedule
def a_submitter_dies_after_its_put(d: Director) -> None:
    """A collector is killed when it would delete the graph. The next collector finds the graph and deletes it."""
    sweeping = _garbage(d)
    sweeping.kill(_submits(d, sweeping, "record"))
    d.world.clock.advance(PAST_GRACE_S)
    collector = sweeping.collector()
    _goes(d, sweeping, collector, "delete")
    sweeping.kill(collector)
    d.settle()
    _goes(d, sweeping, sweeping.collector())
    d.findings += sweeping.judge(swept=True)
    sweeping.close()

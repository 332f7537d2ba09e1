"""An exhaustive test of the race of incident 001: a job is submitted and ends while leadership changes, in every order.

A *schedule* assigns each event to a boundary. Boundaries are: before every step of an instance, before every task, before
the agent sends, and every point within a step of the role whose leadership changes (before a commit begins, after it,
between any two answers …). Events of the job happen between steps, events of leadership at any boundary. Everything else
runs in a fixed order until nothing happens any more. Then everything that was down comes back.

All schedules are covered. They form a tree of choices, which is walked depth first; the ledger runs anew along each
branch. Two prefixes that lead to the same state have the same futures, so the second one is counted and not walked. The
state consists of the answers that each instance got (`Actor.heard`: a role is a function of them), all changes of log,
runner, blobs and leases, the clock, and the remaining events. So it holds everything that could make a difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledger.core.model.facts import IntentKind
from tests.simulation.baton import Actor
from tests.simulation.checkers import Findings
from tests.simulation.world import EVENTS, RECOVERY, TRANSACTION_S, Instance, World

ROUNDS_MAX = 120
QUIET_ROUNDS = 4
JOB = "job"
#: Events that may happen to the leader of the role. With those in SLEEPS the leader also pauses at its current point.
LEADER = {
    "grant": "the other instance gets the lock, and the leader learns of it",
    "grant, word late": "the other instance gets the lock, and the leader does not learn of it yet (incident 001)",
    "revoke": "the lock is free, and the leader learns of it",
    "expire": "as revoke, and so long ago that open transactions have timed out",
    "crash": "the leader is killed",
}
SLEEPS = ("grant", "expire")
#: The points where a leader can be stopped within a step. Between two of them it only processes answers, or writes records
#: of a transaction that is invisible before its end.
POINTS = frozenset({
    "valid", "acquired", "inited", "high_watermarks", "observed", "claim", "commit", "commit end", "commit ended",
})  # fmt: skip


class Story(NamedTuple):
    """The events to schedule. job: events of the job and its blob, each once, in this order. role: the role whose
    leadership changes. leader_events: their maximum number. at_rest: an event of the job comes only when nothing happens
    any more."""

    role: str
    job: tuple[str, ...]
    leader_events: int
    kinds: tuple[str, ...] = tuple(LEADER)
    at_rest: bool = False


Choice = tuple[int, str]  # boundary, event


@dataclass
class Node:
    state: int
    at: int
    options: list[str]


@dataclass
class Count:
    schedules: int = 0
    runs: int = 0
    states: int = 0
    red: list[tuple[tuple[Choice, ...], Findings]] = field(default_factory=list)

    def __str__(self) -> str:
        covered = f"{self.schedules} schedules, all of them, by {self.runs} runs over {self.states} states"
        return f"{covered}; {len(self.red)} red"


class Stop(Exception):
    """The run reached a state that is known already."""


class Run:
    """One run along given choices, and then with the fewest possible events."""

    def __init__(self, story: Story, choices: Sequence[Choice], known: Callable[[int], bool]) -> None:
        self.story, self.choices, self._known = story, dict(choices), known
        self.world = World(self._at_point)
        self.boundary, self.nodes, self.node_from = 0, [], max(dict(choices), default=-1)
        self.job_left, self.leader_left = list(story.job), story.leader_events
        self.asleep: dict[Instance, int] = {}
        self.opened, self.healed, self.shared, self.dead = False, False, 0, False
        self._watch()

    def go(self) -> Findings | None:
        """The findings of the checkers; None if the run reached a known state."""
        w = self.world
        try:
            w.give_lease("projector", w.start("projector"))
            w.give_lease("reconciler", w.start("reconciler"))
            self._rounds(3)
            w.start(self.story.role)
            self._rounds(2)
            self.opened = True
            while True:
                self._until_quiet()
                left = len(self.job_left) + self.leader_left
                self._place = 12
                self._boundary()
                if len(self.job_left) + self.leader_left == left and not self.job_left:
                    break
                if len(self.job_left) + self.leader_left == left:
                    self._happen(self.job_left[0])
            self._heal()
            return w.judge_quiet() + w.judge(random.Random(1))
        except Stop:
            return None
        finally:
            w.close()

    # -- boundaries ----------------------------------------------------------------------------------------------------

    def _boundary(self, actor: Actor | None = None) -> bool:
        """Passes a boundary. Returns whether the running instance has to stop here."""
        if not self.opened or self.healed or (self._quiet and self._place != 12):
            return False
        at, self.boundary = self.boundary, self.boundary + 1
        if at in self.choices:
            return self._happen(self.choices[at], actor)
        if at > self.node_from:
            options = self._options(actor)
            state = self._state(actor)
            if self._known(state):
                self.nodes.append(Node(state, at, []))
                self.dead = True
                if actor is None:
                    raise Stop
                return True
            self.nodes.append(Node(state, at, options))
        return False

    def _options(self, actor: Actor | None) -> list[str]:
        options = []
        if actor is None and not self.story.at_rest and self._place != 12 and (event := self._next_of_job()) is not None:
            options.append(event)
        if self.leader_left and (leader := self._leader()) is not None:
            here = actor is None or leader.actor is actor
            for kind in self.story.kinds if here else ():
                options.append(kind)
                if actor is not None and kind in SLEEPS:
                    options.append(f"{kind}, asleep")
        return options

    def _next_of_job(self) -> str | None:
        """The next event of the job, in the order of the story. A finish needs a running attempt."""
        if not self.job_left or (self.job_left[0] == "finish" and not self.world.runner.alive()):
            return None
        return self.job_left[0]

    def _leader(self) -> Instance | None:
        holder = self.world.elections[self.story.role].holder
        return next((i for i in self.world.of(self.story.role) if i.lease is holder), None)

    def _state(self, actor: Actor | None) -> int:
        w = self.world
        instances = tuple(
            (i.who, i.actor.heard, i.actor.at, i.lease.late, i.lease.election.holder is i.lease, i in self.asleep)
            for i in w.instances
        )
        tasks = tuple((task.verb, task.job_id, task.n) for _, task in w.tasks())
        return hash((
            self.shared, w.clock.monotonic(), instances, tasks, actor and actor.name, tuple(self.job_left),
            self.leader_left, self._place, self._quiet,
        ))  # fmt: skip

    # -- the events ----------------------------------------------------------------------------------------------------

    def _happen(self, event: str, actor: Actor | None = None) -> bool:
        w, leader = self.world, self._leader()
        kind, _, asleep = event.partition(", asleep")
        asleep = ", asleep" in event
        if kind in self.job_left:
            self.job_left.remove(kind)
            self._of_job(kind)
            return False
        self.leader_left -= 1
        assert leader is not None
        other = next((i for i in w.of(self.story.role) if i is not leader), None)
        if kind.startswith("grant"):
            w.give_lease(self.story.role, other, late="late" in kind)
        elif kind in ("revoke", "expire"):
            w.give_lease(self.story.role)
            w.clock.advance(TRANSACTION_S if kind == "expire" else 0)
        if kind == "crash":
            if actor is None:
                w.crash(leader)
                return False
            self._crashed = leader  # the stage kills it once it has the baton again
            return True
        if asleep:
            self.asleep[leader] = 0
        return asleep

    def _of_job(self, event: str) -> None:
        w = self.world
        if event == "put":
            self._graph = w.put(JOB)
        elif event == "submit":
            w.send(w.spec(JOB, self._graph))
        elif event == "cancel":
            w.send(w.intent(JOB, 1, IntentKind.CANCEL))
        elif event == "finish":
            for job_id, n in w.runner.alive():
                w.runner.end(job_id, n, "finished")

    def _at_point(self, actor: Actor, at: str) -> bool:
        actor.heard = hash((actor.heard, at, self.world.clock.monotonic()))
        if not actor.name.startswith(self.story.role) or at not in POINTS:
            return False
        return self._boundary(actor)

    # -- the rounds ----------------------------------------------------------------------------------------------------

    _crashed: Instance | None = None
    _place = 0
    _quiet = 0

    def _step(self, instance: Instance) -> None:
        self._boundary()
        if instance in self.world.instances and instance not in self.asleep:
            self.world.step(instance)
            if instance.actor.at == "idle":
                self.world.step(instance)
            if self.dead:
                raise Stop
            if self._crashed is not None:
                self.world.crash(self._crashed)
                self._crashed = None

    def _round(self) -> None:
        w = self.world
        for self._place, instance in enumerate([*w.instances]):
            self._step(instance)
        for executor, task in w.tasks():
            self._place = 10
            self._boundary()
            w.perform(executor, task)
            for instance in w.instances:
                if instance.executor is executor:
                    instance.actor.heard = hash((instance.actor.heard, str(executor._results[-1:])))
        if w.runner.pending():
            self._place = 11
            self._boundary()
            w.agent_sends()
        w.clock.advance(0.25)

    def _rounds(self, count: int) -> None:
        for _ in range(count):
            self._round()

    def _until_quiet(self) -> None:
        """Runs all until nothing happens. Paused instances continue once all others are at rest."""
        self._quiet = 0
        for _ in range(ROUNDS_MAX):
            before = self.shared
            self._round()
            self._quiet = self._quiet + 1 if self.shared == before else 0
            if self._quiet >= QUIET_ROUNDS and self.asleep:
                self.asleep, self._quiet = {}, 0
            elif self._quiet >= QUIET_ROUNDS:
                return
        raise AssertionError("the ledger does not come to rest")

    def _heal(self) -> None:
        self.healed = True
        self.world.word_arrives()
        for role in ("projector", "reconciler"):
            while len(self.world.of(role)) < 1 + (role == self.story.role):
                self.world.start(role)
        self._until_quiet()
        for topic in (EVENTS, RECOVERY):
            self.world.compact(topic)

    # -- all changes of shared state -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        for thing, names in (
            (self.world.log, ("append", "init", "begin", "produce", "end")),
            (self.world.runner, ("start", "stop", "fence", "acknowledge", "end", "forget", "dispose")),
            (self.world.blobs, ("delete_all",)),
        ):
            for name in names:
                setattr(thing, name, self._watched(name, getattr(thing, name)))

    def _watched(self, name: str, plain: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = plain(*args, **kwargs)
            told = [a for a in args if not hasattr(a, "touched")]
            self.shared = hash((self.shared, name, str(told), str(answer) if name in ("append", "produce") else ""))
            return answer

        return call


def explore(story: Story, *, red_max: int = 20, until_red: bool = False) -> Count:
    """Runs every schedule of a story. until_red: stops at the first schedule with findings."""
    count, known = Count(), {}

    def below(choices: tuple[Choice, ...]) -> int:
        """The number of schedules that begin with these choices."""
        run = Run(story, choices, lambda state: state in known)
        findings = run.go()
        count.runs += 1
        nodes = run.nodes
        if findings is None:
            value = known[nodes.pop().state]
        else:
            value = 1
            if findings and len(count.red) < red_max:
                count.red.append((choices, findings))
        for node in reversed(nodes):
            for option in node.options:
                if not (until_red and count.red):
                    value += below((*choices, (node.at, option)))
            known[node.state] = value
        return value

    count.schedules = below(())
    count.states = len(known)
    return count

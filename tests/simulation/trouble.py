"""Trouble of single jobs and operators' answers to it: damaged or missing restore points, graphs that can't be started,
starts that crash, permanent failures; intents with force, from elsewhere, or of an unknown kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ledger.core.model.facts import IntentDeclared, IntentKind
from ledger.core.model.registers import Intent
from ledger.ports import Event
from tests.simulation.copies import Ran
from tests.simulation.world import World

#: The reason of a job that can't be started because the runner can't read its graph.
POISON = "the graph is of no kind that this runner knows"


@dataclass
class Trouble:
    """Makes trouble for single jobs. sends: appends an intent, as a client does. There is no trouble after healing, so
    every job comes to rest."""

    world: World
    rng: random.Random
    sends: Callable[[Event], None]
    revs: dict[str, int]
    count: Callable[[str], None]

    def strike(self) -> None:
        kinds = [
            self._damage, self._damage, self._damage_all, self._poison, self._crash, self._fails_for_good,
            self._force, self._from, self._unknown_kind,
        ]  # fmt: skip
        self.rng.choice(kinds)()

    def heal(self) -> None:
        for runner in self.world.runners:
            runner.refusals.clear()
            runner.crashes.clear()

    def _damage(self, all_of: bool = False) -> None:
        """Damages the newest checkpoint of a job, or all of them. Often a running attempt first makes one more checkpoint
        and then dies."""
        runner = self.rng.choice(self.world.runners)
        running = [(j, n) for j, n in runner.alive() if not runner.attempt(j, n).starting] if runner.up else []
        killed = running[:1] if self.rng.random() < 0.7 else []
        for job_id, n in killed:
            for _ in range(2):
                runner.checkpoint(job_id, n, (runner.attempt(job_id, n).newest or 0) + 1)
            runner.kill(job_id, n)
        jobs = sorted({location.split("/")[2] for location in runner.stored})
        if not jobs:
            return
        job_id = killed[0][0] if killed else self.rng.choice(jobs)
        points = sorted((*_place(one), one) for one in runner.stored if one.split("/")[2] == job_id)
        for n, id_, location in points if all_of else points[-1:]:
            self.count("damage of all" if all_of else "damage")
            self.world.evidence.damaged.add(location)
            if self.rng.random() < 0.5:
                del runner.stored[location]
            else:
                runner.stored[location] += 1
            ran = Ran("damage", job_id, n, self.world.clock.time(), (n, id_))
            self.world.evidence.ran.append(ran)

    def _damage_all(self) -> None:
        self._damage(all_of=True)

    def _poison(self) -> None:
        """Makes a job's graph unreadable for the runner, or readable again."""
        runner = self.rng.choice(self.world.runners)
        if (job_id := self._job()) and runner.refusals.pop(job_id, None) is None:
            self.count("bad graph")
            runner.refusals[job_id] = POISON

    def _crash(self) -> None:
        """The next start of a job raises an unexpected error, before or after the attempt began."""
        if job_id := self._job():
            self.count("crash of a start")
            for runner in self.world.runners:
                runner.crashes[job_id] = self.rng.random() < 0.5

    def _fails_for_good(self) -> None:
        runner = self.rng.choice(self.world.runners)
        if runner.up and (alive := runner.alive()):
            self.count("failed for good")
            runner.end(*self.rng.choice(alive), "failed-permanent", "it says so")

    def _force(self) -> None:
        kind = self.rng.choice([IntentKind.CANCEL, IntentKind.RETRY, IntentKind.RETRY])
        self._send("force", kind, force=True)

    def _from(self) -> None:
        job_id = self._job()
        points = [_place(one) for runner in self.world.runners for one in runner.stored if one.split("/")[2] == job_id]
        named = self.rng.choice(["scratch", "1/1", *(f"{n}/{id_}" for n, id_ in points)])
        what = "retry from scratch" if named == "scratch" else "retry from a place"
        self._send(what, IntentKind.RETRY, named, job=job_id)

    def _unknown_kind(self) -> None:
        self._send("intent of an unknown kind", IntentKind.UNKNOWN)

    def _send(
        self, what: str, kind: IntentKind, from_: str = "latest", force: bool = False, job: str | None = None
    ) -> None:  # fmt: skip
        if not (job_id := job or self._job()):
            return
        self.count(what)
        self.revs[job_id] += 1
        entry = self.world.observer.entries.get(job_id)
        fact = IntentDeclared(kind, entry.attempt if entry else 0, from_=from_, force=force)
        self.sends(self.world.event(job_id, Intent(self.revs[job_id], f"t{self.revs[job_id]}"), fact))

    def _job(self) -> str:
        return self.rng.choice([*self.revs]) if self.revs else ""


def _place(location: str) -> tuple[int, int]:
    n, name = location.split("/")[-2:]
    return int(n), int(name.partition("-")[2])

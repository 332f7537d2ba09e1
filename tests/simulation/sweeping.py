"""Submitters (they store the graph, record the spec, and check the graph again) and a garbage collector, as actors beside
the roles; and the checkers of garbage collection.

For the store, the runner and the clients, time runs a thousand times as fast as for the roles. So a grace period of an
hour passes within a walk of some minutes, and a pause of seconds exceeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.adapters import cloudevents
from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.core.garbage import GRACE_MIN_S
from ledger.core.model.facts import JobSubmitted
from ledger.core.model.registers import Result, Spec, parse_key
from ledger.errors import LedgerError, OutcomeUnknown
from ledger.operations import collecting
from ledger.operations.client import Client
from ledger.ports import Clock, RunnerStorage, StoredBlob
from ledger.producer.recorder import Recorded
from ledger.reader.reading import Source
from ledger.roles.common.role_parts import RoleTopics
from tests.simulation import codec
from tests.simulation.baton import Actor, Stage
from tests.simulation.checkers import Findings
from tests.simulation.copies import Copied, claim_of
from tests.simulation.ports import SimLog

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPICS = ("ledger.events", "ledger.recovery", "ledger.rejects")
FASTER = 1_000.0
GRACE_S = GRACE_MIN_S
PAST_GRACE_S = 2 * GRACE_S / FASTER  # in the roles' time


class Hurried:
    """A clock that runs FASTER times as fast as another one."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._since, self._began = clock, clock.time(), clock.monotonic()

    def time(self) -> float:
        return self.of(self._clock.time())

    def of(self, time_s: float) -> float:
        """The time of this clock at a time of the other clock."""
        return self._since + (time_s - self._since) * FASTER

    def monotonic(self) -> float:
        return (self._clock.monotonic() - self._began) * FASTER

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds / FASTER)


class Graph:
    """A graph file, with the methods that a store uses."""

    def __init__(self, job_id: str) -> None:
        self._data = f"graph of {job_id}".encode()

    def is_file(self) -> bool:
        return True

    def read_bytes(self) -> bytes:
        return self._data


class Deleted(NamedTuple):
    """A deletion, as the collector recorded it. as_of: the offsets up to which the collector had read the facts."""

    uri: str
    job_id: str
    as_of: Mapping[int, int]


class PointedBlobs(MemoryBlobs):
    """A blob store with a point before every call of a submitter or collector."""

    def __init__(self, stage: Stage, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._stage, self.now = stage, now

    def put(self, job_id: str, source: Any) -> Any:
        self._stage.point("put")
        return super().put(job_id, source)

    def exists(self, ref: Any) -> bool:
        self._stage.point("exists")
        return super().exists(ref)

    def listing(self) -> list[StoredBlob]:
        self._stage.point("list")
        return super().listing()

    def delete(self, blob: StoredBlob) -> bool:
        self._stage.point("delete")
        return super().delete(blob)


class _Kept:
    """The runner as a collector sees it: ages are by the hurried clock."""

    def __init__(self, runner: Any, stage: Stage) -> None:
        self._runner, self._stage = runner, stage

    def kept(self) -> list[RunnerStorage]:
        self._stage.point("kept")
        return [kept._replace(age_s=kept.age_s * FASTER) for kept in self._runner.kept()]

    def __getattr__(self, name: str) -> Any:
        self._stage.point(name)
        return getattr(self._runner, name)


class _Records:
    def __init__(self, world: World, sent: Callable[[Any], None]) -> None:
        self._world, self._sent = world, sent

    def record(self, job_id: str, register: Any, fact: Any) -> Recorded:
        self._world.stage.point("record")
        event = self._world.event(job_id, register, fact)
        self._world.send(event)
        self._sent(event)
        self._world.stage.point("recorded")
        return Recorded(event.partition, None, "id")


class Sweeping:
    """The submitters and collectors of a walk. deleted: all deletions. looked: jobs whose submitter has checked the store
    for the last time; only their graphs must exist. running: actors that have not ended."""

    def __init__(self, world: World, sent: Callable[[Any], None] = lambda _: None) -> None:
        self.world, self._sent = world, sent
        self.clock = world.hurried
        self.deleted: list[Deleted] = []
        self.looked: set[str] = set()
        self.collections = 0
        self.running: list[Actor] = []

    def submitter(self, job_id: str, spec: JobSubmitted) -> Actor:
        """An actor that submits this job once."""

        def submit() -> None:
            client = Client(
                self._source(job_id), lambda: nullcontext(_Records(self.world, self._sent)), self.world.blobs,
                digest=codec.spec_digest, new_id=lambda: job_id, actor="client",
            )  # fmt: skip
            if actor not in self.running:
                return
            try:
                client.submit(spec, Graph(job_id), job_id=job_id)  # type: ignore[arg-type]
                self.looked.add(job_id)
            except OutcomeUnknown:
                self.looked.add(job_id)  # no projector has admitted it yet
            except LedgerError:
                pass
            self.running.remove(actor)

        actor = Actor(f"submitter of {job_id}", submit)
        self.running.append(actor)
        return actor

    def collector(self, grace_s: float = GRACE_S) -> Actor:
        def sweep() -> None:
            reached = self.world.reached(0).items()
            runners = {kind: _Kept(runner, self.world.stage) for kind, runner in reached}
            try:
                collecting.collect(self._source("gc"), runners, self.world.blobs, self, grace_s)  # type: ignore[arg-type]
            except LedgerError:
                return
            self.collections += 1

        actor = Actor("collector", sweep)
        self.running.append(actor)
        return actor

    def kill(self, actor: Actor) -> None:
        """Kills the actor at its current point."""
        self.running.remove(actor)
        self.world.stage.kill(actor)

    def judge(self, swept: bool) -> Findings:
        """The findings. swept: all actors have ended, and a collector ran after the grace period."""
        self.world.copy()
        copies = self.world.evidence.copies
        events, blobs = copies["ledger.events"], self.world.blobs
        found = nothing_referred_to_is_deleted(self.deleted, events)
        if swept:
            since = self.clock.of(first_claim(copies["ledger.recovery"]))
            found += every_graph_is_there(self, events, blobs.stored) + nothing_is_left(blobs, events, since)
        return found

    def tell(self, does: str, orphan: Any, as_of: Mapping[str, Mapping[int, int]], why: str = "") -> None:
        """Implements `collecting.Evidence`."""
        self.world.stage.point("tell")
        if orphan.item.kind == "blob":
            told = Deleted(orphan.item.where, orphan.item.job_id, as_of["ledger.events"])
            self.deleted.append(told) if does == "delete" else self.deleted.remove(told)

    def close(self) -> None:
        for actor in [*self.running]:
            self.kill(actor)

    def _source(self, who: str) -> Source:
        log = SimLog(self.world.log, self.world.stage, self.world.evidence, who)
        return Source(log, RoleTopics(*TOPICS), codec, cloudevents, self.clock, patience_s=float("inf"))


# -- the checkers ------------------------------------------------------------------------------------------------------


def nothing_referred_to_is_deleted(deleted: Sequence[Deleted], events: Sequence[Copied]) -> Findings:
    """G1: no deleted graph was referenced by the facts that the collector had read."""
    found = []
    for one in deleted:
        specs, over = _references(one.job_id, [r for r in events if r.offset < one.as_of.get(r.partition, 0)])
        if one.uri in specs and not over:
            found.append(f"G1 {one.uri} was deleted although the facts up to {dict(one.as_of)} refer to it")
    return found


def every_graph_is_there(sweeping: Sweeping, events: Sequence[Copied], stored: Mapping[str, bytes]) -> Findings:
    """G2: a completely submitted job has its graph until it is retired."""
    found = []
    for job_id in sorted(sweeping.looked):
        specs, over = _references(job_id, events)
        found += [f"G2 {uri} of {job_id} is gone" for uri in sorted(specs) if not over and uri not in stored]
    return found


def nothing_is_left(blobs: MemoryBlobs, events: Sequence[Copied], since: float) -> Findings:
    """G3: after a collector ran behind the grace period, the store holds no unreferenced graph, unless the graph is older
    than the log. since: time of the log's first claim, by the store's clock."""
    found = []
    for uri in sorted(blobs.stored):
        specs, over = _references(uri.split("/")[1], events)
        if (over or uri not in specs) and blobs.put_at.get(uri, 0.0) > since:
            found.append(f"G3 {uri} is garbage, and was not deleted")
    return found


def first_claim(recovery: Sequence[Copied]) -> float:
    """The time of the first claim in the log, by the roles' clock."""
    return min((record.time_s for record in recovery if claim_of(record) is not None), default=float("inf"))


def _references(job_id: str, events: Sequence[Copied]) -> tuple[set[str], bool]:
    """(graphs named by the accepted specs of the job, whether the job has a result). Derived from plain records, because
    the collector uses the fold."""
    specs: dict[bytes, str] = {}
    over = False
    for record in events:
        parsed = parse_key(record.key)
        if parsed is None or parsed[0] != job_id or record.key is None:
            continue
        if isinstance(parsed[1], Result) and record.value is not None:
            over = True
        elif isinstance(parsed[1], Spec):
            if record.value is None:
                specs.pop(record.key, None)
            elif isinstance(fact := codec.read(parsed[1], record.value), JobSubmitted):
                specs[record.key] = fact.graph.uri
    return set(specs.values()), over

"""The ledger with one of its guards removed, by name. Tests must detect each removal. Only tests can switch this on.

    with mutated("no-fence"): …                         in this process
    python -m tests.support.mutants no-fence -- serve projector the command line, for tests on real servers

Each mutant patches production code while the block lasts. `tests/simulation/test_caught.py` shows that the checkers detect
each. Weaker variants of the fold are in `tests/laws/mutants.py`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

from confluent_kafka import IsolationLevel

from ledger.adapters.kafka import cluster
from ledger.adapters.kafka.reader import KafkaReader
from ledger.adapters.kafka.writer import KafkaWriter
from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.log import EndOfTransaction, MemoryLog, MemoryReader, MemoryWriter, NoAnswer
from ledger.adapters.memory.runner import MemoryRunner
from ledger.core import garbage
from ledger.core.fold import fold, restore_points
from ledger.core.model.published import Published, epoch_of
from ledger.core.model.registers import Result, parse_claim
from ledger.core.plan import plan, reconcile
from ledger.core.plan.pools import holding
from ledger.errors import Fenced
from ledger.operations import collecting
from ledger.operations.savepoint_disposal import savepoints as saved
from ledger.ports import Event, EventLog, Leadership, MemoryRecord, Writer
from ledger.roles.common.own_claims import OwnClaims
from ledger.roles.projector.projector import Projector
from ledger.roles.projector.term import ProjectorTerm
from ledger.roles.reconciler.flow_steps import JobFlow
from ledger.roles.reconciler.reconciler import Reconciler


class Patches:
    """The patched attributes, with their old values for `undo`."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        before = owner.__dict__[name]
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def parts(self, change: Callable[[Any], Any]) -> None:
        """Gives both roles changed parts."""
        for role in (Projector, Reconciler):
            plain = role.__init__

            def init(self: Any, parts: Any, *rest: Any, plain: Any = plain, **more: Any) -> None:
                plain(self, change(parts), *rest, **more)

            self.set(role, "__init__", init)

    def undo(self) -> None:
        for undo in reversed(self._undo):
            undo()


MUTANTS: dict[str, Callable[[Patches], None]] = {}


def mutant(patch: Callable[[Patches], None]) -> Callable[[Patches], None]:
    MUTANTS[patch.__name__.replace("_", "-")] = patch
    return patch


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    patches = Patches()
    try:
        MUTANTS[name](patches)
        yield
    finally:
        patches.undo()


# -- reading -----------------------------------------------------------------------------------------------------------


@mutant
def epoch_filter_off(p: Patches) -> None:
    """Readers accept the records of every epoch."""
    p.set(Published, "_why_dropped", lambda self, partition, epoch: "")


@mutant
def filter_after_last_per_key(p: Patches) -> None:
    """Readers first take the last record of each key, as a batch job naturally does, and filter epochs only then. So a
    dropped record hides the good one before it."""
    plain = Published.apply

    def apply(self: Published, record: Any) -> Any:
        dropped = self.dropped.total()
        change = plain(self, record)
        key = record.key() or b"~"
        if change is None and self.dropped.total() > dropped and not key.startswith(b"~"):
            self._entry_offset.pop(key.decode("ascii", "replace"), None)
            self.entries.pop(key.decode("ascii", "replace"), None)
        return change

    p.set(Published, "apply", apply)


@mutant
def one_claim_key(p: Patches) -> None:
    """All claims of a role have the same key, and only their header holds the epoch."""

    def one_key(plain: Any) -> Any:
        def commit(self: Any, events: Any, offsets: Any = None) -> Any:
            return plain(self, [_one_key(event) for event in events], offsets)

        return commit

    def own_keys(plain: Any) -> Any:
        def poll(self: Any, records_max: int, timeout_s: float) -> Any:
            return _own_keys(plain(self, records_max, timeout_s))

        return poll

    append = MemoryLog.append
    p.set(MemoryLog, "append", lambda self, events: append(self, [_one_key(event) for event in events]))
    for writer in (MemoryWriter, KafkaWriter):
        p.set(writer, "commit", one_key(writer.commit))
    for reader in (MemoryReader, KafkaReader):
        p.set(reader, "poll", own_keys(reader.poll))
    with contextlib.suppress(ImportError):
        from ledger.adapters.spark import stream

        latest = stream._latest
        p.set(stream, "_latest", lambda batch, topic, claimed: _own_keys(latest(batch, topic, claimed)))


def _one_key(event: Event) -> Event:
    claim = parse_claim(event.key)
    return event if claim is None else replace(event, key=f"~claim/{claim[0]}".encode())


def _own_keys(records: Any) -> list[MemoryRecord]:
    """The records with the claims' usual keys, so that only the log shows the difference."""
    found = []
    for r in records:
        key, headers = r.key(), tuple(r.headers() or ())
        if key in (b"~claim/projector", b"~claim/reconciler"):
            key += f"/{epoch_of(headers)}".encode()
        found.append(MemoryRecord(r.topic(), r.partition(), r.offset(), key, r.value(), headers, r.timestamp()[1]))
    return found


@mutant
def read_committed_end(p: Patches) -> None:
    """Readers take the last stable offset for the end of the log."""
    p.set(MemoryReader, "high_watermarks", lambda self: {there.tp: there.stable_end() for there in self._partitions})
    p.set(cluster, "IsolationLevel", SimpleNamespace(READ_UNCOMMITTED=IsolationLevel.READ_COMMITTED))


# -- leading -----------------------------------------------------------------------------------------------------------


@mutant
def late_init_not_rechecked(p: Patches) -> None:
    """A candidate that has won the lock does not check the lease again during its take-over, however long that takes."""
    p.parts(lambda parts: replace(parts, leadership=_NotLooking(parts.leadership)))
    for role in (Projector, Reconciler):
        plain = role._take_over

        def take_over(self: Any, plain: Any = plain) -> None:
            self._parts.leadership.looks = False
            try:
                plain(self)
            finally:
                self._parts.leadership.looks = True

        p.set(role, "_take_over", take_over)


class _NotLooking:
    def __init__(self, leadership: Leadership) -> None:
        self._leadership, self.looks = leadership, True

    def valid(self) -> bool:
        return not self.looks or self._leadership.valid()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leadership, name)


@mutant
def no_fence(p: Patches) -> None:
    """Every writer has its own transactional id. So no writer fences another one or aborts its open transaction."""
    p.parts(lambda parts: replace(parts, log=_Unfenced(parts.log, parts.new_id)))


class _Unfenced:
    def __init__(self, log: EventLog, new_id: Callable[[], str]) -> None:
        self._log, self._new_id = log, new_id

    def writer(self, transactional_id: str) -> Writer:
        return self._log.writer(f"{transactional_id}-{self._new_id()}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@mutant
def producer_kept(p: Patches) -> None:
    """After an error with unknown outcome, the same producer continues without another init. Its earlier request to end
    the transaction may still be in flight."""
    p.parts(lambda parts: replace(parts, log=_Keeping(parts.log)))

    def unanswered(self: MemoryWriter, name: str, lost: NoAnswer) -> NoReturn:
        self._log.end(self._id, committed=False)
        self._log.under_way.append(EndOfTransaction(self._id, self._epoch, committed=False))
        raise Fenced(f"{name}: no answer in time, {UNKNOWN}") from lost

    plain = KafkaWriter.die

    def die(self: KafkaWriter, why: str) -> NoReturn:
        if UNKNOWN in why:
            raise Fenced(why)
        plain(self, why)

    p.set(MemoryWriter, "_unanswered", unanswered)
    p.set(KafkaWriter, "die", die)
    p.set(KafkaWriter, "_retire_if_shaken", lambda self: None)


UNKNOWN = "the outcome is unknown"


class _Keeping:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._kept: _Kept | None = None

    def writer(self, transactional_id: str) -> Writer:
        if self._kept is None or self._kept.gone:
            self._kept = _Kept(self._log.writer(transactional_id))
        return self._kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class _Kept:
    """A writer that stays usable until it is really fenced."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._initialised, self.gone = writer, False, False

    def init(self) -> None:
        if not self._initialised:
            self._writer.init()
            self._initialised = True

    def commit(self, events: Any, offsets: Any = None) -> list[int]:
        try:
            return self._writer.commit(events, offsets)
        except Fenced as error:
            self.gone = UNKNOWN not in str(error)
            raise

    def close(self) -> None:
        if self.gone:
            self._writer.close()


@mutant
def overwritten_not_republished(p: Patches) -> None:
    """A leader does not restore its own records that others have overwritten."""
    plain = ProjectorTerm.tail

    def tail(self: ProjectorTerm, record: Any) -> list[Any]:
        plain(self, record)
        self._overwritten.clear()
        return []

    p.set(ProjectorTerm, "tail", tail)
    p.set(Published, "not_lasting", lambda self, partition: [])


@mutant
def repeated_claims_not_repaired(p: Patches) -> None:
    """A leader repairs records that readers drop now. It ignores records that they will drop once log compaction has
    removed all but the last copy of a claim."""

    def not_lasting(self: Published, partition: int) -> list[bytes]:
        return [key for key in self.raw.get(partition, {}) if not self.last_is_effective(partition, key)]

    p.set(Published, "not_lasting", not_lasting)


@mutant
def removed_claims_not_claimed_again(p: Patches) -> None:
    """A leader does not write its claim again after somebody tombstoned it."""
    p.set(OwnClaims, "note", lambda self, record: None)


@mutant
def fenced_in_the_middle_of_a_batch(p: Patches) -> None:
    """A leader that sees a higher claim loses the other records of the same poll (a past bug)."""
    plain = Projector._take

    def take(self: Projector, records: Any) -> None:
        for record in records:
            plain(self, [record])

    p.set(Projector, "_take", take)


@mutant
def lease_from_suspension(p: Patches) -> None:
    """With ZooKeeper, the lease does not start when the last answered renewal was sent. It runs for one session timeout
    from the moment when the candidate notices the lost connection (Curator before CURATOR-460, and so Flink)."""
    from ledger.adapters.candidate_thread import CandidateThread
    from ledger.adapters.zookeeper import recipe
    from ledger.adapters.zookeeper.node_strategy import NodeStrategy

    plain = NodeStrategy._renew

    def renew(self: NodeStrategy, link: Any, held: Any) -> None:
        plain(self, link, held)
        self.lease = self.lease and self.lease._replace(until=float("inf"))

    suspended: dict[int, float] = {}  # candidate -> since when it is suspended

    def lease(self: Any) -> Any:
        link, held, request = self._strategy._link, self._strategy.lease, self._request
        if held is None or not request.wanted or held.term != request.term:
            return None
        now = self._clock.monotonic()
        if link is None or link.is_connected:
            suspended.pop(id(self), None)
            return held
        return held if now < suspended.setdefault(id(self), now) + link.session_s else None

    p.set(NodeStrategy, "_renew", renew)
    p.set(CandidateThread, "_valid_lease", lease)
    p.set(recipe, "session_may_live", lambda session_s, last_answer, now: True)


# -- orders and starts -------------------------------------------------------------------------------------------------


@mutant
def no_settling(p: Patches) -> None:
    """The reconciler starts the next attempt without draining the previous one: it neither fences nor observes it."""

    def fence(self: JobFlow, n: int) -> Any:
        yield from ()
        return []

    p.set(JobFlow, "fence", fence)
    p.set(plan, "_settled", lambda entry, known, covered: True)


@mutant
def retired_in_two_transactions(p: Patches) -> None:
    """The registers of a terminal job are removed in one transaction, and its result is written in a second one."""
    plain = JobFlow.write

    def write(self: JobFlow, *facts: Any) -> Any:
        results = [fact for fact in facts if isinstance(fact[0], Result)]
        if results:
            yield from plain(self, *(fact for fact in facts if fact not in results))
        yield from plain(self, *(results or facts))

    p.set(JobFlow, "write", write)


@mutant
def start_holds_nothing(p: Patches) -> None:
    """A start in progress holds no slots. Only attempts that the runner reports hold slots."""
    plain = holding
    p.set(reconcile, "holding", lambda entry, alive, before, starting: plain(entry, alive, before))


@mutant
def savepoints_are_pruned(p: Patches) -> None:
    """Savepoints are pruned like checkpoints: those that no start may use are deleted, even if an operator requested
    them."""

    def disposals(job: Any, keep: int) -> Any:
        kept = restore_points.kept(job, keep)
        points = [point for point, _ in saved(job)]
        return tuple(point for point in points if point.order not in kept)

    p.set(fold, "_disposals", disposals)


@mutant
def given_up_is_never_deleted(p: Patches) -> None:
    """The reconciler does not delete disposed savepoints."""
    p.set(reconcile, "_disposing", lambda views, observed, found: [])


@mutant
def whoever_answers_is_believed(p: Patches) -> None:
    """The answer of one agent counts for the attempts of all agents."""
    p.set(reconcile, "held_elsewhere", lambda entry, reached, attempts: "")


@mutant
def calls_reach_whoever_answers(p: Patches) -> None:
    """A call to one agent is carried out by another agent that has replaced it."""
    p.set(MemoryRunner, "only", lambda self, instance: self)


# -- garbage collection ------------------------------------------------------------------------------------------------


@mutant
def gc_reads_before_it_lists(p: Patches) -> None:
    """The collector reads the log only once, before listing. It misses facts that are recorded between the two steps."""

    def look(source: Any, runners: Any, blobs: Any, grace_s: float) -> Any:
        read = collecting._Read(source)
        things, silent = collecting._listed(runners, blobs)
        judged = garbage.judge(things, read.claims, read.read_to, grace_s, read.log_age_s, {})
        return collecting.Found(judged.orphans, judged.spared, judged.young, silent, read.as_of), things, read

    def collect(source: Any, runners: Any, blobs: Any, evidence: Any, grace_s: float = collecting.GRACE_S) -> Any:
        found, things, read = look(source, runners, blobs, grace_s)
        for orphan in found.orphans:
            evidence.tell("delete", orphan, read.as_of)
            if why := collecting._delete(things[orphan.item], orphan, runners, blobs):
                evidence.tell("left", orphan, read.as_of, why)
        return found

    p.set(collecting, "collect", collect)


@mutant
def gc_without_grace(p: Patches) -> None:
    """Unreferenced data of any age counts as garbage."""
    plain = garbage.judge

    def judge(item: Any, claims: Any, read_to: Any, grace_s: float, log_age_s: float, held: Any) -> Any:
        return plain(item, claims, read_to, 0.0, log_age_s, held)

    p.set(garbage, "GRACE_MIN_S", 0.0)
    p.set(garbage, "judge", judge)


@mutant
def gc_takes_what_was_put_again(p: Patches) -> None:
    """A listed blob is deleted even if it was stored again since."""

    def delete(self: MemoryBlobs, blob: Any) -> bool:
        self.stored.pop(blob.uri, None)
        return True

    p.set(MemoryBlobs, "delete", delete)


@mutant
def gc_finds_nothing(p: Patches) -> None:
    """The collector keeps the data of jobs without any register. A submitter that dies after storing the graph leaves such
    data."""
    plain = garbage._why_garbage
    p.set(garbage, "_why_garbage", lambda one, claim, *rest: plain(one, claim, *rest) if claim.known else "")


def main() -> None:
    name, dashes, *arguments = sys.argv[1:]
    if name not in MUTANTS or dashes != "--":
        sys.exit(f"usage: python -m tests.support.mutants NAME -- <arguments of jobledger>; names: {', '.join(MUTANTS)}")
    from ledger.cli import main as jobledger

    sys.argv = ["jobledger", *arguments]
    with mutated(name):
        jobledger()


if __name__ == "__main__":
    main()

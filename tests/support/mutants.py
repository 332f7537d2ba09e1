"""The ledger with one of its guards taken out, by name: what tests must be able to see. Only tests can switch this on.

    with mutated("no-fence"): …                         in this process
    python -m tests.support.mutants no-fence -- serve projector the command line, for tests on real servers

Each is a patch of production code for as long as the block lasts; `tests/simulation/test_caught.py` shows for each that
the checkers see it. Weaker variants of the fold have a place of their own (`tests/laws/mutants.py`).
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
    """What was set, to be set back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        before = owner.__dict__[name]
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)

    def parts(self, change: Callable[[Any], Any]) -> None:
        """Both roles get other parts."""
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
    """Readers take every record, of whatever epoch."""
    p.set(Published, "_why_dropped", lambda self, partition, epoch: "")


@mutant
def filter_after_last_per_key(p: Patches) -> None:
    """The last record of each key first, as a batch naturally has it, and only then the filter: what was dropped hides
    the good one under it."""
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
    """All claims of a role lie under one key, and only their header says the epoch."""

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
    """Above the adapters nobody notices."""
    found = []
    for r in records:
        key, headers = r.key(), tuple(r.headers() or ())
        if key in (b"~claim/projector", b"~claim/reconciler"):
            key += f"/{epoch_of(headers)}".encode()
        found.append(MemoryRecord(r.topic(), r.partition(), r.offset(), key, r.value(), headers, r.timestamp()[1]))
    return found


@mutant
def read_committed_end(p: Patches) -> None:
    """The end of the log is taken to be the last stable offset."""
    p.set(MemoryReader, "high_watermarks", lambda self: {there.place: there.stable_end() for there in self._partitions})
    p.set(cluster, "IsolationLevel", SimpleNamespace(READ_UNCOMMITTED=IsolationLevel.READ_COMMITTED))


# -- leading -----------------------------------------------------------------------------------------------------------


@mutant
def late_init_not_rechecked(p: Patches) -> None:
    """Who has won the lock does not look at the lease again while it takes over, however long that takes."""
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
    """Every writer has a transactional id of its own: none fences another, or ends what another left open."""
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
    """After an indefinite error the same producer goes on, without another init. What it sent before may still be on its
    way: the end of a transaction that it gave up, and asked for twice."""
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
    """A writer that only a real fence ends."""

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
    """A leader lets stand what somebody wrote over its own records."""
    plain = ProjectorTerm.tail

    def tail(self: ProjectorTerm, record: Any) -> list[Any]:
        plain(self, record)
        self._overwritten.clear()
        return []

    p.set(ProjectorTerm, "tail", tail)
    p.set(Published, "not_lasting", lambda self, partition: [])


@mutant
def repeated_claims_not_repaired(p: Patches) -> None:
    """A leader looks only at what readers drop now, and not at what they will drop once the cleaner has left of a claim its
    last copy alone."""

    def not_lasting(self: Published, partition: int) -> list[bytes]:
        return [key for key in self.raw.get(partition, {}) if not self.last_is_effective(partition, key)]

    p.set(Published, "not_lasting", not_lasting)


@mutant
def removed_claims_not_claimed_again(p: Patches) -> None:
    """A leader lets its own claim be tombstoned."""
    p.set(OwnClaims, "note", lambda self, record: None)


@mutant
def fenced_in_the_middle_of_a_batch(p: Patches) -> None:
    """A leader that sees a higher claim forgets what it polled together with it (once so)."""
    plain = Projector._take

    def take(self: Projector, records: Any) -> None:
        for record in records:
            plain(self, [record])

    p.set(Projector, "_take", take)


@mutant
def lease_from_suspension(p: Patches) -> None:
    """By ZooKeeper: the lease does not count from the sending of the last answered renewal, but runs for a session from the
    moment when the lost connection is noticed (Curator before CURATOR-460, and Flink by it)."""
    from ledger.adapters.candidate_thread import CandidateThread
    from ledger.adapters.zookeeper import recipe
    from ledger.adapters.zookeeper.node_strategy import NodeStrategy

    plain = NodeStrategy._renew

    def renew(self: NodeStrategy, link: Any, held: Any) -> None:
        plain(self, link, held)
        self.lease = self.lease and self.lease._replace(until=float("inf"))

    suspended: dict[int, float] = {}  # by candidate: since when

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


# -- acting ------------------------------------------------------------------------------------------------------------


@mutant
def no_settling(p: Patches) -> None:
    """The reconciler goes on without a word of the runner about the attempt before: neither fenced nor asked."""

    def fence(self: JobFlow, n: int) -> Any:
        yield from ()
        return []

    p.set(JobFlow, "fence", fence)
    p.set(plan, "_settled", lambda entry, known, covered: True)


@mutant
def retired_in_two_transactions(p: Patches) -> None:
    """First all registers of a job that is over are removed, and then its result is written."""
    plain = JobFlow.write

    def write(self: JobFlow, *facts: Any) -> Any:
        results = [fact for fact in facts if isinstance(fact[0], Result)]
        if results:
            yield from plain(self, *(fact for fact in facts if fact not in results))
        yield from plain(self, *(results or facts))

    p.set(JobFlow, "write", write)


@mutant
def start_holds_nothing(p: Patches) -> None:
    """A start that is under way has no slots yet: only what the runner says to be alive has."""
    plain = holding
    p.set(reconcile, "holding", lambda entry, alive, before, starting: plain(entry, alive, before))


@mutant
def savepoints_are_pruned(p: Patches) -> None:
    """Savepoints are what checkpoints are: what no start may begin from goes, whoever asked for it."""

    def disposals(job: Any, keep: int) -> Any:
        kept = restore_points.kept(job, keep)
        points = [point for point, _ in saved(job)]
        return tuple(point for point in points if point.order not in kept)

    p.set(fold, "_disposals", disposals)


@mutant
def given_up_is_never_deleted(p: Patches) -> None:
    """The reconciler passes savepoints by that somebody gave up."""
    p.set(reconcile, "_disposing", lambda views, observed, found: [])


@mutant
def whoever_answers_is_believed(p: Patches) -> None:
    """The answer of an agent counts for the attempts of all agents."""
    p.set(reconcile, "held_elsewhere", lambda entry, reached, attempts: "")


@mutant
def calls_reach_whoever_answers(p: Patches) -> None:
    """What is asked of one agent is done by another one that has taken its place."""
    p.set(MemoryRunner, "only", lambda self, instance: self)


# -- collecting garbage ------------------------------------------------------------------------------------------------


@mutant
def gc_reads_before_it_lists(p: Patches) -> None:
    """The log is read first and once: what is recorded between reading and listing is not seen."""

    def look(source: Any, runners: Any, blobs: Any, grace_s: float) -> Any:
        read = collecting._Read(source)
        things, silent = collecting._listed(runners, blobs)
        judged = garbage.judge(things, read.claims, read.read_to, grace_s, read.log_age_s, {})
        return collecting.Found(judged.orphans, judged.spared, judged.young, silent, read.as_of), things, read

    def collect(source: Any, runners: Any, blobs: Any, evidence: Any, grace_s: float = collecting.GRACE_S) -> Any:
        found, things, read = look(source, runners, blobs, grace_s)
        for orphan in found.orphans:
            evidence.tell("delete", orphan, read.as_of)
            if why := collecting._delete(things[orphan.lying], orphan, runners, blobs):
                evidence.tell("left", orphan, read.as_of, why)
        return found

    p.set(collecting, "collect", collect)


@mutant
def gc_without_grace(p: Patches) -> None:
    """However young it is, what nobody refers to is garbage."""
    plain = garbage.judge

    def judge(lying: Any, claims: Any, read_to: Any, grace_s: float, log_age_s: float, held: Any) -> Any:
        return plain(lying, claims, read_to, 0.0, log_age_s, held)

    p.set(garbage, "GRACE_MIN_S", 0.0)
    p.set(garbage, "judge", judge)


@mutant
def gc_takes_what_was_put_again(p: Patches) -> None:
    """A blob is deleted whatever became of it since it was listed."""

    def delete(self: MemoryBlobs, blob: Any) -> bool:
        self.stored.pop(blob.uri, None)
        return True

    p.set(MemoryBlobs, "delete", delete)


@mutant
def gc_finds_nothing(p: Patches) -> None:
    """It spares whatever has no register at all: what a submitter leaves that dies after its put."""
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

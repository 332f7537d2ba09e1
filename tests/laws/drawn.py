"""Random histories of one job: any facts that the protocol allows, in any order, resent, pruned and compacted at any
moment. Every register has one value, from its one writer (`value`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    Fact,
    GraphRef,
    IntentDeclared,
    IntentKind,
    JobAdmitted,
    JobResult,
    JobSubmitted,
    OnExhausted,
    Replacement,
    RestartKind,
    RestartPolicy,
    RestoreBy,
    RestorePoint,
    SavepointAsked,
    SavepointDisposed,
    SavepointPolicy,
    StallPolicy,
    Together,
)
from ledger.core.model.registers import (
    Admitted,
    Ask,
    Attempt,
    Checkpoint,
    Disposed,
    Ended,
    Intent,
    Register,
    Result,
    Running,
    Spec,
)
from tests.laws.histories import DIGEST, OTHER_DIGEST, OUTSIDE, Log

OTHER = "job-b"


class World(NamedTuple):
    """The parameters of a history: parts of the spec, and the base of each attempt."""

    policy: RestartKind = RestartKind.FIXED_DELAY
    on_exhausted: OnExhausted = OnExhausted.QUARANTINE
    from_outside: bool = False
    #: The number of periodic savepoints to keep; None = no periodic savepoints.
    keep_max: int | None = None
    stalls: bool = False
    #: How the job replaces another one; None = it replaces none.
    replacement: Replacement | None = None
    restore: RestoreBy = RestoreBy.LEDGER

    def spec(self, digest: str = DIGEST) -> JobSubmitted:
        return JobSubmitted(
            "etl", digest[0], "subprocess", GraphRef("file:///g", "0" * 64, 1),
            RestartPolicy(
                self.policy, attempts_max=1, delay_max_s=1.5, reset_after_s=50.0, on_exhausted=self.on_exhausted,
                failures_per_interval=1, failure_rate_interval_s=135.0,
            ),
            restore_from=OUTSIDE if self.from_outside else None,
            stall_policy=StallPolicy(10.0 if self.stalls else 0.0),
            savepoint_policy=SavepointPolicy() if self.keep_max is None else SavepointPolicy(60.0, self.keep_max),
            replaces="job-0" if self.replacement else None, replacement=self.replacement or Replacement(),
            restore=self.restore,
        )  # fmt: skip

    def base(self, n: int, epoch: int = 1) -> RestorePoint | None:
        """The base of attempt n: one fixed checkpoint of the previous attempt, because the facts come in any order."""
        if n == 1:
            inherited = RestorePoint(0, 0, f"of job-0, read by {epoch}", kind=CheckpointKind.SAVEPOINT)
            return OUTSIDE if self.from_outside else inherited if self.replacement else None
        return place(n - 1, 1 + (n + epoch) % 3)


WORLDS = st.builds(
    World,
    st.sampled_from([RestartKind.FIXED_DELAY, RestartKind.EXPONENTIAL_DELAY, RestartKind.FAILURE_RATE, RestartKind.NONE]),
    st.sampled_from([OnExhausted.QUARANTINE, OnExhausted.FAIL]),
    st.booleans(),
    st.sampled_from([None, None, 0, 1, 2]),
    st.booleans(),
    st.sampled_from([None, None, Replacement(), Replacement("latest"), Replacement("scratch")]),
    st.just(RestoreBy.LEDGER),
)
EXTERNAL = WORLDS.map(lambda world: world._replace(restore=RestoreBy.EXTERNAL))
#: Savepoint -> the savepoint request that it answers.
ANSWERS = {(1, 3): "periodic-0-0-0", (2, 2): "periodic-1-3-0", (3, 1): "u1", (5, 3): "periodic-2-2-1"}


def place(n: int, id_: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> RestorePoint:
    return RestorePoint(n, id_, f"{n}/{id_}", kind=kind)


def kind_of(n: int, id_: int) -> CheckpointKind:
    return CheckpointKind.SAVEPOINT if (n + id_) % 4 == 0 else CheckpointKind.CHECKPOINT


def value(register: Register, world: World) -> Fact:
    """The one value that the register's writer gives it."""
    match register:
        case Spec(digest):
            return world.spec(digest)
        case Admitted():
            return JobAdmitted(DIGEST)
        case Intent(_, uuid):
            kind, attempt, from_, *forced = uuid.split("_")
            return IntentDeclared(IntentKind(kind), int(attempt), from_.replace(".", "/"), bool(forced), reason=uuid)
        case Attempt(n, epoch):
            times = tuple(200.0 * i + 40.0 - 50.0 * epoch for i in range(2, n + 1))
            return AttemptStarted(
                DIGEST, world.base(n, epoch), failures=epoch % 2 + (n > 2), failure_times=times,
                recorded_at=200.0 * n if world.policy is RestartKind.FAILURE_RATE else None,
                instance=f"agent-{epoch}" if n % 3 else "",
                together=Together({OTHER: epoch}, f"cut-{n}") if epoch % 2 else None,
            )  # fmt: skip
        case Running(n):
            return AttemptRunning(f"pid {n}")
        case Checkpoint(n, id_):
            kind, ask, cut = kind_of(n, id_), ANSWERS.get((n, id_)), f"cut-{id_}" if id_ % 2 else ""
            return CheckpointCompleted(f"{n}/{id_}", base=world.base(n), kind=kind, ask=ask, consistency=cut)
        case Ended(n, outcome, writer):
            ran_for_s = 0.0 if outcome == "lost" else 40.0 * n
            return AttemptEnded(f"{outcome} says {writer}", ran_for_s=ran_for_s)
        case Ask(uuid):
            return SavepointAsked(uuid)
        case Disposed(n, id_, uuid):
            return SavepointDisposed(f"{n}/{id_}", world.base(n), ANSWERS.get((n, id_)), uuid)
        case Result(state):
            return JobResult("etl", "a", "subprocess", DIGEST, state, 1.0, 3)
    raise AssertionError(register)


WRITERS = ("agent-1", "reconciler-1", "reconciler-2")
RESULTS = [Result("FINISHED"), Result("CANCELED")]
OTHERS: list[Register] = [Spec(OTHER_DIGEST), Ask("u1"), Admitted(), Spec(DIGEST)]
ASKS: list[Register] = [
    Ask(uuid) for uuid in (
        "u1", "u2", "periodic-0-0-0", "periodic-0-0-1", "periodic-1-3-0", "periodic-1-3-1", "periodic-2-2-1",
        "periodic-2-2-20", "periodic-5-3-0", "periodic-01-3-0",
    )
]  # fmt: skip


def _intents(*kinds: str) -> list[Register]:
    return [Intent(rev, kind) for rev in (1, 2, 3) for kind in kinds]


def _ends(top: int, *outcomes: str) -> list[Register]:
    return [Ended(n, outcome, writer) for n in range(1, top + 1) for outcome in outcomes for writer in WRITERS]


def weighted(*kinds: tuple[int, Sequence[Any]]) -> st.SearchStrategy[Any]:
    """Draws an item: kinds by weight, items of a kind evenly. It draws two small numbers, because hypothesis does not draw
    evenly from a range of more than 127, nor from nested `one_of`s."""
    table = [items for weight, items in kinds for _ in range(weight)]
    assert len(table) <= 127
    numbers = st.tuples(st.integers(0, len(table) - 1), st.integers(0, 119))
    return numbers.map(lambda ij: table[ij[0]][ij[1] % len(table[ij[0]])])


def registers_up_to(top: int) -> list[tuple[int, Sequence[Register]]]:
    """(weight, registers) for the registers of attempts up to top."""
    ns = range(1, top + 1)
    retries = [f"RETRY_{n}_{from_}" for n in ns for from_ in ("latest", "scratch", "2.2")]
    forced = [f"{kind}_{n}_latest_forced" for n in ns for kind in ("RETRY", "RUN")]
    return [
        (2, _intents("RUN_0_latest", "SUSPEND_0_latest")),
        (2, _intents(*retries)),
        (1, _intents(*forced)),
        (1, _intents("UNKNOWN_0_latest", "UNKNOWN_1_latest")),
        (3, [Attempt(n, epoch) for n in ns for epoch in (1, 2)]),
        (5, _ends(top, "lost", "failed", "failed-permanent", "stopped")),
        (4, [Checkpoint(n, id_) for n in ns for id_ in (1, 2, 3)]),
        (1, [Running(n) for n in ns]),
        (1, OTHERS),
        (1, ASKS),
        (1, [Disposed(*at, uuid) for at in ANSWERS if at[0] <= top for uuid in ("u1", "u2")]),
    ]


CANCELS = _intents("CANCEL_0_latest", "CANCEL_1_latest_forced")
REGISTERS = weighted(*registers_up_to(3), (1, CANCELS), (1, _ends(3, "finished", "canceled", "abandoned")))
CONTROL = [
    (3, [("again", i) for i in range(24)]),
    (3, [("prune", 0)]),
    (1, [("dispose", 0)]),
    (2, [("clean", choice) for choice in (0, 4, 1, 5, 2, 6, 3, 7, 0x155, 0x2A9, 0x3FD, 0x5A5A5, 0x3C3C1, 0xF0F02)]),
]
History = tuple[World, list[tuple[str, Any]]]


def _operations(top: int, *rare: tuple[int, Sequence[Register]]) -> st.SearchStrategy[Any]:
    kinds = [*registers_up_to(top), *rare]
    new = [(weight, [("new", register) for register in registers]) for weight, registers in kinds]
    return weighted(*new, *CONTROL)


_TERMINAL = ("finished", "canceled", "abandoned")
#: Kinds of histories: few attempts, so that facts collide; many attempts; with cancels; with terminal ends, after which
#: little more can happen; with results.
KINDS = [
    _operations(1, (1, CANCELS)),
    _operations(2),
    _operations(5),
    _operations(3, (3, CANCELS)),
    _operations(4, (3, _ends(4, *_TERMINAL))),
]
WITH_RESULTS = _operations(2, (1, CANCELS), (1, _ends(2, *_TERMINAL)), (8, RESULTS))


def histories(with_result: bool = False) -> st.SearchStrategy[History]:
    """Histories of any facts in any order, resent, pruned and compacted at any moment."""
    kinds = KINDS + [WITH_RESULTS] * with_result
    worlds = st.one_of(WORLDS, WORLDS, WORLDS, EXTERNAL)
    return st.tuples(worlds, st.one_of([st.lists(kind, min_size=10, max_size=18) for kind in kinds]))


def play(history: History) -> Iterator[tuple[Any, Log]]:
    """Plays a history. Yields (operation, log) after each operation. The job is submitted and admitted at the start."""
    world, operations = history
    log = Log()
    for register in (Spec(DIGEST), Admitted()):
        log.send(register, value(register, world))
    yield ("submitted",), log
    for operation in operations:
        match operation:
            case "new", register:
                log.send(register, value(register, world))
            case "again", i:
                log.send_again(i)
            case "prune", _:
                log.prune()
            case "dispose", _:
                log.dispose()
            case "clean", choice:
                log.clean(choice)
        yield operation, log


def played(history: History, clean: bool = True) -> Log:
    """The log at the end of a history. clean: False = without log compaction, which the caller does."""
    world, operations = history
    return [log for _, log in play((world, [o for o in operations if clean or o[0] != "clean"]))][-1]


def shuffled(items: Iterable[Any], seed: int) -> list[Any]:
    out = list(items)
    Random(seed).shuffle(out)
    return out

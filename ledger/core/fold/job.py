"""The registers of one job, parsed, and decoded only where something depends on it.

State is "the last value of each key", so what is superseded need not even be decoded: a register keeps its raw value
until it decides or is published. A value that does not decode counts as absent and is named in `unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from ledger.core.model import facts
from ledger.core.model.facts import IntentKind
from ledger.core.model.once import once
from ledger.core.model.registers import (
    NUMBER_MAX,
    OUTCOMES,
    RESULT_STATES,
    TERMINAL_OUTCOMES,
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
    parse_register,
)  # fmt: skip

#: (register, raw value) -> the fact; None if the value is unreadable, or not the fact that the register must hold.
Read = Callable[[Register, Any], facts.Fact | None]
F = TypeVar("F")
R = TypeVar("R", Attempt, Ended)

OUTCOME_RANK = {outcome: rank for rank, outcome in enumerate(OUTCOMES)}
RESULT_RANK = {state: rank for rank, state in enumerate(RESULT_STATES)}
#: A cancel is never undone; an intent that this version does not know is taken for the most careful of the rest.
INTENT_RANK = {
    IntentKind.CANCEL: 4, IntentKind.UNKNOWN: 3, IntentKind.SUSPEND: 2, IntentKind.RETRY: 1, IntentKind.RUN: 0,
}  # fmt: skip


class Job:
    """A view of one job's registers.

    registers: register name (the key behind the job id) -> raw value; tombstoned ones are not in it.
    """

    def __init__(self, job_id: str, registers: Mapping[bytes, Any], read: Read) -> None:
        self.job_id = job_id
        self.names: dict[Register, bytes] = {}
        self.unreadable: set[Register] = set()
        self._registers = registers
        self._read = read
        self._facts: dict[Register, facts.Fact | None] = {}
        self.specs: list[Spec] = []
        self.intents: list[Intent] = []
        self.attempts: dict[int, list[Attempt]] = {}
        self.runnings: dict[int, Running] = {}
        self.checkpoints: dict[int, list[Checkpoint]] = {}
        self.ends: dict[int, list[Ended]] = {}
        self.asks: list[Ask] = []
        self.disposed: dict[tuple[int, int], list[Disposed]] = {}
        self.results: list[Result] = []
        for name in registers:
            register = parse_register(name)
            if register is None:
                continue
            self.names[register] = name
            match register:
                case Checkpoint(n, _):
                    self.checkpoints.setdefault(n, []).append(register)
                case Attempt(n, _):
                    self.attempts.setdefault(n, []).append(register)
                case Ended(n, _, _):
                    self.ends.setdefault(n, []).append(register)
                case Running(n):
                    self.runnings[n] = register
                case Spec():
                    self.specs.append(register)
                case Intent():
                    self.intents.append(register)
                case Ask():
                    self.asks.append(register)
                case Disposed(n, id_, _):
                    self.disposed.setdefault((n, id_), []).append(register)
                case Result():
                    self.results.append(register)

    def fact(self, register: Register, kind: type[F]) -> F | None:
        """The fact in a register; None if the register is absent or unreadable."""
        try:
            return self._facts[register]  # type: ignore[return-value]
        except KeyError:
            name = self.names.get(register)
        fact = self._read(register, self._registers[name]) if name is not None else None
        if name is not None and not isinstance(fact, kind):
            self.unreadable.add(register)
            fact = None
        self._facts[register] = fact
        return fact  # type: ignore[return-value]

    def raw(self, register: Register) -> Any:
        """The undecoded value of a register; None if it is absent."""
        return self._registers.get(self.names.get(register, b""))

    # -- what counts -------------------------------------------------------------------------------------------------

    @once
    def result(self) -> Result | None:
        """The result of a job; None = there is none. If several are recorded: FINISHED, else CANCELED, else FAILED."""
        readable = [r for r in self.results if self.fact(r, facts.JobResult) is not None]
        return max(readable, key=lambda r: RESULT_RANK[r.state], default=None)

    @once
    def admitted(self) -> facts.JobAdmitted | None:
        return self.fact(Admitted(), facts.JobAdmitted) if Admitted() in self.names else None

    @once
    def spec(self) -> facts.JobSubmitted | None:
        """The admitted spec; None if none is admitted, or if its register is absent or unreadable."""
        return self.fact(Spec(self.admitted.digest), facts.JobSubmitted) if self.admitted else None

    @once
    def terminal_end(self) -> tuple[Ended, facts.AttemptEnded] | None:
        """The end of *any* attempt that is terminal: finished, else canceled, else abandoned; None = there is none."""
        return self._strongest([e for ends in self.ends.values() for e in ends if e.outcome in TERMINAL_OUTCOMES])

    @once
    def top(self) -> int:
        """The highest attempt that any readable register names; 0 = none."""
        for n in sorted({*self.attempts, *self.runnings, *self.ends}, reverse=True):
            if self.attempt(n) is not None or self.end(n) is not None or self.running(n) is not None:
                return n
        return 0

    def known(self, n: int) -> bool:
        """Whether the runner has reported on attempt n: that it runs, made a checkpoint, or ended."""
        return self._has_checkpoint(n) or self.end(n) is not None or self.running(n) is not None

    def attempt(self, n: int) -> facts.AttemptStarted | None:
        """The record of attempt n that counts: the one with the highest epoch; None = there is no readable record."""
        for register in _descending(self.attempts.get(n, ()), lambda attempt: attempt.epoch):
            if (fact := self.fact(register, facts.AttemptStarted)) is not None:
                return fact
        return None

    def running(self, n: int) -> facts.AttemptRunning | None:
        return self.fact(self.runnings[n], facts.AttemptRunning) if n in self.runnings else None

    def end(self, n: int) -> tuple[Ended, facts.AttemptEnded] | None:
        """The end of attempt n that counts: the strongest outcome, and among equals the one that the runner wrote."""
        return self._strongest(self.ends.get(n, ()))

    @once
    def intent(self) -> tuple[Intent, facts.IntentDeclared] | None:
        """The intent that wins: cancel first, then the highest revision, then kind, then uuid; None = no intent."""
        readable = [(i, fact) for i in self.intents if (fact := self.fact(i, facts.IntentDeclared)) is not None]
        return max(
            readable,
            key=lambda x: (x[1].kind is IntentKind.CANCEL, x[0].rev, INTENT_RANK[x[1].kind], x[0].uuid),
            default=None,
        )

    def checkpoint(self, n: int, id_: int) -> facts.CheckpointCompleted | None:
        return self.fact(Checkpoint(n, id_), facts.CheckpointCompleted)

    def restore_point(self, register: Checkpoint) -> facts.RestorePoint | None:
        fact = self.fact(register, facts.CheckpointCompleted)
        if fact is None:
            return None
        return facts.RestorePoint(register.n, register.id, fact.location, fact.size, fact.digest, fact.kind)

    def disposal(self, n: int, id_: int) -> facts.SavepointDisposed | None:
        """The disposal of a savepoint, the one of the highest uuid if there are several; None = it is not disposed."""
        for register in sorted(self.disposed.get((n, id_), ()), reverse=True):
            if (fact := self.fact(register, facts.SavepointDisposed)) is not None:
                return fact
        return None

    def checkpoint_ids(self, n: int) -> list[int]:
        """Ids of all checkpoints of attempt n, disposed ones included, newest first."""
        ids = {c.id for c in self.checkpoints.get(n, ())}
        if self.disposed:
            ids |= {id_ for attempt, id_ in self.disposed if attempt == n}
        return sorted(ids, reverse=True)

    @once
    def recorded(self) -> int:
        """The highest attempt that has a readable attempt record; 0 = none. This record is never pruned."""
        return next((n for n in sorted(self.attempts, reverse=True) if self.attempt(n) is not None), 0)

    @once
    def checkpointed(self) -> int:
        """The highest attempt that has a readable checkpoint, or had one that is disposed; 0 = none."""
        return self.checkpointed_below(NUMBER_MAX + 1)

    def checkpointed_below(self, n: int) -> int:
        """The highest attempt below n that `checkpointed` would count; 0 = none."""
        attempts = {k for k in (*self.checkpoints, *(point[0] for point in self.disposed)) if k < n}
        return next((k for k in sorted(attempts, reverse=True) if self._has_checkpoint(k)), 0)

    def _has_checkpoint(self, n: int) -> bool:
        if any(self.fact(c, facts.CheckpointCompleted) is not None for c in reversed(self.checkpoints.get(n, ()))):
            return True
        # A disposed savepoint existed. The answer must not depend on whether its register is tombstoned yet.
        return any(point[0] == n and self.disposal(*point) is not None for point in self.disposed)

    def _strongest(self, ends: Collection[Ended]) -> tuple[Ended, facts.AttemptEnded] | None:
        for register in _descending(ends, _end_order):
            if (fact := self.fact(register, facts.AttemptEnded)) is not None:
                return register, fact
        return None


def is_runner(writer: str) -> bool:
    """Whether the writer of a fact is the runner, which writes the end of an attempt after all of its checkpoints."""
    return writer.startswith("agent-")


def _descending(registers: Collection[R], order: Callable[[R], Any]) -> Iterable[R]:
    """Strongest first. Most attempts have one register, so there is nothing to sort."""
    return sorted(registers, key=order, reverse=True) if len(registers) > 1 else registers


def _end_order(end: Ended) -> tuple[int, int, bool, str]:
    return OUTCOME_RANK[end.outcome], end.n, is_runner(end.writer), end.writer

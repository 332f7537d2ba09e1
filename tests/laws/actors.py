"""Histories as healthy actors write them: starts from the restore points that the fold offers, verdicts, an operator's
retries with existing checkpoints, checkpoints of the newest attempt and of an abandoned attempt that still runs.

The actors decide by the pruned and compacted log. Their choices are stored separately, and the fold is checked against
them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    RestorePoint,
    SavepointDisposed,
)
from ledger.core.model.recovery import RecoveryEntry
from ledger.core.model.registers import Admitted, Attempt, Checkpoint, Disposed, Ended, Intent, Spec
from tests.laws import histories
from tests.laws.drawn import CONTROL, WORLDS, World, place, value, weighted
from tests.laws.histories import DIGEST, OUTSIDE, Log

OPERATIONS = weighted(
    (4, [("start",)]),
    (5, [("checkpoint", back, savepoint) for back in (0, 1) for savepoint in (False, False, True)]),
    (2, [("end", outcome) for outcome in ("failed", "stopped", "failed-permanent")]),
    (2, [("verdict",)]),
    (2, [("retry", choice, forced) for choice in range(10) for forced in (False, False, True)]),
    (1, [("run",), ("unknown",)]),
    (1, [("give up", choice) for choice in range(4)]),
    *CONTROL,
)
HISTORIES = st.tuples(WORLDS, st.lists(OPERATIONS, min_size=10, max_size=24))


class Actors:
    """The reconciler, runner and operator of one job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = Log()
        self.bases: dict[int, RestorePoint | None] = {}  # attempt -> its base
        self.newest: dict[int, RestorePoint] = {}  # attempt -> its newest checkpoint
        self.ended: set[int] = set()
        self.given_up: set[tuple[int, int]] = set()
        self.top = 0
        self.rev = 0
        self.asked: tuple[int, RestorePoint | str] | None = None  # the winning retry: (attempt, restore point)
        self.checkpoint_id = 0
        for register in (Spec(DIGEST), Admitted()):
            self.log.send(register, value(register, world))

    def entry(self) -> RecoveryEntry:
        entry = histories.fold(self.log.registers())
        assert entry is not None
        return entry

    def step(self, operation: tuple[Any, ...]) -> None:
        match operation:
            case ("start",):
                self.start()
            case ("checkpoint", back, savepoint):
                self.checkpoint(back, savepoint)
            case ("end", outcome):
                self.end(outcome, "agent-1")
            case ("verdict",):
                self.end("lost", "reconciler-1")
                self.top += 1
                self.end("failed-permanent", "reconciler-1")
            case ("retry", choice, forced):
                self.retry(choice, forced)
            case ("run",):
                self.intend(IntentKind.RUN, "latest")
                self.asked = None
            case ("unknown",):
                self.intend(IntentKind.UNKNOWN, "latest")
                self.asked = None
            case ("again", i):
                self.log.send_again(i)
            case ("prune", _):
                self.log.prune()
            case ("dispose", _):
                self.log.dispose()
            case ("give up", choice):
                self.give_up(choice)
            case ("clean", choice):
                self.log.clean(choice)

    def end(self, outcome: str, writer: str) -> None:
        if self.top and self.top not in self.ended:
            self.log.send(Ended(self.top, outcome, writer), AttemptEnded(outcome))
            self.ended.add(self.top)

    def start(self) -> None:
        """Starts an attempt as the reconciler does: from the first offered restore point. If a restore point is named but
        none is offered, nothing is started."""
        self.end("lost", "reconciler-1")
        entry = self.entry()
        self.top += 1
        if not entry.restore_points and entry.restore_from_named:
            self.end("failed-permanent", "reconciler-1")
            return
        base = entry.restore_points[0] if entry.restore_points else None
        self.bases[self.top] = base
        self.log.send(Attempt(self.top, 1), AttemptStarted(DIGEST, base))

    def checkpoint(self, back: int, savepoint: bool) -> None:
        started = sorted(self.bases)[-2:]
        if not started:
            return
        n = started[-1 - back % len(started)]
        self.checkpoint_id += 1
        kind = CheckpointKind.SAVEPOINT if savepoint and self.checkpoint_id % 2 else CheckpointKind.CHECKPOINT
        self.newest[n] = place(n, self.checkpoint_id, kind)
        fact = CheckpointCompleted(f"{n}/{self.checkpoint_id}", base=self.bases[n], kind=kind)
        self.log.send(Checkpoint(n, self.checkpoint_id), fact)

    def retry(self, choice: int, forced: bool) -> None:
        """The operator retries the newest attempt from an existing checkpoint, or now and then from scratch.

        forced: the verdict does not wait for the runner, so the attempt may still run and write checkpoints."""
        if not self.top:
            return
        job = histories.view(self.log.registers())
        there = sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints)
        chosen: RestorePoint | str = "scratch"
        if choice and there:
            point = job.restore_point(there[choice % len(there)])
            assert point is not None
            chosen = point
        self.intend(IntentKind.RETRY, str(chosen), forced)
        self.asked = (self.top, chosen)
        if forced:
            self.end("lost", "reconciler-1")

    def give_up(self, choice: int) -> None:
        """Disposes of an existing savepoint."""
        job = histories.view(self.log.registers())
        there = sorted(c for checkpoints in job.checkpoints.values() for c in checkpoints)
        facts = [(c, job.checkpoint(c.n, c.id)) for c in there]
        savepoints = [(c, fact) for c, fact in facts if fact and fact.kind is CheckpointKind.SAVEPOINT]
        if savepoints:
            chosen, fact = savepoints[-1 - choice % len(savepoints)]
            self.log.send(Disposed(chosen.n, chosen.id, "u"), SavepointDisposed(fact.location, fact.base, fact.ask))
            self.given_up.add((chosen.n, chosen.id))

    def intend(self, kind: IntentKind, from_: str, forced: bool = False) -> None:
        self.rev += 1
        self.log.send(Intent(self.rev, f"u{self.rev}"), IntentDeclared(kind, self.top, from_, forced))

    def due(self) -> RestorePoint | None:
        """The restore point that must be offered first. It is the one named by an effective retry; else the newest
        recorded attempt's newest checkpoint, or its base if it has none; without attempts, the one named by the spec."""
        if self.asked and self.asked[0] == self.top and self.top in self.ended:
            return self.asked[1] if isinstance(self.asked[1], RestorePoint) else None
        if not self.bases:
            return OUTSIDE if self.world.from_outside else None
        newest = max(self.bases)
        return self.newest.get(newest, self.bases[newest])

"""What a reconciler does about one job, as generators: each yields what it needs next and goes on with the answer.

See `flow_steps` for what a flow is, `starting` and `ending` for the flows.
"""

from __future__ import annotations

from ledger.core.model.recovery import RecoveryEntry
from ledger.core.plan.plan import (
    Action,
    AskSavepoint,
    Close,
    Declare,
    Dispose,
    GiveUp,
    Lose,
    Refuse,
    Retire,
    Settle,
    Start,
    StartAgain,
    Stop,
    StopStalled,
    Verify,
    WantSavepoint,
)  # fmt: skip
from ledger.roles.reconciler.ending import Ending
from ledger.roles.reconciler.flow_steps import Flow, JobMemory
from ledger.roles.reconciler.starting import Starting


class Flows(Starting, Ending):
    """Makes the flow of an action on a job."""

    def of(self, action: Action, entry: RecoveryEntry, memory: JobMemory) -> Flow | None:
        match action:
            case Stop():
                return self._stop(entry, memory, action)
            case StopStalled(_, n):
                return self._stop_stalled(entry, memory, n)
            case AskSavepoint(_, n, asks):
                return self._ask_savepoint(entry, memory, n, asks)
            case WantSavepoint():
                return self._want_savepoint(entry, memory, action)
            case Dispose(_, points):
                return self._dispose(entry, memory, points)
            case Settle(_, n):
                return self._settle(entry, memory, n)
            case Verify(_, n, points):
                return self._verify(entry, memory, n, points)
            case Start(_, n, inherited, together):
                return self._start(entry, memory, n, inherited, together)
            case StartAgain(_, n):
                return self._start_again(entry, memory, n)
            case Lose(_, n, outcome, cause):
                return self._fenced_end(entry, memory, n, outcome, cause, lost=True)
            case GiveUp(_, n):
                return self._give_up(entry, memory, n)
            case Close(_, n, outcome, forced):
                return self._close(entry, memory, n, outcome, forced)
            case Retire(_, forced):
                return self._retire(entry, memory, forced)
            case Declare():
                return self._declare(entry, memory, action)
            case Refuse(_, n, cause):
                return self._fenced_end(entry, memory, n, "failed-permanent", cause)
            case _:
                return None

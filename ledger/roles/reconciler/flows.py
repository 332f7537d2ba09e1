"""Maps each action on a job to its flow. `flow_steps` defines flows, `starting` and `ending` hold them."""

from __future__ import annotations

from ledger.core.model.registers import Outcome
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
from ledger.roles.reconciler import ending, starting
from ledger.roles.reconciler.flow_steps import Flow, JobFlow


def flow_of(action: Action, flow: JobFlow) -> Flow | None:
    """The flow of an action; None for an action that orders nothing."""
    match action:
        case Stop():
            return ending.stop(flow, action)
        case StopStalled(_, n):
            return ending.stop_stalled(flow, n)
        case AskSavepoint(_, n, asks):
            return ending.request_savepoints(flow, n, asks)
        case WantSavepoint():
            return ending.want_savepoint(flow, action)
        case Dispose(_, points):
            return ending.dispose(flow, points)
        case Settle(_, n):
            return flow.settle(n)
        case Verify(_, n, points):
            return starting.verify(flow, n, points)
        case Start(_, n, inherited, together):
            return starting.start(flow, n, inherited, together)
        case StartAgain(_, n):
            return starting.start_again(flow, n)
        case Lose(_, n, outcome, cause):
            return flow.fenced_end(n, outcome, cause, lost=True)
        case GiveUp(_, n):
            return ending.give_up(flow, n)
        case Close(_, n, outcome, forced):
            return ending.close(flow, n, outcome, forced)
        case Retire(_, forced):
            return ending.retire(flow, forced)
        case Declare():
            return starting.declare(flow, action)
        case Refuse(_, n, cause):
            return flow.fenced_end(n, Outcome.FAILED_PERMANENT, cause)
        case _:
            return None

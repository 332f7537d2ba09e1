"""The verb `savepoint`: whether a job can make one, and the outcome of the request."""

from __future__ import annotations

from ledger.core.model.facts import CheckpointCompleted, CheckpointKind, IntentKind, RestorePoint
from ledger.core.model.recovery import RECOVERY_SET, JobState
from ledger.core.model.registers import Ask
from ledger.core.plan.outside import OUTSIDE
from ledger.errors import Refused, UsageError
from ledger.operations.intents import entry_to_change
from ledger.reader.watching import Watch

#: States in which an attempt runs, or will run without an operator.
_RUNNING = RECOVERY_SET - {JobState.CANCELLING, JobState.FAILING}


def check_possible(watch: Watch) -> None:
    """Checks that a job can make a savepoint. Raises: Refused if it is over, is ending, or is not to run; UsageError if its
    runner cannot request one."""
    entry = entry_to_change(watch, IntentKind.RUN)
    if entry.runner == OUTSIDE:
        raise UsageError(f"{entry.job_id} is run by its own producer: the ledger can't request savepoints of it.")
    if entry.state not in _RUNNING:
        hint = "jobledger resume brings it back." if entry.state is JobState.SUSPENDED else ""
        raise Refused(f"{entry.job_id} is {entry.state}: no attempt of it runs that could make a savepoint.", hint=hint)


def answer(watch: Watch, ask: Ask) -> RestorePoint | None:
    """The savepoint that was made for a request; None = not yet. Raises: Refused if the job ended before it was
    made."""
    job = watch.job()
    for register in (c for checkpoints in job.checkpoints.values() for c in checkpoints):
        fact = job.fact(register, CheckpointCompleted)
        if fact is not None and fact.kind is CheckpointKind.SAVEPOINT and fact.ask == ask.uuid:
            return job.restore_point(register)
    if job.result is not None or job.terminal_end is not None:
        raise Refused(f"{job.job_id} was over before it made a savepoint.")
    return None

"""Outside jobs, which a producer runs by itself: the ledger shows, audits and retires them, but never starts them.

Such a job names the runner `outside`, for which no agent answers. Its producer writes `running/1`, `checkpoint/1/<id>` and
`ended/1/<outcome>/agent-<id>` itself. The job has one attempt; another run is another job. `decide` here replaces
`plan.decide`: there is nothing to observe, start, stop or fence.
"""

from __future__ import annotations

from ledger.core.model.facts import OnExhausted, RestartKind, RestartPolicy
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Outcome
from ledger.core.plan.plan import Action, Close, GiveUp, Retire, Wait

#: The runner's name in the spec.
OUTSIDE = "outside"
#: The only attempt.
ATTEMPT = 1
#: A failure is the job's end: FAILED, not a restart that nobody could perform.
RESTART_POLICY = RestartPolicy(RestartKind.NONE, on_exhausted=OnExhausted.FAIL)


def decide(entry: RecoveryEntry) -> tuple[Action, ...]:
    """The actions on an outside job now. A cancel closes it once its producer has reported the end; `--force` closes it
    without that report, for a producer that died."""
    job_id, top = entry.job_id, entry.attempt
    if entry.retiring:
        return ()
    if entry.terminal:
        return (Retire(job_id),)
    if entry.state not in (JobState.CANCELLING, JobState.FAILING):
        return ()
    if top and not entry.outcome:
        if entry.intent is not None and entry.intent.force and top <= entry.intent.attempt:
            return (GiveUp(job_id, top),)
        return (Wait(job_id, "its producer has not reported the end; if that died, cancel --force closes the job"),)
    outcome = Outcome.CANCELED if entry.state is JobState.CANCELLING else Outcome.ABANDONED
    return (Close(job_id, top + 1, outcome),)

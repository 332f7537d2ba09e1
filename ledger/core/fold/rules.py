"""The rules of the fold as one table: `fold` applies it, `explain` quotes it, docs/ARCHITECTURE.md prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledger.core.fold import restart, restore_points
from ledger.core.fold.job import Job
from ledger.core.model import facts
from ledger.core.model.facts import CheckpointKind, IntentKind, OnExhausted
from ledger.core.model.once import once
from ledger.core.model.policies import policy_problem, spec_problem
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import NUMBER_MAX, Ended, Outcome

_TERMINAL = {Outcome.FINISHED: JobState.FINISHED, Outcome.CANCELED: JobState.CANCELED, Outcome.ABANDONED: JobState.FAILED}


class Situation:
    """One job as the rules read it. Each property is computed once; all but `job`, `keep` and `end` need a spec."""

    def __init__(self, job: Job, keep: int = restore_points.RESTORE_POINTS) -> None:
        self.job, self.keep = job, keep

    @once
    def spec(self) -> facts.JobSubmitted:
        assert self.job.spec is not None
        return self.job.spec

    @once
    def end(self) -> tuple[Ended, facts.AttemptEnded] | None:
        """The end of the last attempt; None = it has none, or there is no attempt."""
        return self.job.end(self.job.top)

    @property
    def outcome(self) -> str:
        return self.end[0].outcome if self.end else ""

    @once
    def points(self) -> tuple[facts.RestorePoint, ...]:
        """Restore points that are offered for the next start, best first."""
        if self.spec.restore is facts.RestoreBy.EXTERNAL:
            return ()
        return restore_points.first(self.job, restore_points.path(self.job), self.keep)

    @once
    def retried(self) -> bool:
        """Whether an operator has asked to retry the attempt that ended last."""
        return restore_points.retry_of_end(self.job) is not None

    @once
    def past(self) -> restart.FailureHistory:
        """Failures before the last attempt; none if an operator has asked to retry that attempt."""
        return restart.past(None if self.retried else self.job.attempt(self.job.top))

    @once
    def decision(self) -> restart.RestartDecision:
        """The decision of the restart policy on the end of the last attempt."""
        failed = self.outcome in (Outcome.FAILED, Outcome.LOST) and not self.retried and not policy_problem(self.spec)
        if not self.end or not failed:
            return restart.RestartDecision(self.past.failures, False, 0.0)
        policy, ran_for_s, following = self.spec.restart_policy, self.end[1].ran_for_s, self.job.top + 1
        return restart.after_failure(policy, self.past, ran_for_s, self.job.job_id, following)

    @once
    def not_startable(self) -> str:
        """Why this version cannot start the next attempt; "" if it can."""
        if found := spec_problem(self.spec):
            return found
        if self.job.top >= NUMBER_MAX:
            return f"attempt {self.job.top} has the highest number that there is"
        unknown = any(point.kind is CheckpointKind.UNKNOWN for point in self.points)
        return "a restore point is of a kind that this version does not know" if unknown else ""

    def wants(self, kind: IntentKind) -> bool:
        return self.job.intent is not None and self.job.intent[1].kind is kind


class Rule(NamedTuple):
    """A rule of the table. number: as in `explain`. text: when the rule applies, for people. state: of the job; None =
    the job has no entry. reason: why the job is in that state, for people; "" = the text suffices."""

    number: int
    text: str
    applies: Callable[[Situation], bool]
    state: JobState | Callable[[Situation], JobState] | None
    reason: Callable[[Situation], str] = lambda _: ""

    def state_of(self, situation: Situation) -> JobState | None:
        return self.state(situation) if callable(self.state) else self.state


def _result(s: Situation) -> JobState:
    assert s.job.result is not None
    return JobState(s.job.result.state)


def _terminal(s: Situation) -> JobState:
    assert s.job.terminal_end is not None
    return _TERMINAL[s.job.terminal_end[0].outcome]


def _exhausted(s: Situation) -> JobState:
    return JobState.FAILING if s.spec.restart_policy.on_exhausted is OnExhausted.FAIL else JobState.QUARANTINED


def _intent(s: Situation) -> str:
    return s.job.intent[1].reason if s.job.intent else ""


def _end(s: Situation) -> str:
    """The terminal end of the job, or else the end of its last attempt, as text."""
    ended, fact = s.job.terminal_end or s.end or (Ended(0, Outcome.LOST, ""), facts.AttemptEnded())
    return f"attempt {ended.n} {ended.outcome}" + (f": {fact.cause}" if fact.cause else "")


def _used_up(s: Situation) -> str:
    return f"{_end(s)}; {restart.used_up(s.spec.restart_policy, s.decision.failures)}"


#: The first rule that applies decides. Numbers and texts are printed by `explain`.
RULES = (
    Rule(0, "no register of this job is known", lambda s: not s.job.names, None),
    Rule(1, "a result is recorded: the job is over and retired", lambda s: s.job.result is not None, _result),
    Rule(2, "no spec of this job is admitted: it is not a job yet", lambda s: s.job.spec is None, None),
    Rule(3, "an attempt was finished, canceled or abandoned: terminal is final, whatever else arrives",
         lambda s: s.job.terminal_end is not None, _terminal, _end),
    Rule(4, "the winning intent is a cancel", lambda s: s.wants(IntentKind.CANCEL), JobState.CANCELLING, _intent),
    Rule(5, "the winning intent is of a kind that this version does not know", lambda s: s.wants(IntentKind.UNKNOWN),
         JobState.QUARANTINED, lambda _: "the winning intent is of a kind that this version does not know"),
    Rule(6, "the winning intent is a suspend", lambda s: s.wants(IntentKind.SUSPEND), JobState.SUSPENDED, _intent),
    Rule(7, "no end of the last attempt is known: it runs", lambda s: s.job.top > 0 and not s.end, JobState.RUNNING),
    Rule(8, "this version cannot start the next attempt", lambda s: bool(s.not_startable), JobState.QUARANTINED,
         lambda s: s.not_startable),
    Rule(9, "the job was not started yet", lambda s: s.end is None, JobState.CREATED),
    Rule(10, "the last attempt failed permanently, and no operator has asked for a retry",
         lambda s: s.outcome == Outcome.FAILED_PERMANENT and not s.retried, JobState.QUARANTINED, _end),
    Rule(11, "the last attempt failed, and the restart policy allows no more attempts",
         lambda s: s.decision.exhausted, _exhausted, _used_up),
    Rule(12, "the last attempt ended, and the next one follows", lambda _: True, JobState.RESTARTING, _end),
)  # fmt: skip


def deciding_rule(situation: Situation) -> Rule:
    return next(rule for rule in RULES if rule.applies(situation))

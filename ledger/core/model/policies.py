"""Checks whether this version can follow a spec and its policies. A job that fails a check is quarantined, not
started."""

from __future__ import annotations

import re

from ledger.core.model.facts import (
    CheckpointRetention,
    FailureRule,
    JobSubmitted,
    OnExhausted,
    OnStall,
    RestartKind,
    RestartPolicy,
    RestoreBy,
    SavepointPolicy,
    StallPolicy,
)

SECONDS_MAX = 1e9  # 30 years, and far from where floats overflow
FAILURE_TIMES_MAX = 100  # an attempt record holds this many times of failures, so a failure rate can allow no more
RULES_MAX = 50
PATTERN_CHARS_MAX = 1_000
SAVEPOINT_INTERVAL_MIN_S = 1.0
SAVEPOINTS_KEPT_MAX = 1_000_000
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")


def policy_problem(spec: JobSubmitted) -> str:
    """Why one of the policies of a spec cannot be followed; "" if all can."""
    found = restart_problem(spec.restart_policy) or stall_problem(spec.stall_policy)
    return found or savepoint_problem(spec.savepoint_policy)


def spec_problem(spec: JobSubmitted) -> str:
    """Why this version cannot start a job with this spec; "" if it can."""
    if found := policy_problem(spec):
        return found
    if spec.checkpoint_retention is CheckpointRetention.UNKNOWN:
        return "the checkpoint retention is of a kind that this version does not know"
    if spec.restore is RestoreBy.UNKNOWN:
        return "what the job restores from is of a kind that this version does not know"
    return ""


def restart_problem(policy: RestartPolicy) -> str:
    """Why a restart policy cannot be followed; "" if it can."""
    if policy.kind is RestartKind.UNKNOWN:
        return "the restart policy is of a kind that this version does not know"
    if policy.on_exhausted is OnExhausted.UNKNOWN:
        return "on_exhausted has a value that this version does not know"
    for name in ("delay_s", "delay_max_s", "reset_after_s", "jitter", "multiplier", "failure_rate_interval_s"):
        value = getattr(policy, name)
        if not 0 <= value <= SECONDS_MAX:  # false for NaN too
            return f"restart_policy.{name} is {value}; it must be a number from 0 to {SECONDS_MAX:.0e}"
    if policy.multiplier < 1 or policy.jitter > 1 or policy.attempts_max < 0:
        return "restart_policy needs multiplier >= 1, 0 <= jitter <= 1 and attempts_max >= 0"
    if not 1 <= policy.failures_per_interval <= FAILURE_TIMES_MAX:
        return f"restart_policy.failures_per_interval is {policy.failures_per_interval}, not 1 to {FAILURE_TIMES_MAX}"
    if policy.kind is RestartKind.FAILURE_RATE and policy.failure_rate_interval_s == 0:
        return "restart_policy.failure_rate_interval_s is 0: no failure can be counted in an empty interval"
    if len(policy.failure_rules) > RULES_MAX:
        return f"restart_policy has {len(policy.failure_rules)} failure_rules, more than {RULES_MAX}"
    return next((why for rule in policy.failure_rules if (why := _rule_problem(rule))), "")


def _rule_problem(rule: FailureRule) -> str:
    """The runner checks the pattern itself: the fold must not depend on a version of Python."""
    if not _LABEL.match(rule.label):
        return f"a failure rule's label is {rule.label[:80]!r}; it takes letters, digits, '.', '_' and '-', 64 at most"
    if rule.exit_code is not None and not 1 <= rule.exit_code <= 255:
        return f"the failure rule {rule.label} has the exit code {rule.exit_code}; it must be 1 to 255"
    if len(rule.pattern) > PATTERN_CHARS_MAX:
        return f"the failure rule {rule.label} has a pattern of more than {PATTERN_CHARS_MAX} characters"
    if rule.exit_code is None and not rule.pattern:
        return f"the failure rule {rule.label} needs an exit code or a pattern"
    return ""


def stall_problem(policy: StallPolicy) -> str:
    """Why a stall policy cannot be followed; "" if it can, or watches nothing."""
    if policy.on_stall is OnStall.UNKNOWN:
        return "on_stall has a value that this version does not know"
    if not (0 <= policy.checkpoint_interval_s <= SECONDS_MAX and 1 <= policy.intervals_max <= SECONDS_MAX):
        return f"stall_policy needs checkpoint_interval_s from 0 to {SECONDS_MAX:.0e} and intervals_max from 1 on"
    return ""


def savepoint_problem(policy: SavepointPolicy) -> str:
    """Why a savepoint policy cannot be followed; "" if it can, or requests no savepoints."""
    shortest = SAVEPOINT_INTERVAL_MIN_S
    if policy.interval_s != 0 and not shortest <= policy.interval_s <= SECONDS_MAX:  # true for NaN too
        given = f"savepoint_policy.interval_s is {policy.interval_s}"
        return f"{given}; it must be 0, or from {shortest:g} to {SECONDS_MAX:.0e}"
    if not 0 <= policy.keep_max <= SAVEPOINTS_KEPT_MAX:
        return f"savepoint_policy.keep_max is {policy.keep_max}; it must be 0 to {SAVEPOINTS_KEPT_MAX}"
    return ""

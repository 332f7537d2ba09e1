"""What the fold should say, said again as plainly as can be: no laziness, no classes, one rule after the other.

Written from the protocol's text, not from `ledger.core.fold`; it shares no code with it and takes readable facts only.
It is slow and knows nothing of unreadable values, UNKNOWN symbols or odd numbers: tests/core has those.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ledger.core.facts import OnExhausted, RestartKind, RestorePoint
from ledger.core.registers import Admitted, Attempt, Checkpoint, Ended, Intent, Register, Result, Running, Spec

STRENGTH = {
    "finished": 7, "canceled": 6, "abandoned": 5, "stopped": 4, "failed-permanent": 3, "failed": 2, "lost": 1,
}  # fmt: skip
KINDS = {"CANCEL": 4, "SUSPEND": 3, "RETRY": 2, "RUN": 1}


class Opinion(NamedTuple):
    state: str
    attempt: int = 0
    next_attempt: int = 0
    outcome: str = ""
    outcome_writer: str = ""
    failures: int = 0
    failure_times: tuple[float, ...] = ()
    failed_at: float | None = None
    intent: tuple[int, str] | None = None
    restore_points: tuple[tuple[int, int], ...] = ()
    base: tuple[int, int] | None = None
    known: bool = False
    retiring: bool = False
    delay_s: float = 0.0


def opinion(facts: Mapping[Register, Any], keep: int, job_id: str) -> Opinion | None:
    results = {r.state for r in facts if isinstance(r, Result)}
    for state in ("FINISHED", "CANCELED", "FAILED"):
        if state in results:
            return Opinion(state, retiring=True) if len(facts) > len(results) else None
    admitted = facts.get(Admitted())
    if admitted is None or Spec(admitted.digest) not in facts:
        return None
    spec = facts[Spec(admitted.digest)]

    top = max([r.n for r in facts if isinstance(r, Attempt | Running | Ended)], default=0)
    ends = [r for r in facts if isinstance(r, Ended) and r.n == top]
    end = max(ends, key=lambda r: (STRENGTH[r.outcome], r.writer.startswith("agent-"), r.writer), default=None)
    outcome = end.outcome if end else ""
    record = _record(facts, top)
    winner = _winner(facts)
    kind = str(facts[winner].kind) if winner else "RUN"
    retry = facts[winner] if winner and kind == "RETRY" and facts[winner].attempt == top and end else None
    offer = _offer(facts, spec, retry.from_ if retry else "latest")
    signs = [r for r in facts if isinstance(r, Running | Ended | Checkpoint) and r.n == top]
    failures = 0 if record is None or retry else record.failures
    times = () if record is None or retry else record.failure_times
    used_up, failed_at, delay_s = False, None, 0.0
    if outcome in ("failed", "lost") and not retry:
        failures, used_up = _one_more(spec.restart_policy, failures, facts[end].ran_for_s)
        if spec.restart_policy.kind is RestartKind.FAILURE_RATE:
            used_up, failed_at = _too_often(spec.restart_policy, times, record and record.recorded_at, facts[end].ran_for_s)
        delay_s = _delay_s(spec.restart_policy, failures, f"{job_id}/{top + 1}")

    def say(state: str, next_attempt: int = 0) -> Opinion:
        terminal = state in ("FINISHED", "CANCELED", "FAILED")
        return Opinion(
            state, top, next_attempt, outcome, end.writer if end else "", 0 if terminal else failures,
            () if terminal else times, None if terminal else failed_at, winner,
            tuple(offer[:keep]), record and record.base and record.base.order, bool(signs),
            delay_s=0.0 if terminal else delay_s,
        )  # fmt: skip

    ever = {r.outcome for r in facts if isinstance(r, Ended)}
    for terminal, state in (("finished", "FINISHED"), ("canceled", "CANCELED"), ("abandoned", "FAILED")):
        if terminal in ever:
            return say(state)
    following = top + 1 if end or top == 0 else 0
    if kind == "CANCEL":
        return say("CANCELLING", top + 1)
    if kind == "SUSPEND":
        return say("SUSPENDED", following)
    if outcome == "failed-permanent" and not retry:
        return say("QUARANTINED", following)
    if used_up:
        return say("FAILING" if spec.restart_policy.on_exhausted is OnExhausted.FAIL else "QUARANTINED", following)
    if end:
        return say("RESTARTING", following)
    return say("RUNNING") if top else say("CREATED", 1)


def _winner(facts: Mapping[Register, Any]) -> Intent | None:
    intents = [r for r in facts if isinstance(r, Intent)]
    if cancels := [r for r in intents if facts[r].kind == "CANCEL"]:
        intents = cancels
    return max(intents, key=lambda r: (r.rev, KINDS[facts[r].kind], r.uuid), default=None)


def _record(facts: Mapping[Register, Any], n: int) -> Any:
    epochs = [r.epoch for r in facts if isinstance(r, Attempt) and r.n == n]
    return facts[Attempt(n, max(epochs))] if epochs else None


def _one_more(policy: Any, failures: int, ran_for_s: float) -> tuple[int, bool]:
    if policy.kind is RestartKind.NONE:
        return failures + 1, True
    if policy.kind is RestartKind.EXPONENTIAL_DELAY and ran_for_s >= policy.reset_after_s:
        failures = 0
    return failures + 1, 0 < policy.attempts_max < failures + 1


def _delay_s(policy: Any, failures: int, start: str) -> float:
    if policy.kind is RestartKind.NONE:
        return 0.0
    if policy.kind is not RestartKind.EXPONENTIAL_DELAY:
        return policy.delay_s
    grown = min(policy.delay_s * policy.multiplier ** (failures - 1), policy.delay_max_s)
    chance = int(sha256(start.encode()).hexdigest()[:12], 16) / 2**48  # the same for every leader
    return min(round(grown + grown * policy.jitter * (2 * chance - 1), 3), policy.delay_max_s)


def _too_often(policy: Any, times: Any, recorded_at: float | None, ran_for_s: float) -> tuple[bool, float | None]:
    """(budget used up, when it failed)."""
    if recorded_at is None:
        recent = [t for t in times if abs(times[-1] - t) < policy.failure_rate_interval_s]
        return len(recent) > policy.failures_per_interval, None
    failed_at = recorded_at + ran_for_s if ran_for_s else None
    last = failed_at or recorded_at
    recent = [t for t in [*times, *([failed_at] if failed_at else [])] if abs(last - t) < policy.failure_rate_interval_s]
    return len(recent) > policy.failures_per_interval, failed_at


def _offer(facts: Mapping[Register, Any], spec: Any, chosen: str) -> list[tuple[int, int]]:
    checkpoints = {(r.n, r.id): fact for r, fact in facts.items() if isinstance(r, Checkpoint)}
    if chosen == "scratch":
        return []
    if chosen != "latest":
        wanted = tuple(map(int, chosen.split("/")))
        return _down(wanted, checkpoints, spec, 0) if wanted in checkpoints else []
    highest = max([r.n for r in facts if isinstance(r, Attempt | Checkpoint)], default=0)
    if highest == 0:
        return _down((0, 0), checkpoints, spec, 0)
    own = [place for place in checkpoints if place[0] == highest]
    if own:
        return _down(max(own), checkpoints, spec, 0)
    base: RestorePoint | None = _record(facts, highest).base
    return _down(base.order, checkpoints, spec, highest) if base else []


def _down(
    place: tuple[int, int], checkpoints: Mapping[tuple[int, int], Any], spec: Any, began: int
) -> list[tuple[int, int]]:
    """began: the attempt that was started from there; 0 = none."""
    n, id_ = place
    if n == 0:
        return [(0, 0)] if spec.restore_from else []
    own = sorted((c for c in checkpoints if c[0] == n and c[1] <= id_), reverse=True)
    if not own:
        lower = [c for c in checkpoints if n < began and c[0] < began]
        return _down(max(lower), checkpoints, spec, 0) if lower else []
    base = checkpoints[own[0]].base
    return own + (_down(base.order, checkpoints, spec, n) if base and base.attempt < n else [])

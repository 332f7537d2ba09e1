"""A second, simple implementation of the fold: no laziness, no classes, one rule after the other.

It is written from the protocol's text and shares no code with `ledger.core.fold.fold`. It is slow and takes readable facts
only: tests/core covers unreadable values, odd numbers and UNKNOWN symbols (except an intent's). Its result has all fields
of an entry except those copied from the spec or the winning intent.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ledger.core.model.facts import CheckpointKind, OnExhausted, RestartKind, RestoreBy, RestorePoint
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
from ledger.core.plan.runner_report import covered

STRENGTH = {
    "finished": 7, "canceled": 6, "abandoned": 5, "stopped": 4, "failed-permanent": 3, "failed": 2, "lost": 1,
}  # fmt: skip
KINDS = {"CANCEL": 5, "UNKNOWN": 4, "SUSPEND": 3, "RETRY": 2, "RUN": 1}


PointKey = tuple[int, int]  # attempt, id
Asked = tuple[PointKey, int]  # the savepoint that a periodic request follows, and the number of earlier requests


class Opinion(NamedTuple):
    """The oracle's entry. restore_points: (point, location) each. marker: for a job that restores by itself, the checkpoint
    that shows its progress. watched: whether a stall would be detected. covered: the highest attempt that counts as
    settled without a report of the runner, because an operator forced it; 0 = none."""

    state: str
    attempt: int = 0
    next_attempt: int = 0
    outcome: str = ""
    outcome_writer: str = ""
    failures: int = 0
    failure_times: tuple[float, ...] = ()
    failed_at: float | None = None
    intent: tuple[int, str] | None = None
    restore_points: tuple[tuple[PointKey, str], ...] = ()
    base: PointKey | None = None
    known: bool = False
    retiring: bool = False
    delay_s: float = 0.0
    named: bool = False
    consistency: tuple[str, ...] = ()
    marker: PointKey | None = None
    disposals: tuple[PointKey, ...] = ()
    asks: tuple[str, ...] = ()
    periodic: bool = False
    next_ask: str = ""
    watched: bool = False
    inherits: bool = False
    begun: bool = False
    together: Any = None
    covered: int = 0


def of_entry(entry: Any) -> Opinion:
    """The RecoveryEntry of the fold, converted to an Opinion."""
    if entry.retiring:
        return Opinion(str(entry.state), retiring=True)
    return Opinion(
        str(entry.state), entry.attempt, entry.next_attempt, entry.outcome, entry.outcome_writer, entry.failures,
        entry.failure_times, entry.failed_at, entry.intent and (entry.intent.rev, entry.intent.id),
        tuple((p.order, p.location) for p in entry.restore_points),
        entry.base and entry.base.order, entry.known, False, entry.restart_delay_s, entry.restore_from_named,
        entry.consistency, entry.marker and entry.marker.order, tuple(p.order for p in entry.disposals), entry.asks,
        entry.savepoint_policy is not None, entry.next_ask, entry.stall_policy is not None, entry.inherits, entry.begun,
        entry.together, covered(entry),
    )  # fmt: skip


def opinion(facts: Mapping[Register, Any], keep: int, job_id: str) -> Opinion | None:
    results = {r.state for r in facts if isinstance(r, Result)}
    for state in ("FINISHED", "CANCELED", "FAILED"):
        if state in results:
            lasting = all(isinstance(r, Result | Disposed) for r in facts)  # the only registers of a retired job
            return None if lasting else Opinion(state, retiring=True)
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
    ever = {r.outcome for r in facts if isinstance(r, Ended)}
    over = ever & {"finished", "canceled", "abandoned"}
    retry = facts[winner] if winner and kind == "RETRY" and facts[winner].attempt == top and end and not over else None
    way = _offer(facts, spec, retry.from_ if retry else "latest")
    external = spec.restore is RestoreBy.EXTERNAL
    offer = [] if external else _first(facts, way, keep)
    signs = [r for r in facts if isinstance(r, Running | Ended | Checkpoint | Disposed) and r.n == top]
    failures = 0 if record is None or retry else record.failures
    times = () if record is None or retry else record.failure_times
    used_up, failed_at, delay_s = False, None, 0.0
    if outcome in ("failed", "lost") and not retry:
        failures, used_up = _one_more(spec.restart_policy, failures, facts[end].ran_for_s)
        if spec.restart_policy.kind is RestartKind.FAILURE_RATE:
            used_up, failed_at = _too_often(spec.restart_policy, times, record and record.recorded_at, facts[end].ran_for_s)
        delay_s = _delay_s(spec.restart_policy, failures, f"{job_id}/{top + 1}")

    pending = facts[winner] if winner and kind == "RETRY" and facts[winner].attempt >= top else None
    common = Opinion(
        "", top, 0, outcome, end.writer if end else "", intent=winner and (winner.rev, winner.uuid),
        restore_points=tuple(offer), base=record and record.base and record.base.order, known=bool(signs),
        marker=way[0][0] if external and way else None,
        disposals=_disposals(facts, spec, None if end else record, pending, keep),
        inherits=_inherits(facts, spec, retry),
        begun=spec.replaces is not None and any(isinstance(r, Attempt) for r in facts),
        together=record and record.together,
        covered=facts[winner].attempt if winner and facts[winner].force else 0,
    )  # fmt: skip

    def say(state: str, next_attempt: int = 0) -> Opinion:
        if state in ("FINISHED", "CANCELED", "FAILED"):
            return common._replace(state=state)
        periodic = spec.savepoint_policy.interval_s > 0 and top > 0
        labels = tuple(facts[Checkpoint(*place)].consistency if Checkpoint(*place) in facts else "" for place, _ in offer)
        return common._replace(
            state=state, next_attempt=next_attempt, failures=failures, failure_times=times, failed_at=failed_at,
            delay_s=delay_s, named=not external and _named(facts, spec, retry), consistency=labels if any(labels) else (),
            asks=_asks(facts)[:10], periodic=periodic, next_ask=_next_ask(facts) if periodic else "",
            watched=spec.stall_policy.checkpoint_interval_s > 0 and bool(signs) and state == "RUNNING",
        )  # fmt: skip

    for terminal, state in (("finished", "FINISHED"), ("canceled", "CANCELED"), ("abandoned", "FAILED")):
        if terminal in ever:
            return say(state)
    following = top + 1 if end or top == 0 else 0
    if kind == "CANCEL":
        return say("CANCELLING", top + 1)
    if kind == "UNKNOWN":  # the request is unknown: nothing is started
        return say("QUARANTINED", following)
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
    """(whether the budget is used up, time of the failure)."""
    if recorded_at is None:
        recent = [t for t in times if abs(times[-1] - t) < policy.failure_rate_interval_s]
        return len(recent) > policy.failures_per_interval, None
    failed_at = recorded_at + ran_for_s if ran_for_s else None
    last = failed_at or recorded_at
    recent = [t for t in [*times, *([failed_at] if failed_at else [])] if abs(last - t) < policy.failure_rate_interval_s]
    return len(recent) > policy.failures_per_interval, failed_at


# -- restore points --------------------------------------------------------------------------------------------------


def _given_up(facts: Mapping[Register, Any]) -> dict[PointKey, Any]:
    """PointKey -> the disposal of the savepoint. Among several, the one with the highest uuid counts."""
    return {(r.n, r.id): facts[r] for r in sorted(r for r in facts if isinstance(r, Disposed))}


def _places(facts: Mapping[Register, Any]) -> dict[PointKey, Any]:
    """PointKey -> the fact of each restore point, disposed or not, with its base, location and savepoint request."""
    return _given_up(facts) | {(r.n, r.id): fact for r, fact in facts.items() if isinstance(r, Checkpoint)}


def _first(facts: Mapping[Register, Any], way: list[tuple[PointKey, str]], keep: int) -> list[tuple[PointKey, str]]:
    """The first restore points. A disposed savepoint uses one of the `keep` slots, but is not offered."""
    return [(place, location) for place, location in way[:keep] if place not in _given_up(facts)]


def _offer(facts: Mapping[Register, Any], spec: Any, chosen: str) -> list[tuple[PointKey, str]]:
    places = _places(facts)
    if chosen == "scratch":
        return []
    if chosen != "latest":
        n, id_ = map(int, chosen.split("/"))
        there = Checkpoint(n, id_) in facts and (n, id_) not in _given_up(facts)
        return _down((n, id_), "", places, spec, 0) if there else []
    highest = max([r.n for r in facts if isinstance(r, Attempt)] + [n for n, _ in places], default=0)
    if highest == 0:
        return _from_outside(spec, None)
    own = [place for place in places if place[0] == highest]
    if own:
        return _down(max(own), "", places, spec, 0)
    base: RestorePoint | None = _record(facts, highest).base
    return _down(base.order, base.location, places, spec, highest) if base else []


def _down(
    place: PointKey, location: str, places: Mapping[PointKey, Any], spec: Any, began: int
) -> list[tuple[PointKey, str]]:
    """The lineage from a restore point down. began: the attempt that was started from this point; 0 = none."""
    n, id_ = place
    if n == 0:
        return _from_outside(spec, location)
    own = sorted((c for c in places if c[0] == n and c[1] <= id_), reverse=True)
    if not own:
        lower = [c for c in places if n < began and c[0] < began]
        return _down(max(lower), "", places, spec, 0) if lower else []
    base = places[own[0]].base
    way = [(c, places[c].location) for c in own]
    return way + (_down(base.order, base.location, places, spec, n) if base and base.attempt < n else [])


def _from_outside(spec: Any, recorded: str | None) -> list[tuple[PointKey, str]]:
    """The restore point from outside the job. recorded: the base in an attempt's record. A job that replaces another uses
    it, because its spec can't know the location."""
    if recorded is not None and spec.replaces:
        return [((0, 0), recorded)]
    return [((0, 0), spec.restore_from.location)] if spec.restore_from else []


def _named(facts: Mapping[Register, Any], spec: Any, retry: Any) -> bool:
    if retry and retry.from_ != "latest":
        return bool(retry.from_ != "scratch")
    places = _places(facts)
    highest = max([r.n for r in facts if isinstance(r, Attempt)] + [n for n, _ in places], default=0)
    if highest == 0:
        return spec.restore_from is not None
    return any(n == highest for n, _ in places) or _record(facts, highest).base is not None


def _inherits(facts: Mapping[Register, Any], spec: Any, retry: Any) -> bool:
    if not spec.replaces or spec.restore_from or spec.restore is RestoreBy.EXTERNAL:
        return False
    if spec.replacement.from_ not in ("", "latest") or _places(facts):
        return False
    return retry is None or retry.from_ == "latest"


# -- savepoints ------------------------------------------------------------------------------------------------------


def _periodic(uuid: str | None) -> Asked | None:
    """Parses `periodic-<attempt>-<id>-<try>`; None for another savepoint request or a form that is never written."""
    word, _, rest = (uuid or "").partition("-")
    numbers = rest.split("-")
    if word != "periodic" or len(numbers) != 3 or not all(str(int(n)) == n for n in numbers if n.isdigit()):
        return None
    return ((int(numbers[0]), int(numbers[1])), int(numbers[2])) if all(n.isdigit() for n in numbers) else None


def _savepoints(facts: Mapping[Register, Any]) -> dict[PointKey, Any]:
    there = {(r.n, r.id): f for r, f in facts.items() if isinstance(r, Checkpoint) and f.kind is CheckpointKind.SAVEPOINT}
    return _given_up(facts) | there


def _last_ask(facts: Mapping[Register, Any]) -> Asked | None:
    """The last periodic savepoint request; None if a savepoint is newer than the one that it follows."""
    asks = [asked for r in facts if isinstance(r, Ask) and (asked := _periodic(r.uuid))]
    newest = max(_savepoints(facts), default=(0, 0))
    return max(asks) if asks and max(asks)[0] >= newest else None


def _asks(facts: Mapping[Register, Any]) -> tuple[str, ...]:
    answered = {savepoint.ask for savepoint in _savepoints(facts).values()}
    unanswered = sorted(r.uuid for r in facts if isinstance(r, Ask) and r.uuid not in answered)
    last = _last_ask(facts)
    periodic = [uuid for uuid in unanswered if last and _periodic(uuid) == last]
    return (*periodic, *(uuid for uuid in unanswered if _periodic(uuid) is None))


def _next_ask(facts: Mapping[Register, Any]) -> str:
    """The id of the next periodic savepoint request; "" after twenty tries."""
    last = _last_ask(facts)
    (n, id_), tries = (last[0], last[1] + 1) if last else (max(_savepoints(facts), default=(0, 0)), 0)
    return f"periodic-{n}-{id_}-{tries}" if tries <= 20 else ""


def _disposals(facts: Mapping[Register, Any], spec: Any, living: Any, pending: Any, keep: int) -> tuple[PointKey, ...]:
    """The disposals of the entry. living: the record of the newest attempt, unless the attempt is over. pending: a retry
    that is not used yet."""
    ways = [_offer(facts, spec, "latest")]
    if pending:
        ways.append(_offer(facts, spec, pending.from_))
    if places := _places(facts):
        ways.append(_down(max(places), "", places, spec, 0))
    kept = {place for way in ways for place, _ in _first(facts, way, keep)}
    by_policy = sorted(place for place, savepoint in _savepoints(facts).items() if _periodic(savepoint.ask))
    most = spec.savepoint_policy.keep_max
    surplus = {*by_policy[:-most]} - kept if most else set()
    going = [
        place for place in sorted({*_given_up(facts)} | surplus)
        if Checkpoint(*place) in facts and facts[Checkpoint(*place)].kind is CheckpointKind.SAVEPOINT
    ]  # fmt: skip
    used = living.base.order if living and living.base else None
    return tuple(place for place in going if place != used)

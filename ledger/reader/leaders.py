"""The leader of each role, from three sources: claims in the log (decisive), the election (advice), and the instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.ports import Candidate
from ledger.reader.claims import Claim
from ledger.util.identity import instance

ROLES = ("projector", "reconciler")


@dataclass(frozen=True, slots=True)
class LeaderCandidate:
    """A candidate for the lead. who: the name of its process, as in its claims. holds: whether the election gives it
    the lock. epoch: the epoch that it reports to lead; None = it does not lead. since: when it became a candidate, or
    began or ceased to lead, seconds since the epoch; None = unknown. lease_left_s: the remaining time of its lease;
    None = unknown, or the lease lasts as long as the process. waits_for: what it waits for before it can lead, "" =
    nothing."""

    who: str
    pid: int | None
    holds: bool
    epoch: int | None
    since: float | None
    lease_left_s: float | None
    waits_for: str


@dataclass(frozen=True, slots=True)
class Led:
    """The leadership of one role. led: whether the holder of the lock has the newest claim; None = the election did not
    answer, and not_asked holds the reason. why_not: why there is no leader. lock, pid, lease_left_s: name, process and
    lease of the holder of the lock. epoch, writer, since, reason, reaches: of the newest claim; led_s: its age. others:
    runner -> the instance that the previous leader reached, if the newest leader reaches another instance."""

    role: str
    led: bool | None
    epoch: int | None
    writer: str | None
    since: float | None
    reason: str
    led_s: float | None
    lock: str | None
    pid: int | None
    lease_left_s: float | None
    why_not: str
    not_asked: str
    candidates: tuple[LeaderCandidate, ...]
    reaches: Mapping[str, str]
    others: Mapping[str, str]


def led(
    role: str, claims: Sequence[Claim], elected: Sequence[Candidate] | str, said: Sequence[Mapping[str, Any]],
    host: str, now: float,
) -> Led:  # fmt: skip
    """The leadership of one role. claims: newest first. elected: candidates in the election, or why it did not answer.
    said: reports of the instances on `host`. now: seconds since the epoch."""
    claim = next(iter(claims), None)
    candidates = _candidates(role, [] if isinstance(elected, str) else elected, said, host, now)
    holder = next((one for one in candidates if one.holds), None)
    leads = None if isinstance(elected, str) else _leads(claim, holder)
    return Led(
        role, leads,
        **_of_claim(claim, now),
        lock=holder.who or "held" if holder else None,
        pid=holder.pid if holder else None,
        lease_left_s=holder.lease_left_s if holder else None,
        why_not=_why_not(holder, candidates) if leads is False else "",
        not_asked=elected if isinstance(elected, str) else "",
        candidates=tuple(candidates),
        others=_others(claims),
    )  # fmt: skip


def timeline(claims: Iterable[Claim], now: float) -> list[tuple[Claim, float]]:
    """Each claim of one role, newest first, with the seconds until the next claim, or until now."""
    out, until = [], now
    for claim in claims:
        out.append((claim, max(0.0, until - claim.since)))
        until = claim.since
    return out


def _of_claim(claim: Claim | None, now: float) -> dict[str, Any]:
    if claim is None:
        nobody = dict.fromkeys(("epoch", "writer", "since", "led_s"))
        return nobody | {"reason": "nobody has led yet", "reaches": {}}
    return {name: getattr(claim, name) for name in ("epoch", "writer", "since", "reason", "reaches")} | {
        "led_s": max(0.0, now - claim.since)
    }


def _others(claims: Sequence[Claim]) -> dict[str, str]:
    """Instances that the previous leader reached and the newest one does not; their jobs wait."""
    if len(claims) < 2:
        return {}
    now, before = claims[0].reaches, claims[1].reaches
    return {runner: instance for runner, instance in before.items() if now.get(runner, instance) != instance}


def _candidates(
    role: str, elected: Sequence[Candidate], said: Sequence[Mapping[str, Any]], host: str, now: float
) -> list[LeaderCandidate]:
    """The candidates of the election, with their own report if they share this folder; then instances that the election
    does not list. A pid alone identifies no instance: every container has a pid 1."""
    by_name = {str(one["who"]): one for one in said}
    found = []
    for one in elected:
        older = one.pid and not one.who.startswith(f"{role}-")  # an older version signs with user@host
        name = instance(role, one.pid, _host(one.who) or host) if older else one.who
        own = by_name.pop(name, {})
        found.append(LeaderCandidate(
            name, one.pid or None, one.leads, own.get("epoch"), one.since or None,
            _lease(own, now) if one.leads and one.lease_left_s is None else one.lease_left_s,
            "" if own.get("leads") and one.leads else own.get("waits_for") or one.waits_for,
        ))  # fmt: skip
    for name, own in sorted(by_name.items()):
        found.append(LeaderCandidate(
            name, int(own["pid"]), False, own.get("epoch"), own.get("since"), None, own.get("waits_for", "")
        ))  # fmt: skip
    return found


def _lease(own: Mapping[str, Any], now: float) -> float | None:
    left = own.get("lease_left_s")
    return None if left is None else max(0.0, float(left) - max(0.0, now - float(own["at"])))


def _leads(claim: Claim | None, holder: LeaderCandidate | None) -> bool:
    if claim is None or holder is None:
        return False
    return holder.pid is None or claim.writer == holder.who  # None: an unknown process


def _host(who: str) -> str:
    return who.rpartition("@")[2] if "@" in who else ""


def _why_not(holder: LeaderCandidate | None, candidates: Sequence[LeaderCandidate]) -> str:
    if holder is not None:
        waits = f", which waits for {holder.waits_for}" if holder.waits_for else ""
        return f"{_named(holder)} holds the lock and takes over{waits}"
    waiting = [f"{_named(one)} waits for {one.waits_for or 'its next try'}" for one in candidates if one.who]
    waiting = waiting or [f"everybody waits for {one.waits_for}" for one in candidates]
    return "; ".join(waiting) or "there is no candidate"


def _named(one: LeaderCandidate) -> str:
    return f"{one.who} (pid {one.pid})" if one.pid and not one.who.endswith(f"-{one.pid}") else one.who or "somebody"

"""The rules have no findings on the evidence of a walk, and have findings on corrupted evidence. See `test_checkers`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import (
    CheckpointCompleted,
    CheckpointRetention,
    GraphRef,
    JobResult,
    JobSubmitted,
    RestorePoint,
)
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Attempt, Checkpoint, Ended, Result, Spec, key_of, parse_key
from tests.simulation import checkers, codec, rules
from tests.simulation.copies import Copied, claim_of, effective, folded, says
from tests.simulation.evidence import Evidence
from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, ROLES, quiet


def test_of_what_a_walk_leaves_nothing_is_wrong(events: list[Copied], recovery: list[Copied]) -> None:
    assert rules.entries_as_the_rules_say(events, recovery) == []
    assert rules.epochs_follow(events) == rules.epochs_follow(recovery) == []
    assert rules.not_before_its_delay(events) == []


@pytest.mark.parametrize("change", [
    {"restart_delay_s": 7.5}, {"failures": 9}, {"next_attempt": 9}, {"state": JobState.QUARANTINED}, {"known": True},
], ids=str)  # fmt: skip
def test_i7_sees_an_entry_that_the_rules_do_not_say(
    events: list[Copied], recovery: list[Copied], change: dict[str, object]
) -> None:
    record = next(r for r in effective(recovery) if checkers._is_entry(r))
    entry = avro.decode(RecoveryEntry, record.value or b"")
    changed = [r._replace(value=avro.encode(replace(entry, **change))) if r is record else r for r in recovery]
    assert says(rules.entries_as_the_rules_say(events, changed), f"I7 {entry.job_id}")


def test_i7_sees_a_fold_that_is_wrong_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projection equals the fold of the log, but the fold is wrong. Only independent rules can detect that."""
    from ledger.core.fold import restart

    plain = restart.after_failure
    monkeypatch.setattr(restart, "after_failure", lambda *given: plain(*given)._replace(delay_s=0.0))
    with quiet() as said:
        found = [one for seed in range(1, 4) for one in Walk(seed, said).run().findings]
    assert found and all(one.startswith("I7 ") and "by the rules" in one for one in found)


def test_i16_sees_an_epoch_that_is_no_successor(recovery: list[Copied]) -> None:
    claims = [r for r in recovery if (found := claim_of(r)) is not None and found[1] > 1]
    left_out = [r for r in recovery if r is not claims[0]]
    assert says(rules.epochs_follow(left_out), "I16") or len(claims) < 2
    again = claims[-1]._replace(headers=tuple((n, b"new" if n == "ce_id" else v) for n, v in claims[-1].headers))
    assert says(rules.epochs_follow([*recovery, again]), "I16"), "another leader claims the same epoch"
    assert rules.epochs_follow([*recovery, claims[-1]]) == [], "a copy of the same record"


def test_a_start_before_its_delay_is_seen(walked: Evidence, events: list[Copied]) -> None:
    ends = {(p[0], p[1].n) for r in events if (p := parse_key(r.key)) and isinstance(p[1], Ended)}
    at = next(
        i for i, r in enumerate(events)
        if (p := parse_key(r.key)) and isinstance(p[1], Attempt) and (p[0], p[1].n - 1) in ends and r.value is not None
    )  # fmt: skip
    early = [*events[:at], events[at]._replace(time_s=0.0), *events[at + 1 :]]
    assert says(rules.not_before_its_delay(early), "delay: ")


class Restless(Walk):
    """A walk in which the leader loses the lead without a fault."""

    def _stays(self) -> None:
        plain = self._round

        def round_() -> None:
            plain()
            self.world.give_lease(ROLES[0])

        self._round = round_  # type: ignore[method-assign]
        super()._stays()
        self._round = plain  # type: ignore[method-assign]


def test_i14_sees_a_failover_without_a_fault() -> None:
    with quiet() as said:
        assert says(Restless(11, said).run().findings, "I14")


def test_i9_sees_what_is_offered_and_gone(events: list[Copied]) -> None:
    points = tuple(RestorePoint(1, n, f"/memory/job-1/1/chk-{n}", 1) for n in (2, 1))
    entry = replace(next(iter(folded(events).values())), restore_points=points, base=None)
    there = {point.location for point in points}
    assert rules.offered_is_there({"job-1": entry}, there, set()) == []
    for wrong in (entry, replace(entry, restore_points=(), base=points[0])):
        assert says(rules.offered_is_there({"job-1": wrong}, there - {points[0].location}, set()), "I9")
        assert rules.offered_is_there({"job-1": wrong}, set(), there) == [], "the walk removed the checkpoint"
    assert rules.offered_is_there({"job-1": replace(entry, state=JobState.FINISHED)}, set(), set()) == []
    others = replace(points[0], attempt=0, id=0, location="/memory/job-0/1/chk-9")
    assert rules.offered_is_there({"job-1": replace(entry, base=others)}, there, set()) == []
    inherits = replace(entry, restore_points=(), base=others)
    assert says(rules.offered_is_there({"job-1": inherits}, there, set()), "I9 job-1 offers /memory/job-0")


@pytest.mark.parametrize(("keep", "there"), [(True, False), (False, True)])
def test_i9_sees_a_job_that_is_over_and_has_kept_too_much_or_too_little(keep: bool, there: bool) -> None:
    retention = CheckpointRetention.KEEP if keep else CheckpointRetention.DELETE
    spec = JobSubmitted("job-1", "default", "memory", GraphRef("graphs/x", "0" * 64, 1), checkpoint_retention=retention)
    at = "/memory/job-1/1/chk-1"
    result = JobResult("job-1", "default", "memory", "0" * 64, "", 0.0, 1, {}, RestorePoint(1, 1, at, 1) if keep else None)
    facts = [
        (Spec(codec.spec_digest(spec)), spec),
        (Checkpoint(1, 1), CheckpointCompleted(at, 1)),
        (Result("FINISHED"), result),
    ]
    events = [
        Copied(EVENTS, 0, n, key_of("job-1", register).encode(), codec.encode(fact))
        for n, (register, fact) in enumerate(facts)
    ]
    assert rules.over_keeps_what_it_should(events, set() if there else {at}, set(), set()) == []
    assert says(rules.over_keeps_what_it_should(events, {at} if there else set(), set(), set()), "I9")
    assert rules.over_keeps_what_it_should(events, {at} if there else set(), {at}, set()) == [], (
        "the walk altered the checkpoint"
    )
    if not keep:
        late = [*events[:2], events[1]._replace(value=None), *events[1:]]
        assert rules.over_keeps_what_it_should(late, {at}, set(), set()) == [], (
            "the checkpoint was pruned, and a copy of its record came late"
        )

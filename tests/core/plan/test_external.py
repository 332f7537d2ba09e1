"""Jobs that restore by themselves: their checkpoints show their progress, and no attempt starts from one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.core.explain import explain
from ledger.core.fold.fold import prunable
from ledger.core.model.facts import IntentKind, RestoreBy, RestorePoint
from ledger.core.model.recovery import JobState, RecoveryEntry
from ledger.core.model.registers import Checkpoint
from tests.support.offered import offered
from tests.support.registers import DIGEST, checkpoint, entry, given, intent, spec

SPEC = f"spec/{DIGEST}"
EXTERNAL = spec(restore=RestoreBy.EXTERNAL)
RAN = ("attempt/1/1", "running/1")


def chk(*places: str) -> dict:
    return {f"checkpoint/{place}": checkpoint(place) for place in places}


def of(*names: str, **facts: object) -> RecoveryEntry:
    found = entry(*names, facts={SPEC: EXTERNAL, **facts})
    assert found is not None
    return found


def test_nothing_is_offered_and_the_marker_says_how_far_it_is() -> None:
    running = of(*RAN, **chk("1/3", "1/7"))
    assert (running.restore_points, running.restore_from_named, str(running.marker)) == ((), False, "1/7")
    assert running.restore is RestoreBy.EXTERNAL
    assert list(offered(given(*RAN, facts={SPEC: EXTERNAL, **chk("1/3")}))) == []


def test_it_is_brought_back_although_nothing_is_offered() -> None:
    failed = of(*RAN, "ended/1/failed/agent-a", **chk("1/3"))
    assert (failed.state, failed.restore_points, failed.restore_from_named) == (JobState.RESTARTING, (), False)


def test_the_next_attempt_has_no_marker_before_its_first_checkpoint() -> None:
    again = of(*RAN, "ended/1/failed/agent-a", "attempt/2/1", "running/2", **chk("1/3"))
    assert again.marker is None
    assert str(of(*RAN, "attempt/2/1", **chk("1/3", "2/0")).marker) == "2/0"


def test_where_to_begin_can_not_be_said() -> None:
    outside = replace(EXTERNAL, restore_from=RestorePoint(0, 0, "/elsewhere"))
    assert of(**{SPEC: outside}).restore_points == ()
    for from_ in ("1/3", "scratch"):
        wants = {"intent/1/u": intent(IntentKind.RETRY, attempt=1, from_=from_)}
        retried = of(*RAN, "ended/1/failed-permanent/agent-a", **chk("1/3"), **wants)
        assert (retried.state, retried.restore_points, retried.restore_from_named) == (JobState.RESTARTING, (), False)


def test_a_job_that_takes_over_inherits_nothing() -> None:
    assert not of(**{SPEC: replace(EXTERNAL, replaces="old")}).inherits


def test_what_it_restores_from_must_be_known() -> None:
    unknown = of(**{SPEC: spec(restore=RestoreBy.UNKNOWN)})
    assert (unknown.state, "restores from" in unknown.reason) == (JobState.QUARANTINED, True)


def test_each_new_marker_is_progress() -> None:
    one, two = of(*RAN, **chk("1/3")), of(*RAN, **chk("1/3", "1/4"))
    assert one.progress_key != two.progress_key != of(*RAN).progress_key


def test_old_markers_go_as_old_checkpoints_do() -> None:
    job = given(*RAN, facts={SPEC: EXTERNAL, **chk(*(f"1/{n}" for n in range(9)))})
    assert {r.id for r in prunable(job) if isinstance(r, Checkpoint)} == set(range(6))


def test_explain_says_so() -> None:
    told = explain(given(*RAN, facts={SPEC: EXTERNAL, **chk("1/3")}))
    assert told.restore_points == ()
    (remark,) = [remark for remark in told.remarks if remark.register == SPEC]
    assert "restores by itself" in remark.text and remark.ordinary and not remark.without_effect


@pytest.mark.parametrize("spec_", [spec(), spec(restore=RestoreBy.LEDGER)])
def test_others_have_no_marker(spec_: object) -> None:
    found = entry(*RAN, facts={SPEC: spec_, **chk("1/3")})
    assert found is not None and found.marker is None and len(found.restore_points) == 1

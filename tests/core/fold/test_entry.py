"""The contents of an entry, and edge cases of the fold: results, unknown jobs, and values that this version does not
know."""

from __future__ import annotations

import math

import pytest

from ledger.core.fold.fold import LISTED_MAX, fold, fold_job
from ledger.core.model.facts import (
    AttemptEnded,
    CheckpointKind,
    CheckpointRetention,
    IntentKind,
    JobAdmitted,
    OnExhausted,
    OnStall,
    RestartKind,
    RestartPolicy,
    StallPolicy,
)
from ledger.core.model.recovery import JobState
from ledger.core.model.registers import NUMBER_MAX
from tests.support.registers import (
    DIGEST,
    GRAPH,
    OTHER_DIGEST,
    checkpoint,
    entry,
    given,
    intent,
    point,
    read,
    registers,
    spec,
    started,
)

SPEC = f"spec/{DIGEST}"
CANCEL, SUSPEND, RUN = intent("CANCEL"), intent("SUSPEND"), intent("RUN")
RETRY_1 = intent("RETRY", 1)
A = "agent-a"


# -- an entry's other fields -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (("attempt/1/1",), False),
        (("attempt/1/1", "running/1"), True),
        (("attempt/1/1", "checkpoint/1/1"), True),
        (("attempt/1/1", f"ended/1/lost/{A}"), True),
        (("attempt/1/1", "running/1", "checkpoint/1/1", "attempt/2/1"), False),
    ],
)
def test_known_says_whether_the_runner_gave_a_sign_of_top(names, known):
    assert entry(*names).known is known


def test_a_live_entry_carries_all_that_a_start_needs():
    fields = {"slots": 3, "priority": 7, "region": "eu", "labels": {"team": "x"}, "replaces": "job-0"}
    facts = {SPEC: spec(**fields, checkpoint_retention=CheckpointRetention.KEEP)}
    got = entry("attempt/1/1", "checkpoint/1/1", facts=facts)
    assert {name: getattr(got, name) for name in fields} == fields
    assert (got.job_id, got.name, got.namespace, got.runner) == ("job-1", "etl", "prod", "subprocess")
    assert (got.graph, got.digest, got.restore_points) == (GRAPH, DIGEST, (point("1/1"),))
    assert got.checkpoint_retention is CheckpointRetention.KEEP
    assert got.registers == ()


def test_a_terminal_entry_has_no_graph_but_the_names_of_what_is_left():
    got = entry("attempt/1/1", "running/1", "checkpoint/1/1", f"ended/1/finished/{A}", "ask/u1", facts={"intent/1/u": RUN})
    assert got.graph is None
    assert got.registers == tuple(
        sorted([
            SPEC, "admitted", "attempt/1/1", "running/1", "checkpoint/1/1", f"ended/1/finished/{A}", "ask/u1",
            "intent/1/u",
        ])
    )  # fmt: skip
    assert got.restore_points == (point("1/1"),)
    assert got.reason == "attempt 1 finished: why finished"


def test_the_reason_of_a_terminal_job_is_that_of_the_end_that_made_it_terminal():
    facts = {"ended/3/canceled/reconciler-1": AttemptEnded("not needed any more")}
    got = entry("ended/1/abandoned/reconciler-1", f"ended/4/failed/{A}", facts=facts)
    assert (got.state, got.reason) == (JobState.CANCELED, "attempt 3 canceled: not needed any more")
    assert (got.attempt, got.outcome) == (4, "failed")


def test_the_list_of_registers_is_bounded():
    names = [f"ask/{i}" for i in range(LISTED_MAX)]
    assert len(entry(f"ended/1/finished/{A}", *names).registers) == LISTED_MAX


# -- results -----------------------------------------------------------------------------------------------------------


def test_beside_a_result_nothing_else_has_effect():
    got = entry("result/CANCELED", "attempt/9/1", f"ended/9/finished/{A}", facts={"intent/1/u": RUN})
    assert (got.state, got.retiring, got.next_attempt, got.graph) == (JobState.CANCELED, True, 0, None)
    assert (got.name, got.reason, got.attempt, got.labels) == ("etl", "was CANCELED", 2, {"team": "a"})
    assert got.registers == tuple(sorted([SPEC, "admitted", "attempt/9/1", f"ended/9/finished/{A}", "intent/1/u"]))
    assert not got.in_recovery_set and got.terminal


@pytest.mark.parametrize(
    ("states", "wins"),
    [
        (["FAILED", "CANCELED", "FINISHED"], "FINISHED"),
        (["CANCELED", "FAILED"], "CANCELED"),
        (["FAILED"], "FAILED"),
    ],
)
def test_of_two_results(states, wins):
    assert entry(*[f"result/{state}" for state in states]).state == wins


def test_with_nothing_left_beside_results_the_job_has_no_entry():
    assert fold_job(given("result/FINISHED", admitted=False)) is None
    assert fold_job(given("result/FINISHED", "result/FAILED", admitted=False)) is None
    assert fold_job(given("result/FINISHED", "ask/u", admitted=False)).retiring


def test_a_result_is_never_among_the_registers_to_be_tombstoned():
    """One transaction writes the result and the tombstones: if the result were listed, that transaction would delete it
    too."""
    assert not [name for name in entry("result/FINISHED", "result/FAILED").registers if name.startswith("result")]
    unreadable = entry(f"ended/1/finished/{A}", facts={"result/FINISHED": "garbage"})
    assert unreadable.state is JobState.FINISHED and not unreadable.retiring
    assert not [name for name in unreadable.registers if name.startswith("result")]


# -- unknown jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {SPEC: spec()},
        {"admitted": JobAdmitted(DIGEST)},
        {"admitted": JobAdmitted(OTHER_DIGEST), SPEC: spec()},
        {"admitted": JobAdmitted("FINISHED"), SPEC: spec()},
        {"admitted": "garbage", SPEC: spec()},
        {"admitted": JobAdmitted(DIGEST), SPEC: "garbage"},
    ],
)
def test_without_admission_and_its_spec_there_is_no_job(facts):
    assert fold_job(given("attempt/1/1", f"ended/1/failed/{A}", facts=facts, admitted=False)) is None
    assert fold("job-1", {}, read) is None


def test_a_second_spec_changes_nothing():
    assert entry(f"spec/{OTHER_DIGEST}", "attempt/1/1") == entry("attempt/1/1")


def test_names_that_are_no_register_change_nothing():
    strange = registers("attempt/1/1") | {b"nonsense": 1, b"\xff": 2, b"": 3, b"checkpoint/1/0x": 4, b"running/01": 5}
    assert fold("job-1", strange, read) == entry("attempt/1/1")


# -- values that this version does not know ----------------------------------------------------------------------------

UNKNOWN_POLICY = RestartPolicy(RestartKind.UNKNOWN)
UNKNOWN_SPECS = {
    "policy": spec(restart_policy=UNKNOWN_POLICY),
    "on_exhausted": spec(restart_policy=RestartPolicy(on_exhausted=OnExhausted.UNKNOWN)),
    "NaN": spec(restart_policy=RestartPolicy(delay_s=math.nan)),
    "infinite": spec(restart_policy=RestartPolicy(delay_max_s=math.inf)),
    "overflow": spec(restart_policy=RestartPolicy(delay_max_s=1e308, jitter=1.0)),
    "retention": spec(checkpoint_retention=CheckpointRetention.UNKNOWN),
}


@pytest.mark.parametrize("unknown", UNKNOWN_SPECS)
@pytest.mark.parametrize("names", [(), ("attempt/1/1", f"ended/1/failed/{A}"), ("attempt/1/1", f"ended/1/stopped/{A}")])
def test_a_spec_that_this_version_does_not_know_is_not_started(unknown, names):
    got = entry(*names, facts={SPEC: UNKNOWN_SPECS[unknown]})
    assert got.state is JobState.QUARANTINED and got.reason
    assert math.isfinite(got.restart_delay_s)
    retried = entry(*names, facts={SPEC: UNKNOWN_SPECS[unknown], "intent/1/u": RETRY_1})
    assert retried.state is JobState.QUARANTINED, "a retry by an operator does not help"


@pytest.mark.parametrize("unknown", UNKNOWN_SPECS)
def test_but_what_runs_is_left_alone_and_can_be_ended(unknown):
    """A quarantined job's attempt is stopped. An older version of the ledger must not stop an attempt that a newer one
    started."""
    facts = {SPEC: UNKNOWN_SPECS[unknown]}
    assert entry("attempt/1/1", facts=facts).state is JobState.RUNNING
    assert entry("attempt/1/1", facts={**facts, "intent/1/u": CANCEL}).state is JobState.CANCELLING
    assert entry("attempt/1/1", facts={**facts, "intent/1/u": SUSPEND}).state is JobState.SUSPENDED
    assert entry(f"ended/1/finished/{A}", facts=facts).state is JobState.FINISHED


@pytest.mark.parametrize("place", ["1/1", "1/2", "1/3"])
def test_a_restore_point_of_unknown_kind_stops_a_start_wherever_it_stands_among_those_offered(place):
    """If the restore points before it can't be read, the attempt would start from the unknown one."""
    facts = {f"checkpoint/{place}": checkpoint(place, kind=CheckpointKind.UNKNOWN)}
    others = [f"checkpoint/1/{n}" for n in (1, 2, 3)]
    got = entry("attempt/1/1", f"ended/1/failed/{A}", *others, facts=facts)
    assert (got.state, len(got.restore_points)) == (JobState.QUARANTINED, 3)
    assert "kind" in got.reason


def test_a_restore_point_of_unknown_kind_stops_a_start_and_nothing_else():
    facts = {"checkpoint/1/2": checkpoint("1/2", kind=CheckpointKind.UNKNOWN)}
    assert entry("attempt/1/1", "checkpoint/1/1", facts=facts).state is JobState.RUNNING
    ended = entry("attempt/1/1", "checkpoint/1/1", f"ended/1/failed/{A}", facts=facts)
    assert ended.state is JobState.QUARANTINED and "kind" in ended.reason
    from_scratch = {**facts, "intent/1/u": intent("RETRY", 1, from_="scratch")}
    assert entry("attempt/1/1", f"ended/1/failed/{A}", facts=from_scratch).state is JobState.RESTARTING
    from_a_known_one = {**facts, "intent/1/u": intent("RETRY", 1, from_="1/1")}
    got = entry("attempt/1/1", "checkpoint/1/1", f"ended/1/failed/{A}", facts=from_a_known_one)
    assert (got.state, got.restore_points) == (JobState.RESTARTING, (point("1/1"),))


@pytest.mark.parametrize("names", [(), ("attempt/1/1",), ("attempt/1/1", f"ended/1/failed/{A}")])
def test_a_winning_intent_of_unknown_kind_quarantines(names):
    got = entry(*names, facts={"intent/7/u": intent("UNKNOWN"), "intent/6/u": RUN})
    assert got.state is JobState.QUARANTINED and got.intent.kind == IntentKind.UNKNOWN
    assert entry(*names, facts={"intent/7/u": intent("UNKNOWN"), "intent/8/u": SUSPEND}).state is JobState.SUSPENDED


# -- absurd numbers ----------------------------------------------------------------------------------------------------


def test_the_highest_attempt_number_is_followed_by_none_but_can_be_closed():
    top = NUMBER_MAX
    assert entry(f"running/{top}").state is JobState.RUNNING
    ended = entry(f"ended/{top}/failed/{A}")
    assert ended.state is JobState.QUARANTINED and ended.next_attempt <= NUMBER_MAX
    cancelling = entry(f"running/{top}", facts={"intent/1/u": CANCEL})
    assert (cancelling.state, cancelling.next_attempt) == (JobState.CANCELLING, top)
    closed = entry(f"running/{top}", f"ended/{top}/canceled/reconciler-1", facts={"intent/1/u": CANCEL})
    assert closed.state is JobState.CANCELED


@pytest.mark.parametrize("failures", [-1, 2**63 - 1])
def test_a_counter_out_of_range_stays_one_that_can_be_stored(failures):
    facts = {"attempt/1/1": started(failures=failures), f"ended/1/failed/{A}": AttemptEnded(ran_for_s=math.nan)}
    got = entry(facts=facts)
    assert 1 <= got.failures < 2**63 and 0 <= got.restart_delay_s <= 66


def test_an_entry_is_equal_to_itself_also_when_read_again():
    """NaN is not equal to itself: an entry with a NaN would differ from the published one for ever."""
    facts = {"attempt/1/1": started(failure_times=(1.0, math.nan, math.inf, 2.0))}
    assert entry(facts=facts).failure_times == (1.0, 2.0)


WATCHED = spec(stall_policy=StallPolicy(30.0, 4, OnStall.RESTART))


@pytest.mark.parametrize(
    ("names", "facts", "watched"),
    [
        (["running/1"], {}, True),
        (["checkpoint/1/1", "attempt/1/1"], {}, True),
        (["attempt/1/1"], {}, False),  # no sign yet that the attempt runs
        ([], {}, False),
        (["running/1", "ended/1/failed/agent-a"], {}, False),
        (["running/1"], {"intent/1/u": intent("SUSPEND")}, False),
        (["running/1"], {"intent/1/u": intent("CANCEL")}, False),
        (["running/1"], {SPEC: spec(stall_policy=StallPolicy(0.0, 4, OnStall.RESTART))}, False),
    ],
)
def test_only_what_runs_is_watched_for_progress(names, facts, watched):
    got = entry(*names, facts={SPEC: WATCHED, **facts})
    assert got.stall_policy == (WATCHED.stall_policy if watched else None)
    assert (got.stalls_at, got.stalled) == (None, False), "the fold reads no clock"


def test_a_new_checkpoint_is_progress_and_so_is_a_new_attempt():
    keys = [
        entry(*names, facts={SPEC: WATCHED}).progress_key
        for names in (["running/1"], ["checkpoint/1/1"], ["checkpoint/1/2"], ["checkpoint/1/2", "running/2"])
    ]
    assert len(set(keys)) == 4


def test_a_stall_policy_that_this_version_does_not_know_starts_nothing():
    """An attempt that runs already is left alone."""
    unknown = {SPEC: spec(stall_policy=StallPolicy(30.0, 4, OnStall.UNKNOWN))}
    assert entry(facts=unknown).state is JobState.QUARANTINED
    assert entry("running/1", facts=unknown).state is JobState.RUNNING

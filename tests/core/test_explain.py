"""An explanation names the registers that decide: without them the state differs. Registers that it calls without
effect can be removed, and nothing changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st

from ledger.core.explain import Remark, explain
from ledger.core.fold.fold import fold_job
from ledger.core.fold.job import Job
from ledger.core.fold.rules import RULES
from ledger.core.model.facts import (
    OnExhausted,
    OnStall,
    RestartKind,
    RestartPolicy,
    RestorePoint,
    StallPolicy,
    Together,
)
from ledger.core.plan.replacing import STOP, intent_id
from tests.support.registers import (
    DIGEST,
    OTHER_DIGEST,
    UNREADABLE,
    checkpoint,
    given,
    intent,
    point,
    read,
    registers,
    spec,
    started,
)  # fmt: skip

NONE = RestartPolicy(RestartKind.NONE)
FAILS = RestartPolicy(RestartKind.NONE, on_exhausted=OnExhausted.FAIL)
LOST = "ended/1/lost/reconciler-1"
FAILED = "ended/1/failed/agent-a"
SPEC = f"spec/{DIGEST}"
HELD = intent_id("new", STOP)


@pytest.mark.parametrize(
    "names, facts, state, rule, because, waits_for",
    [
        ([], {}, "CREATED", 9, ["admitted"], "start attempt 1"),
        (["attempt/1/1"], {}, "RUNNING", 7, ["attempt/1/1"], "a sign of life of attempt 1"),
        (["attempt/1/1", "running/1"], {}, "RUNNING", 7, ["running/1", "attempt/1/1"], ""),
        (["attempt/1/1", LOST], {}, "RESTARTING", 12, [LOST], "start attempt 2"),
        ([LOST, FAILED], {}, "RESTARTING", 12, [FAILED, LOST], "start attempt 2"),
        ([FAILED], {SPEC: spec(restart_policy=NONE)}, "QUARANTINED", 11, [FAILED, SPEC], "an operator: retry"),
        ([FAILED], {SPEC: spec(restart_policy=FAILS)}, "FAILING", 11, [FAILED, SPEC], "close attempt 2"),
        (["ended/1/failed-permanent/agent-a"], {}, "QUARANTINED", 10, ["ended/1/failed-permanent/agent-a"], "retry"),
        (["running/1"], {"intent/1/u": intent("SUSPEND")}, "SUSPENDED", 6, ["intent/1/u"], "an operator: resume"),
        ([], {f"intent/1/{HELD}": intent("SUSPEND")}, "SUSPENDED", 6, [f"intent/1/{HELD}"], "the job that replaces it"),
        ([], {SPEC: spec(replaces="old")}, "CREATED", 9, ["admitted"], "old, which it replaces, to stop with a savepoint"),
        ([], {"intent/1/u": intent("CANCEL")}, "CANCELLING", 4, ["intent/1/u"], "close attempt 1"),
        (["ended/1/finished/agent-a", "running/2"], {}, "FINISHED", 3, ["ended/1/finished/agent-a"], "retire"),
        (["result/FAILED", "running/1"], {}, "FAILED", 1, ["result/FAILED"], "last registers"),
    ],
)  # fmt: skip
def test_the_rule_and_the_registers_that_decide(names, facts, state, rule, because, waits_for):
    told = explain(given(*names, facts=facts))
    assert (told.state, told.rule) == (state, rule)
    assert list(told.because)[: len(because)] == because
    assert waits_for in told.waits_for
    assert told.rule_text == RULES[rule].text


def test_what_was_left_by_the_job_that_it_replaces_is_called_so():
    left = replace(started(), base=RestorePoint(0, 0, "/sav-9"))
    told = explain(given(FAILED, facts={SPEC: spec(replaces="old"), "attempt/1/1": left}))
    (only,) = told.restore_points
    assert (only.restore_point.location, only.origin) == ("/sav-9", "left by old, which this job replaces")


OUTSIDE = {SPEC: spec(runner="outside", restart_policy=FAILS)}


@pytest.mark.parametrize(
    "names, facts, waits_for",
    [
        ([], {}, "its producer to report that it runs"),
        (["running/1"], {}, "jobledger cancel job-1 --force"),
        (["running/1"], {"intent/1/u": intent("CANCEL", 1)}, "jobledger cancel job-1 --force"),
        (["running/1"], {"intent/1/u": intent("CANCEL", 1, force=True)}, "the reconciler to stop what runs and to close"),
        (["running/1", "ended/1/finished/agent-a"], {}, "the reconciler to retire it"),
        (["running/1", FAILED], {}, "the reconciler to stop what runs and to close attempt 2"),
    ],
)  # fmt: skip
def test_what_a_job_waits_for_that_its_producer_runs(names, facts, waits_for):
    """If the producer died, nobody else reports the end: then the text names the command to type."""
    assert waits_for in explain(given(*names, facts={**OUTSIDE, **facts})).waits_for


def test_a_retry_that_counts_decides_too():
    told = explain(given(FAILED, facts={"intent/4/u": intent("RETRY", 1), SPEC: spec(restart_policy=NONE)}))
    assert (told.state, told.because) == ("RESTARTING", (FAILED, "intent/4/u"))


def test_a_job_that_nobody_admitted_says_so():
    told = explain(given(facts={SPEC: spec()}, admitted=False))
    assert (told.state, told.rule, told.in_recovery_set) == ("", 2, False)
    assert told.waits_for == "the projector to admit a spec"
    assert explain(Job("nobody", {}, read)).rule == 0


def test_of_a_retired_job_its_result_is_told():
    told = explain(given("result/FAILED", admitted=False))
    assert (told.state, told.rule, told.reason, told.in_recovery_set) == ("FAILED", 1, "was FAILED", False)
    assert told.waits_for == ""


def test_in_or_out_of_the_recovery_set_is_what_the_fold_says():
    assert explain(given()).in_recovery_set
    assert not explain(given(facts={"intent/1/u": intent("SUSPEND")})).in_recovery_set
    assert not explain(given("result/FINISHED", "running/1")).in_recovery_set


def test_a_restart_delay_is_told_with_its_time_as_long_as_it_is_not_due():
    job = given(LOST, facts={SPEC: spec(restart_policy=RestartPolicy(RestartKind.FIXED_DELAY, delay_s=20))})
    assert explain(job, due_at="12:00:20").waits_for == "its restart delay of 20 s, until 12:00:20"
    assert explain(job, due_at="12:00:20", due=True).waits_for == "the reconciler to start attempt 2"


@pytest.mark.parametrize(("on_stall", "then"), [(OnStall.MARK, ""), (OnStall.RESTART, "; it is stopped and restarted")])
def test_a_stall_is_told_with_its_time(on_stall, then):
    job = given("running/1", facts={SPEC: spec(stall_policy=StallPolicy(20.0, 3, on_stall))})
    told = f"a checkpoint: 60 s without a new one, stalled since 12:00:20{then}"
    assert explain(job, stalled_since="12:00:20").waits_for == told
    assert explain(job).waits_for == ""


@pytest.mark.parametrize(
    "names, facts, remark",
    [
        (["running/1"], {"running/2": UNREADABLE}, ("running/2", "can't be read", True, False)),
        ([f"spec/{OTHER_DIGEST}"], {}, (f"spec/{OTHER_DIGEST}", "another spec", True, False)),
        (["attempt/1/1", "attempt/1/3"], {}, ("attempt/1/1", "again in epoch 3", True, True)),
        ([LOST, FAILED], {}, (LOST, f"{FAILED} counts", True, False)),
        (["ended/1/lost/reconciler-2", LOST], {}, (LOST, "ended/1/lost/reconciler-2 counts", True, True)),
        (["ended/1/finished/agent-a", "running/2"], {}, ("running/2", "was over", False, False)),
        (["running/1"], {"intent/3/u": intent("RETRY", 1)}, ("intent/3/u", "no end of it is known", False, True)),
        ([LOST], {"intent/3/u": intent("RETRY", 4)}, ("intent/3/u", "attempt 1 is the last", False, True)),
        ([], {"intent/1/u": intent("SUSPEND"), "intent/2/v": intent("RUN")},
         ("intent/1/u", "intent/2/v (RUN) wins", True, True)),
        (["ended/1/finished/agent-a"], {"intent/1/u": intent("SUSPEND")}, ("intent/1/u", "is over", True, False)),
        (["result/FINISHED", "running/1"], {}, ("running/1", "retired", True, True)),
        (["result/FINISHED", "result/FAILED"], {}, ("result/FAILED", "retired", True, True)),
    ],
)  # fmt: skip
def test_remarks(names, facts, remark):
    (found,) = [r for r in explain(given(*names, facts=facts)).remarks if r.register == remark[0]]
    assert remark[1] in found.text
    assert (found.without_effect, found.ordinary) == remark[2:]


def test_ordinary_jobs_need_no_remark():
    job = given("attempt/1/1", "running/1", "checkpoint/1/5", FAILED, "attempt/2/1", "running/2", "checkpoint/2/7")
    assert explain(job).remarks == ()
    canceled = given("ended/1/canceled/agent-a", facts={"intent/1/u": intent("CANCEL")})
    assert all(remark.ordinary for remark in explain(canceled).remarks)


def test_where_each_restore_point_comes_from():
    facts = {
        SPEC: spec(restore_from=point("0/0")),
        "attempt/1/1": started("0/0"),
        "checkpoint/1/5": checkpoint("1/5", "0/0"),
        "attempt/2/1": started("1/5"),
    }
    told = explain(given(facts=facts), keep=9)
    assert [(str(p.attempt), o) for p, o in told.restore_points] == [
        ("1", "completed by attempt 1, base of attempt 2"),
        ("0", "restore_from of the spec"),
    ]
    facts["checkpoint/2/8"] = checkpoint("2/8", "1/5")
    facts["checkpoint/2/9"] = checkpoint("2/9", "1/5")
    told = explain(given(facts=facts), keep=9)
    assert [o for _, o in told.restore_points] == [
        "completed by attempt 2, the highest that has one",
        "completed by attempt 2",
        "completed by attempt 1, base of attempt 2",
        "restore_from of the spec",
    ]


def test_a_restore_point_that_a_retry_chose():
    facts = {"intent/1/u": intent("RETRY", 1, from_="1/5")}
    told = explain(given("checkpoint/1/5", "checkpoint/1/6", FAILED, facts=facts))
    assert [(p.id, o) for p, o in told.restore_points] == [(5, "completed by attempt 1, chosen by retry --from")]


# -- laws ----------------------------------------------------------------------------------------------------------------

_OUTCOMES = ["lost", "failed", "failed-permanent", "stopped", "abandoned", "canceled", "finished"]
_NAMES = st.one_of(
    st.builds("attempt/{}/{}".format, st.integers(1, 3), st.integers(1, 2)),
    st.builds("running/{}".format, st.integers(1, 3)),
    st.builds("checkpoint/{}/{}".format, st.integers(1, 3), st.integers(0, 3)),
    st.builds("ended/{}/{}/{}".format, st.integers(1, 3), st.sampled_from(_OUTCOMES),
              st.sampled_from(["agent-a", "reconciler-1"])),
    st.sampled_from(["result/FINISHED", "result/FAILED", f"spec/{OTHER_DIGEST}"]),
)  # fmt: skip
_INTENTS = st.dictionaries(
    st.builds("intent/{}/{}".format, st.integers(1, 3), st.sampled_from("uv")),
    st.builds(intent, st.sampled_from(["RUN", "SUSPEND", "CANCEL", "RETRY", "UNKNOWN"]), st.integers(0, 3)),
    max_size=3,
)
_POLICIES = st.sampled_from([RestartPolicy(), NONE, FAILS, RestartPolicy(RestartKind.UNKNOWN)])


@st.composite
def jobs(draw) -> dict[bytes, object]:
    names = draw(st.lists(_NAMES, max_size=8))
    if draw(st.integers(0, 3)) != 0:
        names = [n for n in names if not n.startswith("result") and "finished" not in n]
    facts = {**draw(_INTENTS), SPEC: spec(restart_policy=draw(_POLICIES))}
    for name in draw(st.lists(st.sampled_from(names), max_size=2)) if names else ():
        facts[name] = UNREADABLE
    return registers(*names, facts=facts)


def fold(held: dict[bytes, object]):
    entry = fold_job(Job("job-1", held, read))
    return entry and replace(entry, registers=())


def test_a_member_of_a_region_says_why_it_was_started_and_to_which_cut_its_restore_points_belong():
    held = registers(
        "ended/1/failed/agent-1", "running/2",
        facts={
            "checkpoint/1/4": replace(checkpoint("1/4"), consistency="noon"),
            "attempt/2/7": started("1/4", together=Together({"b": 3}, "noon", "region prices restarts together: b")),
        },
    )  # fmt: skip
    told = explain(Job("job-1", held, read))
    assert [r for r in told.remarks if r.register == "attempt/2/7"] == [
        Remark("attempt/2/7", "region prices restarts together: b", False, True)
    ]
    assert [o.origin for o in told.restore_points] == ["completed by attempt 1, base of attempt 2, consistency label noon"]


@settings(max_examples=400)
@over(jobs())
def test_without_the_registers_that_decide_the_answer_is_another(held):
    told = explain(Job("job-1", held, read))
    if fold(held) is not None:
        assert (told.state, told.reason) == (fold(held).state, fold(held).reason)
    assert told.because
    rest = {name: value for name, value in held.items() if name.decode() not in told.because}
    assert fold(rest) != fold(held)


@settings(max_examples=400)
@over(jobs())
def test_what_is_without_effect_can_go(held):
    told = explain(Job("job-1", held, read))
    idle = {r.register for r in told.remarks if r.without_effect}
    rest = {name: value for name, value in held.items() if name.decode() not in idle}
    before, after = fold(held), fold(rest)
    if before is not None and before.retiring:
        assert after is None or after == before
    elif before is not None and before.terminal:
        assert (after.state, after.reason) == (before.state, before.reason)
    else:
        assert after == before

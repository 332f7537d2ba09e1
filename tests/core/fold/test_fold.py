"""The fold, rule by rule: given these registers, expect this entry. The first rule that applies decides.

The rules: a result, no spec, a terminal end, the winning intent, an end after which no attempt may start, any other
end, an attempt without end, no attempt yet.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.core.model.facts import AttemptEnded, OnExhausted, RestartKind, RestartPolicy
from ledger.core.model.recovery import JobState
from tests.support.registers import DIGEST, entry, intent, point, spec, started

SPEC = f"spec/{DIGEST}"
ONE_RETRY = RestartPolicy(RestartKind.FIXED_DELAY, attempts_max=1, delay_s=5.0)
CANCEL, SUSPEND, RUN = intent("CANCEL"), intent("SUSPEND"), intent("RUN")
RETRY_1, RETRY_2 = intent("RETRY", 1), intent("RETRY", 2)
A = "agent-a"


@pytest.mark.parametrize(
    ("names", "state", "next_attempt"),
    [
        # 7: no attempt has ended
        ((), JobState.CREATED, 1),
        (("attempt/1/1",), JobState.RUNNING, 0),
        (("attempt/1/1", "running/1"), JobState.RUNNING, 0),
        (("running/3",), JobState.RUNNING, 0),
        (("attempt/1/1", f"ended/1/lost/{A}", "attempt/2/1"), JobState.RUNNING, 0),
        # a checkpoint alone proves no attempt: top counts the other registers
        (("checkpoint/1/1",), JobState.CREATED, 1),
        # 6: the attempt ended, and another one follows
        (("attempt/1/1", f"ended/1/failed/{A}"), JobState.RESTARTING, 2),
        (("attempt/1/1", "ended/1/lost/reconciler-1"), JobState.RESTARTING, 2),
        (("attempt/1/1", f"ended/1/stopped/{A}"), JobState.RESTARTING, 2),
        ((f"ended/4/stopped/{A}",), JobState.RESTARTING, 5),
        # 5: the attempt ended, and no other may follow
        (("attempt/1/1", f"ended/1/failed-permanent/{A}"), JobState.QUARANTINED, 2),
        (("attempt/1/1", "ended/2/failed-permanent/reconciler-1"), JobState.QUARANTINED, 3),  # a verdict
        # the end of an older attempt no longer counts
        (("attempt/1/1", f"ended/1/failed-permanent/{A}", "attempt/2/1"), JobState.RUNNING, 0),
        # 3: terminal, whatever other registers there are
        (("attempt/1/1", f"ended/1/finished/{A}"), JobState.FINISHED, 0),
        (("attempt/1/1", f"ended/1/canceled/{A}"), JobState.CANCELED, 0),
        (("attempt/1/1", "ended/2/abandoned/reconciler-1"), JobState.FAILED, 0),
        ((f"ended/1/finished/{A}", "attempt/2/1", "running/2"), JobState.FINISHED, 0),
        ((f"ended/1/canceled/{A}", "attempt/2/1", f"ended/2/failed/{A}"), JobState.CANCELED, 0),
        ((f"ended/1/abandoned/{A}", f"ended/2/canceled/{A}"), JobState.CANCELED, 0),
        ((f"ended/1/finished/{A}", f"ended/2/canceled/{A}", f"ended/3/abandoned/{A}"), JobState.FINISHED, 0),
        # the strongest of several ends of one attempt counts
        (("ended/1/lost/reconciler-1", f"ended/1/finished/{A}"), JobState.FINISHED, 0),
        (("ended/1/lost/reconciler-1", f"ended/1/failed-permanent/{A}"), JobState.QUARANTINED, 2),
        ((f"ended/1/failed-permanent/{A}", "ended/1/stopped/reconciler-1"), JobState.RESTARTING, 2),
    ],
)
def test_state_by_ends_and_attempts(names, state, next_attempt):
    got = entry(*names)
    assert (got.state, got.next_attempt) == (state, next_attempt)


@pytest.mark.parametrize(
    ("names", "intents", "state", "next_attempt"),
    [
        # 4: a cancel applies in every state that is not terminal; there is an attempt to close
        ((), {1: CANCEL}, JobState.CANCELLING, 1),
        (("attempt/1/1",), {1: CANCEL}, JobState.CANCELLING, 2),
        (("attempt/1/1", f"ended/1/failed/{A}"), {1: CANCEL}, JobState.CANCELLING, 2),
        ((f"ended/1/failed-permanent/{A}",), {1: CANCEL}, JobState.CANCELLING, 2),
        ((f"ended/1/finished/{A}",), {1: CANCEL}, JobState.FINISHED, 0),
        # … and a cancel is never undone
        ((), {1: CANCEL, 2: RUN}, JobState.CANCELLING, 1),
        ((), {1: CANCEL, 9: SUSPEND}, JobState.CANCELLING, 1),
        ((f"ended/1/failed/{A}",), {1: CANCEL, 9: RETRY_1}, JobState.CANCELLING, 2),
        # a suspend applies at once, and before quarantine
        ((), {1: SUSPEND}, JobState.SUSPENDED, 1),
        (("attempt/1/1",), {1: SUSPEND}, JobState.SUSPENDED, 0),
        (("attempt/1/1", f"ended/1/stopped/{A}"), {1: SUSPEND}, JobState.SUSPENDED, 2),
        ((f"ended/1/failed-permanent/{A}",), {1: SUSPEND}, JobState.SUSPENDED, 2),
        # the highest revision wins
        (("attempt/1/1",), {1: SUSPEND, 2: RUN}, JobState.RUNNING, 0),
        (("attempt/1/1",), {2: RUN, 3: SUSPEND}, JobState.SUSPENDED, 0),
        # a retry applies only to the attempt that it names, and only while that attempt is the top one
        ((f"ended/1/failed-permanent/{A}",), {1: RETRY_1}, JobState.RESTARTING, 2),
        ((f"ended/1/failed-permanent/{A}",), {1: RETRY_2}, JobState.QUARANTINED, 2),
        ((f"ended/2/failed-permanent/{A}",), {1: RETRY_1}, JobState.QUARANTINED, 3),
        ((f"ended/1/failed-permanent/{A}", "attempt/2/1"), {1: RETRY_1}, JobState.RUNNING, 0),
        (("attempt/1/1",), {1: RETRY_1}, JobState.RUNNING, 0),
        ((f"ended/1/failed-permanent/{A}",), {1: RETRY_1, 2: RUN}, JobState.QUARANTINED, 2),
        # retry and suspend: the later one counts; a spent retry counts as a run
        ((f"ended/1/failed-permanent/{A}",), {1: SUSPEND, 2: RETRY_1}, JobState.RESTARTING, 2),
        ((f"ended/1/failed-permanent/{A}",), {1: RETRY_1, 2: SUSPEND}, JobState.SUSPENDED, 2),
        (("attempt/2/1",), {1: SUSPEND, 2: RETRY_1}, JobState.RUNNING, 0),
        ((), {1: intent("RETRY", 0)}, JobState.CREATED, 1),
    ],
)
def test_state_by_intent(names, intents, state, next_attempt):
    got = entry(*names, facts={f"intent/{rev}/u": fact for rev, fact in intents.items()})
    assert (got.state, got.next_attempt) == (state, next_attempt)


@pytest.mark.parametrize(
    ("kinds", "winner"),
    [
        (["RUN", "RETRY", "SUSPEND", "CANCEL"], "CANCEL"),
        (["RUN", "RETRY", "SUSPEND"], "SUSPEND"),
        (["RUN", "RETRY"], "RETRY"),
        (["RUN", "UNKNOWN", "SUSPEND"], "UNKNOWN"),
        (["UNKNOWN", "CANCEL"], "CANCEL"),
    ],
)
def test_of_one_revision_the_more_careful_intent_wins_then_the_id(kinds, winner):
    facts = {f"intent/5/u{i}": intent(kind) for i, kind in enumerate(kinds)}
    assert entry(facts=facts).intent.kind == winner
    same = {"intent/5/ua": intent("SUSPEND"), "intent/5/ub": intent("SUSPEND"), "intent/5/uab": intent("SUSPEND")}
    assert entry(facts=same).intent.id == "ub"


def test_the_entry_shows_the_winning_intent_in_full():
    facts = {"intent/3/u1": intent("RETRY", 2, from_="1/7", force=True, reason="disk is back", actor="ada@host")}
    shown = entry("ended/2/lost/reconciler-1", facts=facts).intent
    assert (shown.kind, shown.rev, shown.id, shown.attempt) == ("RETRY", 3, "u1", 2)
    assert (shown.from_, shown.force, shown.reason, shown.actor) == ("1/7", True, "disk is back", "ada@host")


# -- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_exhausted", "outcome", "intents", "state", "failures", "delay_s"),
    [
        (OnExhausted.QUARANTINE, "failed", {}, JobState.QUARANTINED, 2, 5.0),
        (OnExhausted.FAIL, "failed", {}, JobState.FAILING, 2, 5.0),
        (OnExhausted.FAIL, "lost", {}, JobState.FAILING, 2, 5.0),
        (OnExhausted.FAIL, "failed-permanent", {}, JobState.QUARANTINED, 1, 0.0),
        (OnExhausted.FAIL, "stopped", {}, JobState.RESTARTING, 1, 0.0),
        (OnExhausted.FAIL, "failed", {1: RETRY_2}, JobState.RESTARTING, 0, 0.0),
        (OnExhausted.FAIL, "failed", {1: RETRY_1}, JobState.FAILING, 2, 5.0),
        (OnExhausted.FAIL, "failed", {1: SUSPEND}, JobState.SUSPENDED, 2, 5.0),
        (OnExhausted.FAIL, "failed", {1: CANCEL}, JobState.CANCELLING, 2, 5.0),
    ],
)
def test_a_used_up_budget(on_exhausted, outcome, intents, state, failures, delay_s):
    facts = {
        SPEC: spec(restart_policy=replace(ONE_RETRY, on_exhausted=on_exhausted)),
        "attempt/2/1": started(failures=1),
        **{f"intent/{rev}/u": fact for rev, fact in intents.items()},
    }
    got = entry(f"ended/2/{outcome}/{A}", facts=facts)
    assert (got.state, got.failures, got.restart_delay_s, got.next_attempt) == (state, failures, delay_s, 3)


def test_the_counter_is_the_records_and_not_a_count_of_ends():
    facts = {SPEC: spec(restart_policy=replace(ONE_RETRY, attempts_max=9)), "attempt/7/1": started(failures=4)}
    got = entry(*[f"ended/{n}/failed/{A}" for n in (1, 2, 7)], facts=facts)
    assert (got.state, got.failures) == (JobState.RESTARTING, 5)


def test_the_highest_epochs_record_counts():
    facts = {
        "attempt/2/1": started("1/1", failures=3),
        "attempt/2/10": started("1/9", failures=1),
        "attempt/2/9": started(None, failures=2),
    }
    got = entry(facts=facts)
    assert (got.base, got.failures) == (point("1/9"), 1)


def test_time_that_it_ran_begins_the_row_anew():
    facts = {"attempt/2/1": started(failures=9), f"ended/2/failed/{A}": AttemptEnded("oom", ran_for_s=3600.0)}
    got = entry(facts=facts)
    assert (got.failures, got.state) == (1, JobState.RESTARTING)
    assert 0.9 <= got.restart_delay_s <= 1.1


RATE = RestartPolicy(RestartKind.FAILURE_RATE, delay_s=5.0, failures_per_interval=2, failure_rate_interval_s=60.0)


@pytest.mark.parametrize(
    ("end", "intents", "state", "times", "failed_at"),
    [
        (AttemptEnded("boom", ran_for_s=2.0), {}, JobState.QUARANTINED, (950.0, 960.0), 1002.0),
        (AttemptEnded("boom", ran_for_s=20.0), {}, JobState.RESTARTING, (950.0, 960.0), 1020.0),
        (AttemptEnded("boom"), {}, JobState.RESTARTING, (950.0, 960.0), None),
        (
            AttemptEnded("boom", ran_for_s=2.0), {1: intent("RETRY", 3)},
            JobState.RESTARTING, (), None,
        ),
    ],
)  # fmt: skip
def test_a_failure_rate_by_what_stands_in_the_registers(end, intents, state, times, failed_at):
    """The record of the highest epoch counts. A retry forgives all failures before it."""
    records = {1: started(failures=2, failure_times=(950.0, 960.0), recorded_at=1000.0), 2: started()}
    facts = {
        SPEC: spec(restart_policy=RATE), "attempt/3/2": records[1], "attempt/3/1": records[2], f"ended/3/failed/{A}": end,
        **{f"intent/{rev}/u": fact for rev, fact in intents.items()},
    }  # fmt: skip
    got = entry(facts=facts)
    assert (got.state, got.failure_times, got.failed_at) == (state, times, failed_at)
    assert got.failure_rate_interval_s == 60.0
    if state is JobState.QUARANTINED:
        assert got.reason == "attempt 3 failed: boom; restart policy used up: more than 2 failures within 60 s"


def test_a_loss_uses_no_failure_rate_up_but_counts_from_the_next_attempt_on():
    """Nobody knows when the attempt was lost. Its time is when the reconciler noticed, as recorded for the next
    attempt."""
    before = started(failures=2, failure_times=(950.0, 960.0), recorded_at=1000.0)
    lost = {SPEC: spec(restart_policy=RATE), "attempt/3/2": before, "ended/3/lost/reconciler-2": AttemptEnded("gone")}
    got = entry(facts=lost)
    assert (got.state, got.outcome, got.failures) == (JobState.RESTARTING, "lost", 3)
    assert (got.failure_times, got.failed_at) == ((950.0, 960.0), None)
    after = started(failures=3, failure_times=(950.0, 960.0, 1005.0), recorded_at=1005.0)
    ended = {f"ended/4/failed/{A}": AttemptEnded("boom", ran_for_s=4.0)}
    assert entry(facts={**lost, "attempt/4/2": after, **ended}).state is JobState.QUARANTINED
    without = started(failures=2, failure_times=(950.0,), recorded_at=1005.0)
    assert entry(facts={**lost, "attempt/4/2": without, **ended}).state is JobState.RESTARTING


def test_the_runners_own_word_counts_before_another_of_the_same_rank():
    facts = {
        f"ended/1/failed/{A}": AttemptEnded("exit 3"),
        "ended/1/failed/reconciler-9": AttemptEnded("start timed out"),
        "ended/1/failed/zzz": AttemptEnded("hearsay"),
    }
    got = entry("attempt/1/1", facts=facts)
    assert (got.outcome, got.outcome_writer, got.reason) == ("failed", A, "attempt 1 failed: exit 3")

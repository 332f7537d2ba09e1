"""The rules of the audit consumer: the violations that each finds, the records that pass, and the ids of findings. An
id does not depend on the reader or the time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.rules import GAPS_MAX, RULES, Rules, Seen
from tests.consumers.given import BEGIN_S, SETTINGS, Records, all_of, judged

Build = Callable[[Records], list[Seen]]
WHY = {"kind": "CANCEL", "reason": "maintenance"}


def result_first(later: str) -> Build:
    return lambda r: [r("j/result/FINISHED"), r(later)]


def intent(reason: str) -> Build:
    return lambda r: [r("j/intent/1/u", {"kind": "CANCEL", "reason": reason})]


def attempts(*after_s: float) -> Build:
    return lambda r: [r(f"j/attempt/{n}/1", after_s=s) for n, s in enumerate(after_s, start=1)]


def numbers(*found: int) -> Build:
    return lambda r: [r(f"j/running/{at}", number=n) for at, n in enumerate(found, start=1)]


TABLE: list[tuple[str, Build, list[str]]] = [
    ("a checkpoint of a retired job", result_first("j/checkpoint/1/7"), ["result"]),
    ("a second result", result_first("j/result/CANCELED"), []),
    ("a record of another job", result_first("k/running/1"), []),
    ("a tombstone beside a result", lambda r: [r("j/result/FINISHED"), r("j/running/1", value=None)], []),
    ("after the result has expired",
     lambda r: [r("j/result/FAILED"), r("j/result/FAILED", value=None), r("j/running/1")], []),
    ("after one result of two has expired",
     lambda r: [r("j/result/CANCELED"), r("j/result/FINISHED"), r("j/result/CANCELED", value=None), r("j/running/1")],
     ["result"]),
    ("after both results have expired",
     lambda r: [*(r(f"j/result/{s}", value=v) for v in (b"v", None) for s in ("CANCELED", "FINISHED")), r("j/running/1")],
     []),
    ("what was sent before the result, again",
     lambda r: [(first := r("j/running/1")), r("j/result/FINISHED"), r.again(first)], []),
    ("a reason", intent("maintenance"), []),
    ("no reason", intent(""), ["reason"]),
    ("a blank reason", intent(" \t"), ["reason"]),
    ("an intent that nobody can read", lambda r: [r("j/intent/1/u", None)], []),
    ("the tombstone of an intent", lambda r: [r("j/intent/1/u", value=None)], []),
    ("three attempts within a minute", attempts(0, 30, 60), ["restarts"]),
    ("three attempts in more than a minute", attempts(0, 30, 61), []),
    ("a fourth", attempts(0, 1, 2, 3), ["restarts", "restarts"]),
    ("another leader's record of an attempt", lambda r: [r(f"j/attempt/{n}/{e}") for n, e in [(1, 1), (1, 2), (2, 2)]], []),
    ("attempts of several jobs", lambda r: [r(f"{job}/attempt/1/1") for job in "abcd"], []),
    ("somebody on the list", lambda r: [r("j/running/1", ledger_actor="reconciler@x")], []),
    ("somebody else", lambda r: [r("j/running/1", ledger_actor="mallory@x")], ["actor"]),
    ("nobody", lambda r: [r("j/running/1", ledger_actor="")], ["actor"]),
    ("the tombstone of somebody else", lambda r: [r("j/running/1", value=None, ledger_actor="mallory@x")], ["actor"]),
    ("numbers in order", numbers(1, 2, 3), []),
    ("one that is missing", numbers(1, 3), ["sequence"]),
    ("the first ones, where the topic begins", numbers(3), ["sequence"]),
    ("two runs that are missing", numbers(1, 4, 5, 9), ["sequence", "sequence"]),
    ("one that comes a little later", numbers(1, 3, 2), []),
    ("one that comes much later",
     lambda r: [r("j/running/1", number=1), r("j/running/2", number=3), r("j/running/3", number=2, after_s=100)],
     ["sequence"]),
    ("one that is there twice", numbers(1, 2, 2), ["sequence"]),
    ("two sources", lambda r: [r("j/running/1", source="/a"), r("j/running/2", source="/b")], []),
    ("two partitions", lambda r: [r("j/running/1", number=1), r("k/running/1", number=1, partition=1)], []),
    ("one that comes later than a record of another partition",
     lambda r: [r("j/running/1", number=1), r("j/running/2", number=3),
                r("k/running/1", partition=1, source="/k", after_s=100), r("j/running/3", number=2, after_s=3)], []),
    ("sent again", lambda r: [(first := r("j/running/1")), r("j/running/2"), r.again(first)], []),
    ("an id for something else", lambda r: [r("j/running/1", ce_id="x"), r("j/running/2", ce_id="x")], ["identity"]),
    ("an id for another value",
     lambda r: [r("j/running/1", ce_id="x"), r("j/running/1", ce_id="x", value=b"w")], ["identity"]),
    ("no id", lambda r: [r("j/running/1", ce_id="")], ["headers"]),
    ("no source", lambda r: [r("j/running/1", ce_source="")], ["headers"]),
    ("no number", lambda r: [r("j/running/1", ce_sequence="zero")], ["headers"]),
    ("the ledger's own key without a header",
     lambda r: [r("~noop", value=None, ce_id="", ce_source="", ledger_actor="")], []),
    ("somebody else's claim of the last epoch",
     lambda r: [r("~claim/reconciler/9007199254740992", ledger_actor="mallory@x")], ["actor"]),
    ("the tombstone of a claim", lambda r: [r("~claim/reconciler/1", value=None, ledger_actor="mallory@x")], ["actor"]),
    ("a claim without a header", lambda r: [r("~claim/reconciler/1", ce_source="")], ["headers"]),
    ("a claim that is sent again", lambda r: [(first := r("~claim/reconciler/1")), r.again(first)], []),
    ("the ledger's own keys count", lambda r: [r("~claim/reconciler/1", number=1), r("j/attempt/1/1", number=2)], []),
]  # fmt: skip


@pytest.mark.parametrize(("build", "rules"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_what_is_found(build: Build, rules: list[str]) -> None:
    history = build(Records())
    assert [found.rule for found in judged(history)] == rules


def test_every_rule_is_in_the_table() -> None:
    assert {rule for _, _, rules in TABLE for rule in rules} == set(RULES)


def test_a_finding_says_where_and_what() -> None:
    records = Records()
    (found,) = judged([records("j/running/1"), records("j/intent/1/u", {"kind": "CANCEL", "reason": ""})])
    assert (found.rule, found.job, found.event, found.place) == ("reason", "j", "event-1", "events[0]@1")
    assert (found.time, found.what) == ("2023-11-14T22:13:21.000Z", "CANCEL without a reason")


def test_what_is_found_of_a_claim_names_it() -> None:
    (found,) = judged([Records()("~claim/reconciler/7", ledger_actor="mallory@x")])
    assert (found.job, found.what) == ("", "~claim/reconciler/7: written by mallory@x, who is not on the list")


def test_without_a_list_anybody_may_write() -> None:
    assert judged([Records()("j/running/1", ledger_actor="mallory@x")], replace(SETTINGS, actors=())) == []


def test_what_compaction_may_have_taken_is_not_missing() -> None:
    late_s = BEGIN_S + SETTINGS.gap_window_s + 5
    history = numbers(1, 3)(Records())
    assert [one.rule for one in judged(history, now_s=late_s - 10)] == ["sequence"]
    assert judged(history, now_s=late_s) == []
    begun_later = [replace(seen, offset=seen.offset + 7) for seen in numbers(3)(Records())]
    assert judged(begun_later) == [], "the numbers before the first record are gone from the log"


def test_time_alone_shows_that_a_number_is_missing() -> None:
    rules, history = Rules(SETTINGS), numbers(1, 3)(Records())
    assert list(all_of(rules, history, BEGIN_S)) == []
    assert rules.tick(BEGIN_S + 10) == []
    assert [found.what for found in rules.tick(BEGIN_S + 11)] == ["number 2 of /s is missing in partition 0"]
    assert rules.tick(BEGIN_S + 100) == []


def test_what_is_forgotten_is_counted_and_memory_is_bounded() -> None:
    small, records = replace(SETTINGS, memory_max=100), Records()
    rules = Rules(small)
    for n in range(500):
        for register in ("attempt/1/1", "result/FAILED"):
            seen = records(f"job-{n}/{register}", source=f"/s/{n}")
            assert rules.judge(seen, seen.time_s) == []
    assert rules.forgotten == {"event ids": 900, "sources": 400, "retired jobs": 400, "attempts": 400}
    tables = [table for table in vars(rules).values() if hasattr(table, "put")]
    assert sorted(len(table) for table in tables) == [0, 100, 100, 100, 100]


def test_lines_that_wait_for_a_number_are_bounded_too() -> None:
    small, records = replace(SETTINGS, memory_max=100), Records()
    rules = Rules(small)
    for n in range(500):
        rules.judge(records("j/running/1", source=f"/s/{n}", number=5, after_s=0), BEGIN_S)
    assert len(rules._waiting) == 100 and rules.forgotten["gaps"] == 400


def test_of_a_record_that_shows_a_gap_little_is_kept() -> None:
    """Memory does not grow with the size of the record, and is freed once the gap was reported."""
    rules, records, large = Rules(SETTINGS), Records(), 100_000

    def judge(number: int) -> None:
        text = f"{number:0{large}}"
        seen = records("j/running/1", {"cause": text}, value=text.encode(), number=number, source=f"/{text}", after_s=0,
                       ce_id=text, ce_extra=text)  # fmt: skip
        assert rules.judge(replace(seen, headers={**seen.headers, "ce_source": "/s" * large}), BEGIN_S) == []

    tracemalloc.start()
    try:
        for number in range(2, 102, 2):
            judge(number)
        held, _ = tracemalloc.get_traced_memory()
        assert len(rules.tick(BEGIN_S + 100)) == 50
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < held < 50 * 3_000


def test_a_source_that_was_forgotten_begins_anew() -> None:
    rules, records = Rules(replace(SETTINGS, memory_max=1)), Records()
    for source in ("/a", "/b", "/a"):
        assert rules.judge(records("j/running/1", source=source), BEGIN_S) == []
    assert rules.tick(BEGIN_S + 100) == []


def test_a_record_without_an_id_that_is_delivered_again_is_told_once() -> None:
    rules, history = Rules(SETTINGS), [Records()("j/running/1", ce_id="")]
    assert [one.rule for one in all_of(rules, history * 2, BEGIN_S)] == ["headers"]


def test_runs_of_missing_numbers_are_bounded() -> None:
    rules, records = Rules(SETTINGS), Records()
    for n in range(1, 4 * GAPS_MAX, 2):
        rules.judge(records("j/running/1", number=n), BEGIN_S)
    ((_, line),) = rules._lines.items()
    assert len(line.runs) <= GAPS_MAX and line.floor > 0
    assert not [one for one in rules.judge(records("j/running/1", number=line.floor), BEGIN_S) if "again" in one.what]


def test_runs_that_are_not_waited_for_any_more_are_told_or_counted() -> None:
    """All numbers come in one burst, so each gap is abandoned before its grace is over. Gaps of records that compaction
    may have removed do not count."""
    for now_s, counts in ((BEGIN_S + 60, True), (BEGIN_S + SETTINGS.gap_window_s + 5, False)):
        rules, records = Rules(SETTINGS), Records()
        found = [
            one for n in range(1, 4 * GAPS_MAX, 2)
            for one in rules.judge(records("j/running/1", number=n, after_s=0), now_s) if one.rule == "sequence"
        ]  # fmt: skip
        found += rules.tick(now_s)
        missing = 2 * GAPS_MAX - 1
        assert len(found) + rules.forgotten["gaps"] == (missing if counts else 0)


# -- laws --------------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["running/1", "checkpoint/1/7", *(f"attempt/{n}/1" for n in "123"), "result/FAILED", "intent/1/u"]),
        st.sampled_from(["a", "b"]), st.sampled_from([None, "", "why"]), st.sampled_from(["alice@h", "mallory@h", ""]),
        st.sampled_from([0, 0, 0, 1, 2, -1]), st.booleans(),
    ), max_size=30,
)  # fmt: skip


def history_of(steps: list[tuple[str, str, str | None, str, int, bool]]) -> list[Seen]:
    records, history = Records(), list[Seen]()
    for register, job, reason, actor, skip, tombstone in steps:
        records.numbers["/s"] = max(0, records.numbers.get("/s", 0) + skip)
        fields = None if reason is None else {"kind": "RUN", "reason": reason}
        history.append(records(f"{job}/{register}", fields, value=None if tombstone else b"v", ledger_actor=actor))
    return history


@given(STEPS)
def test_reading_again_finds_the_same_and_no_id_twice(steps: list[tuple[str, str, str | None, str, int, bool]]) -> None:
    history = history_of(steps)
    found = judged(history)
    assert judged(history) == found
    assert len({one.id for one in found}) == len(found)


@given(STEPS, st.data())
def test_delivery_again_from_anywhere_finds_nothing_new(
    steps: list[tuple[str, str, str | None, str, int, bool]], data: st.DataObject
) -> None:
    history, rules = history_of(steps), Rules(SETTINGS)
    list(all_of(rules, history, BEGIN_S))
    assert list(all_of(rules, history[data.draw(st.integers(0, len(history))) :], BEGIN_S)) == []


@given(STEPS)
def test_what_is_sent_again_at_once_finds_nothing_new(steps: list[tuple[str, str, str | None, str, int, bool]]) -> None:
    history = history_of(steps)
    once = [replace(seen, offset=2 * seen.offset) for seen in history]
    twice = [replace(seen, offset=seen.offset + copy) for seen in once for copy in (0, 1)]
    assert [one.id for one in judged(twice)] == [one.id for one in judged(once)]


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_numbers_in_any_order_are_missing_only_if_they_never_come(order: list[int], lost: set[int]) -> None:
    records = Records()
    came = [n for n in order if n not in lost]
    found = judged([records("j/running/1", number=n, after_s=0) for n in came])
    highest = max(came, default=0)
    runs = [n for n in lost if n < highest and n - 1 not in lost]
    assert len(found) == len(runs) and {one.rule for one in found} <= {"sequence"}

"""The laws by name, with the strategy that draws the histories of each, and a function that runs a law."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ledger.core.model.registers import Admitted, Attempt, Checkpoint, Spec
from tests.laws import actors, directed, directed_failures, directed_restoring, directed_savepoints, drawn, histories, laws
from tests.laws.drawn import WORLDS, place, value
from tests.laws.histories import DIGEST, RawValue
from tests.support import seeds


class Law(NamedTuple):
    check: Callable[[Any], None]
    histories: st.SearchStrategy[Any]


ANY = drawn.histories()
WITH_RESULT = drawn.histories(with_result=True)
NUMBER = st.integers(0, 2**16)
STRANGE_KEYS = st.one_of(
    st.binary(max_size=24),
    st.builds(lambda tail: b"job-b/" + tail, st.binary(max_size=24)),
    drawn.REGISTERS.map(lambda register: b"job-b/" + histories.name_of(register)),
    st.sampled_from([
        b"", b"/", b"~", b"~claim/projector/1", b"job-b", b"job-b/", b"job-b/running/01", b"job-b/checkpoint/1/0x",
        b"job-b/checkpoint/1/00", b"job-b/attempt/9007199254740992/1", b"job-b/running/99999999999999999999",
        b"job-b/ended/1/finished/", b"../admitted", b"job-a", b"job-a\x00/admitted", b"JOB-A/admitted",
    ]),
)  # fmt: skip
STRANGE_VALUES = st.one_of(
    st.binary(max_size=8),
    drawn.REGISTERS.map(lambda register: RawValue(register, value(register, drawn.World()))),
    st.sampled_from([None, b"", "text", 7, RawValue(Admitted(), value(Spec(DIGEST), drawn.World()))]),
)
GARBAGE = st.tuples(
    st.one_of(drawn.REGISTERS, st.sampled_from(drawn.RESULTS)),
    st.sampled_from([b"", b"\xc3\x01garbage", 7, "x"]),
)
LOWER = [place(n, id_) for n in (1, 2) for id_ in (1, 2, 3)]
BASES = st.fixed_dictionaries({
    n: st.sampled_from([None, *(p for p in LOWER if p.attempt < n)]) for n in (1, 2, 3)
})  # fmt: skip
PLACED = st.lists(
    drawn.weighted(
        (10, [("new", Checkpoint(n, id_)) for n in (1, 2, 3) for id_ in (1, 2, 3)]),
        (5, [("new", Attempt(n, 1)) for n in (1, 2, 3)]),
        *drawn.CONTROL,
    ),
    min_size=8,
    max_size=18,
)
LATER = st.lists(st.one_of(drawn.REGISTERS, st.sampled_from(drawn.RESULTS)), min_size=1, max_size=6)

LAWS: dict[str, Law] = {
    "set": Law(laws.the_log_says_what_the_set_of_facts_says, WITH_RESULT),
    "order": Law(laws.order_does_not_matter, st.tuples(WITH_RESULT, NUMBER)),
    "final": Law(laws.terminal_is_final, WITH_RESULT),
    "oracle": Law(laws.the_fold_says_what_the_plain_rules_say, WITH_RESULT),
    "compaction": Law(laws.compaction_changes_nothing, st.tuples(WITH_RESULT, NUMBER)),
    "split": Law(laws.a_log_read_by_two_is_the_log_read_by_one, st.tuples(WITH_RESULT, NUMBER)),
    "clock": Law(laws.no_clock_and_no_timestamp_is_read, st.tuples(WITH_RESULT, st.lists(NUMBER, min_size=1, max_size=9))),
    "isolation": Law(
        laws.one_jobs_records_change_only_that_job,
        st.tuples(WITH_RESULT, st.lists(st.tuples(STRANGE_KEYS, STRANGE_VALUES), max_size=12)),
    ),
    "unreadable": Law(laws.what_cannot_be_read_counts_as_absent, st.tuples(WITH_RESULT, st.lists(GARBAGE, max_size=6))),
    "restore": Law(laws.first_offered_is_what_the_newest_recorded_attempt_left, actors.HISTORIES),
    "zero": Law(laws.never_from_zero_silently, st.tuples(WORLDS, BASES, PLACED)),
    "prunable": Law(laws.what_is_prunable_never_matters_again, st.tuples(ANY, LATER)),
    "retry": Law(laws.a_pending_retry_finds_its_place, st.tuples(ANY, NUMBER)),
}


for _more in (directed_failures, directed_restoring, directed_savepoints):
    assert _more.by_hand is directed.by_hand  # each module has added its histories to `directed.HISTORIES`
settings.register_profile(
    "check", deadline=None, database=None, print_blob=False, report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
CHECK = settings.get_profile("check")


def examples() -> int:
    """The number of histories for each law: a few hundred, enough to kill every mutant; in a deep run
    LEDGER_LAWS_EXAMPLES."""
    return int(os.environ.get("LEDGER_LAWS_EXAMPLES", "600"))


def hold(name: str, examples: int, seed_: int | None = None, shrink: bool = True) -> None:
    """Runs a law on `examples` drawn histories, or runs a history written by hand. seed_: None = other histories with each
    commit. Raises: AssertionError with the history that broke the law."""
    if name in directed.HISTORIES:
        directed.HISTORIES[name]()
        return
    law = LAWS[name]
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)

    @seed(seeds.of(name) if seed_ is None else seed_)
    @settings(CHECK, max_examples=examples, phases=phases)
    @given(law.histories)
    def run(history: Any) -> None:
        law.check(history)

    with seeds.told():
        run()

"""A short run of every target, and proof that a target finds known bugs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ledger.core.fold import restart, rules
from ledger.core.model import registers
from ledger.core.model.facts import IntentKind
from ledger.core.plan import plan
from tests.fuzz import run
from tests.fuzz.run import INPUT_S_MAX, Found, fuzz
from tests.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_thousand_inputs(name: str) -> None:
    """The reader accepts some inputs and rejects others. A target with only one kind would test nothing."""
    ran = fuzz(name, 1_000 if name in ("fold", "entries") else 3_000, seed=7)
    assert 0 < ran.taken < ran.inputs, ran


def test_the_same_seed_draws_the_same_inputs() -> None:
    assert [fuzz("keys", 1_000, seed).taken for seed in (3, 3)] == [fuzz("keys", 1_000, 3).taken] * 2


def test_a_grammar_that_takes_two_spellings_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "_number", lambda text, low, high: int(text) if text.isdigit() else None)
    registers._parse_register.cache_clear()
    with pytest.raises(Found, match="--target keys --seed 1 --block"):
        fuzz("keys", 20_000, seed=1)
    monkeypatch.undo()
    registers._parse_register.cache_clear()


def test_a_fold_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # The mutated function fails if there is no attempt record.
    monkeypatch.setattr(restart, "past", lambda record: restart.FailureHistory(record.failures))
    with pytest.raises(Found, match="NoneType"):
        fuzz("fold", 2_000, seed=1)


def test_a_fold_that_starts_what_it_does_not_understand_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {kind.name: kind for kind in IntentKind}
    monkeypatch.setattr(rules, "IntentKind", SimpleNamespace(**{**known, "UNKNOWN": None}))
    with pytest.raises(Found, match="by an intent of unknown kind"):
        fuzz("fold", 2_000, seed=1)


def test_an_attempt_that_is_given_up_without_force_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "covered", lambda entry: entry.intent.attempt if entry.intent else 0)
    with pytest.raises(Found, match="without force"):
        fuzz("fold", 2_000, seed=8)


@pytest.mark.parametrize("always", [True, False])
def test_an_input_that_is_slow_is_found_and_a_machine_that_stood_still_is_none(
    monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    now_s, checked = [0.0], []

    def check(drawn: int) -> bool:
        checked.append(drawn)
        now_s[0] += INPUT_S_MAX + 1 if drawn == 7 and (always or checked.count(7) == 1) else 0.0
        return True

    numbers = iter(range(100))
    monkeypatch.setitem(TARGETS, "slow", Target(lambda rng: next(numbers), check))
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    if always:
        with pytest.raises(Found, match="too slow"):
            fuzz("slow", 10, seed=1)
    else:
        assert fuzz("slow", 10, seed=1).slowest_s == 0.0
    assert checked.count(7) == 2

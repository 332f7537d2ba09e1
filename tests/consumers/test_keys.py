"""The consumers' grammar of keys equals that of the protocol page and of the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.keys import FACTS, Key, parse
from ledger.core.model import facts, registers
from tests.protocol import page


@pytest.mark.parametrize("key", page.lines("keys", "valid"))
def test_a_valid_key(key: str) -> None:
    assert parse(key.encode()) is not None


@pytest.mark.parametrize("key", page.lines("keys", "invalid"))
def test_an_invalid_key(key: str) -> None:
    assert parse(key.encode()) is None


def test_what_a_key_says() -> None:
    assert parse(b"j/attempt/3/9") == Key("j", "attempt", 3)
    assert parse(b"j/admitted") == Key("j", "admitted")
    assert parse(b"~noop") == Key("", "~noop")
    assert parse(b"j/checkpoint/1/9223372036854775807") == Key("j", "checkpoint", 1)
    assert parse(b"j/checkpoint/1/9223372036854775808") is None
    assert parse(b"j/disposed/1/7/u") == Key("j", "disposed", 1) and parse(b"j/disposed/1/7") is None
    assert parse(None) is None and parse(b"\xff/admitted") is None


PARTS = st.sampled_from([
    "j", "", ".", "..", "a b", "x" * 129, "spec", "0" * 64, "admitted", "intent", "attempt", "running", "checkpoint",
    "ended",
    "ask", "disposed", "result", "0", "1", "01", "9007199254740992", "9007199254740993", "9223372036854775807",
    "9223372036854775808",
    "finished", "failed-permanent", "FINISHED", "agent-1", "~claim", "é",
])  # fmt: skip


@given(st.lists(PARTS, min_size=1, max_size=6).map("/".join))
def test_it_agrees_with_the_ledger(key: str) -> None:
    if not key.startswith("~"):
        assert (parse(key.encode()) is not None) == (registers.parse_key(key.encode()) is not None)


def test_the_facts_are_those_of_the_registers() -> None:
    named = {kind.__name__.lower(): fact.__name__ for kind, fact in facts.FACT_OF.items()}
    assert named == FACTS

"""`tests.support.waiting.until` returns the first true answer, despite temporary errors, and has a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from psutil import NoSuchProcess

from ledger.errors import Unreachable
from tests.support.waiting import until


def one_after_another(*answers: object) -> Callable[[], object]:
    """A function that returns (or raises) the next of the answers at each call."""
    left: Iterator[object] = iter(answers)

    def answer() -> object:
        given = next(left)
        if isinstance(given, BaseException):
            raise given
        return given

    return answer


TROUBLES = [
    FileNotFoundError(2, "gone", "a.json"), ProcessLookupError(3, "gone"), NoSuchProcess(1), Unreachable("away"),
    KafkaException("away"),
]  # fmt: skip
WRONGS = [AssertionError("wrong"), ValueError("wrong"), KeyError("wrong")]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda error: type(error).__name__)
def test_what_is_gone_when_it_is_looked_at_is_no_answer(trouble: Exception) -> None:
    assert until(one_after_another(trouble, None, "there"), every_s=0) == "there"


def test_a_deadline_tells_what_was_waited_for_and_the_last_trouble() -> None:
    def gone() -> None:
        raise FileNotFoundError(2, "gone", "a.json")

    with pytest.raises(AssertionError, match=r"not within 0 s: it is written \(FileNotFoundError: .*a\.json") as told:
        until(gone, "it is written", 0, story=lambda: "the story")
    assert str(told.value).endswith("the story")


@pytest.mark.parametrize("wrong", WRONGS, ids=lambda error: type(error).__name__)
def test_what_is_wrong_ends_the_waiting(wrong: Exception) -> None:
    with pytest.raises(type(wrong)):
        until(one_after_another(wrong, "there"), every_s=0)

"""`soon.Soon` has no findings on a leader that publishes, and names a leader that does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation.copies import says
from tests.simulation.soon import SECONDS, STEPS, Soon

EVENTS = "events"


def leader(position: int, epoch: int = 1) -> SimpleNamespace:
    reader = SimpleNamespace(position=lambda: {(EVENTS, 0): position, ("recovery", 0): 9})
    return SimpleNamespace(who="p", part=SimpleNamespace(epoch=epoch, _reader=reader))


def lead(
    soon: Soon, published: int, steps: int = STEPS + 2, step_s: float = 1.0, epoch: int = 1, disturb: int = 0
) -> list[str]:
    found = []
    for number in range(steps):
        if disturb and number % disturb == 0:
            soon.disturbed()
        found += soon.stepped(leader(10, epoch), {0: published}, EVENTS, number * step_s)
    return found


def test_a_leader_that_has_read_and_does_not_publish_is_named() -> None:
    assert says(lead(Soon(), 9), "soon: p has read up to 10 of 0, and published up to 9")


@pytest.mark.parametrize("given", [
    {"published": 10}, {"published": 9, "steps": STEPS}, {"published": 9, "step_s": SECONDS / (STEPS + 2)},
    {"published": 9, "disturb": STEPS // 2}, {"published": 9, "epoch": 0},
], ids=str)  # fmt: skip
def test_of_any_other_nothing_is_said(given: dict[str, float]) -> None:
    assert lead(Soon(), **given) == []  # type: ignore[arg-type]

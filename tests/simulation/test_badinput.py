"""Bad input: the walks draw every kind, and the checkers of rejects can fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ledger.ports import MemoryRecord
from ledger.reader import rejects
from tests.simulation.badinput import KEY, at_home, rejected_once, rejects_complete, rejects_true
from tests.simulation.copies import Copied, Delivery
from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, REJECTS, quiet

BAD = {(0, b"{}", b"?"): (KEY,)}
RECORD = Copied(EVENTS, 0, 5, b"{}", b"?")
TOPIC = rejects.RejectsTopic(REJECTS, EVENTS)


def rejected(reason: str = KEY, offset: int = 5, value: bytes = b"?") -> Copied:
    event = TOPIC.record(MemoryRecord(EVENTS, 0, offset, b"{}", value), reason)
    return Copied(REJECTS, 0, 0, event.key, event.value)


@pytest.mark.slow
def test_the_walks_draw_every_kind_of_bad_input_and_leaders_reject_it() -> None:
    happened: Counter[str] = Counter()
    rejected = 0
    with quiet() as said:
        for seed in range(1, 41):
            walk = Walk(seed, said)
            if walk.bad_rate:
                happened.update(walk.run(200).happened)
                beside = {key for key, _ in walk.world.bad_input.beside}
                rejected += sum(r.key not in beside for r in walk.world.evidence.copies[REJECTS])
            else:
                walk.world.close()
    kinds = ("key", "framing", "fact", "spec", "elsewhere", "recovery", "rejects", "headers")
    assert min(happened[f"bad {kind}"] for kind in kinds) > 0, happened
    assert rejected > 20


def test_a_bad_record_that_was_never_rejected_is_found() -> None:
    assert rejects_complete([RECORD], [rejected()], BAD) == []
    assert rejects_complete([RECORD], [], BAD) == ["I17 ledger.events/0/5 was never rejected"]
    assert rejects_complete([RECORD, RECORD._replace(offset=9)], [rejected()], BAD) != []


def test_a_reject_that_is_not_true_is_found() -> None:
    assert rejects_true([RECORD], [rejected(), rejected()], BAD, ()) == []
    assert "expected: " in rejects_true([RECORD], [rejected("because")], BAD, ())[0]
    assert "expected: " in rejects_true([RECORD], [rejected(offset=4)], BAD, ())[0]
    assert "does not match" in rejects_true([RECORD], [rejected(value=b"!")], BAD, ())[0]
    later = rejects.reject_of(MemoryRecord(EVENTS, 0, 5, b"{}", b"?"), KEY)
    other = rejected()._replace(value=rejects.encode(replace(later, time_ms=7), REJECTS).value)
    assert "with another value" in rejects_true([RECORD], [rejected(), other], BAD, ())[0]


def test_a_record_that_is_rejected_twice_in_one_term_is_found() -> None:
    reject = rejected()
    told = Delivery("ok", "projector-1", REJECTS, 0, reject.key or b"", reject.value)
    claims = [Delivery("ok", "projector-1", "ledger.recovery", p, b"~claim/projector/2", b"") for p in (0, 1)]
    assert rejected_once([told, *claims, told]) == []
    assert rejected_once([*claims, told, told]) == ["I17 projector-1 rejected b'ledger.events/0/5' twice in one term"]


def test_a_register_in_a_foreign_partition_says_nothing() -> None:
    records = [Copied(EVENTS, p, 0, b"job-1/running/1", b"") for p in (0, 1)]
    assert len(at_home(records, 2)) == 1

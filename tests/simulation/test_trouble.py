"""Trouble of single jobs: the walks draw every kind, each kind has its effect, and the checkers can fail."""

from __future__ import annotations

from collections import Counter

import pytest

from ledger.core.model.facts import AttemptEnded, AttemptStarted, IntentDeclared, IntentKind
from ledger.core.model.registers import Attempt, Ended, Intent, parse_key
from tests.simulation import codec
from tests.simulation.checkers import began_unverified, started_once
from tests.simulation.copies import Copied, Ran
from tests.simulation.walk import Walk
from tests.simulation.world import EVENTS, PARTITIONS, World, quiet

KINDS = (
    "damage", "damage of all", "bad graph", "crash of a start", "failed for good", "force", "retry from scratch",
    "retry from a place", "intent of an unknown kind",
)  # fmt: skip


@pytest.mark.slow
def test_the_walks_draw_all_of_it_and_it_has_its_effects() -> None:
    happened: Counter[str] = Counter()
    with quiet() as said:
        for seed in range(1, 41):
            walk = Walk(seed, said)
            if not walk.troubled:
                walk.world.close()
                continue
            happened.update(walk.run().happened)
            for record in walk.world.evidence.copies[EVENTS]:
                if (of := parse_key(record.key)) is None or record.value is None:
                    continue
                fact = codec.read(of[1], record.value)
                if isinstance(of[1], Attempt) and isinstance(fact, AttemptStarted):
                    happened["passed over"] += bool(fact.refused)
                elif isinstance(of[1], Ended) and isinstance(fact, AttemptEnded):
                    happened["nothing left to begin from"] += "no restore point verifies" in fact.cause
    expected = (*KINDS, "passed over", "nothing left to begin from")
    assert [kind for kind in expected if not happened[kind]] == [], happened


def attempts(*numbers: int) -> list[Copied]:
    return [Copied(EVENTS, 0, n, b"job/attempt/%d/1" % n, b"", time_s=0.0) for n in numbers]


def ran(*starts: Ran) -> list[Ran]:
    """Attempt 1 makes two checkpoints and ends; then the given starts follow."""
    first = [Ran("start", "job", 1, 1.0)]
    made = [Ran("checkpoint", "job", 1, 2.0, (1, id_)) for id_ in (1, 2)]
    return [*first, *made, Ran("end", "job", 1, 3.0), *starts]


DAMAGE = [Ran("damage", "job", 1, 4.0, (1, id_)) for id_ in (1, 2)]


def test_a_damaged_checkpoint_alone_may_be_passed_over() -> None:
    older, scratch = Ran("start", "job", 2, 5.0, (1, 1), "job"), Ran("start", "job", 2, 5.0)
    assert started_once(ran(DAMAGE[1], older), attempts(1, 2)) == []
    assert "I12" in started_once(ran(older), attempts(1, 2))[0]
    assert "I12" in started_once(ran(DAMAGE[0], older), attempts(1, 2))[0]
    assert "I12" in started_once(ran(*DAMAGE, scratch), attempts(1, 2))[0]


def test_a_retry_from_scratch_may_begin_there() -> None:
    world = World()
    retry = world.event("job", Intent(1, "u"), IntentDeclared(IntentKind.RETRY, 1, from_="scratch"))
    world.close()
    record = Copied(EVENTS, retry.partition % PARTITIONS, 9, retry.key, retry.value)
    scratch = Ran("start", "job", 2, 5.0)
    assert started_once(ran(scratch), [*attempts(1, 2), record]) == []
    assert "I12" in started_once(ran(scratch), attempts(1, 2))[0]


def test_force_alone_lets_two_run() -> None:
    world = World()
    force = world.event("job", Intent(1, "u"), IntentDeclared(IntentKind.RETRY, 1, force=True))
    world.close()
    two = [Ran("start", "job", 1, 1.0), Ran("start", "job", 2, 2.0)]
    assert "I8" in started_once(two, attempts(1, 2))[0]
    assert started_once(two, [*attempts(1, 2), Copied(EVENTS, 0, 9, force.key, force.value)]) == []


def test_what_began_unverified_is_found() -> None:
    assert began_unverified([]) == []
    assert "I12" in began_unverified(["/memory/job/1/chk-1"])[0]

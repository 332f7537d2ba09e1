"""The changes between two moments, record by record."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ledger.core.model.recovery import RecoveryEntry
from ledger.history.event_trace import TraceStep, steps
from ledger.history.moment import parse
from ledger.history.state_diff import changed
from ledger.reader.reading import Source
from ledger.util import times
from tests.support.operated import EVENTS
from tests.support.remembered import Remembered, a_life, folded_from
from tests.support.repetitions import one_fast

pytestmark = pytest.mark.usefixtures("quiet")


def played(then: Source, told: str, job_id: str | None = None) -> list[TraceStep]:
    """The steps from a vector of offsets on."""
    last = parse(told, 0.0).last or {}
    return list(steps(then, {p: offset + 1 for (topic, p), offset in last.items() if topic == "events"}, job_id))


@pytest.mark.parametrize("seed", one_fast(range(3)))
def test_each_step_begins_where_the_last_of_its_job_ended(tmp_path: Path, seed: int) -> None:
    world, moments = a_life(tmp_path, seed)
    first_s, second_s = sorted(random.Random(seed).sample(moments, 2))
    (before, begin), (after, _) = world.then(times.rfc3339(first_s)), world.then(times.rfc3339(second_s))
    found = played(after, begin)
    wanted = sorted(
        (one.partition(), one.offset()) for one in world.copy.values()
        if one.topic() == EVENTS and first_s * 1000 < one.timestamp()[1] <= second_s * 1000
        and not (one.key() or b"~").startswith(b"~")
    )  # fmt: skip
    assert sorted((one.record.partition, one.record.offset) for one in found) == wanted
    assert [one.record.time_s for one in found] == sorted(one.record.time_s for one in found)
    state: dict[str, RecoveryEntry] = dict(folded_from(before))
    for step in found:
        assert step.before == state.get(step.job_id), f"seed {seed}, {step.record.key}@{step.record.offset}"
        if step.after is None:
            state.pop(step.job_id, None)
        else:
            state[step.job_id] = step.after
    assert state == folded_from(after)
    last = parse(begin, 0.0).last or {}
    differing = {one.job_id for one in changed(before, after, {p: o + 1 for (t, p), o in last.items() if t == "events"})}
    assert differing <= {step.job_id for step in found}


def test_of_one_job_only_its_own(tmp_path: Path) -> None:
    world, moments = a_life(tmp_path, 1)
    then, begin = world.then(times.rfc3339(moments[10]))[1], world.then(times.rfc3339(moments[-1]))[0]
    everything = played(begin, then)
    job_id = everything[0].job_id
    own = played(begin, then, job_id)
    assert own == [step for step in everything if step.job_id == job_id] != everything


def test_what_lies_in_the_wrong_partition_is_no_step(tmp_path: Path) -> None:
    from ledger.ports import Event

    world = Remembered(tmp_path)
    job_id = world.started()
    wrong = 1 - world.source().partition_of(job_id)
    world.log.append([Event(EVENTS, wrong, f"{job_id}/admitted".encode(), None)])
    assert {step.record.partition for step in steps(world.source(), {})} == {1 - wrong}

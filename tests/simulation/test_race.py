"""Incident 001: a job is submitted, ends and is retired while leadership changes. Every schedule to a depth, no sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.core.model.registers import parse_key
from tests.simulation.directed import Director
from tests.simulation.race import Story, explore
from tests.simulation.world import EVENTS, RECOVERY, quiet
from tests.support import repetitions
from tests.support.mutants import mutated
from tests.support.repetitions import one_fast

#: Each event of the job at every boundary; or one event of leadership at every boundary, also within steps. The numbers
#: are the numbers of schedules. Another number means that the roles act differently or that the enumeration is broken:
#: find out which, then correct it.
FAST = [
    (Story("reconciler", ("put", "submit", "finish"), 0), 80),
    (Story("reconciler", ("put", "submit", "cancel", "finish"), 0), 661),
    (Story("reconciler", ("put", "submit", "finish"), 1, at_rest=True), 469),
    (Story("reconciler", ("put", "submit", "cancel"), 1, at_rest=True), 467),
    (Story("projector", ("put", "submit", "finish"), 1, at_rest=True), 455),
]
#: The events of the job and one event of leadership, each at every boundary. `make acceptance` runs it.
DEEP = [(Story("reconciler", ("put", "submit", "finish"), 1), 130_478)]


@pytest.fixture(autouse=True)
def said() -> Iterator[list[str]]:
    with quiet() as said:
        yield said


def name_of(value: Any) -> str | None:
    return f"{value.role} {'-'.join(value.job)} {value.leader_events}" if isinstance(value, Story) else None


def check(story: Story, schedules: int, said: list[str]) -> None:
    count = explore(story)
    print(f"{name_of(story)}: {count}")
    assert count.red == []
    assert said == []
    assert count.schedules == schedules


@pytest.mark.parametrize(("story", "schedules"), one_fast(FAST), ids=name_of)
def test_every_schedule_of_a_race(story: Story, schedules: int, said: list[str]) -> None:
    check(story, schedules, said)


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.skipif(not repetitions.DEEP, reason="make acceptance: some ten minutes")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("story", "schedules"), DEEP, ids=name_of)
def test_every_schedule_of_a_race_to_a_greater_depth(story: Story, schedules: int, said: list[str]) -> None:
    check(story, schedules, said)


def test_the_race_has_teeth() -> None:
    """Without the fence, some of the same schedules have findings."""
    with mutated("no-fence"):
        assert explore(FAST[-1][0], until_red=True).red != []


# -- the other tests that incident 001 demands -------------------------------------------------------------------------


@pytest.fixture
def d() -> Iterator[Director]:
    director = Director()
    yield director
    director.world.close()


def runs_once(d: Director, *jobs: str) -> None:
    d.settle()
    started = [(run.job_id, run.n) for run in d.world.evidence.ran if run.kind == "start"]
    assert sorted(started) == [(job_id, 1) for job_id in sorted(jobs)]
    assert sorted(d.world.runner.alive()) == sorted(started)


def test_the_records_of_one_job_are_the_expected_ones(d: Director) -> None:
    d.lead("projector")
    d.lead("reconciler")
    d.submit("job")
    d.settle()
    d.world.runner.end("job", 1, "finished")
    d.settle()
    d.world.copy()
    events = [r for r in d.world.evidence.copies[EVENTS] if (r.key or b"").startswith(b"job/")]
    words = [(parsed[1].word, r.value is not None) for r in events if (parsed := parse_key(r.key)) is not None]
    assert words[:6] == [(word, True) for word in ("spec", "admitted", "attempt", "running", "ended", "result")]
    assert sorted(words[6:]) == [(word, False) for word in ("admitted", "attempt", "ended", "running", "spec")]
    for record in events:  # each holds the fact of its register
        if record.value is not None:
            assert avro.read(parse_key(record.key)[1], record.value) is not None
    states = [t.entry and str(t.entry.state) for t in d.world.evidence.taken]
    assert list(dict.fromkeys(states)) == ["CREATED", "RUNNING", "FINISHED", None]
    assert d.world.blobs.stored == {}
    assert [r.key for r in d.world.left(RECOVERY) if r.key == b"job" and r.value is not None][-1:] == [b"job"]


@pytest.mark.parametrize("when", ["leader", "no leader", "handover"])
def test_a_submission_is_started_once(d: Director, when: str) -> None:
    d.lead("reconciler")
    if when == "no leader":
        d.submit("job")
        d.lead("projector")
    elif when == "handover":
        first = d.lead("projector")
        d.submit("other")
        d.to(first, "commit end")
        d.submit("job")
        d.lead("projector")
        d.go(first)
        runs_once(d, "job", "other")
        return
    else:
        d.lead("projector")
        d.submit("job")
    runs_once(d, "job")


@pytest.mark.parametrize("jobs", [1, 5])
def test_processes_die_with_jobs_running(d: Director, jobs: int) -> None:
    """Every process of the ledger dies at once. The jobs go on."""
    for role in ("projector", "reconciler"):
        d.lead(role)
    names = [f"job-{n}" for n in range(jobs)]
    for job_id in names:
        d.submit(job_id)
    runs_once(d, *names)
    for instance in [*d.world.instances]:
        d.world.crash(instance)
    for role in ("projector", "reconciler"):
        d.lead(role)
    runs_once(d, *names)
    assert d.world.judge_quiet() == []

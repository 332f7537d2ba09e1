"""With any guard removed (`tests.support.mutants`) the checkers have findings; with all guards they have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.adapters.memory.clock import ManualClock
from ledger.adapters.zookeeper.leadership import ZooKeeperLeadership
from ledger.adapters.zookeeper.settings import ZooKeeperSettings
from tests.simulation.directed import SCHEDULES, perform
from tests.simulation.walk import Walk
from tests.simulation.world import quiet
from tests.support.fake_link import PATH, FakeLink, Servers, T
from tests.support.mutants import MUTANTS, mutated
from tests.support.repetitions import one_fast

#: Removed guard -> the schedule that shows it, and the prefix of the findings.
CAUGHT = {
    "epoch-filter-off": ("a_stale_entry_lands", "I6c"),
    "filter-after-last-per-key": ("a_stale_entry_lands", "I7"),
    "one-claim-key": ("an_old_claim_comes_again_and_the_cleaner_comes_by", "I6a"),
    "read-committed-end": ("a_claim_lies_behind_an_open_transaction", "I6a"),
    "late-init-not-rechecked": ("a_candidate_sleeps_between_lock_and_init", "I6d"),
    "no-fence": ("a_candidate_sleeps_before_its_claim", "I6a"),
    "producer-kept": ("an_end_of_a_transaction_comes_late", "I5"),
    "overwritten-not-republished": ("a_stale_entry_lands_and_the_cleaner_comes_by", "I7"),
    "repeated-claims-not-repaired": ("claims_come_again_and_the_cleaner_comes_by", "I7"),
    "removed-claims-not-claimed-again": ("claims_are_tombstoned_and_the_cleaner_comes_by", "I7"),
    "fenced-in-the-middle-of-a-batch": ("two_terms_pass_while_a_leader_sleeps", "I6a"),
    "gc-reads-before-it-lists": ("a_collector_sleeps_before_it_lists", "G2"),
    "gc-without-grace": ("a_collector_meets_a_graph_before_its_spec", "G2"),
    "gc-takes-what-was-put-again": ("an_abandoned_graph_is_put_again_under_the_collectors_eyes", "G2"),
    "gc-finds-nothing": ("a_submitter_dies_after_its_put", "G3"),
    "no-settling": ("an_attempt_ends_and_its_agent_is_mute", "I12"),
    "retired-in-two-transactions": ("a_reconciler_dies_after_the_first_transaction_about_a_job_that_is_over", "I4"),
    "whoever-answers-is-believed": ("a_reconciler_leads_that_reaches_another_agent", "I8"),
    "calls-reach-whoever-answers": ("an_agent_is_replaced_before_a_start_and_comes_back", "I8"),
}
#: Guards whose removal random walks detect: guard -> a seed that showed it soon at the time of writing. If that seed does
#: not show it any more, the test searches on.
BY_CHANCE = {"epoch-filter-off": 16, "filter-after-last-per-key": 16, "read-committed-end": 2, "start-holds-nothing": 45,
             "gc-reads-before-it-lists": 35, "gc-finds-nothing": 319, "savepoints-are-pruned": 5,
             "given-up-is-never-deleted": 5, "repeated-claims-not-repaired": 2,
             "whoever-answers-is-believed": 3}  # fmt: skip
ELSEWHERE = {"lease-from-suspension"}  # not with memory adapters; tested below


@pytest.fixture(autouse=True)
def said() -> Iterator[list[str]]:
    with quiet() as said:
        yield said


def test_every_mutant_has_a_schedule() -> None:
    assert CAUGHT.keys() | BY_CHANCE.keys() | ELSEWHERE == MUTANTS.keys()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_ledger_passes_every_schedule(schedule: str, said: list[str]) -> None:
    assert perform(schedule) == []
    assert said == []


@pytest.mark.parametrize("mutant", CAUGHT)
def test_a_guard_that_is_taken_out_is_missed(mutant: str) -> None:
    schedule, invariant = CAUGHT[mutant]
    with mutated(mutant):
        found = perform(schedule)
    assert any(finding.startswith(invariant) for finding in found), found
    assert perform(schedule) == []  # the mutation is removed again


@pytest.mark.parametrize("mutant", one_fast(BY_CHANCE))
def test_the_walk_finds_it_too(mutant: str, said: list[str]) -> None:
    seeds = [BY_CHANCE[mutant], *range(1, 300)]
    with mutated(mutant):
        seed = next((seed for seed in seeds if Walk(seed, said).run().findings), None)
    assert seed is not None
    assert Walk(seed, said).run().findings == []


def leaders_after_a_long_sleep(clock: ManualClock) -> list[str]:
    """A leader elected by ZooKeeper is paused for three session timeouts and continues. Its session has ended, and another
    instance leads. Returns the leaders."""
    servers, path = Servers(clock), PATH
    found = {}
    for who in ("first", "second"):
        leadership = ZooKeeperLeadership(ZooKeeperSettings(hosts="zk1:2181"), path, who=who, clock=clock)
        leadership._started = True  # the test acts as its thread
        leadership._strategy._open_link = lambda known: FakeLink(servers)
        leadership.acquire()
        leadership.step()
        found[who] = leadership
    assert [who for who, leadership in found.items() if leadership.valid()] == ["first"]
    clock.advance(3 * T)
    servers.end_session(1)
    for _ in range(3):
        found["second"].step()
    return [who for who, leadership in found.items() if leadership.valid()]


def test_a_lease_from_the_suspension_outlives_its_session() -> None:
    assert leaders_after_a_long_sleep(ManualClock()) == ["second"]
    with mutated("lease-from-suspension"):
        assert leaders_after_a_long_sleep(ManualClock()) == ["first", "second"]
    assert leaders_after_a_long_sleep(ManualClock()) == ["second"]

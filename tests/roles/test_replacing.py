"""A job replaces another, with the real roles on memory adapters. Both jobs never run at once, and in the end one of them
runs, also if roles are killed at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters import avro
from ledger.core.model.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    Replacement,
    RestorePoint,
)
from ledger.core.model.registers import Ended
from ledger.core.plan.pools import Pool, Pools
from ledger.util import failpoints
from tests.support.roles.cluster import Cluster
from tests.support.roles.world import SPEC

SAVEPOINT = CheckpointKind.SAVEPOINT
NEW = replace(SPEC, replaces="old")


class Pair(Cluster):
    """A job `old` that may be replaced by `new`. An obedient runner makes savepoints on request, if it can."""

    can_save = True

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        super().__init__(tmp_path, **{"replaced_after_s": 3.0, **settings})
        self.go(4)
        stop = self.runner.stop

        def stop_saving(job_id: str, n: int, outcome: str, savepoint: bool = False, reason: str = "") -> None:
            attempt = self.runner._jobs[job_id].attempts.get(n)
            if self.can_save and savepoint and attempt is not None and not attempt.outcome and not attempt.order:
                self.runner.checkpoint(job_id, n, 1000 + (attempt.newest or 0), kind=SAVEPOINT)
            stop(job_id, n, outcome, savepoint, reason)

        self.runner.stop = stop_saving  # type: ignore[method-assign]

    def old(self) -> None:
        self.job("old")
        self.go()
        self.runner.checkpoint("old", 1, 7)
        self.go(3)

    def go(self, rounds: int = 12, seconds: float = 0.6) -> None:
        for _ in range(rounds):
            super().go(1, seconds)
            jobs = [job_id for job_id, _ in self.alive()]
            assert len(jobs) == len(set(jobs))
            assert not {"old", "new"} <= set(jobs), "both jobs run"

    def intents(self, job_id: str = "old") -> list[tuple[str, str]]:
        """(kind, id) of every intent on the job."""
        found = {}
        for p in range(self.log.partitions("ledger.events")):
            for record in self.log.records("ledger.events", p):
                key, value = (record.key() or b"").decode(), record.value()
                if key.startswith(f"{job_id}/intent/") and value is not None:
                    found[key] = str(avro.decode(IntentDeclared, value).kind)
        return [(kind, key.rpartition("/")[2]) for key, kind in found.items()]

    def base(self, job_id: str = "new", n: int = 1) -> RestorePoint | None:
        values = self.values()
        (key,) = [k for k in values if k.startswith(f"{job_id}/attempt/{n}/".encode())]
        return avro.decode(AttemptStarted, values[key]).base


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    pair = Pair(tmp_path)
    pair.old()
    return pair


def test_the_new_one_begins_from_the_savepoint_of_the_old_which_is_then_canceled(pair: Pair) -> None:
    pair.job("new", NEW)
    pair.go(8)
    assert pair.alive() == {("new", 1)}
    base = pair.base()
    assert base is not None and (base.location, base.kind) == ("/memory/old/1/sav-1007", SAVEPOINT)
    pair.go()
    assert [kind for kind, _ in pair.intents()] == ["SUSPEND", "CANCEL"]
    assert pair.state("old") == "CANCELED"
    old = pair.entry("old")
    assert old is not None and "replaced by new, which began from its savepoint 1/1007" in old.reason
    assert pair.r.waits["old"] == "new may begin from its restore points"


def test_the_savepoint_stays_until_the_new_one_needs_it_no_more(pair: Pair) -> None:
    pair.job("new", NEW)
    pair.go(24)
    pair.runner.kill("new", 1)
    pair.go()
    assert pair.starts("new") == [(1, "/memory/old/1/sav-1007"), (2, "/memory/old/1/sav-1007")]
    for id_ in (1, 2, 3):
        pair.runner.checkpoint("new", 2, id_)
    pair.go()
    assert pair.registers("old") == {"result/CANCELED"}
    left = [location for location in pair.runner.stored if location.startswith("/memory/old/")]
    assert left == ["/memory/old/1/sav-1007"]  # savepoints outlive their job (decision 24)
    pair.runner.kill("new", 2)
    pair.go()
    assert pair.starts("new")[-1] == (3, "2/3")


# -- reasons to abandon a replacement ----------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["no such graph", "its policy is used up", "canceled before it ran", "canceled just then"])
def test_the_old_one_is_resumed_if_the_new_one_never_runs(pair: Pair, why: str) -> None:
    if why == "no such graph":
        pair.submit("new", NEW)
    elif why == "its policy is used up":
        pair.job("new", replace(NEW, restart_policy=replace(SPEC.restart_policy, attempts_max=1, delay_s=0.1)))
        for _ in range(12):
            pair.go(1)
            for job_id, n in pair.alive() - {("old", 1)}:
                assert job_id == "old" or pair.runner.end(job_id, n, "failed", "no such module") is None
    elif why == "canceled before it ran":
        pair.runner.refusals["new"] = "x"
        pair.runner.obedient = False
        pair.job("new", NEW)
        pair.go(6)
        pair.intend("new", IntentKind.CANCEL)
        pair.go(4)
        pair.runner.obedient = True
        pair.runner.end("old", 1)
    else:
        pair.job("new", NEW)
        pair.go(5)
        assert pair.alive() == {("new", 1)}
        pair.intend("new", IntentKind.CANCEL)
    pair.go(24)
    assert [kind for kind, _ in pair.intents()] == ["SUSPEND", "RUN"]
    assert pair.alive() == {("old", 2)} and pair.state("old") == "RUNNING"
    if why != "canceled before it ran":
        assert pair.starts("old")[-1] == (2, "1/1007")
    assert pair.state("new") == ("none" if why.startswith("canceled") else "QUARANTINED")
    pair.r = pair.new_reconciler()
    pair.go()
    assert len(pair.intents()) == 2 and pair.alive() == {("old", 2)}


def test_one_that_is_tried_again_after_that_waits_for_people_to_stop_the_old_one(pair: Pair) -> None:
    """It then starts from the old job's newest restore point, not from the one of the first try."""
    pair.runner.refusals["new"] = "this host is too small"
    pair.job("new", NEW)
    pair.go(24)
    assert pair.state("new") == "QUARANTINED" and pair.alive() == {("old", 2)}
    assert pair.base() is not None
    pair.runner.refusals.clear()
    pair.intend("new", IntentKind.RETRY, attempt=1)
    pair.go()
    assert pair.alive() == {("old", 2)}
    assert pair.r.waits["new"].startswith("waits: old was resumed when this one could not start; to go on, suspend it")
    pair.intend("old", IntentKind.SUSPEND, rev=3, savepoint=True)
    pair.go(24)
    assert pair.alive() == {("new", 2)} and pair.state("old") == "CANCELED"
    assert pair.starts("new") == [(2, "/memory/old/2/sav-1000")]


def test_what_is_no_good_is_not_begun_from_and_never_from_scratch(pair: Pair) -> None:
    pair.job("new", NEW)
    pair.runner.stored.clear()
    pair.can_save = False
    pair.go(24)
    new = pair.entry("new")
    assert new is not None and new.state == "QUARANTINED" and "no restore point verifies" in new.reason
    assert not pair.starts("new")


def test_without_a_savepoint_it_begins_from_the_newest_checkpoint_and_says_so(pair: Pair) -> None:
    pair.can_save = False
    pair.job("new", NEW)
    pair.go(24)
    assert pair.starts("new") == [(1, "/memory/old/1/chk-7")]
    old = pair.entry("old")
    assert old is not None and "which began from its checkpoint 1/7, since it made no savepoint" in old.reason


def test_one_that_ends_at_once_has_replaced_the_old_one(pair: Pair) -> None:
    pair.job("new", NEW)
    for _ in range(6):
        pair.go(1)
        if ("new", 1) in pair.alive():
            pair.runner.end("new", 1)
    pair.go(24)
    assert pair.registers("new") == {"result/FINISHED"} and pair.registers("old") == {"result/CANCELED"}


def test_from_scratch_and_from_a_place_that_was_said_no_savepoint_is_made(pair: Pair) -> None:
    pair.job("new", replace(NEW, replacement=Replacement("scratch")))
    pair.go(24)
    assert pair.starts("new") == [(1, None)] and not any("sav" in place for place in pair.runner.stored)


# -- operators' intents take precedence --------------------------------------------------------------------------------


def test_a_cancel_of_the_old_one_is_no_obstacle(pair: Pair) -> None:
    pair.runner.obedient = False
    pair.job("new", NEW)
    pair.go(4)
    pair.intend("old", IntentKind.CANCEL, rev=2)
    pair.go(4)
    pair.runner.end("old", 1)
    pair.go()
    assert pair.alive() == {("new", 1)} and pair.state("old") == "CANCELED"


def test_an_old_one_that_people_resume_is_left_to_them(pair: Pair) -> None:
    pair.runner.obedient = False
    pair.job("new", NEW)
    pair.go(4)
    pair.intend("old", IntentKind.RUN, rev=2, actor="ann")
    pair.go(4)
    pair.runner.obedient = True
    pair.runner.end("old", 1)
    pair.go()
    assert pair.alive() == {("old", 2)} and len(pair.intents()) == 2
    assert "old was brought back by ann (RUN, test)" in pair.r.waits["new"]
    pair.intend("old", IntentKind.SUSPEND, rev=3)
    pair.go(24)
    assert pair.alive() == {("new", 1)} and pair.state("old") == "CANCELED"


def test_an_old_one_that_people_resume_while_the_new_one_runs_waits_for_it(pair: Pair) -> None:
    pair.job("new", NEW)
    pair.go(5)
    assert pair.alive() == {("new", 1)}
    pair.intend("old", IntentKind.RUN, rev=2)
    pair.go(24)
    assert pair.alive() == {("new", 1)} and pair.state("old") == "RESTARTING"
    assert pair.r.waits["old"] == "new runs in its place; cancel that one to bring it back"
    pair.r = pair.new_reconciler()
    pair.go()
    assert pair.alive() == {("new", 1)}
    pair.intend("new", IntentKind.CANCEL)
    pair.go(24)
    assert pair.alive() == {("old", 2)}


def test_one_that_people_had_suspended_stays_so_if_the_new_one_is_given_up(pair: Pair) -> None:
    pair.intend("old", IntentKind.SUSPEND, rev=1)
    pair.go()
    pair.submit("new", replace(NEW, replacement=Replacement(after_rev=1)))
    pair.go(24)
    assert pair.state("new") == "QUARANTINED" and pair.state("old") == "SUSPENDED" and len(pair.intents()) == 1


def test_a_quarantined_job_can_be_replaced(pair: Pair) -> None:
    pair.record("old", Ended(1, "failed-permanent", "agent-x"), AttemptEnded("a bug"))
    pair.runner.kill("old", 1)
    pair.go()
    assert pair.state("old") == "QUARANTINED"
    pair.job("new", NEW)
    pair.go(24)
    assert pair.starts("new") == [(1, "/memory/old/1/chk-7")] and pair.state("old") == "CANCELED"


# -- impossible replacements -------------------------------------------------------------------------------------------


def test_an_old_one_that_finishes_first_is_not_begun_again_by_the_new_one(pair: Pair) -> None:
    pair.runner.obedient = False
    pair.runner.attempt("old", 1).order = "finished"
    pair.job("new", NEW)
    pair.go(4)
    pair.runner.end("old", 1)
    pair.go()
    new = pair.entry("new")
    assert new is not None and new.state == "QUARANTINED" and "finished before it could be stopped" in new.reason
    assert pair.r.waits["old"] == "new is to take over from it" and pair.state("old") == "FINISHED"
    pair.intend("new", IntentKind.RETRY, attempt=1)
    pair.go()
    assert pair.starts("new") == [(2, "/memory/old/1/chk-7")]


def test_a_job_that_never_was_can_not_be_replaced(pair: Pair) -> None:
    pair.job("new", replace(NEW, replaces="nobody"))
    pair.go()
    new = pair.entry("new")
    assert new is not None and "nobody, which it replaces, is retired or was never there" in new.reason
    assert pair.alive() == {("old", 1)}


def test_of_two_that_replace_one_job_the_first_does(pair: Pair) -> None:
    pair.job("new", NEW)
    pair.job("newer", NEW)
    pair.go(24)
    newer = pair.entry("newer")
    assert newer is not None and newer.state == "QUARANTINED" and "old is being replaced by new" in newer.reason
    assert pair.alive() == {("new", 1)} and pair.state("old") == "CANCELED"
    pair.intend("newer", IntentKind.RETRY, attempt=1)
    pair.go()
    assert pair.alive() == {("new", 1)} and pair.state("newer") == "QUARANTINED"


def test_a_chain_goes_link_by_link(pair: Pair) -> None:
    pair.runner.obedient = False
    pair.job("new", NEW)
    pair.job("third", replace(SPEC, replaces="new"))
    pair.go(6)
    assert pair.r.waits["third"] == "waits for new to take over from old first"
    pair.runner.obedient = True
    pair.runner.end("old", 1)
    pair.go(40)
    assert pair.alive() == {("third", 1)} and pair.starts("third") == [(1, "/memory/new/1/sav-1000")]
    assert (pair.state("old"), pair.state("new")) == ("CANCELED", "CANCELED")
    assert pair.r.waits["old"].startswith("the job that replaced it may begin from"), "third may inherit it from new"
    pair.runner.checkpoint("third", 1, 1)
    pair.go(24)
    assert pair.registers("old") == {"result/CANCELED"}


# -- slots and runners -------------------------------------------------------------------------------------------------


def test_the_slots_of_the_old_one_are_enough_and_too_many_stop_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, pools=Pools([Pool("p", 2)]))
    pair.job("other")
    pair.old()
    pair.job("new", replace(NEW, slots=2))
    pair.go()
    assert pair.alive() == {("old", 1), ("other", 1)} and pair.intents() == []
    assert pair.r.waits["new"].startswith("waiting for slots: needs 2, 1 of 2 would be free in pool p without old")
    pair.intend("new", IntentKind.CANCEL)
    pair.go()
    pair.job("small", NEW)
    pair.go(24)
    assert pair.alive() == {("small", 1), ("other", 1)} and pair.state("old") == "CANCELED"


def test_nothing_is_stopped_while_a_runner_is_silent(pair: Pair) -> None:
    pair.runner.up = False
    pair.job("new", NEW)
    pair.clock.advance(9)
    for _ in range(12):
        pair.p.step(), pair.r.step()
    assert pair.intents() == []
    pair.runner.up = True
    pair.go(24)
    assert pair.alive() == {("new", 1)}


# -- reconcilers killed at any point -----------------------------------------------------------------------------------


class Killed(BaseException):
    pass


@contextmanager
def killing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[str]]:
    """Kills the role that reaches the at-th failpoint from now on. Yields the names of the passed failpoints."""
    passed: list[str] = []

    def hit(name: str) -> None:
        passed.append(name)
        if len(passed) == at:
            raise Killed(name)

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "hit", hit)
        yield passed


def play(pair: Pair, rounds: int) -> None:
    """Runs rounds. A new reconciler follows each one that is killed."""
    for _ in range(rounds):
        try:
            pair.go(1)
        except Killed:
            pair.r = pair.new_reconciler()


@pytest.mark.parametrize("good", [True, False])
def test_a_reconciler_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: bool) -> None:
    at, killed_at = 1, set[str]()
    while True:
        (tmp_path / str(at)).mkdir()
        pair = Pair(tmp_path / str(at))
        pair.old()
        (pair.job if good else pair.submit)("new", NEW)
        with killing(monkeypatch, at) as passed:
            play(pair, 60)
        if good:
            assert pair.alive() == {("new", 1)} and pair.starts("new") == [(1, "/memory/old/1/sav-1007")]
            assert [kind for kind, _ in pair.intents()] == ["SUSPEND", "CANCEL"]
        else:
            assert pair.alive() == {("old", 2)} and pair.starts("old")[1:] == [(2, "1/1007")]
            assert [kind for kind, _ in pair.intents()] == ["SUSPEND", "RUN"]
        if at > len(passed):
            break
        killed_at.add(passed[at - 1])
        at += 1
    assert {"replace.undeclared", "replace.declared", "start.recorded", "start.answered"} <= killed_at


@pytest.mark.parametrize("good", [True, False])
def test_leaders_may_change_in_any_round(tmp_path: Path, good: bool) -> None:
    for at in range(16):
        (tmp_path / str(at)).mkdir()
        pair = Pair(tmp_path / str(at))
        pair.old()
        (pair.job if good else pair.submit)("new", NEW)
        pair.go(at)
        pair.r = pair.new_reconciler()
        pair.go(40)
        assert [kind for kind, _ in pair.intents()] == (["SUSPEND", "CANCEL"] if good else ["SUSPEND", "RUN"])
        assert pair.alive() == ({("new", 1)} if good else {("old", 2)})

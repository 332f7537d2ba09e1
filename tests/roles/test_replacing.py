"""A job that replaces another, with the real roles on memory adapters: never both at once, never none for good, whoever is
killed when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger import failpoints
from ledger.adapters import avro
from ledger.core.facts import (
    AttemptEnded,
    AttemptStarted,
    CheckpointKind,
    IntentDeclared,
    IntentKind,
    Replacement,
    RestorePoint,
)
from ledger.core.pools import Pool, Pools
from ledger.core.registers import Ended
from tests.roles.cluster import Cluster
from tests.roles.world import SPEC

SAVEPOINT = CheckpointKind.SAVEPOINT
NEW = replace(SPEC, replaces="old")


class Pair(Cluster):
    """A job `old` that may be replaced by `new`; an obedient runner makes savepoints when it is told to, if it can."""

    can_save = True

    def __init__(self, tmp_path: Path, **settings: Any) -> None:
        super().__init__(tmp_path, **{"replaced_after_s": 3.0, **settings})
        self.go(4)
        stop = self.runner.stop

        def stop_saving(job_id: str, n: int, outcome: str, savepoint: bool = False) -> None:
            attempt = self.runner._jobs[job_id].attempts.get(n)
            if self.can_save and savepoint and attempt is not None and not attempt.outcome and not attempt.order:
                self.runner.checkpoint(job_id, n, 1000 + (attempt.newest or 0), kind=SAVEPOINT)
            stop(job_id, n, outcome, savepoint)

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
            assert not {"old", "new"} <= set(jobs), "both run"

    def intents(self, job_id: str = "old") -> list[tuple[str, str]]:
        """(kind, id) of every intent that was ever put on the job."""
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
    assert old is not None and old.reason.startswith("replaced by new, which began from its savepoint 1/1007")
    assert pair.r.waits["old"] == "the job that replaced it may begin from 1/1007"


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
    assert not any(location.startswith("/memory/old/") for location in pair.runner.stored)
    pair.runner.kill("new", 2)
    pair.go()
    assert pair.starts("new")[-1] == (3, "2/3")

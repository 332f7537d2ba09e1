"""The verb `gc`, as people and scripts see it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.runner import MemoryRunner
from tests.support.roles.world import PARTITIONS

DAY_S = 86_400.0


@pytest.fixture
def runner(shell: Any) -> MemoryRunner:
    made = MemoryRunner(shell.clock, partitions=PARTITIONS)
    shell.replaced["runners"] = lambda: {"subprocess": made}
    shell.blobs = MemoryBlobs(shell.clock.time)
    return made


def lost(shell: Any) -> str:
    """A job, and a two-day-old graph of a job that does not exist; the URI of that graph."""
    shell.submit("etl")
    uri = shell.blobs.put("lost", shell.graph()).uri
    shell.clock.advance(2 * DAY_S)
    return str(uri)


def test_by_default_it_only_lists(shell: Any, runner: MemoryRunner) -> None:
    uri = lost(shell)
    head, line, last = shell.good("gc").splitlines()
    assert head.split() == ["KIND", "SIZE", "AGE", "NAME", "ID", "EVIDENCE"]
    assert line.split()[:6] == ["blob", "7", "B", "2d", "-", "lost"]
    assert "no register of this job in the log up to ledger.events[" in line
    assert last == "1 orphan, 7 B; --apply deletes them"
    assert shell.good("gc", "-o", "name").split() == [uri]
    assert len(shell.blobs.stored) == 2 and not (shell.folder / "collected.jsonl").exists()


def test_apply_deletes_and_leaves_a_record(shell: Any, runner: MemoryRunner) -> None:
    uri = lost(shell)
    assert shell.good("gc", "--apply").splitlines()[-1] == "1 orphan, 7 B deleted"
    assert uri not in shell.blobs.stored and len(shell.blobs.stored) == 1
    (record,) = [json.loads(line) for line in (shell.folder / "collected.jsonl").read_text().splitlines()]
    assert (record["does"], record["where"]) == ("delete", uri)
    assert shell.good("gc", "--apply") == "no orphan\n"


def test_machines_get_it_all_in_one_object(shell: Any, runner: MemoryRunner) -> None:
    uri = lost(shell)
    told = shell.json("gc")
    assert list(told) == ["orphans", "spared", "young", "deleted", "left", "silent", "as_of"]
    (row,) = told["orphans"]
    assert list(row) == ["kind", "job_id", "name", "namespace", "holder", "where", "size", "age_s", "evidence"]
    assert (row["where"], row["holder"]) == (uri, "blobs") and told["deleted"] == []
    assert [row["where"] for row in shell.json("gc", "--apply")["deleted"]] == [uri]


def test_what_is_young_is_counted_and_the_grace_can_be_said(shell: Any, runner: MemoryRunner) -> None:
    shell.submit("etl")
    shell.clock.advance(DAY_S)
    shell.blobs.put("lost", shell.graph())
    shell.clock.advance(7200.0)
    assert shell.good("gc") == "no orphan; 1 younger than the grace\n"
    assert shell.good("gc", "--grace", "1h").splitlines()[-1].startswith("1 orphan")
    assert shell.run("gc", LEDGER_RECONCILER__GC_GRACE_S="3600").stdout.splitlines()[-1].startswith("1 orphan")


def test_exit_codes(shell: Any, runner: MemoryRunner) -> None:
    uri = lost(shell)
    assert shell.run("gc", "--grace", "59m").exit_code == 2
    assert shell.run("gc", "--grace", "soon").exit_code == 2
    assert shell.run("gc", LEDGER_RECONCILER__GC_GRACE_S="60").exit_code == 2
    runner.up = False
    told = shell.run("gc")
    assert told.exit_code == 0 and "the subprocess runner does not answer" in told.stderr
    assert shell.run("gc", "--apply").exit_code == 3
    runner.up, shell.blobs.up = True, False
    assert shell.run("gc").exit_code == 3
    assert uri in shell.blobs.stored


def test_what_can_not_be_judged_is_told(shell: Any, runner: MemoryRunner) -> None:
    uri = lost(shell)
    shell.blobs.put_at[uri] = 0.0
    told = shell.run("gc", "--apply")
    assert told.exit_code == 0 and told.stdout == "no orphan\n"
    assert f"not touched: blob {uri}: it is older than this log" in told.stderr

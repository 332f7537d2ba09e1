"""Expired records and the verbs that read the past: answers name the jobs left out, and a query for one of them is
refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.adapters.local.objects import FolderObjects
from ledger.archive.store.archive import Archive
from ledger.archive.store.archiving import Archiver, PartitionShape, ReaderSegments
from ledger.util import times
from tests.support.archives.given import read_out
from tests.support.jobs_world import Shell

DAY_S = 86_400.0
NAMES = ["ledger.events", "ledger.recovery"]


@pytest.fixture
def archived(shell: Shell) -> tuple[Shell, str, str]:
    """Ten days with a job of prod and one of default, both suspended on the second day."""
    begun = times.rfc3339(shell.clock.time())  # as if each record was sealed right after it was written
    mine, other = shell.submit("mine", "--namespace", "prod"), shell.submit("other")
    shell.clock.advance(DAY_S)
    for job in (mine, other):
        shell.good("suspend", job, "--reason", "a pause")
    shell.clock.advance(9 * DAY_S)
    shell.submit("late")
    store = FolderObjects(Path(shell._environment["LEDGER_DIR"]) / "archive")
    archive = Archive(store, "test", lambda: begun)
    ends = shell.log.reader(NAMES).high_watermarks()
    shapes = {place: PartitionShape("id", 0, end) for place, end in ends.items()}
    archiver = Archiver(archive, ReaderSegments(shell.log, archive, read_out), lambda: shapes, shell.clock)
    archiver.begin()
    while archiver.step():
        pass
    shell._environment |= {"LEDGER_ARCHIVE__ADAPTER": "file", "LEDGER_ARCHIVE__RETENTION": "prod=5d"}
    return shell, mine, other


def test_before_its_end_a_namespace_is_left_out_and_after_it_all_is_there(archived: tuple[Shell, str, str]) -> None:
    shell, mine, other = archived
    before, after = "9.5d", "4d"
    whole = shell.json("list", "--as-of", before)
    assert {row["job_id"] for row in whole} == {mine, other}
    done = shell.json("archive", "expire")
    assert {row["namespace"] for row in done} == {"prod"}
    told = shell.run("list", "--as-of", before, "-o", "json")
    assert shell.json("list", "--as-of", before) == [row for row in whole if row["job_id"] == other]
    assert told.stderr.count("1 job of prod is left out (mine): the records that it superseded before") == 1
    assert {row["job_id"] for row in shell.json("list", "--as-of", after)} == {mine, other}
    assert "left out" not in shell.run("list", "--as-of", after).stderr
    for words in (("show", mine), ("show", "prod/mine"), ("history", mine), ("explain", mine)):
        refused = shell.run(*words, "--as-of", before)
        assert refused.exit_code == 1
        assert "the state of prod/mine at that moment is unknown" in refused.stderr
    assert shell.json("show", other, "--as-of", before)["state"] == "CREATED"
    assert shell.json("show", mine)["state"] == "SUSPENDED"
    assert shell.run("replay", "--as-of", before).exit_code == 0
    for words in (("diff",), ("replay",)):
        found = shell.run(*words, "--from", before, "--to", after, "-o", "json")
        assert found.exit_code == 0 and found.stderr.count("left out") == 1
        assert {row["job_id"] for row in json.loads(found.stdout)} == {other}


def test_a_bundle_that_was_made_since_answers_of_the_moments_before_as_the_ledger_does(
    archived: tuple[Shell, str, str], tmp_path: Path
) -> None:
    shell, mine, other = archived
    shell.good("archive", "expire")
    file = str(tmp_path / "a.zip")
    shell.good("audit", "bundle", "--to", file, "--reason", "a test")
    for before in ("9.5d", "4d", "0s"):
        words = ("list", "--as-of", before, "-o", "name")  # names only, as ages change
        wanted, found = shell.run(*words), shell.run(*words, "--bundle", file)
        assert (found.exit_code, found.stdout) == (0, wanted.stdout)
        assert found.stderr.splitlines()[-1:] == wanted.stderr.splitlines()[-1:]
    refused = shell.run("show", mine, "--as-of", "9.5d", "--bundle", file)
    assert refused.exit_code == 1 and "the state of prod/mine at that moment is unknown" in refused.stderr
    past = str(tmp_path / "b.zip")
    made = shell.run("audit", "bundle", "--to", past, "--reason", "a test", "--as-of", "9.5d")
    assert made.exit_code == 0 and made.stderr.count("1 job of prod is left out (mine)") == 1
    told = shell.run("list", "--bundle", past, "-o", "json")
    assert {row["job_id"] for row in json.loads(told.stdout)} == {other}
    assert told.stderr.count("1 job of prod is left out") == 1


def test_a_query_tells_whom_it_leaves_out(archived: tuple[Shell, str, str]) -> None:
    shell, _, other = archived
    shell.good("archive", "expire")
    moment = times.rfc3339(shell.clock.time() - 9.5 * DAY_S)
    told = shell.run("archive", "query", f"SELECT job_id FROM entries_at('{moment}')", "-o", "json")
    assert [row["job_id"] for row in json.loads(told.stdout)] == [other]
    assert f"at '{moment}': 1 job of prod is left out (mine): the records that it superseded before" in told.stderr
    assert "left out" not in shell.run("archive", "query", "SELECT job_id FROM entries_at(now())").stderr

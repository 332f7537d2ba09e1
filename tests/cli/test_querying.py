"""`archive query`, on an archive of jobs that the command made."""

from __future__ import annotations

import csv
import gc
import io
import json
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from ledger.cli import app
from ledger.util import times
from tests.support.jobs_world import Shell, seal

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """A database that an error keeps alive until the interpreter ends causes long warnings at that time."""
    yield
    gc.collect()


@pytest.fixture
def archived(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """An archived ledger with one job suspended and another created."""
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    first = shell.submit("first")
    shell.clock.advance(60.0)
    shell.submit("second")
    shell.good("suspend", first, "--reason", 'a pause, "quoted"')
    seal(shell)
    return shell


def test_who_did_what_and_what_was_to_be_brought_back(archived: Shell) -> None:
    sql = "SELECT actor, body->>'$.kind' AS kind FROM events WHERE fact = 'IntentDeclared'"
    told = archived.run("archive", "query", sql)
    assert told.exit_code == 0
    assert told.stdout.splitlines()[0].split() == ["actor", "kind"]
    assert told.stdout.splitlines()[1].split()[-1] == "SUSPEND"
    assert "archived: ledger.events up to 2025-" in told.stderr

    def names(moment: str) -> list[str]:
        sql = f"SELECT name FROM recovery_set_at('{moment}') ORDER BY name"
        return [row["name"] for row in json.loads(archived.good("archive", "query", sql, "-o", "json"))]

    now = archived.clock.time()
    assert names(times.rfc3339(now)) == ["second"]
    assert names(times.rfc3339(now - 30)) == ["first"]
    assert names(times.rfc3339(now - 3600)) == []


def test_every_form_of_an_answer(archived: Shell) -> None:
    sql = 'SELECT name, state, entry, reason AS "w.hy" FROM entries_at(now()) ORDER BY name'
    rows = json.loads(archived.good("archive", "query", sql, "-o", "json"))
    assert [(row["name"], row["state"]) for row in rows] == [("first", "SUSPENDED"), ("second", "CREATED")]
    assert rows[0]["entry"]["intent"]["reason"] == rows[0]["w.hy"] == 'a pause, "quoted"'
    assert [json.loads(line) for line in archived.good("archive", "query", sql, "-o", "jsonl").splitlines()] == rows
    head, first, _ = csv.reader(io.StringIO(archived.good("archive", "query", sql, "-o", "csv")))
    assert head == ["name", "state", "entry", "w.hy"]
    assert (first[1], json.loads(first[2]), first[3]) == ("SUSPENDED", rows[0]["entry"], 'a pause, "quoted"')
    assert archived.good("archive", "query", sql).splitlines()[0].split() == head
    assert archived.good("archive", "query", "FROM attempts") == ""


def test_a_query_from_standard_input(archived: Shell) -> None:
    arguments = ["archive", "query", "-", "-o", "csv"]
    told = CliRunner().invoke(app, arguments, input="SELECT 1 AS one\n", env=archived._environment)
    assert (told.exit_code, told.stdout.split()) == (0, ["one", "1"])


def test_bad_sql_is_wrong_usage(archived: Shell) -> None:
    told = archived.run("archive", "query", "SELECT nothing FROM events")
    code, said = told.exit_code, told.stderr
    del told  # it holds the error, and the error the database
    assert code == 2
    assert "nothing" in said and "recovery_set_at(T)" in said
    assert archived.run("archive", "query", "FROM events", "-o", "wide").exit_code == 2


def test_without_an_archive_it_says_what_status_says(shell: Shell) -> None:
    asked, status = shell.run("archive", "query", "FROM events"), shell.run("archive", "status")
    assert (asked.exit_code, asked.stderr) == (status.exit_code, status.stderr) == (2, status.stderr)
    assert "no archive" in asked.stderr


def test_without_duckdb_it_says_what_to_install(archived: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ledger.archive.query.querying", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = archived.run("archive", "query", "FROM events")
    assert told.exit_code == 2
    assert "jobledger[duckdb]" in told.stderr


def test_a_bundle_is_asked_in_the_same_way(archived: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    archived.good("audit", "bundle", "--to", str(archived.folder / "b.zip"), "--reason", "a look")
    monkeypatch.delenv("LEDGER_ARCHIVE__ADAPTER")
    given = ("--bundle", str(archived.folder / "b.zip"))
    told = archived.good("archive", "query", "SELECT name FROM recovery_set_at(now())", "-o", "csv", *given)
    assert told.split() == ["name", "second"]
    archived.good("history", "first", "--timeline", str(archived.folder / "first.svg"), *given)
    assert "suspend" in (archived.folder / "first.svg").read_text()
    (changed,) = archived.json("replay", "--what-if", f"drop {suspension(archived, given)}", *given)
    assert (changed["before"]["state"], changed["after"]["state"]) == ("SUSPENDED", "CREATED")


def suspension(shell: Shell, given: tuple[str, ...]) -> str:
    sql = "SELECT event_id FROM events WHERE fact = 'IntentDeclared'"
    return shell.good("archive", "query", sql, "-o", "csv", *given).split()[1]

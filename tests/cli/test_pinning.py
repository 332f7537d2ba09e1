"""`audit pin`, `audit pins`, `audit unpin`, and the data that a pin protects from deletion."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.memory.runner import MemoryRunner
from ledger.app import pinning
from ledger.app.ledger import guarded
from ledger.app.pin_guard import PinGuardedBlobStore, PinGuardedRunner
from ledger.archive.removal import holds, pins
from ledger.config.config import load_config
from ledger.core.model.facts import RestorePoint
from ledger.errors import LedgerError
from tests.support.jobs_world import Shell, running, seal
from tests.support.operated import EVENTS
from tests.support.roles.world import PARTITIONS

DAY_S = 86_400.0


@pytest.fixture
def archived(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    made = MemoryRunner(shell.clock, partitions=PARTITIONS)
    shell.replaced["runners"] = lambda: {"subprocess": made}
    shell.blobs = MemoryBlobs(shell.clock.time)
    shell.submit("etl")
    seal(shell)
    return shell


def test_pin_list_and_unpin(archived: Shell) -> None:
    assert archived.json("audit", "pins") == [] and archived.run("audit", "pins").stderr == "nothing is pinned\n"
    job, other = archived.submit("one"), archived.submit("two")
    told = archived.good(
        "audit", "pin", "--job", "one", "--job", other, "--from", "2025-01-02T03:04:05Z", "--to", "2099-01-01",
        "--reason", "a case",
    )  # fmt: skip
    (row,) = archived.json("audit", "pins")
    assert row["jobs"] == sorted([job, other]) and row["reason"] == "a case" and "@" in row["by"]
    assert (row["from_ms"], row["to_ms"]) == (1735787045000, 4070908800000)
    assert row["pin"] in told and "2025-01-02T03:04:05Z" in told and "a case" in told
    assert archived.good("audit", "pins", "-o", "name").split() == [row["pin"]]
    assert archived.run("audit", "verify").exit_code == 0
    assert row["pin"] in archived.good("audit", "unpin", row["pin"], "--reason", "closed")
    assert archived.json("audit", "pins") == []
    assert "lifted before" in archived.run("audit", "unpin", row["pin"], "--reason", "closed").stderr
    assert archived.run("audit", "unpin", "no-such", "--reason", "r").exit_code == 1
    assert archived.run("audit", "verify").exit_code == 0


def test_a_job_that_the_archive_alone_knows_is_pinned_by_its_id(
    archived: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention would delete such a job next."""
    job = archived.json("show", "etl")["job_id"]
    later = Shell(tmp_path / "later")  # compaction has removed the job from the topics
    shutil.copytree(archived.folder / "archive", later.folder / "archive")
    for unknown in (job[:-1], "etl", "no-such-job", "no/job"):
        told = later.run("audit", "pin", "--job", unknown, "--reason", "r")
        assert told.exit_code == 1 and "There is no job" in told.stderr
    later.good("audit", "pin", "--job", job, "--reason", "r")
    assert [row["jobs"] for row in later.json("audit", "pins")] == [[job]]
    assert later.run("audit", "verify").exit_code == 0


@pytest.mark.parametrize("arguments", [
    ("--job", "etl"), ("--reason", "r"), ("--job", "etl", "--reason", " "),
    ("--job", "etl", "--reason", "r", "--from", "soon"), ("--job", "etl", "--reason", "r", "--to", "events[0]@1"),
    ("--job", "etl", "--reason", "r", "--from", "1m", "--to", "2m"),
])  # fmt: skip
def test_what_is_no_pin(archived: Shell, arguments: tuple[str, ...]) -> None:
    assert archived.run("audit", "pin", *arguments).exit_code == 2
    assert archived.json("audit", "pins") == []


def test_a_reason_that_no_terminal_can_show_is_refused_and_one_that_stands_there_is_shown(archived: Shell) -> None:
    assert archived.run("audit", "pin", "--job", "etl", "--reason", "b\udcff").exit_code == 2
    archive = archived.opened(load_config(archived.folder)).archive
    pins.pin(archive, pins.Pin("pin-1", ("etl",), None, None, "b\udcff", "me", "2026-01-01T00:00:00Z"), EVENTS, lambda _: 0)
    (row,) = archived.json("audit", "pins")
    assert row["reason"] == "b\udcff"
    assert "pin-1" in archived.good("audit", "pins")
    assert archived.run("audit", "verify").exit_code == 0


def test_what_a_killed_pin_holds_though_the_chain_does_not_say_so_is_told(archived: Shell) -> None:
    store = archived.opened(load_config(archived.folder)).objects
    store.create(holds.name_of("etl", "pin-1", holds.PIN), b"{}")
    told = archived.run("audit", "pins")
    assert told.exit_code == 0 and "jobledger audit unpin pin-1" in told.stderr
    archived.good("audit", "unpin", "pin-1", "--reason", "it was killed")
    assert "pin-1" not in archived.run("audit", "pins").stderr


def test_without_an_archive_there_is_nothing_to_pin_in(shell: Shell) -> None:
    shell.submit("etl")
    for words in (("pin", "--job", "etl", "--reason", "r"), ("pins",), ("unpin", "x", "--reason", "r")):
        told = shell.run("audit", *words)
        assert told.exit_code == 2 and "no archive" in told.stderr


def orphan_of(archived: Shell, name: str = "etl") -> str:
    """Puts another graph of a job, which no register refers to. It is older than the grace, and younger than the log."""
    archived.clock.advance(DAY_S)
    job = archived.json("show", name)["job_id"]
    path = archived.graph()
    path.write_text("another graph")
    uri = str(archived.blobs.put(job, path).uri)
    archived.clock.advance(2 * DAY_S)
    return uri


def pinned(archived: Shell, name: str = "etl") -> str:
    return archived.good("audit", "pin", "--job", name, "--reason", "a case", "-o", "name").strip()


def test_the_collection_of_garbage_spares_what_is_pinned_and_says_by_which_pin(archived: Shell) -> None:
    uri, pin = orphan_of(archived), pinned(archived)
    told = archived.run("gc", "--apply", "-o", "json")
    assert json.loads(told.stdout)["deleted"] == [] and f"the pin {pin} holds its job" in told.stderr
    (spared,) = json.loads(told.stdout)["spared"]
    assert spared["where"] == uri and uri in archived.blobs.stored
    archived.good("audit", "unpin", pin, "--reason", "closed")
    assert [row["where"] for row in archived.json("gc", "--apply")["deleted"]] == [uri]


def test_where_the_archive_cant_be_read_nothing_is_deleted(archived: Shell) -> None:
    uri = orphan_of(archived)
    (archived.folder / "archive/manifests/ledger.events/0/000000000000.json").write_text("{")
    for path in (archived.folder / "archive/manifests").rglob("*.json"):
        path.write_text("{")
    told = archived.run("gc", "--apply")
    assert told.exit_code == 1 and "audit verify" in told.stderr and uri in archived.blobs.stored


def test_a_pin_that_comes_between_looking_and_deleting_is_seen(archived: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = orphan_of(archived)
    asked: list[int] = []

    def held(config: object) -> dict[str, str]:
        asked.append(1)
        return {archived.json("show", "etl")["job_id"]: "late"} if len(asked) > 1 else {}

    monkeypatch.setattr("ledger.app.pinning.held_jobs", held)
    told = archived.run("gc", "--apply")
    assert "not deleted" in told.stderr and "the pin late holds" in told.stderr and uri in archived.blobs.stored


@pytest.mark.parametrize("lift", [False, True])
def test_a_pin_that_agents_are_not_told_of_is_shown(archived: Shell, lift: bool) -> None:
    """Somebody has changed the marker objects that are stored beside the chain. `gc` uses the chain."""
    uri, pin = orphan_of(archived), pinned(archived)
    (marker,) = (archived.folder / "archive/pinned").rglob("pin.json")
    marker.with_name("unpinned.json").write_text("{}") if lift else marker.unlink()
    told = archived.run("audit", "pins", "-o", "json")
    assert told.exit_code == 1 and f"{pin} holds" in told.stderr and json.loads(told.stdout)[0]["pin"] == pin
    assert archived.json("gc", "--apply")["deleted"] == [] and uri in archived.blobs.stored


def test_a_savepoint_of_a_pinned_job_is_not_disposed_of(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_ARCHIVE__ADAPTER", "file")
    running(shell)
    seal(shell)
    pin = pinned(shell)
    told = shell.run("savepoint", "dispose", "etl", "1/2", "--reason", "full", "--timeout", "0.5")
    assert told.exit_code == 5 and pin in told.stderr
    assert [row["state"] for row in shell.json("savepoint", "list", "etl")] == ["offered", "offered"]
    shell.good("audit", "unpin", pin, "--reason", "closed")
    assert shell.run("savepoint", "dispose", "etl", "1/2", "--reason", "full", "--timeout", "0.5").exit_code == 4


def test_a_retirement_spares_what_is_pinned(archived: Shell) -> None:
    config = load_config(archived.folder)
    job = archived.json("show", "etl")["job_id"]
    pin = pinned(archived)
    runners, blobs = guarded(archived.opened(config))
    assert blobs.delete_all(job) == 0 and len(archived.blobs.stored) == 1
    archived.good("audit", "unpin", pin, "--reason", "closed")
    assert blobs.delete_all(job) == 1 and not archived.blobs.stored
    assert runners["subprocess"].observe() == [] and hasattr(runners["subprocess"], "kept")


@pytest.mark.parametrize(("answer", "spared"), [("", False), ("a-pin", True), (None, True)])
def test_what_spares_asks_each_time_and_spares_where_nobody_knows(
    archived: Shell, answer: str | None, spared: bool
) -> None:
    def held_by(_: str) -> str:
        if answer is None:
            raise LedgerError("no answer")
        return answer

    disposed: list[str] = []

    class Runner(MemoryRunner):
        def dispose(self, job_id: str, restore_points: Sequence[RestorePoint]) -> None:
            disposed.append(job_id)

    runner = PinGuardedRunner(Runner(archived.clock, partitions=PARTITIONS), held_by)
    runner.dispose("job", [RestorePoint(1, 1, "/x")])
    assert disposed == ([] if spared else ["job"])
    blobs = PinGuardedBlobStore(archived.blobs, held_by)
    assert blobs.delete_all(archived.json("show", "etl")["job_id"]) == (0 if spared else 1)


def test_nothing_is_put_around_the_runners_without_an_archive(shell: Shell) -> None:
    shell.replaced["runners"] = dict
    opened = shell.opened(load_config(shell.folder))
    assert guarded(opened) == ({}, shell.blobs) and pinning.held_jobs(opened) == {}

"""`audit bundle`, and the reading verbs on what it made."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs_world import Shell


@pytest.fixture
def bundled(shell: Shell, tmp_path: Path) -> Path:
    """Of two jobs, one of which was suspended later, in a folder with nothing else; the ledger is away from then on."""
    paused = shell.submit("paused")
    shell.clock.advance(5.0)
    shell.submit("still")
    shell.clock.advance(5.0)
    shell.good("suspend", paused, "--reason", "a pause")
    file = tmp_path / "incident.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "an incident")
    return file


def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> Any:
        raise AssertionError("a server was asked")

    monkeypatch.setattr("ledger.wiring.event_log", gone)


def test_every_reading_verb_says_the_same_of_it_as_of_the_ledger(
    shell: Shell, bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = shell.good("list", "-o", "name").split()
    paused = next(row["job_id"] for row in shell.json("list") if row["state"] == "SUSPENDED")
    asked = [("list",), *((verb, job) for verb in ("show", "history", "explain") for job in jobs), ("replay",)]
    before = {words: shell.json(*words) for words in asked}
    past = {words: shell.json(*words, "--as-of", "7s") for words in (("list",), ("explain", paused))}
    changed = shell.json("diff", "--from", "7s")
    away(monkeypatch)
    for words, answer in before.items():
        assert shell.json(*words, "--bundle", str(bundled)) == answer, words
    for words, answer in past.items():
        assert shell.json(*words, "--as-of", "7s", "--bundle", str(bundled)) == answer != before[words]
    assert shell.json("diff", "--from", "7s", "--bundle", str(bundled)) == changed != []


def test_it_says_what_it_is(shell: Shell, bundled: Path) -> None:
    told = shell.run("list", "--bundle", str(bundled))
    assert "a bundle of all jobs" in told.stderr and "an incident" in told.stderr
    with zipfile.ZipFile(bundled) as file:
        about = json.loads(file.read("bundle.json"))
    assert about["reason"] == "an incident" and about["versions"]["jobledger"]
    assert about["config"]["kafka"]["bootstrap.servers"] == "memory:1"


def test_it_holds_the_jobs_that_are_named_and_no_others(shell: Shell, tmp_path: Path) -> None:
    wanted, other = shell.submit("wanted"), shell.submit("other")
    file = str(tmp_path / "one.zip")
    made = shell.json("audit", "bundle", "--to", file, "--reason", "r", "--job", "wanted")
    assert made["records"] > 0 and made["file"] == file
    assert shell.good("list", "-o", "name", "--bundle", file).split() == [wanted]
    assert shell.json("show", wanted, "--bundle", file) == shell.json("show", wanted)
    assert shell.run("replay", "--bundle", file).exit_code == 0
    assert shell.run("history", other, "--bundle", file).exit_code == 1
    with zipfile.ZipFile(file) as zipped:
        assert zipped.read(f"timelines/{wanted}.html").startswith(b"<!DOCTYPE html>")
        assert other.encode() not in b"".join(map(zipped.read, zipped.namelist()))


def test_of_a_moment_it_holds_nothing_that_came_later(shell: Shell, tmp_path: Path) -> None:
    job = shell.submit("first")
    shell.clock.advance(5.0)
    vector = shell.run("list", "--as-of", "0s").stderr.partition("as of ")[2].split()[0]
    shell.clock.advance(5.0)
    shell.good("suspend", job, "--reason", "later")
    file = str(tmp_path / "then.zip")
    made = shell.json("audit", "bundle", "--to", file, "--reason", "r", "--as-of", "5s")
    assert made["as_of"] == vector
    assert shell.json("show", job, "--bundle", file)["state"] == "CREATED"


def test_what_may_have_been_compacted_is_refused_of_a_bundle_too(shell: Shell, bundled: Path) -> None:
    refused = shell.run("list", "--as-of", "2d", "--bundle", str(bundled))
    assert refused.exit_code == 1 and "compaction" in refused.stderr


def test_it_is_an_archive_of_its_own_and_what_was_altered_in_it_is_named(
    shell: Shell, bundled: Path, tmp_path: Path
) -> None:
    verified = shell.json("audit", "verify", "--bundle", str(bundled))
    assert sum(one["records"] for one in verified) > 0 and all(one["first_bad"] is None for one in verified)
    event = shell.json("history", "still")[0]["event_id"]
    assert json.loads(shell.good("audit", "prove", event, "--bundle", str(bundled)))["topic"]
    spoiled = tmp_path / "spoiled.zip"
    with zipfile.ZipFile(bundled) as good, zipfile.ZipFile(spoiled, "w") as bad:
        for name in good.namelist():
            data = bytearray(good.read(name))
            if name.startswith("records/ledger.events/"):
                data[len(data) // 2] ^= 1
            bad.writestr(name, bytes(data))
    assert shell.run("audit", "verify", "--bundle", str(spoiled)).exit_code == 1
    assert "audit verify" in shell.run("history", "still", "--bundle", str(spoiled)).stderr


def test_a_file_that_is_there_is_left_as_it_is(shell: Shell, bundled: Path) -> None:
    before = bundled.read_bytes()
    assert shell.run("audit", "bundle", "--to", str(bundled), "--reason", "r").exit_code == 2
    assert bundled.read_bytes() == before
    assert [path.name for path in bundled.parent.glob("*.part")] == []


@pytest.mark.parametrize("arguments", [
    ("list", "--watch"), ("history", "still", "--follow"), ("list", "--bundle", "/nowhere.zip"),
])  # fmt: skip
def test_what_does_not_go_with_a_bundle(shell: Shell, bundled: Path, arguments: tuple[str, ...]) -> None:
    given = arguments if "--bundle" in arguments else (*arguments, "--bundle", str(bundled))
    assert shell.run(*given).exit_code == 2


@pytest.mark.parametrize(("about", "words"), [
    (None, "no bundle.json"), (b"{", "can't be read"), (b"[]", "can't be read"), (b'{"format": 2}', "format 2"),
    (b'{"format": 1, "jobs": []}', "can't be read"),
])  # fmt: skip
def test_what_is_no_bundle_of_ours(shell: Shell, tmp_path: Path, about: bytes | None, words: str) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("x", b"x")
        if about is not None:
            zipped.writestr("bundle.json", about)
    told = shell.run("list", "--bundle", str(file))
    assert told.exit_code == 2 and words in told.stderr


def test_what_is_no_zip_at_all(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "some.zip").write_bytes(b"PK\x03\x04 nothing of the kind")
    assert shell.run("list", "--bundle", str(tmp_path / "some.zip")).exit_code == 2

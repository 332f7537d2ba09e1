"""The counter of an archive finds what is missing, doubled or other, and reads what manifests name alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from consumers.completeness import Place, Unreadable, compare, read_archive
from ledger.adapters import cloudevents
from ledger.adapters.local.objects import FolderObjects
from ledger.archive.archive import Archive
from tests.archive.given import TOPIC, records, sealed
from tests.docs.pages import ROOT

A, B, C = Place(0, 0), Place(0, 1), Place(1, 0)


@pytest.mark.parametrize(
    ("acknowledged", "archived", "logged", "missing", "doubled", "differing"),
    [
        ("ab", {A: "a", B: "b"}, None, [], [], []),
        ("a", {A: "a", B: "b"}, {A: "a", B: "b"}, [], [], []),
        ("ab", {A: "a"}, None, ["event b"], [], []),
        ("a", {A: "a"}, {A: "a", B: "b"}, ["place [0]@1"], [], []),
        ("a", {A: "a", B: "a"}, None, [], ["event a"], []),
        ("a", {A: "a", B: "a"}, {A: "a", B: "a"}, [], [], []),  # sent again, and archived so
        ("a", {A: "a"}, {A: "a", B: "a"}, ["event a", "place [0]@1"], [], []),
        ("a", {A: "a", C: "c"}, {C: "c"}, [], [], []),  # compacted away in the log
        ("a", {A: "a", C: "a"}, {A: "a"}, [], ["event a"], []),
        ("a", {A: "a", C: "x"}, {A: "a", C: "c"}, [], [], ["place [1]@0"]),
        ("a", {A: "a", C: "x"}, {A: "a", C: "?"}, [], [], []),
        ("aa", {A: "a"}, None, [], ["event a, acknowledged 2 times"], []),
    ],
)
def test_what_is_told(
    acknowledged: str, archived: dict[Place, str], logged: dict[Place, str] | None, missing: list[str], doubled: list[str],
    differing: list[str],
) -> None:  # fmt: skip
    report = compare(list(acknowledged), list(archived.items()), logged)
    assert (list(report.missing), list(report.doubled), list(report.differing)) == (missing, doubled, differing)
    assert report.complete == (not missing + doubled + differing)


def test_a_place_that_is_archived_twice() -> None:
    assert compare(["a"], [(A, "a"), (A, "a")]).doubled == ("event a", "place [0]@0")


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    """Of the events in an archive of two partitions, in `archive`."""
    archive = Archive(FolderObjects(tmp_path / "archive"), "test", lambda: "2026-01-01T00:00:00Z")
    found = [one for partition in (0, 1) for one in records(30, partition, partition)]
    for partition in (0, 1):
        sealed(archive, [one for one in found if one.partition() == partition])
    return [cloudevents.parse(one.headers()).id for one in found]


def counted(tmp_path: Path, ids: list[str]) -> subprocess.CompletedProcess[str]:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.write_text("".join(f"{one}\n" for one in ids))
    command = [sys.executable, "-m", "consumers.completeness", str(acknowledged), str(tmp_path / "archive")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_counts_and_its_exit_code_says_the_same(tmp_path: Path, ids: list[str]) -> None:
    told = counted(tmp_path, ids)
    assert (told.returncode, told.stdout.split("\n")[:2]) == (0, ["acknowledged: 60 events", "in the archive: 60 records"])
    told = counted(tmp_path, [*ids, "never-archived"])
    assert told.returncode == 1 and "  event never-archived\n" in told.stdout


def test_an_object_that_no_manifest_names_does_not_count(tmp_path: Path, ids: list[str]) -> None:
    named = next((tmp_path / "archive" / "records").rglob("*.parquet"))
    named.with_name("stray.parquet").write_bytes(named.read_bytes())
    assert len(list(read_archive(tmp_path / "archive", TOPIC))) == len(ids)


def test_joined_days_are_refused_rather_than_counted_wrongly(tmp_path: Path, ids: list[str]) -> None:
    (tmp_path / "archive" / "manifests" / TOPIC / "0" / "000000000099.json").write_text('{"format": 2}')
    told = counted(tmp_path, ids)
    assert told.returncode == 2 and "days of this archive were joined" in told.stderr


def test_what_can_not_be_read_is_said(tmp_path: Path, ids: list[str]) -> None:
    with pytest.raises(Unreadable, match=r"Is .* the archive"):
        list(read_archive(tmp_path, TOPIC))
    next((tmp_path / "archive" / "records").rglob("*.parquet")).write_bytes(b"PAR1")
    told = counted(tmp_path, ids)
    assert told.returncode == 2 and "jobledger audit verify" in told.stderr

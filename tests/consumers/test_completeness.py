"""The completeness check finds missing, duplicate and different records of an archive. It reads only what manifests
name."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from consumers.completeness import RecordPosition, compare, read_archive
from consumers.sealed import Unreadable
from ledger.adapters import cloudevents
from ledger.adapters.local.objects import FolderObjects
from ledger.adapters.s3.objects import S3Objects
from ledger.adapters.s3.settings import S3Settings
from ledger.archive.store.archive import Archive
from ledger.archive.store.chains import lines_of
from ledger.archive.store.compaction import compact
from ledger.errors import Unreachable
from tests.support.archives.days import DAYS, LATER_S, PER_DAY, sealed_days
from tests.support.archives.given import TOPIC, records, sealed
from tests.support.pages import ROOT

A, B, C = RecordPosition(0, 0), RecordPosition(0, 1), RecordPosition(1, 0)


@pytest.mark.parametrize(
    ("acknowledged", "archived", "logged", "missing", "doubled", "differing"),
    [
        ("ab", {A: "a", B: "b"}, None, [], [], []),
        ("a", {A: "a", B: "b"}, {A: "a", B: "b"}, [], [], []),
        ("ab", {A: "a"}, None, ["event b"], [], []),
        ("a", {A: "a"}, {A: "a", B: "b"}, ["place [0]@1"], [], []),
        ("a", {A: "a", B: "a"}, None, [], ["event a"], []),
        ("a", {A: "a", B: "a"}, {A: "a", B: "a"}, [], [], []),  # sent twice, and archived twice
        ("a", {A: "a"}, {A: "a", B: "a"}, ["event a", "place [0]@1"], [], []),
        ("a", {A: "a", C: "c"}, {C: "c"}, [], [], []),  # removed from the log by compaction
        ("a", {A: "a", B: "a"}, {B: "a"}, [], [], []),  # sent twice; compaction removed the first one
        ("a", {A: "a", B: "a"}, {}, [], [], []),  # or compaction removed both
        ("a", {A: "a", B: "a"}, {A: "a", B: "b"}, [], ["event a"], ["place [0]@1"]),
        # a resend has the same key as the first one, so the same partition
        ("a", {A: "a", C: "a"}, {A: "a"}, [], ["event a"], []),
        ("a", {A: "a", C: "a"}, {A: "a", C: "a"}, [], [], []),
        ("a", {A: "a", C: "x"}, {A: "a", C: "c"}, [], [], ["place [1]@0"]),
        ("a", {A: "a", C: "x"}, {A: "a", C: "?"}, [], [], []),
        ("aa", {A: "a"}, None, [], ["event a, acknowledged 2 times"], []),
    ],
)
def test_what_is_told(
    acknowledged: str, archived: dict[RecordPosition, str], logged: dict[RecordPosition, str] | None,
    missing: list[str], doubled: list[str],
    differing: list[str],
) -> None:  # fmt: skip
    report = compare(list(acknowledged), list(archived.items()), logged)
    assert (list(report.missing), list(report.doubled), list(report.differing)) == (missing, doubled, differing)
    assert report.complete == (not missing + doubled + differing)


def test_a_place_that_is_archived_twice() -> None:
    assert compare(["a"], [(A, "a"), (A, "a")]).doubled == ("event a", "place [0]@0")


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    """The ids of the events in an archive of two partitions, in the folder `archive`."""
    archive = Archive(FolderObjects(tmp_path / "archive"), "test", lambda: "2026-01-01T00:00:00Z")
    found = [one for partition in (0, 1) for one in records(30, partition, partition)]
    for partition in (0, 1):
        sealed(archive, [one for one in found if one.partition() == partition])
    return [cloudevents.parse(one.headers()).id for one in found]


def counted(tmp_path: Path, ids: list[str]) -> subprocess.CompletedProcess[str]:
    acknowledged = tmp_path / "acknowledged"
    acknowledged.write_text("".join(f"{one}\n" for one in ids))
    command = [sys.executable, "-m", "consumers.completeness", str(acknowledged), str(tmp_path / "archive")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def test_the_command_counts_and_its_exit_code_says_the_same(tmp_path: Path, ids: list[str]) -> None:
    told = counted(tmp_path, ids)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split("\n")[:2] == ["acknowledged: 60 events", "in the archive: 60 records"]
    told = counted(tmp_path, [*ids, "never-archived"])
    assert told.returncode == 1 and "  event never-archived\n" in told.stdout


def test_an_object_that_no_manifest_names_does_not_count(tmp_path: Path, ids: list[str]) -> None:
    named = next((tmp_path / "archive" / "records").rglob("*.parquet"))
    named.with_name("stray.parquet").write_bytes(named.read_bytes())
    assert len(list(read_archive(str(tmp_path / "archive"), TOPIC))) == len(ids)


def test_a_listing_that_no_note_names_does_not_count(tmp_path: Path, ids: list[str]) -> None:
    """Notes in such a listing do not count either: a forger or a killed join may have left it."""
    where = tmp_path / "archive"
    manifest = json.loads(next((where / "manifests").rglob("*.json")).read_bytes())
    note = {"kind": "rewritten", "objects": [
        {"records": manifest["records"], "object": "rewritten/none.parquet", "object_sha256": "0" * 64, "gone": []}
    ]}  # fmt: skip
    (where / "notes").mkdir()
    (where / "notes" / "forged.json").write_text(json.dumps(note))
    listing = where / "joined" / manifest["topic"] / str(manifest["partition"]) / "forged.jsonl.gz"
    listing.parent.mkdir(parents=True)
    listing.write_bytes(gzip.compress(json.dumps({**manifest, "format": 2, "records": "notes/forged.json"}).encode()))
    assert counted_in(where) == sorted(ids)


def counted_in(where: Path) -> list[str]:
    return sorted(event for _, event in read_archive(str(where), TOPIC))


@pytest.mark.slow
def test_joined_days_are_counted_once_wherever_joining_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joined records exist twice until the last of the original objects is deleted."""
    store = FolderObjects(tmp_path / "archive")
    archive, _ = sealed_days(store)
    ids = counted_in(tmp_path / "archive")
    assert len(ids) == 2 * DAYS * PER_DAY == len(set(ids))
    deleted = list[str]()

    def delete(name: str) -> None:
        assert counted_in(tmp_path / "archive") == ids
        deleted.append(name)
        if len(deleted) % 7 == 0:
            raise Unreachable("the disk is away")
        FolderObjects.delete(store, name)

    monkeypatch.setattr(store, "delete", delete)
    while True:
        try:
            compact(archive, LATER_S)
            break
        except Unreachable:
            continue
    assert deleted and counted_in(tmp_path / "archive") == ids
    note = next(one for path in (tmp_path / "archive" / "notes" / TOPIC / "0").iterdir()
                if (one := json.loads(path.read_bytes()))["first_sequence"] == 0)  # fmt: skip
    archive.note(archive.head(TOPIC, 0), "joined", {**note, "last_sequence": 1})
    assert counted_in(tmp_path / "archive") == ids, "if two joined runs overlap, the longer one counts"


def test_notes_of_other_kinds_are_no_records(tmp_path: Path, ids: list[str]) -> None:
    archive = Archive(FolderObjects(tmp_path / "archive"), "test", lambda: "2026-01-01T00:00:00Z")
    archive.note(archive.head(TOPIC, 0), "of-a-kind", {"said": "something"})
    assert len(counted_in(tmp_path / "archive")) == len(ids)


def test_what_is_joined_and_not_named_does_not_count(tmp_path: Path, ids: list[str]) -> None:
    store = FolderObjects(tmp_path / "archive")
    archive = Archive(store)
    store.create(f"joined/{TOPIC}/0/2026-01-01/0-2.jsonl.gz", lines_of(list(archive.manifests(TOPIC, 0))))
    assert len(counted_in(tmp_path / "archive")) == len(ids)


def test_what_was_altered_is_not_counted(tmp_path: Path, ids: list[str]) -> None:
    one, other = sorted((tmp_path / "archive" / "records" / TOPIC / "0").glob("*.parquet"))[:2]
    one.write_bytes(other.read_bytes())
    told = counted(tmp_path, ids)
    assert told.returncode == 2 and "differs from what was sealed" in told.stderr


def test_a_bucket_is_counted_as_a_folder_is(moto: S3Settings) -> None:
    archive = Archive(S3Objects(replace(moto, prefix="kept/")), "test", lambda: "2026-01-01T00:00:00Z")
    sealed(archive, records(30))
    endpoint = quote(moto.endpoint_url, safe="")
    where = f"s3://{moto.bucket}/kept?endpoint_override={endpoint}&region=us-east-1"
    assert len(list(read_archive(where, TOPIC))) == 30
    with pytest.raises(Unreadable, match="no sealed records"):
        list(read_archive(where.replace("/kept", "/other"), TOPIC))


def test_of_no_event_nothing_is_proved(tmp_path: Path, ids: list[str]) -> None:
    """The writer kept no ids, or the file is the wrong one."""
    told = counted(tmp_path, [])
    assert (told.returncode, told.stdout) == (2, "") and "There is no id in" in told.stderr


def test_what_can_not_be_read_is_said(tmp_path: Path, ids: list[str]) -> None:
    with pytest.raises(Unreadable, match="Check the archive"):
        list(read_archive(str(tmp_path), TOPIC))
    next((tmp_path / "archive" / "records").rglob("*.parquet")).write_bytes(b"PAR1")
    told = counted(tmp_path, ids)
    assert told.returncode == 2 and "jobledger audit verify" in told.stderr

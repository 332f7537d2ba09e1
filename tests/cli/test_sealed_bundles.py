"""A seal reveals every change of a bundle beside its records: in `bundle.json`, timelines, logs and whole chains."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ledger.adapters.local.zipped import ZipObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.archive.store import sealing
from ledger.archive.store.archive import Archive
from ledger.history import bundling
from tests.cli.altered import Objects, about, altered, both, made_of, objects_of, unsealed
from tests.support.jobs_world import Shell

FIELDS = (
    "made_at", "made_by", "reason", "jobs", "events", "recovery", "rejects", "partitions", "keep", "cut", "sure_from_s",
    "config", "versions", "expired", "as_of_s", "format",
)  # fmt: skip
#: Another plausible value for each field: no reader refuses it.
OTHERWISE: dict[str, Any] = {
    "made_at": "2025-01-02T00:00:00Z", "jobs": ["other"], "partitions": {"events": 1, "recovery": 1}, "keep": 7,
    "sure_from_s": {}, "config": {}, "versions": {}, "as_of_s": 1_700_000_000.0,
    "expired": {"events[0]": [{"namespace": "default", "until_s": 2e9, "records": 1, "jobs": None, "below": 99_999}]},
}  # fmt: skip


@pytest.fixture
def sealed(shell: Shell, tmp_path: Path) -> Path:
    """A bundle of one job, with its timeline and output."""
    job = shell.submit("mine")
    shell.submit("other")
    logs = shell.folder / f"agent/jobs/{job}/attempts/1/logs"
    logs.mkdir(parents=True)
    (logs / "stdout.log").write_text("printed")
    file = tmp_path / "sealed.zip"
    shell.good("audit", "bundle", "--to", str(file), "--reason", "r", "--job", "mine", "--logs")
    return file


def verified(shell: Shell, file: Path) -> tuple[int, str]:
    told = shell.run("audit", "verify", "--bundle", str(file))
    return told.exit_code, told.stderr


def test_every_field_is_tried(sealed: Path) -> None:
    assert set(json.loads(objects_of(sealed)["bundle.json"])) <= set(FIELDS)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("gone", [False, True])
def test_each_field_of_bundle_json_is_sealed(shell: Shell, sealed: Path, tmp_path: Path, field: str, gone: bool) -> None:
    before = json.loads(objects_of(sealed)["bundle.json"])
    if gone and field not in before:
        return
    otherwise = OTHERWISE.get(field, "another")
    changed = about(lambda said: {k: v for k, v in said.items() if k != field} if gone else {**said, field: otherwise})
    file = altered(sealed, tmp_path / "altered.zip", changed)
    code, told = verified(shell, file)
    assert code == 1 and "bundle.json is not what was sealed" in told
    refused = shell.run("list", "--bundle", str(file))
    assert refused.exit_code == 1 and "bundle.json of this bundle is not what was sealed" in refused.stderr


def test_what_is_as_sealed_says_what_to_compare(shell: Shell, sealed: Path) -> None:
    code, told = verified(shell, sealed)
    assert code == 0 and "bundle.json and 2 other objects are as sealed" in told
    assert sha256(sealed.read_bytes()).hexdigest() in told


def _spoil(objects: Objects) -> None:
    (name,) = [name for name in objects if name.startswith("timelines/")]
    objects[name] = objects[name].replace(b"mine", b"MINE")


def _remove(objects: Objects) -> None:
    del objects[next(name for name in objects if name.startswith("logs/"))]


def _put_in(objects: Objects) -> None:
    objects["logs/job-mine/2/stdout.log"] = b"never printed"


@pytest.mark.parametrize(("change", "words"), [
    (_spoil, "is not what was sealed"), (_remove, "is missing"), (_put_in, "is not named by the seal: it was added later"),
    (lambda objects: objects.pop("bundle.json"), "bundle.json is missing"),
    (lambda objects: objects.update({"bundle.json": b"{"}), "bundle.json is not what was sealed"),
    (lambda objects: objects.update({"bundle.json": b" " * (33 << 20)}), "it is not read"),
], ids=["spoil", "remove", "put in", "no bundle.json", "damage bundle.json", "a large bundle.json"])  # fmt: skip
def test_what_lies_beside_the_records_is_sealed(
    shell: Shell, sealed: Path, tmp_path: Path, change: Callable[[Objects], object], words: str
) -> None:
    code, told = verified(shell, altered(sealed, tmp_path / "altered.zip", change))
    assert code == 1 and words in told


def test_a_large_bundle_json_is_not_read_in_an_unsealed_bundle_either(shell: Shell, sealed: Path, tmp_path: Path) -> None:
    def large(objects: Objects) -> None:
        objects["bundle.json"] += b" " * (33 << 20)

    file = altered(sealed, tmp_path / "large.zip", both(unsealed, large))
    for verb in (("list",), ("audit", "verify")):
        told = shell.run(*verb, "--bundle", str(file))
        assert told.exit_code == 1 and "it is not read" in told.stderr


def _last_of_a_chain(objects: Objects) -> str:
    first = min(name for name in objects if name.startswith("manifests/"))
    folder = first.rpartition("/")[0]
    return max(name for name in objects if name.startswith(folder))


def _unsealed_once(objects: Objects) -> None:
    """Removes the seal of one chain; the note itself stays."""
    del objects[_last_of_a_chain(objects)]


def _without_a_chain(objects: Objects) -> None:
    place = "/".join(_last_of_a_chain(objects).split("/")[1:3])
    for name in [name for name in objects if f"/{place}/" in name]:
        del objects[name]


def _with_another_chain(objects: Objects) -> None:
    place = "/".join(_last_of_a_chain(objects).split("/")[1:3])
    for name in [name for name in objects if f"/{place}/" in name]:
        objects[name.replace(f"/{place}/", "/ledger.other/0/")] = objects[name]


@pytest.mark.parametrize(("change", "words"), [
    (_unsealed_once, "does not end with the seal of the bundle"),
    (_without_a_chain, "the bundle holds no manifest of it"),
    (_with_another_chain, "does not name this chain"),
])  # fmt: skip
def test_chains_are_sealed_together(
    shell: Shell, sealed: Path, tmp_path: Path, change: Callable[[Objects], object], words: str
) -> None:
    """In a bundle of some jobs, bundle.json alone does not show which partitions must hold records."""
    code, told = verified(shell, altered(sealed, tmp_path / "altered.zip", change))
    assert code == 1 and words in told


def test_a_chain_that_was_made_anew_below_the_seal_of_another_bundle_is_found(
    shell: Shell, sealed: Path, tmp_path: Path
) -> None:
    """The seal of another bundle is put behind a chain that it does not cover."""
    shell.submit("mine-too")
    later = tmp_path / "later.zip"
    shell.good("audit", "bundle", "--to", str(later), "--reason", "r", "--job", "mine", "--job", "mine-too")
    ours, theirs = objects_of(sealed), objects_of(later)
    place = next(name for name in theirs if name.startswith("records/ledger.events/")).split("/")[1:3]
    mixed = {name: data for name, data in ours.items() if name.split("/")[1:3] != place}
    mixed |= {name: data for name, data in theirs.items() if name.split("/")[1:3] == place}
    code, told = verified(shell, made_of(mixed, tmp_path / "mixed.zip"))
    assert code == 1 and ("a different seal" in told or "does not name this chain" in told)


def test_one_that_was_made_before_there_were_seals_is_called_unsealed(shell: Shell, sealed: Path, tmp_path: Path) -> None:
    file = altered(sealed, tmp_path / "older.zip", unsealed)
    code, told = verified(shell, file)
    assert code == 0 and "the bundle is unsealed" in told and sha256(file.read_bytes()).hexdigest() in told
    assert shell.json("show", "mine", "--bundle", str(file)) == shell.json("show", "mine", "--bundle", str(sealed))


def test_who_seals_it_anew_is_found_by_the_hash_of_the_file_alone(shell: Shell, sealed: Path, tmp_path: Path) -> None:
    """A seal has no key. The receiver compares the SHA-256 of the file with the one that the maker got."""
    objects = objects_of(sealed)
    both(unsealed, about(lambda said: {**said, "reason": "another"}))(objects)
    forged = tmp_path / "forged.zip"
    with closing(ZipObjects(forged, new=True)) as store:
        for name, data in objects.items():
            store.create(name, data)
        bundling.seal(store)
    code, told = verified(shell, forged)
    assert code == 0 and "which no key signs" in told
    assert sha256(sealed.read_bytes()).hexdigest() not in told


def test_a_bundle_of_nothing_is_sealed_too() -> None:
    store = MemoryObjects()
    store.create("bundle.json", b"{}")
    sealing.seal(Archive(store), ("ledger.events", 0), "bundle")
    assert sealing.check(store) == (True, 1, {("ledger.events", 0): []})
    store.stored["bundle.json"] = b"[]"
    assert [one.reason for one in sealing.check(store).broken["ledger.events", 0]] == ["bundle.json is not what was sealed"]

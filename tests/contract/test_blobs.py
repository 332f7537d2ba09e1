"""The contract of `ports.BlobStore`: in memory, in a folder, and in a bucket of a real server (of moto without Go)."""

from __future__ import annotations

import filecmp
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.adapters.local.blobs import FileBlobs
from ledger.adapters.memory.blobs import MemoryBlobs
from ledger.adapters.s3.blobs import S3Blobs
from ledger.adapters.s3.client import connect
from ledger.adapters.s3.settings import S3Settings
from ledger.core.model.facts import GraphRef
from ledger.errors import PermanentError, Unreachable, UsageError
from ledger.ports import BlobStore, StoredBlob
from ledger.util.files import write_atomic
from tests.support.s3 import BUCKET

DATA = os.urandom(70_000)


class Store:
    """A store under test, and a function that damages it. damage(ref, None) removes the blob."""

    def __init__(self, blobs: BlobStore, damage: Callable[[GraphRef, bytes | None], None]) -> None:
        self.blobs, self.damage = blobs, damage


@pytest.fixture(params=["memory", "file", BUCKET])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param in ("moto", "versitygw"):
        return bucket(request.getfixturevalue(request.param))
    if request.param == "memory":
        memory = MemoryBlobs()

        def damage_memory(ref: GraphRef, data: bytes | None) -> None:
            if data is None:
                del memory.stored[ref.uri]
            else:
                memory.stored[ref.uri] = data

        return Store(memory, damage_memory)
    root = tmp_path / "blobs"

    def damage_file(ref: GraphRef, data: bytes | None) -> None:
        (root / ref.uri).unlink() if data is None else (root / ref.uri).write_bytes(data)

    return Store(FileBlobs(root), damage_file)


def bucket(settings: S3Settings) -> Store:
    def damage(ref: GraphRef, data: bytes | None) -> None:
        client = connect(settings)
        named = {"Bucket": settings.bucket, "Key": settings.prefix + ref.uri}
        client.delete_object(**named) if data is None else client.put_object(**named, Body=data)

    return Store(S3Blobs(settings), damage)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "graph.zip"
    path.write_bytes(DATA)
    return path


def test_what_is_put_is_fetched(store: Store, source: Path, tmp_path: Path) -> None:
    ref = store.blobs.put("job-1", source)
    digest = hashlib.sha256(DATA).hexdigest()
    assert ref == GraphRef(f"graphs/job-1/{digest}", digest, len(DATA))
    assert store.blobs.exists(ref)
    store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == DATA


def test_an_empty_graph_is_a_graph(store: Store, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    ref = store.blobs.put("job-1", empty)
    assert store.blobs.exists(ref)
    store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b""


@pytest.mark.parametrize("size_bytes", [(5 << 20) - 1, 5 << 20, 12_000_000])
def test_a_graph_of_any_size_is_stored_whole(store: Store, tmp_path: Path, size_bytes: int) -> None:
    """Sizes around the one from which a bucket gets a blob in parts, and one of three parts."""
    data = os.urandom(1000) * (size_bytes // 1000) + b"x" * (size_bytes % 1000)
    (tmp_path / "large").write_bytes(data)
    ref = store.blobs.put("job-1", tmp_path / "large")
    assert ref == store.blobs.put("job-1", tmp_path / "large")
    assert (ref.size, ref.sha256) == (size_bytes, hashlib.sha256(data).hexdigest())
    assert store.blobs.exists(ref)
    store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data
    store.damage(ref, data[:-1] + b"?")
    assert store.blobs.put("job-1", tmp_path / "large") == ref
    store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data
    assert store.blobs.delete_all("job-1") == 1


@pytest.mark.slow
def test_a_graph_of_64_mb_is_stored_whole(store: Store, tmp_path: Path) -> None:
    block, digest = os.urandom(1 << 20), hashlib.sha256()
    with (tmp_path / "large").open("wb") as file:
        for number in range(64):
            data = number.to_bytes(8, "big") + block[8:]
            digest.update(data)
            file.write(data)
    ref = store.blobs.put("job-1", tmp_path / "large")
    assert (ref.size, ref.sha256) == (64 << 20, digest.hexdigest())
    assert store.blobs.put("job-1", tmp_path / "large") == ref
    store.blobs.fetch(ref, tmp_path / "target")
    assert filecmp.cmp(tmp_path / "large", tmp_path / "target", shallow=False)
    store.damage(ref, (tmp_path / "large").read_bytes()[:-1])
    assert not store.blobs.exists(ref)
    with pytest.raises(PermanentError, match="instead of"):
        store.blobs.fetch(ref, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert store.blobs.delete_all("job-1") == 1


def test_a_second_put_changes_nothing(store: Store, source: Path) -> None:
    assert store.blobs.put("job-1", source) == store.blobs.put("job-1", source)
    assert store.blobs.delete_all("job-1") == 1


def test_a_put_heals_a_damaged_blob(store: Store, source: Path, tmp_path: Path) -> None:
    ref = store.blobs.put("job-1", source)
    store.damage(ref, DATA[:-1] + bytes([DATA[-1] ^ 1]))
    store.blobs.put("job-1", source)
    store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == DATA


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        (DATA[:-1] + bytes([DATA[-1] ^ 1]), "SHA-256"),
        (DATA[:1000], "1000 bytes instead of 70000"),
        (b"", "0 bytes"),
        (DATA + b"more", "more than 70000"),
        (None, "missing"),
    ],
    ids=["corrupted", "truncated", "empty", "longer", "missing"],
)
def test_a_bad_blob_is_never_handed_out(
    store: Store, source: Path, tmp_path: Path, damaged: bytes | None, told: str
) -> None:
    ref = store.blobs.put("job-1", source)
    store.damage(ref, damaged)
    with pytest.raises(PermanentError, match=told):
        store.blobs.fetch(ref, tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("graph.zip", "blobs")] == []


def test_a_failed_fetch_leaves_what_was_at_the_target(store: Store, source: Path, tmp_path: Path) -> None:
    ref = store.blobs.put("job-1", source)
    store.damage(ref, b"bad")
    (tmp_path / "target").write_bytes(b"other")
    with pytest.raises(PermanentError):
        store.blobs.fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"other"


def test_exists_tells_missing_and_truncated(store: Store, source: Path) -> None:
    ref = store.blobs.put("job-1", source)
    assert not store.blobs.exists(replace(ref, size=ref.size + 1))
    store.damage(ref, None)
    assert not store.blobs.exists(ref)


def test_delete_all_deletes_the_job_and_nothing_else(store: Store, source: Path, tmp_path: Path) -> None:
    other_graph = tmp_path / "other"
    other_graph.write_bytes(b"other")
    refs = [store.blobs.put("job", source), store.blobs.put("job", other_graph)]
    neighbour = store.blobs.put("job-1", source)
    assert store.blobs.delete_all("job") == 2
    assert store.blobs.delete_all("job") == 0
    assert store.blobs.delete_all("never-seen") == 0
    assert not any(store.blobs.exists(ref) for ref in refs)
    assert store.blobs.exists(neighbour)


@pytest.mark.parametrize("job_id", ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "x" * 129, "ä"])
def test_no_job_id_leads_out_of_the_store(store: Store, source: Path, job_id: str) -> None:
    with pytest.raises(UsageError):
        store.blobs.put(job_id, source)
    with pytest.raises(UsageError):
        store.blobs.delete_all(job_id)


@pytest.mark.parametrize(
    "uri",
    [
        "", "graphs/job-1", "graphs/../{digest}", "graphs/./{digest}", "graphs/job-1/../../{digest}", "/etc/passwd",
        "graphs/job-1/{digest}/", "blobs/job-1/{digest}", "file:///graphs/job-1/{digest}", "graphs/job-1/{other}",
        "graphs/job-1/..",
    ],
)  # fmt: skip
def test_no_uri_leads_out_of_the_store(store: Store, source: Path, tmp_path: Path, uri: str) -> None:
    ref = store.blobs.put("job-1", source)
    bad = replace(ref, uri=uri.format(digest=ref.sha256, other="0" * 64))
    with pytest.raises(PermanentError):
        store.blobs.fetch(bad, tmp_path / "target")
    with pytest.raises(PermanentError):
        store.blobs.exists(bad)


def test_a_digest_that_is_a_path_is_none(store: Store, source: Path, tmp_path: Path) -> None:
    store.blobs.put("job-1", source)
    with pytest.raises(PermanentError):
        store.blobs.fetch(GraphRef("graphs/job-1/..", "..", 1), tmp_path / "target")


def test_putting_what_is_not_there_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        store.blobs.put("job-1", tmp_path / "nowhere")


# -- listings ----------------------------------------------------------------------------------------------------------


def test_the_listing_holds_everything_with_its_size_and_age(store: Store, source: Path, tmp_path: Path) -> None:
    other_graph = tmp_path / "other"
    other_graph.write_bytes(b"other")
    refs = [store.blobs.put("job-1", source), store.blobs.put("job-1", other_graph), store.blobs.put("job-2", source)]
    listed = store.blobs.listing()
    assert sorted((blob.uri, blob.size, blob.unfinished) for blob in listed) == sorted((r.uri, r.size, "") for r in refs)
    assert {(blob.job_id, blob.sha256) for blob in listed} == {(r.uri.split("/")[1], r.sha256) for r in refs}
    assert all(0 <= blob.age_s < 300 for blob in listed)
    store.blobs.delete_all("job-1")
    assert [blob.job_id for blob in store.blobs.listing()] == ["job-2"]


def test_one_is_deleted_as_it_was_listed_and_no_other(store: Store, source: Path, tmp_path: Path) -> None:
    other_graph = tmp_path / "other"
    other_graph.write_bytes(b"other")
    ref, beside, neighbour = (
        store.blobs.put("job-1", source), store.blobs.put("job-1", other_graph), store.blobs.put("job-2", source),
    )  # fmt: skip
    (blob,) = [blob for blob in store.blobs.listing() if blob.uri == ref.uri]
    before = blob._replace(put_at=blob.put_at - 5.0)
    assert not store.blobs.delete(before) and store.blobs.exists(ref), "the blob was put again since"
    assert store.blobs.delete(blob) and not store.blobs.exists(ref)
    assert store.blobs.delete(blob) and store.blobs.delete(before), "a blob that is gone already counts as deleted"
    assert store.blobs.exists(beside) and store.blobs.exists(neighbour)
    assert store.blobs.put("job-1", source) == ref and store.blobs.exists(ref)


@pytest.mark.parametrize(
    ("job_id", "sha256"), [("..", "0" * 64), ("a/b", "0" * 64), ("job-1", "../x"), ("job-1", ""), ("job-1", "..")]
)
def test_only_what_can_be_a_blob_is_deleted(store: Store, source: Path, job_id: str, sha256: str) -> None:
    ref = store.blobs.put("job-1", source)
    with pytest.raises(UsageError):
        store.blobs.delete(StoredBlob(job_id, sha256, 1, 1e9, 0.0))
    assert store.blobs.exists(ref)


# -- the folder --------------------------------------------------------------------------------------------------------


def test_concurrent_puts_of_one_graph_agree(tmp_path: Path, source: Path) -> None:
    blobs, refs, failed = FileBlobs(tmp_path / "blobs"), [], []

    def put() -> None:
        try:
            refs.extend(blobs.put("job-1", source) for _ in range(5))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(refs) == 40
    assert len(set(refs)) == 1
    assert [path.name for path in (tmp_path / "blobs/graphs/job-1").iterdir()] == [refs[0].sha256]


@pytest.mark.parametrize(("deletes", "stored"), [(1, True), (3, True), (1000, False)])
def test_a_put_survives_a_delete_beside_it(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, deletes: int, stored: bool
) -> None:
    """The job is deleted just before the blob gets its name. The retries are bounded."""
    blobs, link, left = FileBlobs(tmp_path / "blobs"), os.link, iter(range(deletes))

    def delete_first(*paths: Path) -> None:
        if next(left, None) is not None:
            blobs.delete_all("job-1")
        link(*paths)

    monkeypatch.setattr(os, "link", delete_first)
    if stored:
        assert blobs.exists(blobs.put("job-1", source))
    else:
        with pytest.raises(Unreachable, match="again and again"):
            blobs.put("job-1", source)


def test_the_store_can_be_moved(tmp_path: Path, source: Path) -> None:
    ref = FileBlobs(tmp_path / "here").put("job-1", source)
    (tmp_path / "here").rename(tmp_path / "there")
    FileBlobs(tmp_path / "there").fetch(ref, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == DATA


def test_a_disk_that_is_not_mounted_is_no_missing_graph(tmp_path: Path, source: Path) -> None:
    """A job must wait for its disk, and must not be abandoned."""
    blobs = FileBlobs(tmp_path / "disk")
    ref = blobs.put("job-1", source)
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    (tmp_path / "disk").mkdir()
    with pytest.raises(Unreachable):
        blobs.fetch(ref, tmp_path / "target")
    with pytest.raises(Unreachable):
        blobs.exists(ref)
    with pytest.raises(Unreachable):
        blobs.listing()


def test_a_put_of_what_is_there_makes_it_young_again(tmp_path: Path, source: Path) -> None:
    """Otherwise it would be collected before the spec that refers to it is in the log."""
    blobs = FileBlobs(tmp_path / "blobs")
    ref = blobs.put("job-1", source)
    os.utime(tmp_path / "blobs" / ref.uri, (1e9, 1e9))
    (blob,) = blobs.listing()
    assert blob.age_s > 1e8
    blobs.put("job-1", source)
    assert not blobs.delete(blob) and blobs.exists(ref)
    assert blobs.listing()[0].age_s < 3600.0


def test_what_is_not_ours_is_not_listed(tmp_path: Path, source: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    ref = blobs.put("job-1", source)
    graphs = tmp_path / "blobs/graphs"
    (graphs / "lost+found").mkdir()
    (graphs / "lost+found" / ref.sha256).write_bytes(b"")
    (graphs / "README").write_bytes(b"")
    (graphs / "job-1/notes.txt").write_bytes(b"")
    assert [blob.uri for blob in blobs.listing()] == [ref.uri]


def test_what_a_killed_put_left_is_listed_and_can_be_deleted(tmp_path: Path, source: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    ref = blobs.put("job-1", source)
    (tmp_path / "blobs/graphs/job-1/.put-abc").write_bytes(b"half")
    (left,) = [blob for blob in blobs.listing() if blob.unfinished]
    assert (left.uri, left.size, left.sha256) == ("graphs/job-1/.put-abc", 4, "")
    assert blobs.delete(left) and [blob.uri for blob in blobs.listing()] == [ref.uri]
    with pytest.raises(UsageError):
        blobs.delete(left._replace(unfinished=".put-/../x"))


def test_a_disk_that_fails_is_no_damaged_graph(tmp_path: Path, source: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    ref = blobs.put("job-1", source)
    with pytest.raises(Unreachable):
        blobs.fetch(ref, tmp_path / "no such folder" / "target")


def test_leftovers_of_a_crash_are_no_blobs_and_go_with_the_job(tmp_path: Path, source: Path) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.put("job-1", source)
    (tmp_path / "blobs/graphs/job-1/.put-abc").write_bytes(b"half")
    assert blobs.delete_all("job-1") == 1
    assert not (tmp_path / "blobs/graphs/job-1").exists()


def test_a_store_in_memory_that_is_down_says_so(source: Path, tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    ref = blobs.put("job-1", source)
    (blob,) = blobs.listing()
    blobs.up = False
    for ask in (
        lambda: blobs.put("job-1", source), lambda: blobs.fetch(ref, tmp_path / "t"),
        lambda: blobs.exists(ref), lambda: blobs.delete_all("job-1"), blobs.listing, lambda: blobs.delete(blob),
    ):  # fmt: skip
        with pytest.raises(Unreachable):
            ask()


# -- atomic files ------------------------------------------------------------------------------------------------------


def test_an_atomic_write_leaves_the_old_file_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomic(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

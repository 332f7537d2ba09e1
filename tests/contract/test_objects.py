"""The contract of `archive.objects.ObjectStore`: memory, a folder, a zip, a bucket of a real server (moto without Go)."""

from __future__ import annotations

import os
import shutil
import threading
import zipfile
from pathlib import Path

import pytest

from ledger.adapters.local import objects
from ledger.adapters.local.objects import MARKER, FolderObjects
from ledger.adapters.local.zipped import ZipObjects
from ledger.adapters.memory.objects import MemoryObjects
from ledger.adapters.s3.objects import S3Objects
from ledger.adapters.s3.settings import S3Settings
from ledger.archive.format import objects as archive_objects
from ledger.archive.format.objects import ObjectStore, Unfit
from ledger.errors import Unreachable, UsageError
from tests.support.s3 import BUCKET


@pytest.fixture(params=["memory", "folder", "zip", BUCKET])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param in ("moto", "versitygw"):
        return S3Objects(request.getfixturevalue(request.param))
    if request.param == "zip":
        made = ZipObjects(tmp_path / "archive.zip", new=True)
        request.addfinalizer(made.close)
        return made
    return MemoryObjects() if request.param == "memory" else FolderObjects(tmp_path / "archive")


def test_what_is_created_is_read(store: ObjectStore) -> None:
    assert store.create("a/b/one.bin", b"\x00 one")
    assert store.create("empty", b"")
    assert store.read("a/b/one.bin") == b"\x00 one"
    assert store.read("empty") == b""


def test_what_is_there_is_never_changed(store: ObjectStore) -> None:
    assert store.create("one", b"first")
    assert not store.create("one", b"second")
    assert not store.create("one", b"first")
    assert store.read("one") == b"first"


def test_what_is_deleted_is_gone_and_its_name_is_free(store: ObjectStore) -> None:
    store.create("a/one", b"1")
    store.create("a/two", b"2")
    if isinstance(store, ZipObjects):
        with pytest.raises(UsageError, match="never changed"):
            store.delete("a/one")
        return
    for _ in range(2):
        store.delete("a/one")
    store.delete("a")
    store.delete("never/there")
    assert (store.read("a/one"), store.read("a/two"), store.names("")) == (None, b"2", ["a/two"])
    assert store.create("a/one", b"again")
    assert store.read("a/one") == b"again"


def test_what_is_not_there_is_none(store: ObjectStore) -> None:
    store.create("a/b", b"")
    assert store.read("other") is None
    assert store.read("a") is None
    assert store.read("a/b/c") is None


def test_names_are_listed_in_order_below_a_prefix(store: ObjectStore) -> None:
    for name in ("t/10", "t/9", "t/a/1", "tt/1", "u"):
        assert store.create(name, b"x")
    assert store.names("t/") == ["t/10", "t/9", "t/a/1"]
    assert store.names("t/a/") == ["t/a/1"]
    assert store.names("v/") == []
    assert store.names("") == ["t/10", "t/9", "t/a/1", "tt/1", "u"]


def test_a_thousand_names_and_more_are_listed(store: ObjectStore) -> None:
    """More than one page of an S3 listing."""
    wanted = [f"many/{number:04}" for number in range(1005)]
    for name in wanted:
        store.create(name, b"")
    assert store.names("many/") == wanted


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "a/../b", ".hidden", "a/.b", "a b", "a\n", "é", "x" * 251])
def test_what_is_no_name_is_refused(store: ObjectStore, name: str) -> None:
    for call in (lambda: store.create(name, b""), lambda: store.read(name), lambda: store.delete(name)):
        with pytest.raises(UsageError, match="Not the name"):
            call()
    assert store.names("") == []


def test_a_prefix_ends_with_a_slash(store: ObjectStore) -> None:
    for prefix in ("a", "/", "../"):
        with pytest.raises(UsageError, match="Not"):
            store.names(prefix)


def test_of_many_at_once_one_creates(store: ObjectStore) -> None:
    begin, told = threading.Barrier(8), []

    def create(number: int) -> None:
        begin.wait()
        try:
            if store.create("wanted", b"%d" % number):
                told.append(number)
        except Unreachable:  # a store may report another request in progress; a repeated call learns who won
            assert not store.create("wanted", b"%d" % number) or told.append(number) is None

    threads = [threading.Thread(target=create, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [b"%d" % number for number in told] == [store.read("wanted")]


def test_a_folder_that_is_not_mounted_is_no_empty_archive(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path / "archive")
    store.create("one", b"1")
    (tmp_path / "archive" / MARKER).unlink()
    calls = (lambda: store.create("two", b""), lambda: store.read("two"), lambda: store.names(""))
    for call in (*calls, lambda: store.delete("one")):
        with pytest.raises(Unreachable, match="is not there"):
            call()


def test_who_only_reads_makes_no_folder_and_one_that_has_gone_is_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "disk" / "archive"
    store = FolderObjects(root)
    assert (store.read("one"), store.names("")) == (None, [])
    store.delete("one")
    assert not root.exists()
    assert store.create("one", b"1") and FolderObjects(root).names("") == ["one"]
    shutil.rmtree(root)
    for call in (lambda: store.create("two", b""), lambda: store.read("one"), lambda: store.names("")):
        with pytest.raises(Unreachable, match="is not there"):
            call()
    assert not root.exists()


def test_who_comes_second_to_make_a_folder_finds_that_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "archive"

    def meanwhile() -> int:  # called after the folder was looked for, and before it is made
        root.mkdir(exist_ok=True)
        (root / MARKER).touch()
        return 1

    store = FolderObjects(root)
    monkeypatch.setattr(objects.os, "getpid", meanwhile)
    assert store.create("one", b"1") and store.names("") == ["one"]
    assert os.listdir(tmp_path) == ["archive"]


FOREIGN = ("a/copy of one", "a/one~", "a/é", "a/" + "/".join("b" * 11))


def test_what_somebody_else_put_into_a_folder_under_a_name_that_is_none_is_no_object(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path / "archive")
    store.create("a/one", b"1")
    for name in FOREIGN:
        path = tmp_path / "archive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    assert store.names("a/") == store.names("") == ["a/one"]


def test_nor_is_it_one_in_a_bucket_a_zip_or_in_memory(moto: S3Settings, tmp_path: Path) -> None:
    bucket, names = S3Objects(moto), (*FOREIGN, "a/", "a/.hidden")
    for name in names:
        bucket._client.put_object(Bucket=moto.bucket, Key=moto.prefix + name, Body=b"x")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for name in names:
            made.writestr(name, b"x")
    memory = MemoryObjects()
    memory.stored.update(dict.fromkeys(names, b"x"))
    assert bucket.names("a/") == ZipObjects(tmp_path / "a.zip").names("a/") == memory.names("a/") == []


def test_what_a_crash_leaves_in_a_folder_is_no_object(tmp_path: Path) -> None:
    store = FolderObjects(tmp_path / "archive")
    store.create("a/one", b"1")
    (tmp_path / "archive" / "a" / ".create-xyz").write_bytes(b"half")
    assert store.names("") == ["a/one"]


def test_the_size_of_an_object_is_told_and_its_age_where_the_store_knows_it(store: ObjectStore) -> None:
    store.create("a/one", b"123")
    assert store.stat("a/other") is None and store.stat("a") is None
    found = store.stat("a/one")
    assert found is not None and found.bytes == 3
    if isinstance(store, FolderObjects | S3Objects):
        assert found.age_s is not None and found.age_s < 600
    else:
        assert found.age_s is None


def test_what_is_larger_than_any_of_ours_is_not_read(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create("manifests/x/0/1.json", b"1234")
    assert store.read("manifests/x/0/1.json") == b"1234"
    monkeypatch.setitem(archive_objects._BYTES_MAX_OF, "manifests/", 3)
    with pytest.raises(Unfit, match=r"4 bytes, and none of ours has more than 3"):
        store.read("manifests/x/0/1.json")


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_fifo_or_a_device_in_the_folder_is_refused_and_nobody_waits(tmp_path: Path, kind: str) -> None:
    store = FolderObjects(tmp_path / "archive")
    store.create("a/one", b"")
    if kind == "fifo":
        os.mkfifo(tmp_path / "archive" / "a" / "odd")
    else:
        (tmp_path / "archive" / "a" / "odd").symlink_to("/dev/zero")
    with pytest.raises(Unfit, match="is not read"):
        store.read("a/odd")
    assert store.stat("a/odd") is None and store.names("a/") == ["a/one"]
    assert not store.create("a/odd", b"x")

"""Files that are either complete or absent."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess.supervisor import files

pytestmark = pytest.mark.slow


def test_of_many_that_create_a_file_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert files.create_once(str(path), b"first")
    assert not files.create_once(str(path), b"second")
    assert not files.create_once(str(path), b"")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_who_reads_while_a_file_is_replaced_reads_one_or_the_other(tmp_path: Path) -> None:
    path, stop, seen = tmp_path / "x", threading.Event(), set()
    contents = [files.to_json({"x": letter * 100_000}) for letter in "ab"]
    files.write_durably(str(path), contents[0])

    def replace() -> None:
        while not stop.is_set():
            for content in contents:
                files.write_durably(str(path), content)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(200):
            seen.add(path.read_bytes())
    finally:
        stop.set()
        thread.join(20)
    assert seen <= set(contents)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"\xff"])
def test_what_is_no_json_object_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError):
        files.read_json(str(tmp_path / "x"))
    assert files.read_json(str(tmp_path / "y")) is None


def test_numbered_files_come_in_order_and_others_not_at_all(tmp_path: Path) -> None:
    for name in ("10.json", "9.json", "x.json", "7.json.tmp", "8.txt", "-1.json", "٣.json"):
        (tmp_path / name).touch()
    assert [number for number, _ in files.numbered(str(tmp_path))] == [9, 10]
    assert files.numbered(str(tmp_path / "none")) == []

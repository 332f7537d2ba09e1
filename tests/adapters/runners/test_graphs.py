"""Job graphs: the same input gives the same blob, and unpacking a hostile blob does no harm."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from ledger.adapters.runners.subprocess import graph, unpacking
from ledger.errors import PermanentError, UsageError
from tests.support.host import Host

pytestmark = pytest.mark.slow

MANIFEST = json.dumps({"version": 1, "command": ["true"], "environment": {}, "memory_bytes": None}).encode()


def packed(folder: Path, *arguments: object, **limits: object) -> bytes:
    blob = graph.pack(*arguments, folder=folder, **limits)  # type: ignore[arg-type]
    try:
        return blob.read_bytes()
    finally:
        blob.unlink()


def tar(*members: tuple[tarfile.TarInfo, bytes], manifest: bytes | None = MANIFEST) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        first = [] if manifest is None else [(member(unpacking.MANIFEST, len(manifest)), manifest)]
        for info, data in [*first, *members]:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, target
    return info


def test_what_is_packed_is_what_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "app" / "lib").mkdir(parents=True)
    (tmp_path / "app" / "lib" / "x.py").write_text("x = 1")
    (tmp_path / "run.sh").write_text("exit 0")
    (tmp_path / "run.sh").chmod(0o700)
    blob = graph.pack(
        ["./run.sh", "--flag", "ä"], [tmp_path / "run.sh", tmp_path / "app"], {"A": "b=c"}, 1 << 30, 3.5, tmp_path
    )
    found = graph.unpack(blob, tmp_path / "out")
    assert found == graph.Graph(("./run.sh", "--flag", "ä"), {"A": "b=c"}, 1 << 30, 3.5)
    assert (tmp_path / "out" / "app" / "lib" / "x.py").read_text() == "x = 1"
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    assert not (tmp_path / "out" / "app" / "lib" / "x.py").stat().st_mode & 0o111


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).write_text(name)
    files = [tmp_path / name for name in ("b", "a", "c")]
    first = packed(tmp_path, ["true"], files, {"x": "1", "a": "2"})
    for path in files:
        os.utime(path, (1, time.time()))
    assert packed(tmp_path, ["true"], files[::-1], {"a": "2", "x": "1"}) == first
    (tmp_path / "a").write_text("A")
    assert packed(tmp_path, ["true"], files, {"x": "1", "a": "2"}) != first


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([],), "no command"),
        (([""],), "no command"),
        ((["a\0b"],), "zero byte"),
        ((["a"], [], {"A=B": "c"}), "can't be set"),
        ((["a"], [], {"": "c"}), "can't be set"),
        ((["a"], [], {}, 1000), "memory limit"),
        ((["a"], [], {}, None, -1.0), "stop_grace_s"),
        ((["a"], [], {}, None, float("nan")), "stop_grace_s"),
        ((["a"], [Path("/no/such/file")]), "there is no file or folder /no/such/file"),
        ((["a"], [Path("/dev/zero")]), "not a regular file"),
    ],
)
def test_what_cant_be_started_cant_be_packed(tmp_path: Path, arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        packed(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_what_an_agent_would_refuse_to_unpack_cant_be_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"command and environment take \d+ bytes, more than 1048576") as told:
        packed(tmp_path, ["a"], [], {"A": "x" * (1 << 20)})
    assert "--graph" in told.value.hint
    for at in ("MEMBERS_MAX", "NAME_BYTES_MAX"):
        monkeypatch.setattr(graph, at, 2)
        files = [tmp_path / "ab", tmp_path / "abc"]
        for path in files:
            path.touch()
        with pytest.raises(UsageError, match="2 files, more than 1" if at == "MEMBERS_MAX" else "abc.* more than 2 bytes"):
            packed(tmp_path, ["a"], files)
        monkeypatch.undo()


@pytest.mark.timeout(20)
def test_a_pipe_in_a_folder_is_refused_and_nobody_waits_for_its_writer(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(UsageError, match="code/pipe is not a regular file"):
        packed(tmp_path, ["a"], [folder])
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_to_a_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "lib").symlink_to("/usr")
    with pytest.raises(UsageError, match="code/lib is a symbolic link to a folder") as told:
        packed(tmp_path, ["a"], [folder])
    assert "--graph" in told.value.hint and list(tmp_path.iterdir()) == [folder]


def test_an_interrupted_packing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(graph, "_add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        packed(tmp_path, ["a"])
    assert list(tmp_path.iterdir()) == []


def test_two_files_of_one_name_cant_be_packed(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f").touch()
    with pytest.raises(UsageError, match="two files would be called f"):
        packed(tmp_path, ["true"], [tmp_path / "x" / "f", tmp_path / "y" / "f"])


HOSTILE = {
    "up": tar((member("../evil"), b"")),
    "up from within": tar((member("a/../../evil"), b"")),
    "symbolic link": tar((member("a", kind=tarfile.SYMTYPE, target="/tmp"), b"")),
    "through a link": tar((member("a", kind=tarfile.SYMTYPE, target=".."), b""), (member("a/evil"), b"")),
    "link to a member": tar((member("a", 1), b"1"), (member("b", kind=tarfile.SYMTYPE, target="a"), b"")),
    "hard link to a member": tar((member("a", 1), b"1"), (member("b", kind=tarfile.LNKTYPE, target="a"), b"")),
    "hard link": tar((member("a", kind=tarfile.LNKTYPE, target="/etc/passwd"), b"")),
    "device": tar((member("a", kind=tarfile.CHRTYPE), b"")),
    "pipe": tar((member("a", kind=tarfile.FIFOTYPE), b"")),
    "twice": tar((member("a", 1), b"1"), (member("a", 1), b"2")),
    "a file as a folder": tar((member("a", 1), b"1"), (member("a/b", 1), b"2")),
    "the folder itself": tar((member(".", kind=tarfile.DIRTYPE), b"")),
    "endless name": tar((member("x" * 2000), b"")),
    "no manifest": tar(manifest=None),
    "empty": b"",
    "no archive": b"\x00\xff" * 5000,
    "cut short": tar((member("a", 5000), b"x" * 5000))[:3000],
    "compressed": b"\x1f\x8b" + tar(),
    "manifest no JSON": tar(manifest=b"{"),
    "manifest of a later version": tar(manifest=b'{"version": 2}'),
    "manifest a list": tar(manifest=b"[]"),
    "manifest absurdly deep": tar(manifest=b"[" * 200_000),
    "manifest too large": tar(manifest=b" " * (2 << 20) + MANIFEST),
    "command a text": tar(manifest=MANIFEST.replace(b'["true"]', b'"true"')),
    "command of numbers": tar(manifest=MANIFEST.replace(b'["true"]', b"[1]")),
    "no command": tar(manifest=MANIFEST.replace(b'["true"]', b"[]")),
    "memory a text": tar(manifest=MANIFEST.replace(b"null", b'"all"')),
    "grace for ever": tar(manifest=MANIFEST[:-1] + b', "stop_grace_s": 1e9}'),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_graph_is_refused_and_writes_nothing_outside(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "blob").write_bytes(data)
    with pytest.raises(PermanentError, match="can't be read"):
        graph.unpack(tmp_path / "inner" / "blob", tmp_path / "inner" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["inner"]
    assert {path.name for path in (tmp_path / "inner").iterdir()} <= {"blob", "out"}


def test_an_absolute_path_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(tar((member(str(tmp_path / "evil")), b"")))
    with pytest.raises(PermanentError, match="leads out of the folder"):
        graph.unpack(tmp_path / "blob", tmp_path / "out")
    assert not (tmp_path / "evil").exists()


def test_an_archive_that_claims_more_than_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "BYTES_MAX", 10_000)
    monkeypatch.setattr(unpacking, "MEMBERS_MAX", 3)
    (tmp_path / "blob").write_bytes(tar((member("a", 20_000), b"x" * 20_000)))
    with pytest.raises(unpacking.Hostile, match="more than 10000 bytes"):
        unpacking.unpack(tmp_path / "blob", tmp_path / "out")
    (tmp_path / "blob").write_bytes(tar(*((member(str(i)), b"") for i in range(3))))
    with pytest.raises(unpacking.Hostile, match="more than 3 members"):
        unpacking.unpack(tmp_path / "blob", tmp_path / "out2")


def test_sizes_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    """A header may claim any size: no memory and no disk is used for it."""
    huge = member("a", 1 << 50)
    blob = io.BytesIO()
    blob.write(tar()[: 512 + 512])  # the manifest, without the end of the archive
    blob.write(huge.tobuf(tarfile.GNU_FORMAT))
    blob.write(b"\0" * 1024)
    (tmp_path / "blob").write_bytes(blob.getvalue())
    with pytest.raises(PermanentError, match="more than"):
        graph.unpack(tmp_path / "blob", tmp_path / "out")
    assert not (tmp_path / "out" / "a").exists()


def test_an_unpacking_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text("import time\nwhile True: time.sleep(1)")
    monkeypatch.setattr(unpacking, "__file__", str(endless))
    with pytest.raises(PermanentError, match=r"could not be unpacked within 0\.3 s"):  # without the limit it would hang
        graph.unpack(tmp_path / "blob", tmp_path / "out", timeout_s=0.3)


def test_a_hostile_graph_starts_nothing_and_can_be_replaced(host: Host) -> None:
    host.start_agent()
    blob = host.root / "blob"
    blob.write_bytes(HOSTILE["up"])
    with pytest.raises(PermanentError, match="leads out of the folder"):
        host.runner.start("job-1", 1, host.blobs.put("job-1", blob), None, {})
    assert host.runner.observe() == []
    assert host.start("job-1") > 0


def test_a_graph_that_is_missing_or_damaged_starts_nothing(host: Host) -> None:
    host.start_agent()
    reference = host.graph("job-1")
    stored = host.root / "blobs" / reference.uri
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    with pytest.raises(PermanentError):
        host.runner.start("job-1", 1, reference, None, {})
    stored.unlink()
    with pytest.raises(PermanentError):
        host.runner.start("job-1", 1, reference, None, {})
    assert host.runner.observe() == []
